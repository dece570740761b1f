"""Where in its order a rank stands, from the boundaries that its trainer writes.

A boundary that does not fit puts the rank out of step until the next iteration begins: a schedule that changed, an
evaluation, boundaries that were lost. Nothing is guessed meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from perseus_dist.agent.following.rank_program import Work
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH

_BEGIN, _END = Event.BEGIN, Event.END
_new = tuple.__new__  # for what is made of every boundary: the class does the same in four times the time


class Stamp(NamedTuple):
    """When a boundary was seen to be passed; by its sequence the device may tell later when it really was."""

    time_ns: int
    sequence: int
    iteration: int


class Run(NamedTuple):
    """One instruction that ran from begin to end.

    Attributes:
        place: The instruction's index in the rank's order.
        before: The end of the instruction before it, or the iteration's begin.
        begin, end: Its boundaries.
    """

    place: int
    iteration: int
    before: Stamp
    begin: Stamp
    end: Stamp

    @property
    def idle_ns(self) -> int:
        """Time between the boundary before the instruction and its begin, in nanoseconds."""
        return self.begin.time_ns - self.before.time_ns

    @property
    def duration_ns(self) -> int:
        """From begin to end."""
        return self.end.time_ns - self.begin.time_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPoint:
    """Where in an iteration a rank will be, in the words of ``Position``."""

    index: int
    is_running: bool = False
    in_iteration: bool = True


class BoundaryEffect(Enum):
    """The effect of a boundary on a rank's position."""

    ITERATION_BEGAN = auto()
    ITERATION_ENDED = auto()
    BEGAN = auto()
    ENDED = auto()
    OUT_OF_STEP = auto()
    NOTHING = auto()


class Position:
    """Follows one rank's order.

    Attributes:
        iteration: The newest one begun.
        in_iteration: Between its begin and its end.
        in_step: Whether every boundary of this iteration has fitted so far.
        index: The instruction that comes next in the order, or that runs; the order's length behind the last.
        is_running: Whether that instruction runs.
        since: When it began, or while it does not run yet, when the one before it ended or the iteration began.
        last_run: The run that ended last; None before the first.
        mismatch: The last boundary that did not fit, in a sentence; empty before the first.
        num_mismatched: Iterations in a row with one.
    """

    def __init__(self, order: Sequence[Work]) -> None:
        self._order = order
        self._kinds = {work.kind for work in order}
        self._before = Stamp(0, 0, NO_ITERATION)  # what came before the instruction that runs
        self.iteration = NO_ITERATION
        self.in_iteration = False
        self.in_step = False
        self.index = 0
        self.is_running = False
        self.since = Stamp(0, 0, NO_ITERATION)
        self.last_run: Run | None = None
        self.mismatch = ""
        self.num_mismatched = 0

    def step(self, boundary: Boundary, time_ns: int) -> BoundaryEffect:
        """Take the next boundary, passed at ``time_ns``."""
        event = boundary.event
        if event is _END or event is _BEGIN:
            kind = boundary.kind
            # A constant's name has two letters or more; one that the schedule leaves out has no clock to wait for.
            if not self.in_step or (len(kind) > 1 and kind not in self._kinds):
                return BoundaryEffect.NOTHING
            stamp = _new(Stamp, (time_ns, boundary.sequence, self.iteration))
            return self._end(boundary, stamp) if event is _END else self._begin(boundary, stamp)
        if event is Event.ITERATION_BEGIN:
            return self._begin_iteration(Stamp(time_ns, boundary.sequence, boundary.iteration))
        return self._end_iteration() if event is Event.ITERATION_END else BoundaryEffect.NOTHING

    def lose_step(self) -> None:
        """Boundaries were lost, or the trainer does something else: wait for the next iteration."""
        self.in_step = False
        self.is_running = False

    def _begin_iteration(self, stamp: Stamp) -> BoundaryEffect:
        self.iteration = stamp.iteration
        self.in_iteration = self.in_step = True
        self.index = 0
        self.is_running = False
        self.since = stamp
        return BoundaryEffect.ITERATION_BEGAN

    def _end_iteration(self) -> BoundaryEffect:
        self.in_iteration = False
        if self.in_step and any(not work.is_constant for work in self._order[self.index :]):
            return self._mismatch(f"iteration {self.iteration} ended before {self._text(self._order[self.index])}")
        if self.in_step:
            self.num_mismatched = 0
        return BoundaryEffect.ITERATION_ENDED

    def _begin(self, boundary: Boundary, stamp: Stamp) -> BoundaryEffect:
        index = None if self.is_running else self._next_match(boundary)
        if index is None:
            return self._mismatch(self._unexpected("begin", boundary))
        self.index = index
        self.is_running = True
        self._before = self.since
        self.since = stamp
        return BoundaryEffect.BEGAN

    def _end(self, boundary: Boundary, stamp: Stamp) -> BoundaryEffect:
        if not self.is_running or not _fits(boundary, self._order[self.index]):
            return self._mismatch(self._unexpected("end", boundary))
        self.last_run = _new(Run, (self.index, self.iteration, self._before, self.since, stamp))
        self.since = stamp
        self.index += 1
        self.is_running = False
        return BoundaryEffect.ENDED

    def _next_match(self, boundary: Boundary) -> int | None:
        """The next instruction if the boundary names it; constants that the trainer does not report are passed over."""
        for index in range(self.index, len(self._order)):
            if _fits(boundary, self._order[index]):
                return index
            if not self._order[index].is_constant:
                return None
        return None

    def _mismatch(self, sentence: str) -> BoundaryEffect:
        self.mismatch = sentence
        self.num_mismatched += 1
        self.lose_step()
        return BoundaryEffect.OUT_OF_STEP

    def _unexpected(self, what: str, boundary: Boundary) -> str:
        expected = self._text(self._order[self.index]) if self.index < len(self._order) else "the iteration's end"
        seen = self._text(Work(boundary.chunk, boundary.kind, boundary.microbatch, is_constant=False))
        when = "while it runs" if self.is_running else "next"
        return f"iteration {self.iteration}: saw the {what} of {seen}, expected {expected} {when}"

    @staticmethod
    def _text(work: Work) -> str:
        microbatch = "" if work.microbatch == NO_MICROBATCH else f" of microbatch {work.microbatch}"
        return f"{work.kind}{microbatch} in chunk {work.chunk}"


def _fits(boundary: Boundary, work: Work) -> bool:
    """A trainer that does not know the microbatch says so, and is believed on the rest."""
    return (
        boundary.kind == work.kind
        and boundary.chunk == work.chunk
        and boundary.microbatch in (work.microbatch, NO_MICROBATCH)
    )
