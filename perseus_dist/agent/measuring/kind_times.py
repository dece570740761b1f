"""Time of each kind of computation in an iteration, over the profile's time at the requested clocks.

Only exact times count, and only whole iterations under a plan that was followed from begin to end. Where the device
orders boundaries, exact times come an iteration later; until then an iteration's report may wait for them.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from perseus_dist.agent.following.exact_runs import ExactRun
from perseus_dist.agent.following.position import Run
from perseus_dist.agent.following.rank_program import Work
from perseus_dist.messages.from_agent import KindTime
from perseus_dist.messages.from_planner import Expected
from perseus_dist.planning.schedule.instruction import LOAD

if TYPE_CHECKING:
    from perseus_dist.agent.measuring.profiler import Key

_MAX_OPEN = 8  # iterations; those before will not become exact any more
_MAX_RATIO = 1e3  # beyond it, or below its inverse, a time has nothing to do with the profile


class _Planned(NamedTuple):
    """Planned time of an iteration's instructions of one kind, and the mean of their clocks."""

    time_s: float
    requested_mhz: int


class IterationRuns:
    """One iteration's runs, as far as their exact times are known.

    Args:
        planned: What each kind is to take; empty where no plan is followed, or the profile does not say.
        num_runs: How many instructions the rank's order has of each kind.
        may_wait: Whether exact times that are missing may still come.
    """

    def __init__(self, planned: Mapping[str, _Planned], num_runs: Mapping[str, int], *, may_wait: bool) -> None:
        self._planned = planned
        self._num_runs = num_runs
        self._may_wait = may_wait
        self._num_waiting = 0
        self._num_exact: Counter[str] = Counter()
        self._time_ns: Counter[str] = Counter()

    @property
    def is_waiting(self) -> bool:
        """Whether exact times may still come."""
        return self._may_wait and self._num_waiting > 0

    @property
    def kind_times(self) -> tuple[KindTime, ...]:
        """One for each kind of computation; empty unless every run of every kind is known exactly."""
        if any(self._num_exact[kind] != self._num_runs[kind] for kind in self._planned):
            return ()
        ratios = {kind: self._time_ns[kind] / 1e9 / planned.time_s for kind, planned in self._planned.items()}
        if not all(1 / _MAX_RATIO <= ratio <= _MAX_RATIO for ratio in ratios.values()):
            return ()
        return tuple(
            KindTime(kind=kind, time_ratio=ratio, requested_mhz=self._planned[kind].requested_mhz)
            for kind, ratio in ratios.items()
        )

    @property
    def load_s(self) -> float | None:
        """[s] what loading microbatches took together; None where the schedule has none, or it is not known exactly."""
        num_loads = self._num_runs.get(LOAD, 0)
        return self._time_ns[LOAD] / 1e9 if self._planned and 0 < num_loads == self._num_exact[LOAD] else None

    def spoil(self) -> None:
        """The plan was not followed to the end: there is nothing to tell, and nothing to wait for."""
        self._planned, self._may_wait = {}, False

    def wait(self) -> None:
        """A run has ended; its exact time comes with ``learn`` or never, which ``forget`` says."""
        self._num_waiting += 1

    def learn(self, kind: str, duration_ns: int) -> None:
        """A run's exact time."""
        self._num_waiting -= 1
        if self._planned:
            self._num_exact[kind] += 1
            self._time_ns[kind] += duration_ns

    def forget(self) -> None:
        """A run's exact time will not come."""
        self._num_waiting -= 1


