"""A few whole iterations, instruction by instruction, with their clocks: for the report.

Kept are the last whole iterations before any clock was held, which is the baseline, and the last ones under a plan.
Where the device orders boundaries, they are seen late by the polling; the device's own times come an iteration later,
and take the place of those that were seen.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from perseus_dist.agent.core.clock_directives import ClockDirectives
from perseus_dist.agent.following.plan_view import RELEASED, Row
from perseus_dist.agent.following.position import BoundaryEffect, Position, Stamp
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.agent.measuring.held_clock import HeldClock
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.timed_iteration import TimedIteration, TimedRun

NUM_BASELINE = 3
NUM_PLANNED = 5
_INTERVAL_NS = 10_000_000_000


class _Seen(NamedTuple):
    work: Work
    begin: Stamp
    end: Stamp
    requested_mhz: int
    observed_mhz: int


@dataclass(slots=True, kw_only=True)
class _Iteration:
    row: Row
    begin: Stamp
    end: Stamp
    seen: list[_Seen] = field(default_factory=list)
    device_ns: dict[int, int] = field(default_factory=dict)  # by sequence


class Timeline:
    """Follows one rank.

    Args:
        order: Of the rank.
        position, directives, clock: The rank's, as they stand after each boundary.
    """

    def __init__(
        self, order: Sequence[Work], *, position: Position, directives: ClockDirectives, clock: HeldClock
    ) -> None:
        self._order = order
        self._position = position
        self._directives = directives
        self._clock = clock
        self._current: _Iteration | None = None
        self._baseline: deque[_Iteration] = deque(maxlen=NUM_BASELINE)
        self._planned: deque[_Iteration] = deque(maxlen=NUM_PLANNED)
        self._is_new = False
        self._told_ns = -_INTERVAL_NS
        self._told_revision = 0

    def follow(self, boundary: Boundary, happened: BoundaryEffect, time_ns: int) -> None:
        """A boundary was passed, and the position has moved by it; the clock that comes of it is not asked for yet."""
        match happened:
            case BoundaryEffect.ITERATION_BEGAN:
                begin = self._position.since
                self._current = _Iteration(row=self._directives.row(begin.iteration), begin=begin, end=begin)
            case BoundaryEffect.ENDED if self._current is not None:
                run = self._position.last_run
                assert run is not None  # one has just ended
                clocks_mhz = (self._clock.requested_mhz or 0, self._clock.observed_mhz or 0)
                self._current.seen.append(_Seen(self._order[run.place], run.begin, run.end, *clocks_mhz))
            case BoundaryEffect.ITERATION_ENDED if self._current is not None:
                self._current.end = Stamp(time_ns, boundary.sequence, self._position.iteration)
                self._keep(self._current)
                self._current = None
            case _ if boundary.event is Event.TIMING:
                self._add_device_time(boundary)

    def take(self, now_ns: int, *, is_last: bool = False) -> tuple[TimedIteration, ...]:
        """All that is kept, oldest first: when a plan has come into force, every ten seconds, and at the end.

        Empty while there is nothing new to tell.
        """
        revision = self._planned[-1].row.table_revision if self._planned else 0
        is_due = is_last or revision != self._told_revision or now_ns >= self._told_ns + _INTERVAL_NS
        if not (self._is_new and is_due):
            return ()
        self._is_new, self._told_ns, self._told_revision = False, now_ns, revision
        return tuple(_timed(iteration) for iteration in chain(self._baseline, self._planned))

    def _keep(self, iteration: _Iteration) -> None:
        """Keep an iteration that was in step to its end, and whose clocks stayed those that it began with."""
        row = iteration.row
        if not self._position.in_step or self._directives.row(iteration.begin.iteration) != row:
            return
        if row.point != NO_POINT:
            self._planned.append(iteration)
        elif row == RELEASED and not self._clock.num_changes:
            self._baseline.append(iteration)
        else:
            return
        self._is_new = True

    def _add_device_time(self, timing: Boundary) -> None:
        for kept in (self._planned, self._baseline):
            for iteration in reversed(kept):
                if iteration.begin.iteration == timing.iteration:
                    iteration.device_ns[timing.timed_sequence] = timing.device_ns
                    self._is_new = True
                    return


def _timed(iteration: _Iteration) -> TimedIteration:
    """With the device's times where there are any; they count from the iteration's first boundary.

    The boundary that was seen with the least delay ties them to the host's clock.
    """
    device_ns = iteration.device_ns
    stamps = (iteration.begin, iteration.end, *(stamp for seen in iteration.seen for stamp in (seen.begin, seen.end)))
    first_ns = min(
        (stamp.time_ns - device_ns[stamp.sequence] for stamp in stamps if stamp.sequence in device_ns), default=0
    )

    def time_ns(stamp: Stamp) -> int:
        after_ns = device_ns.get(stamp.sequence)
        return stamp.time_ns if after_ns is None else first_ns + after_ns

    return TimedIteration(
        iteration=iteration.begin.iteration,
        table_revision=iteration.row.table_revision,
        point=iteration.row.point,
        begin_ns=time_ns(iteration.begin),
        end_ns=time_ns(iteration.end),
        planned_clocks_mhz=iteration.row.clocks_mhz,
        runs=tuple(
            TimedRun(
                seen.work.chunk,
                seen.work.kind,
                seen.work.microbatch,
                time_ns(seen.begin),
                time_ns(seen.end),
                seen.requested_mhz,
                seen.observed_mhz,
            )
            for seen in iteration.seen
        ),
    )
