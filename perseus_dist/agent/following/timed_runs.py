"""When each computation of a chosen iteration began and ended: the planner tells transfers from that, and shows it.

One iteration in a few is taken, the same on all ranks, by its number: the planner joins what they report. At full
clocks that is always done; under a plan, where the planner has asked for it, with the clocks as well. Where the device
orders boundaries, its own times come an iteration later.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perseus_dist.agent.following.plan_view import RELEASED, Row
from perseus_dist.agent.following.position import BoundaryEffect, Position, Run
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.messages.terms import NO_POINT

MAX_RUNS = 1 << 16
"""Of an iteration; beyond them nothing is reported."""

_NUM_EARLY = 16
_EARLY_STEP, _STEP = 4, 16


@dataclass(slots=True, kw_only=True)
class _Iteration:
    number: int
    row: Row
    runs: list[Run] = field(default_factory=list)
    clocks_mhz: list[int] = field(default_factory=list)
    device_ns: dict[int, int] = field(default_factory=dict)  # by sequence


class TimedRuns:
    """Follows one rank.

    Args:
        order: Of the rank.
        position: The rank's, as it stands after each boundary.
        row: The clocks of an iteration, by its number.
        is_wanted: Whether one is taken that is none of the regular ones at full clocks.
        clock_mhz: The clock [MHz] as it was read last, else as it was requested.
        host_clock: As of ``RunTimes``.
    """

    def __init__(
        self,
        order: Sequence[Work],
        *,
        position: Position,
        row: Callable[[int], Row],
        is_wanted: Callable[[int], bool],
        clock_mhz: Callable[[], int],
        host_clock: str,
    ) -> None:
        self._order = order
        self._position = position
        self._row = row
        self._is_wanted = is_wanted
        self._clock_mhz = clock_mhz
        self._host_clock = host_clock
        self._num_computations = sum(not work.is_constant for work in order)
        self._current: _Iteration | None = None
        self._whole: _Iteration | None = None
        self._was_free = False

    def follow(self, boundary: Boundary, effect: BoundaryEffect) -> None:
        """A boundary was passed, and the position has moved by it."""
        if effect is BoundaryEffect.ENDED:
            run = self._position.last_run
            if self._current is not None and run is not None and not self._order[run.place].is_constant:
                self._current.runs.append(run)
                self._current.clocks_mhz.append(self._clock_mhz())
        elif effect is BoundaryEffect.ITERATION_BEGAN:
            number = self._position.iteration
            row = self._row(number)
            has_room = self._num_computations <= MAX_RUNS
            self._current = _Iteration(number=number, row=row) if self._is_taken(number, row) and has_room else None
            self._was_free = row == RELEASED
        elif effect is BoundaryEffect.ITERATION_ENDED:
            current, self._current = self._current, None
            if current is not None and len(current.runs) == self._num_computations and self._kept_its_clocks(current):
                self._whole = current
        elif boundary.event is Event.TIMING and self._whole is not None and boundary.iteration == self._whole.number:
            self._whole.device_ns[boundary.timed_sequence] = boundary.device_ns

    def take(self, *, has_device_times: bool) -> RunTimes | None:
        """Times of an iteration that was not taken before; None until they are known.

        Args:
            has_device_times: The device tells exact times, which are waited for.
        """
        whole = self._whole
        if whole is None:
            return None
        stamps = [stamp for run in whole.runs for stamp in (run.begin, run.end)]
        known = whole.device_ns
        if has_device_times and any(stamp.sequence not in known for stamp in stamps):
            return None
        self._whole = None
        # The boundary that was seen with the least delay ties the device's times to the host's clock.
        first_ns = (
            min((stamp.time_ns - known[stamp.sequence] for stamp in stamps), default=0) if has_device_times else 0
        )
        times_ns = [first_ns + known[one.sequence] if has_device_times else one.time_ns for one in stamps]
        return RunTimes(
            iteration=whole.number,
            begins_ns=tuple(times_ns[::2]),
            ends_ns=tuple(times_ns[1::2]),
            clocks_mhz=() if whole.row == RELEASED else tuple(whole.clocks_mhz),
            table_revision=whole.row.table_revision,
            point=whole.row.point,
            host_clock=self._host_clock,
        )

    def _is_taken(self, number: int, row: Row) -> bool:
        if row == RELEASED:
            return self._was_free and (is_regular(number) or self._is_wanted(number))
        return row.point != NO_POINT and self._is_wanted(number)

    def _kept_its_clocks(self, iteration: _Iteration) -> bool:
        is_planned = iteration.row != RELEASED
        return self._position.in_step and not (is_planned and self._row(iteration.number) != iteration.row)


def is_regular(number: int) -> bool:
    """Whether an iteration is taken wherever it can be."""
    return number % (_EARLY_STEP if number < _NUM_EARLY else _STEP) == 0
