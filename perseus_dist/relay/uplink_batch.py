"""When frames of a node's agents go to the planner: telemetry of all of them together, anything else at once. Pure.

Telemetry goes at beats that all nodes share by their wall clocks. A planner that wakes up for the messages of a hundred
nodes spends half as much on each as one that wakes up for each of them.
"""

import math
from collections.abc import Iterator

from perseus_dist.rpc.limits import MAX_AGENT_MESSAGE_BYTES, MAX_FRAMING_BYTES, MAX_NODE_FRAMES
from perseus_dist.rpc.node_wire import Closed, NodeFrame, Opened

PERIOD_S = 1.0
"""Telemetry waits so long at most: as long as it takes until each agent has reported once."""

BEAT_S = 0.1
"""Telemetry goes at multiples of this by the wall clock. A clock that is wrong makes the planner wake up more often."""

MAX_MESSAGE_BYTES = MAX_AGENT_MESSAGE_BYTES - MAX_FRAMING_BYTES
"""Of an agent's message; a longer one does not fit into a node message."""

_TELEMETRY = 0x22  # field 4 of AgentMessage, length-delimited
_FRAME_BYTES = 16  # around a message


class UplinkBatch:
    """Frames that wait, in order.

    Args:
        wall_s: [s] from the monotonic clock to the wall clock.

    Attributes:
        num_bytes: Of the messages that wait.
    """

    def __init__(self, wall_s: float = 0.0) -> None:
        self._wall_s = wall_s
        self._frames: list[NodeFrame] = []
        self._open: set[int] = set()
        self._reported: set[int] = set()  # channels of which telemetry waits
        self._due_s: float | None = None
        self.num_bytes = 0

    def add(self, channel: int, frame: Opened | bytes | Closed, now_s: float) -> None:
        """Put a frame behind those that wait; ``now_s`` is [s] monotonic."""
        if isinstance(frame, Opened):
            self._open.add(channel)
        elif isinstance(frame, Closed):
            self._open.discard(channel)
        self._frames.append((channel, frame))
        self.num_bytes += len(frame) if isinstance(frame, bytes) else 0
        due_s = now_s
        if isinstance(frame, bytes) and frame[:1] == bytes((_TELEMETRY,)):
            self._reported.add(channel)
            due_s = self._beat_s(now_s if self._reported >= self._open else now_s + PERIOD_S - BEAT_S)
        self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)

    def _beat_s(self, after_s: float) -> float:
        """[s] monotonic, the first beat then or later."""
        return math.ceil((after_s + self._wall_s) / BEAT_S) * BEAT_S - self._wall_s

    @property
    def due_s(self) -> float | None:
        """[s] monotonic, when to take what waits; None while nothing does."""
        return self._due_s

    def take(self) -> Iterator[list[NodeFrame]]:
        """All that waits, in parts that each fit into a message."""
        frames, self._frames, self._due_s, self.num_bytes = self._frames, [], None, 0
        self._reported = set()
        return _parts(frames)


def _parts(frames: list[NodeFrame]) -> Iterator[list[NodeFrame]]:
    part: list[NodeFrame] = []
    num_bytes = 0
    for channel, frame in frames:
        size = _FRAME_BYTES
        size += len(frame) if isinstance(frame, bytes) else len(frame.token) if isinstance(frame, Opened) else 0
        if part and (num_bytes + size > MAX_MESSAGE_BYTES or len(part) == MAX_NODE_FRAMES):
            yield part
            part, num_bytes = [], 0
        part.append((channel, frame))
        num_bytes += size
    if part:
        yield part
