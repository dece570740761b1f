"""Device-ordered boundaries against the device's own events: the same durations, nothing seen early, nothing lost."""

import os
import time
from dataclasses import dataclass
from typing import Any

from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.record import Event
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.measure.bench.workload import Workload
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.estimates import Quantiles

_NUM_ITERATIONS = 12
_NUM_MICROBATCHES = 4
_POLL_S = 0.0005
_PATIENCE_S = 5.0
_EVENTS_RIGHT_TO_US = 50.0  # against the host's clock

_Instruction = tuple[int, int]  # iteration, microbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryCheck:
    """Results of the check.

    Attributes:
        num_instructions: That ran.
        num_timed: Whose exact times came back through the boundaries, an iteration later.
        difference_us: [us] of durations by boundaries from those by events, absolute.
        lag_us: [us] from an instruction's end on the device until it was seen by a reader that looks every 0.5 ms.
        num_early: Ends that were seen before the device was there: a boundary that lies.
        num_lost: Boundaries that never arrived.
    """

    num_instructions: int
    num_timed: int
    difference_us: Quantiles
    lag_us: Quantiles
    num_early: int
    num_lost: int


class _Seen:
    """Boundaries that a reader has taken in."""

    def __init__(self, ring: RingWriter, doorbell_fd: int) -> None:
        self.reader = BoundaryReader(ring.fd, doorbell_fd)
        self.reader.set_watched(True)
        self.end_seen_ns: dict[_Instruction, int] = {}
        self.device_ns: dict[int, int] = {}  # by sequence
        self.sequences: dict[tuple[Event, _Instruction], int] = {}

    def look(self) -> None:
        passed = self.reader.read(time.monotonic_ns())
        seen_ns = time.monotonic_ns()  # after the look, which a busy machine may hold up
        for boundary, _ in passed:
            instruction = (boundary.iteration, boundary.microbatch)
            if boundary.event is Event.TIMING:
                self.device_ns[boundary.timed_sequence] = boundary.device_ns
            elif boundary.event in (Event.BEGIN, Event.END):
                self.sequences[boundary.event, instruction] = boundary.sequence
                if boundary.event is Event.END:
                    self.end_seen_ns[instruction] = seen_ns

    def duration_ns(self, instruction: _Instruction) -> int | None:
        """By the boundaries' exact times."""
        times = [self.device_ns.get(self.sequences.get((event, instruction), 0)) for event in (Event.BEGIN, Event.END)]
        return None if times[0] is None or times[1] is None else times[1] - times[0]


def check_boundaries(workload: Workload) -> BoundaryCheck:
    """Run some iterations under a hook in device order, with events of our own around each instruction.

    Raises:
        MeasureError: Boundaries did not stay in device order.
    """
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    seen = _Seen(ring, doorbell_fd)
    hook = Hook(ring, doorbell_fd, device_stream=lambda: workload.stream)
    marks: dict[_Instruction, tuple[Any, Any]] = {}
    for iteration in range(_NUM_ITERATIONS):
        hook.iteration_begin(iteration)
        for microbatch in range(_NUM_MICROBATCHES):
            hook.begin("F", 0, microbatch)
            begin = workload.mark()
            workload.probe()
            end = workload.mark()
            hook.end("F", 0, microbatch)
            marks[iteration, microbatch] = (begin, end)
        hook.iteration_end(iteration)
        _look_until(seen, set(marks))
    in_order = seen.reader.device_ordered
    times_ns = iter(workload.times_ns([mark for pair in marks.values() for mark in pair]))
    by_events = {instruction: (next(times_ns), next(times_ns)) for instruction in marks}
    hook.close()
    if not in_order:
        raise MeasureError("boundaries did not stay in device order; the hook's warning in the log says why")
    durations = {instruction: seen.duration_ns(instruction) for instruction in marks}
    exact = {instruction: duration for instruction, duration in durations.items() if duration is not None}
    lags_us = [(seen.end_seen_ns[i] - by_events[i][1]) / 1e3 for i in marks if i in seen.end_seen_ns]
    return BoundaryCheck(
        num_instructions=len(marks),
        num_timed=len(exact),
        difference_us=Quantiles.of(
            [abs(duration - (by_events[i][1] - by_events[i][0])) / 1e3 for i, duration in exact.items()]
        ),
        lag_us=Quantiles.of(lags_us),
        num_early=sum(lag_us < -_EVENTS_RIGHT_TO_US for lag_us in lags_us),
        num_lost=seen.reader.lost,
    )


def _look_until(seen: _Seen, instructions: set[_Instruction]) -> None:
    """Read until all ends were seen, for a few seconds at most."""
    until_s = time.monotonic() + _PATIENCE_S
    while not instructions <= seen.end_seen_ns.keys() and time.monotonic() < until_s:
        time.sleep(_POLL_S)
        seen.look()
