"""Nodes whose relays are connected, with ranks or without."""

from dataclasses import dataclass

from perseus_dist.messages.finding import Finding
from perseus_dist.planner.access.auth import Caller

MAX_NODES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedNode:
    """As its relay says.

    Attributes:
        host: Its name.
        findings: Troubles of its clock control, as the relay's user sees them.
        relay: Who connects. Anybody may call a node anything, so that nothing is decided by it.
    """

    host: str
    findings: tuple[Finding, ...]
    relay: Caller


class ConnectedNodes:
    """By the number of the relay's stream."""

    def __init__(self) -> None:
        self._nodes: dict[int, ConnectedNode] = {}

    def put(self, stream: int, node: ConnectedNode) -> bool:
        """A relay says which node it is on; whether there is room."""
        if stream not in self._nodes and len(self._nodes) >= MAX_NODES:
            return False
        self._nodes[stream] = node
        return True

    def remove(self, stream: int) -> None:
        """A stream has ended."""
        self._nodes.pop(stream, None)

    def visible(self, caller: Caller) -> list[ConnectedNode]:
        """Those that a caller is shown: all to who may see every job, else those of the caller's own user."""
        if caller.sees_all_jobs:
            return [*self._nodes.values()]
        return [node for node in self._nodes.values() if caller.uid is not None and node.relay.uid == caller.uid]
