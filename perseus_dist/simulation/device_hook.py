"""The trainer's hook in virtual time."""

from collections import deque
from typing import NamedTuple

from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import NO_MICROBATCH, Boundary, Event
from perseus_dist.simulator.stream import SimulatedStream, StreamEvent


class _Recorded(NamedTuple):
    boundary: Boundary
    event: StreamEvent


class DeviceHook:
    """What an adapter's hook would publish, with the device's own times. Never late, never lost."""

    def __init__(self, stream: SimulatedStream) -> None:
        self._stream = stream
        self._waiting: deque[_Recorded] = deque()
        self._sequence = 0
        self._iteration = -1

    def iteration_begin(self, iteration: int) -> None:
        """An iteration begins."""
        self._iteration = iteration
        self._record(Event.ITERATION_BEGIN)

    def iteration_end(self, iteration: int) -> None:  # noqa: ARG002 - as Hook has it
        """It ends."""
        self._record(Event.ITERATION_END)

    def begin(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        """An instruction begins."""
        self._record(Event.BEGIN, kind, chunk, microbatch)

    def end(self, kind: str, chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        """It ends."""
        self._record(Event.END, kind, chunk, microbatch)

    def mark(self, phase: str) -> None:
        """Something else begins."""
        self._record(Event.MARK, phase)

    @property
    def is_waiting(self) -> bool:
        """Whether the device has not reached the last boundary yet."""
        return bool(self._waiting)

    def passed(self) -> list[TimedBoundary]:
        """What the device has passed since the last call."""
        passed = []
        while self._waiting:
            time_ns = self._waiting[0].event.time_ns()
            if time_ns is None:
                break
            recorded = self._waiting.popleft()
            recorded.event.close()
            passed.append(TimedBoundary(recorded.boundary, time_ns))
        return passed

    def _record(self, event: Event, kind: str = "", chunk: int = 0, microbatch: int = NO_MICROBATCH) -> None:
        self._sequence += 1
        boundary = Boundary(self._sequence, event, kind, chunk, microbatch, self._iteration, host_ns=0)
        self._waiting.append(_Recorded(boundary, self._stream.event()))
