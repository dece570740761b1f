"""The frontier of plans with one clock for each rank, or for each rank and phase, and the bound of all such plans.

Deadlines are taken from the fastest to where nothing more can be saved; the plan of one is where the search at the
next begins. Where changes of clocks take time, a plan is sought for as much less time as its changes turn out to cost.
No rank can follow a plan with a change that outlasts the next computation; a plan by ranks, without changes, replaces
it.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from perseus_dist.errors import PlanningError
from perseus_dist.planning.coarse.clock_groups import clock_groups
from perseus_dist.planning.coarse.relaxation import Line, Relaxation, Relaxed
from perseus_dist.planning.coarse.search import Found, Search
from perseus_dist.planning.frontier.frontier import CANCELLED, Bound, Frontier, Progress, check_deadlines, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import Execution, replay, replay_all_max
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import PS_PER_S

_STEP, _STEP_BEYOND = 0.005, 0.03  # from one deadline to the next, up to T* and from there on
_QUICK_WORK, _MOST_COARSE = 400_000, 8.0  # instructions x groups up to which there is no larger step; how much larger
_MOST_TRIES = 6
_REACHED_SHARE = 0.9  # of a computation, within which a change of clocks is to arrive


class _Played(NamedTuple):
    """A plan as it runs, with the latency of clock changes.

    Attributes:
        clock_indices: (num_instructions).
        execution: On measured times.
    """

    clock_indices: Int32Array
    execution: Execution


def plan_by(
    problem: PlanningProblem,
    granularity: Granularity,
    *,
    switch_latency_ps: int = 0,
    deadlines_ps: Sequence[int] = (),
    progress: Progress | None = None,
) -> Frontier:
    """The frontier of plans as fine as asked for: ``plan_frontier``, or ``plan_coarse_frontier``.

    Raises:
        PlanningError: As those two do.
    """
    if granularity == Granularity.INSTRUCTION:
        return plan_frontier(problem, switch_latency_ps=switch_latency_ps, deadlines_ps=deadlines_ps, progress=progress)
    return plan_coarse_frontier(
        problem, granularity, switch_latency_ps=switch_latency_ps, deadlines_ps=deadlines_ps, progress=progress
    )


def plan_coarse_frontier(
    problem: PlanningProblem,
    granularity: Granularity,
    *,
    switch_latency_ps: int = 0,
    deadlines_ps: Sequence[int] = (),
    is_whole: bool = True,
    progress: Progress | None = None,
) -> Frontier:
    """Plan with shared clocks.

    Args:
        problem: The schedule and its cost curves.
        granularity: Of phases or of ranks.
        switch_latency_ps: [ps] that a clock change takes where the profile does not say; plans meet their times with
            latencies counted.
        deadlines_ps: [ps] times at which a plan of their own is wanted.
        is_whole: Whether to plan along the whole frontier, and not for these times, that of all-max and the ends alone.
        progress: Called after each plan with the phase and the share of it done; returning False cancels.

    Raises:
        PlanningError: Computations that share a clock were not measured at the same one; a deadline that is no whole
            number of picoseconds; cancelled.
    """
    check_deadlines(deadlines_ps)
    planner = _Planner(problem, granularity, switch_latency_ps)
    for share in planner.plan_along([int(deadline_ps) for deadline_ps in deadlines_ps], is_whole=is_whole):
        if progress is not None and not progress(f"plans by {granularity}", share):
            raise PlanningError(CANCELLED)
    return planner.frontier()


class _Planner:
    """Plans found so far, and lines below the frontier.

    Attributes:
        played: The plans, in the order in which they were found; by ranks, the last one is of the last deadline.
    """

    def __init__(self, problem: PlanningProblem, granularity: Granularity, switch_latency_ps: int) -> None:
        self._problem, self._granularity, self._latency_ps = problem, granularity, switch_latency_ps
        self._baseline = replay_all_max(problem, switch_latency_ps=switch_latency_ps)
        self._relaxation = self._of_bound = Relaxation(clock_groups(problem, granularity))
        self._has_latency = bool(problem.latencies_ps(switch_latency_ps).any())
        if self._has_latency and granularity == Granularity.PHASE:
            self._of_bound = Relaxation(clock_groups(problem, granularity, is_first_free=True))
        self._search = Search(self._relaxation)
        groups = self._groups = self._relaxation.groups
        at_max, fastest = self._search.found(groups.fastest.astype(np.int64)), self._search.fastest()
        self._found = [(one, self._time_ps(one)) for one in (at_max, fastest)]
        self._least = self._search.found(groups.choice_uj.argmin(axis=1))
        self._fastest_ps, self._slowest_ps = self._time_ps(fastest), self._time_ps(self._least)
        at_least = self._play(self._least)
        self._end_ps = max(self._slowest_ps, at_least.execution.time_ps)  # with its changes of clocks it may be later
        self.played = [one for one in (*map(self._play, (at_max, fastest)), at_least) if self._reaches(one)]
        of_bound = self._of_bound.groups
        self._lines = [Line(float(of_bound.choice_uj.min(axis=1).sum() + of_bound.constant_uj), 0.0)]
        self._by_ranks: _Planner | None = None
        if self._of_bound is not self._relaxation:
            self._by_ranks = _Planner(problem, Granularity.RANK, switch_latency_ps)
            self.played += self._by_ranks.played
        self._solve_s = self._search_s = 0.0

    def plan_along(self, deadlines_ps: Sequence[int], *, is_whole: bool) -> Iterator[float]:
        """Plan for deadlines, ascending; yields the share done after each."""
        wanted = sorted({self._baseline.time_ps, *deadlines_ps})
        wanted = [wanted_ps for wanted_ps in wanted if self._fastest_ps <= wanted_ps < self._end_ps]
        size = self._problem.num_instructions * self._groups.num_groups
        coarser = min(max(size / _QUICK_WORK, 1.0), _MOST_COARSE)
        deadline_ps = self._fastest_ps if is_whole else min(wanted, default=self._end_ps)
        while deadline_ps < self._end_ps:
            line = self._plan(deadline_ps)
            yield (deadline_ps - self._fastest_ps) / (self._end_ps - self._fastest_ps)
            step = _STEP if line.slope_uw > self._problem.total_blocking_uw else _STEP_BEYOND
            following = [wanted_ps for wanted_ps in wanted if wanted_ps > deadline_ps]
            if is_whole:
                following.append(deadline_ps + max(round(deadline_ps * step * coarser), 1))
            deadline_ps = min(following, default=self._end_ps)
        yield 1.0

    def frontier(self) -> Frontier:
        """All plans that no other one beats in both time and energy."""
        kept: list[_Played] = []
        for one in sorted(self.played, key=lambda one: (one.execution.time_ps, one.execution.effective_uj)):
            if not kept or one.execution.effective_uj < kept[-1].execution.effective_uj:
                kept.append(one)
        return Frontier(
            problem=self._problem,
            granularity=self._granularity,
            switch_latency_ps=self._latency_ps,
            bound=_bound(self._lines, kept[0].execution.time_ps, self._problem.total_blocking_uw),
            time_ps=np.array([one.execution.time_ps for one in kept], dtype=np.int64),
            effective_uj=np.array([one.execution.effective_uj for one in kept], dtype=np.int64),
            num_changes=np.array([one.execution.changes.sum() for one in kept], dtype=np.int32),
            clock_indices=np.array([one.clock_indices for one in kept], dtype=np.uint16),
            baseline=self._baseline,
            solve_seconds=self._solve_s,
            realise_seconds=self._search_s,
        )

    def _plan(self, deadline_ps: int) -> Line:
        """Plan for a deadline; the line that bounds it."""
        began = time.perf_counter()
        relaxed = self._relaxation.solve(deadline_ps)
        line = relaxed.line if self._of_bound is self._relaxation else self._of_bound.solve(deadline_ps).line
        self._lines.append(line)
        solved = time.perf_counter()
        self._solve_s += solved - began
        if not self.plan_within(deadline_ps, relaxed):
            self._play_by_ranks(deadline_ps)
        self._search_s += time.perf_counter() - solved
        return line

    def plan_within(self, deadline_ps: int, relaxed: Relaxed | None = None) -> bool:
        """Add a plan that is on time with its changes of clocks; False where none was found.

        Args:
            deadline_ps: [ps].
            relaxed: The relaxation there, where it is solved already.
        """
        target_ps = deadline_ps
        for _ in range(_MOST_TRIES):
            if target_ps < self._fastest_ps:
                return False
            if relaxed is None:
                relaxed = self._relaxation.solve(target_ps)
            on_time = [one for one, time_ps in self._found if time_ps <= target_ps]
            start = min(on_time, key=lambda one: one.effective_uj)
            found = self._search.best(target_ps, relaxed, start)
            relaxed = None
            if found is not start:
                self._found.append((found, self._time_ps(found)))
            played = self._play(found)
            if not self._reaches(played):
                return False
            self.played.append(played)
            late_ps = played.execution.time_ps - deadline_ps
            if late_ps <= 0:
                return True
            target_ps -= late_ps
        return False

    def _play_by_ranks(self, deadline_ps: int) -> None:
        if self._by_ranks is not None:
            self._by_ranks.plan_within(deadline_ps)
            self.played += self._by_ranks.played[-1:]

    def _play(self, found: Found) -> _Played:
        clock_indices = self._groups.clock_indices(found.chosen)
        return _Played(clock_indices, replay(self._problem, clock_indices, switch_latency_ps=self._latency_ps))

    def _reaches(self, played: _Played) -> bool:
        """Whether every change of clocks arrives within the computation after it."""
        return not self._has_latency or reaches_all(self._problem, played.execution, self._latency_ps)

    def _time_ps(self, found: Found) -> int:
        """[ps] without the latency of clock changes."""
        return self._relaxation.longest.time_ps(self._groups.chosen_ps(found.chosen))


def reaches_all(problem: PlanningProblem, execution: Execution, switch_latency_ps: int) -> bool:
    """Whether every change of clocks arrives within the computation that it is for.

    Args:
        problem: What was played.
        execution: A plan as it runs.
        switch_latency_ps: [ps] that a clock change takes where the profile does not say.
    """
    begin = 0
    for order in problem.dag.schedule.ranks:
        own = begin + np.flatnonzero(execution.clocks_mhz[begin : begin + len(order)])
        begin += len(order)
        for before, after in pairwise(own.tolist()):
            if execution.clocks_mhz[before] == execution.clocks_mhz[after]:
                continue
            curve = problem.curves[problem.curve_of[after]]
            old = int(np.argmin(np.abs(curve.clocks_mhz - execution.clocks_mhz[before])))
            gap_ps = int(execution.start_ps[after] - execution.end_ps[before])
            latency_ps = switch_latency_ps
            if curve.latencies_ps is not None:
                latency_ps = int(curve.latencies_ps[curve.clocks_mhz == execution.clocks_mhz[after]][0])
            if latency_ps - gap_ps > _REACHED_SHARE * float(curve.durations_ps[old]):
                return False
    return True


def _bound(lines: Sequence[Line], fastest_ps: int, total_blocking_uw: int) -> Bound:
    """The highest of all lines at each time, from the fastest plan to where it falls no more."""
    at_ps = [fastest_ps]
    line = max(lines, key=lambda one: (one.effective_uj(fastest_ps), -one.slope_uw))
    while flatter := [other for other in lines if other.slope_uw < line.slope_uw]:
        meets_ps = [
            (line.at_zero_uj - other.at_zero_uj) / (line.slope_uw - other.slope_uw) * PS_PER_S for other in flatter
        ]
        nearest = int(np.argmin(meets_ps))
        line = flatter[nearest]
        at_ps.append(max(round(meets_ps[nearest]), at_ps[-1]))
    effective_uj = [int(max(one.effective_uj(time_ps) for one in lines)) - 1 for time_ps in at_ps]
    kept = [0]  # ascending in time, and falling
    for number in range(1, len(at_ps)):
        if at_ps[number] > at_ps[kept[-1]] and effective_uj[number] < effective_uj[kept[-1]]:
            kept.append(number)
    return Bound(
        time_ps=np.array(at_ps, dtype=np.int64)[kept],
        effective_uj=np.array(effective_uj, dtype=np.int64)[kept],
        total_blocking_uw=total_blocking_uw,
    )
