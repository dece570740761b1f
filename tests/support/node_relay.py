"""``perseus-dist node-relay`` as a process, and agents' links that go by way of it."""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from builders import make_rank
from waiting import wait_until

from perseus_dist.agent.link.find_planner import find_named
from perseus_dist.agent.link.link import Connected, Disconnected, LinkEvent, PlannerLink, Received, Unreachable
from perseus_dist.messages.from_agent import Attach, ScheduleText
from perseus_dist.messages.from_planner import Attached, Refused, ScheduleWanted
from perseus_dist.messages.terms import Gpu
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.rpc.connection import ClientTls


@dataclass(slots=True)
class Relay:
    """A running relay."""

    process: "subprocess.Popen[str]"
    socket: Path

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


@contextmanager
def node_relay(folder: Path, planner: str, *options: str) -> Iterator[Relay]:
    """One for a planner, its socket in a folder."""
    socket = folder / "relay" / "relay.sock"
    command = [sys.executable, "-m", "perseus_dist", "node-relay", "--planner", planner, "--socket", str(socket)]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    with process:
        try:
            was = socket.stat().st_ino if socket.exists() else None
            wait_until(
                lambda: process.poll() is not None or (socket.exists() and socket.stat().st_ino != was),
            )
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            yield Relay(process, socket)
        finally:
            process.kill()


def num_connections(pid: int, port: int) -> int:
    """Established TCP connections of a process to a port."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
        except FileNotFoundError:
            continue
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return sum(line[2].endswith(f":{port:04X}") and line[3] == "01" and line[9] in inodes for line in lines)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


class RelayedRank:
    """A rank's link to the planner with as much of an agent behind it as the planner needs.

    Attributes:
        events: All that the link has said.
    """

    def __init__(
        self, job_id: str, rank: int, planner: str, relay: Path | None, *, token_file: Path | None = None, size: int = 2
    ) -> None:
        self._schedule = one_f_one_b(pp=size, microbatches=2)
        self.rank = make_rank(
            schedule_digest=self._schedule.digest(), job_id=job_id, rank=rank, pp_rank=rank, pp_size=size
        )
        self.events: list[LinkEvent] = []
        self._lock = threading.Lock()
        find = find_named(planner, None if token_file is None else str(token_file))
        self.link = PlannerLink(find, self.tls(), self._take, relay=None if relay is None else str(relay))

    def tls(self) -> ClientTls | None:
        return None

    def _take(self, event: LinkEvent) -> None:
        with self._lock:
            self.events.append(event)
        if isinstance(event, Connected):
            self.link.send(
                Attach(
                    rank=self.rank,
                    gpu=Gpu(uuid="GPU-1", name="A100", driver_version="0", clocks_mhz=(1410, 1395), control="clockd"),
                    incarnation=7 + self.rank.rank,
                    iteration=-1,
                    table_revision=0,
                )
            )
        elif isinstance(event, Received) and isinstance(event.message, ScheduleWanted):
            self.link.send(ScheduleText(text=format_schedule(self._schedule)))

    def __enter__(self) -> Self:
        self.link.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.link.leave()
        self.link.join(10)
        assert not self.link.is_alive()
        self.link._loop.close()  # an agent's process ends instead

    @property
    def num_attached(self) -> int:
        return sum(isinstance(event, Received) and isinstance(event.message, Attached) for event in self.events)

    @property
    def is_attached(self) -> bool:
        for event in reversed(list(self.events)):
            if isinstance(event, Disconnected):
                return False
            if isinstance(event, Received) and isinstance(event.message, Attached):
                return True
        return False

    @property
    def refusals(self) -> list[str]:
        messages = [event.message for event in self.events if isinstance(event, Received)]
        return [message.reason for message in messages if isinstance(message, Refused)]

    @property
    def troubles(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, Unreachable)]


logging.getLogger("perseus_dist.agent.link.link").setLevel(logging.INFO)