class KindTimes:
    """Follows one rank's iterations.

    Args:
        order: Of the rank.

    Attributes:
        has_device_times: The device tells exact times, if later.
    """

    def __init__(self, order: Sequence[Work]) -> None:
        self._order = order
        self._num_runs = Counter(work.kind for work in order)
        self._counts = [not work.is_constant or work.kind == LOAD for work in order]
        self._profile: dict[Key, Expected] = {}
        self._clocks_mhz: tuple[int, ...] | None = None  # of the newest iteration
        self._planned: dict[str, _Planned] = {}  # at these clocks
        self._open: dict[int, IterationRuns] = {}
        self._current: IterationRuns | None = None
        self.has_device_times = False

    def expect(self, expected: Sequence[Expected]) -> None:
        """A new profile, from the next iteration on."""
        self._profile = {(one.chunk, one.kind): one for one in expected}
        self._clocks_mhz, self._planned = None, {}

    def begin_iteration(self, iteration: int, clocks_mhz: tuple[int, ...] | None) -> IterationRuns:
        """An iteration begins.

        Args:
            iteration: Its number.
            clocks_mhz: (num_instructions) of the plan, 0 for one that keeps the clock before it; None where no plan is
                followed.
        """
        if clocks_mhz != self._clocks_mhz:
            self._clocks_mhz = clocks_mhz
            self._planned = {} if clocks_mhz is None else self._plan(clocks_mhz)
        runs = IterationRuns(self._planned, self._num_runs, may_wait=self.has_device_times)
        self._open.pop(iteration, None)
        self._open[iteration] = self._current = runs
        for earlier in tuple(islice(self._open, max(0, len(self._open) - _MAX_OPEN))):
            del self._open[earlier]
        return runs

    def end_iteration(self, clocks_mhz: tuple[int, ...] | None) -> None:
        """End an iteration; at other clocks than those that it began with, its times are discarded."""
        if clocks_mhz != self._clocks_mhz:
            self.spoil()
        self._current = None

    def spoil(self) -> None:
        """The plan is not followed all the time, in the iteration that runs."""
        if self._current is not None:
            self._current.spoil()

    def wait(self, run: Run) -> None:
        """A run has ended; until ``learn`` or ``forget`` its exact times are waited for."""
        if self._counts[run.place] and (runs := self._open.get(run.iteration)) is not None:
            runs.wait()

    def learn(self, run: ExactRun) -> None:
        """Its times are exact."""
        if self._counts[run.place] and (runs := self._open.get(run.iteration)) is not None:
            runs.learn(self._order[run.place].kind, run.duration_ns)

    def forget(self, run: Run) -> None:
        """Drop a run whose exact times will never come."""
        if self._counts[run.place] and (runs := self._open.get(run.iteration)) is not None:
            runs.forget()

    def _plan(self, clocks_mhz: tuple[int, ...]) -> dict[str, _Planned]:
        """By kind; empty where the profile does not say what an instruction is to take."""
        time_s: defaultdict[str, float] = defaultdict(float)
        sum_mhz: Counter[str] = Counter()
        requested_mhz = 0
        for work, clock_mhz in zip(self._order, clocks_mhz, strict=True):
            requested_mhz = clock_mhz or requested_mhz
            if work.is_constant:
                continue
            profiled = self._profile.get((work.chunk, work.kind))
            if profiled is None or not requested_mhz:
                return {}
            time_s[work.kind] += _time_s(profiled, requested_mhz)
            sum_mhz[work.kind] += requested_mhz
        if not all(time_s.values()):
            return {}
        return {kind: _Planned(time_s[kind], round(sum_mhz[kind] / self._num_runs[kind])) for kind in time_s}


def _time_s(profiled: Expected, clock_mhz: int) -> float:
    """[s] at a clock; one that the profile leaves out lies on the line between its neighbours, or is as the nearest."""
    clocks, times = profiled.clocks_mhz[::-1], profiled.times_s[::-1]
    above = bisect_left(clocks, clock_mhz)
    if above == len(clocks):
        return times[-1] if times else 0.0
    if above == 0 or clocks[above] == clock_mhz:
        return times[above]
    share = (clock_mhz - clocks[above - 1]) / (clocks[above] - clocks[above - 1])
    return times[above - 1] + share * (times[above] - times[above - 1])
