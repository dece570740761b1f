"""Two nodes on one machine: network namespaces with a cable between them, and simulated GPUs of their own."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from perseus_dist.simulator.machine import SimulatedMachine


def refusal() -> str:
    """Why there can be none here; empty if there can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    name = f"perseus-{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node.

    Attributes:
        name: Of its network namespace.
        address: On the cable.
        interface: The cable's end.
        machine: Its GPUs.
    """

    name: str
    address: str
    interface: str
    machine: SimulatedMachine

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command that runs there."""
        return ["ip", "netns", "exec", self.name, *command]

    def drop_answers(self, port: int) -> None:
        """A firewall that lets nothing of this port through: packets to it go unanswered."""
        _ip("-n", self.name, "rule", "add", "pref", "5", "ipproto", "tcp", "sport", str(port), "blackhole")

    def are_locked(self) -> bool:
        """Whether all its clocks are."""
        return all(not gpu.state().is_unlocked for gpu in self.machine.gpus)

    def are_unlocked(self) -> bool:
        """Whether none is."""
        return all(gpu.state().is_unlocked for gpu in self.machine.gpus)


@contextmanager
def two_nodes(*, num_gpus: int = 1) -> Iterator[tuple[Node, Node]]:
    """Make them; whatever still runs there is not ended."""
    tag, subnet = secrets.token_hex(2), secrets.randbelow(200) + 20
    with ExitStack() as stack:
        nodes = []
        for number in range(2):
            name = f"perseus-{tag}-{number}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            machine = stack.enter_context(SimulatedMachine("a100", count=num_gpus))
            address = f"10.77.{subnet}.{number + 1}"
            nodes.append(Node(name=name, address=address, interface=f"v{tag}{number}", machine=machine))
        first, second = nodes
        _ip("link", "add", first.interface, "type", "veth", "peer", "name", second.interface)
        for node in nodes:
            _ip("link", "set", node.interface, "netns", node.name)
            _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", node.interface)
            for link in (node.interface, "lo"):
                _ip("-n", node.name, "link", "set", link, "up")
        yield first, second


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
