"""The time-energy frontier of one iteration: the exact bound, and realised plans of real clocks beside it.

There are two energies. The *total* energy of a plan is what the pipeline draws until its own iteration ends. Where
everybody waits for a straggler until T' anyway, the waiting costs the same under every plan, and what counts is the
*effective* energy: the total minus blocking power x time. The first is least at T*, the second beyond it.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from perseus_dist import _solver
from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import Execution, replay, replay_all_max
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import PS_PER_NS, PS_PER_S, FloatArray, IntArray, energy_uj

Progress = Callable[[str, float], bool]

# Plans sought from the fastest to T*, and from there to where nothing can be saved: neighbours are about 0.1 % apart.
NUM_POINTS_TO_T_STAR = 240
NUM_POINTS_BEYOND = 32
# Up to so much ``exact_work`` the frontier is traced exactly: 1 to 3 s (benchmarks/exact_frontier.py).
MOST_EXACT_WORK = 3_000_000_000
# And up to so many hull pieces of all instructions together: with fewer, a tolerance saves no time.
MOST_EXACT_PIECES = 75_000
# Up to so much a first plan is made of the exact frontier: tenths of a second.
MOST_EXACT_WORK_AT_FIRST = 300_000_000
# Above, to this share of the total energy.
TOLERANCE = 1e-4
# Plans sought where a rough plan will do, as in simulations of many jobs.
NUM_QUICK_POINTS = 32
# With fewer than these and yet many, more are sought: on rough profiles many plans are beaten by others.
ENOUGH_POINTS = 200

REALISING = "realised plans"
"""The phase of progress that follows the frontier's."""

CANCELLED = "planning was cancelled; nothing was written"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bound:
    """No execution within a time uses less energy. Piecewise linear and convex; the exact frontier, or close below it.

    Attributes:
        time_ps: (num_vertices) [ps] ascending, from the fastest iteration possible.
        effective_uj: (num_vertices) [uJ].
        total_blocking_uw: [uW] of all GPUs waiting.
        tolerance: Share of the total energy that the exact frontier lies above it at most, at every time; 0: it is it.
    """

    time_ps: IntArray
    effective_uj: IntArray
    total_blocking_uw: int
    tolerance: float = 0.0

    def total_uj(self, time_ps: IntArray) -> FloatArray:
        """Least total energy [uJ] of any execution that ends, waiting included, at each time. Any shape."""
        effective = np.interp(time_ps.astype(np.float64), self.time_ps.astype(np.float64), self.effective_uj)
        return effective + time_ps * (self.total_blocking_uw / PS_PER_S)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frontier(ValueEquality):
    """Realised plans, ascending in time and falling in effective energy, and the bound they are held against.

    Attributes:
        problem: The schedule and its cost curves.
        switch_latency_ps: [ps] that a clock change takes where the profile does not say, counted in every plan.
        bound: The exact frontier.
        time_ps: (num_points) [ps] iteration time on measured times; where plans must be on time in several cases, the
            time that they keep in all (``several_cases``).
        effective_uj: (num_points) [uJ].
        num_changes: (num_points) clock changes of all ranks in one iteration.
        clock_indices: (num_points, num_instructions) uint16, indices into the clocks of each instruction's curve.
        baseline: The iteration at all-maximum clocks.
        solve_seconds, realise_seconds: [s] duration of the two steps of planning.
        granularity: Which instructions share a clock; the bound is that of all plans where they do.
    """

    problem: PlanningProblem
    switch_latency_ps: int
    bound: Bound
    time_ps: IntArray
    effective_uj: IntArray
    num_changes: NDArray[np.int32]
    clock_indices: NDArray[np.uint16]
    baseline: Execution
    solve_seconds: float = 0.0
    realise_seconds: float = 0.0
    granularity: Granularity = Granularity.INSTRUCTION
    total_uj: IntArray = field(init=False)
    deadline_points: IntArray = field(init=False)

    def __post_init__(self) -> None:
        blocking_uw = self.problem.total_blocking_uw
        waiting_uj = [energy_uj(blocking_uw, time_ps) for time_ps in self.time_ps.tolist()]
        total_uj = self.effective_uj + np.array(waiting_uj, dtype=np.int64)
        best_before = np.minimum.accumulate(np.concatenate(([np.iinfo(np.int64).max], total_uj[:-1])))
        object.__setattr__(self, "total_uj", total_uj)
        object.__setattr__(self, "deadline_points", np.flatnonzero(total_uj < best_before))

    def _value(self) -> object:
        """The problem as it was given, and the plans; not how long planning took."""
        problem = self.problem
        given = (problem.dag.schedule, problem.dag.timed, problem.curves, problem.blocking_uw, problem.tensor_parallel)
        plans = (self.time_ps, self.effective_uj, self.clock_indices, self.bound)
        return given, self.switch_latency_ps, self.granularity, plans

    @property
    def fastest_ps(self) -> int:
        """[ps] iteration time of the fastest plan."""
        return int(self.time_ps[0])

    @property
    def t_star_ps(self) -> int:
        """[ps] iteration time of the plan with the least total energy."""
        return int(self.time_ps[self.deadline_points[-1]])

    @property
    def gaps(self) -> FloatArray:
        """(num_points) energy of each plan above the bound at its own time, as a share of it."""
        return self.total_uj / self.bound.total_uj(self.time_ps) - 1

    def point_for_deadline(self, deadline_ps: int) -> int:
        """Index of the plan with the least total energy within the deadline.

        Raises:
            PlanningError: Even the fastest plan is later.
        """
        self._check_deadline(deadline_ps)
        return int(self.deadline_points[bisect_right(self.time_ps[self.deadline_points], deadline_ps) - 1])

    def point_for_straggler(self, t_prime_ps: int) -> int:
        """Index of the plan with the least energy when all pipelines wait until T' anyway. It may be slower than T*.

        Raises:
            PlanningError: Even the fastest plan is later.
        """
        self._check_deadline(t_prime_ps)
        return bisect_right(self.time_ps, t_prime_ps) - 1

    def execution(self, point: int) -> Execution:
        """The iteration under one plan."""
        return replay(self.problem, self.clock_indices[point], switch_latency_ps=self.switch_latency_ps)

    def _check_deadline(self, deadline_ps: int) -> None:
        if not deadline_ps >= self.time_ps[0]:  # NaN fails too
            fastest_ns = -(-self.fastest_ps // PS_PER_NS)  # rounded up, so that it can be met
            raise PlanningError(
                f"the deadline of {_ns_text(deadline_ps // PS_PER_NS)} cannot be met: the fastest plan takes "
                f"{_ns_text(fastest_ns)}; give a deadline of at least that"
            )


def _ns_text(time_ns: int) -> str:
    return np.format_float_positional(time_ns / 1e9, precision=9, trim="-") + " s"


def plan_frontier(
    problem: PlanningProblem,
    *,
    switch_latency_ps: int = 0,
    deadlines_ps: Sequence[int] = (),
    num_points: int = NUM_POINTS_TO_T_STAR,
    thorough: bool = True,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> Frontier:
    """Solve the frontier and realise plans along it.

    Args:
        problem: The schedule and its cost curves.
        switch_latency_ps: [ps] that a clock change takes where the profile does not say; plans meet their times with
            latencies counted.
        deadlines_ps: [ps] times at which a plan of their own is wanted, beside those along the whole frontier.
        num_points: How many plans to seek between the fastest and T*; some coincide or beat each other.
        thorough: Search longer at the times that are asked for, where changes of clocks take time: most of the work.
        tolerance: Share of the total energy within which the bound is to be certified; 0 for the exact frontier. By
            default exact where that is quick (``is_traced_exactly``), and ``TOLERANCE`` elsewhere.
        progress: Called a few times a second with the phase and the share of it done; returning False cancels.

    Raises:
        PlanningError: A deadline that is no whole number of picoseconds; cancelled.
    """
    if tolerance is None:
        tolerance = 0.0 if is_traced_exactly(problem) else TOLERANCE
    check_deadlines(deadlines_ps)
    search = _Search(
        problem=problem,
        baseline=replay_all_max(problem, switch_latency_ps=switch_latency_ps),
        switch_latency_ps=switch_latency_ps,
        deadlines_ps=deadlines_ps,
        thorough=thorough,
        tolerance=tolerance,
        progress=progress,
    )
    frontier = _plan(search, num_points)
    is_free = not problem.latencies_ps(switch_latency_ps).any()
    if is_free and num_points // 4 < len(frontier.deadline_points) < min(ENOUGH_POINTS, num_points):
        again = _plan(search, 2 * num_points)
        frontier = replace(
            again,
            solve_seconds=frontier.solve_seconds + again.solve_seconds,
            realise_seconds=frontier.realise_seconds + again.realise_seconds,
        )
    return frontier


def plan_first(
    problem: PlanningProblem,
    *,
    switch_latency_ps: int = 0,
    deadlines_ps: Sequence[int] = (),
    progress: Progress | None = None,
) -> Frontier:
    """Plans for T_min, for the times asked for and for T*, in a second or two whatever the size of the pipeline.

    All of them are on time. The bound is rough where the pipeline is large, and says so.

    Args:
        problem: What is planned.
        switch_latency_ps: [ps] that a clock change takes where the profile does not say.
        deadlines_ps: [ps] times at which plans are wanted.
        progress: As of ``plan_frontier``.
    """
    is_exact = exact_work(problem) <= min(MOST_EXACT_WORK, MOST_EXACT_WORK_AT_FIRST)
    search = _Search(
        problem=problem,
        baseline=replay_all_max(problem, switch_latency_ps=switch_latency_ps),
        switch_latency_ps=switch_latency_ps,
        deadlines_ps=deadlines_ps,
        thorough=False,
        tolerance=0.0 if is_exact else 1.0,
        num_beyond=0,
        progress=progress,
    )
    return _plan(search, 2)


def is_traced_exactly(problem: PlanningProblem) -> bool:
    """Whether the exact frontier takes seconds, or no longer than one to ``TOLERANCE``."""
    return exact_work(problem) <= MOST_EXACT_WORK or _num_pieces(problem) <= MOST_EXACT_PIECES


def exact_work(problem: PlanningProblem) -> int:
    """Expected work of tracing the exact frontier: hull pieces of all instructions x instructions x ranks.

    Each piece is passed by some vertices of the frontier, more of them where more ranks compute side by side, and each
    vertex takes a search through much of the DAG. A unit takes 0.1 to 1 ns.
    """
    return _num_pieces(problem) * problem.num_instructions * len(problem.blocking_uw)


def _num_pieces(problem: PlanningProblem) -> int:
    return int(np.array([len(curve.hull) - 1 for curve in problem.curves])[problem.curve_of].sum())


def _bound(problem: PlanningProblem, solved: _solver.FrontierResult, least_uj: int) -> Bound:
    """The solver's frontier in whole microjoules, where it lies above no plan."""
    effective_uj = (least_uj + solved.energy_uj)[::-1] - _rounding_uj(problem)
    falls = np.diff(effective_uj, prepend=effective_uj[0] + 1) < 0  # vertices may lie less than 1 uJ apart
    return Bound(
        time_ps=solved.time_ps[::-1][falls],
        effective_uj=effective_uj[falls],
        total_blocking_uw=problem.total_blocking_uw,
        tolerance=solved.share_below,
    )


def _rounding_uj(problem: PlanningProblem) -> int:
    """[uJ] that the solver's frontier may lie above a plan, because energies are whole microjoules."""
    of_curves = np.array([curve.rounding_uj for curve in problem.curves])
    of_vertices, of_waiting = 0.5, 0.5
    return math.ceil(float(of_curves[problem.curve_of].sum()) + of_vertices + of_waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Problem and settings of one search, as of ``plan_frontier``."""

    problem: PlanningProblem
    baseline: Execution
    switch_latency_ps: int
    deadlines_ps: Sequence[int]
    thorough: bool
    tolerance: float
    num_beyond: int = NUM_POINTS_BEYOND
    progress: Progress | None = None

    def reporter(self, phase: str) -> Callable[[float], bool] | None:
        """Return the function that the solver calls while it is in a phase."""
        progress = self.progress
        return None if progress is None else lambda done: progress(phase, done)


def check_deadlines(deadlines_ps: Sequence[int]) -> None:
    """Refuse what is no time.

    Args:
        deadlines_ps: [ps] each a whole number above 0.

    Raises:
        PlanningError: One is not.
    """
    for deadline_ps in deadlines_ps:
        if not (isinstance(deadline_ps, Integral) and deadline_ps > 0):
            raise PlanningError(f"deadlines_ps: saw {deadline_ps!r}, expected whole picoseconds from 1; round it")


def _plan(search: _Search, num_points: int) -> Frontier:
    problem, baseline, switch_latency_ps = search.problem, search.baseline, search.switch_latency_ps
    extra_ps = np.array(sorted({*search.deadlines_ps, baseline.time_ps}, reverse=True), dtype=np.int64)
    least_uj = sum(
        int(problem.curves[c].effective_uj[problem.curves[c].choices[-1]]) for c in problem.curve_of.tolist()
    )
    began = time.perf_counter()
    solved = _solver.solve_frontier(
        hull_begin=problem.hull_begin,
        hull_ps=problem.hull_ps,
        slope_uw=problem.slope_uw,
        curve_of=problem.curve_of,
        edge_from=problem.edge_from,
        edge_to=problem.edge_to,
        blocking_uw=problem.total_blocking_uw,
        num_to_t_star=num_points,
        num_beyond=search.num_beyond,
        extra_ps=extra_ps,
        tolerance=search.tolerance,
        least_uj=least_uj,
        progress=search.reporter("frontier" if search.tolerance else "exact frontier"),
    )
    if solved.cancelled:
        raise PlanningError(CANCELLED)
    solved_at = time.perf_counter()
    time_ps, effective_uj, num_changes, clock_indices = _solver.realise(
        menu=problem.menu,
        edge_from=problem.edge_from,
        edge_to=problem.edge_to,
        frontier=solved,
        microbatch=problem.microbatch,
        blocking_uw=problem.total_blocking_uw,
        latency_ps=problem.latencies_ps(switch_latency_ps),
        wanted_ps=extra_ps if search.thorough else extra_ps[:0],
        progress=search.reporter(REALISING),
    )
    realised_at = time.perf_counter()
    if len(time_ps) == 0:
        raise PlanningError(CANCELLED)
    return Frontier(
        problem=problem,
        switch_latency_ps=switch_latency_ps,
        bound=_bound(problem, solved, least_uj),
        time_ps=time_ps,
        effective_uj=effective_uj,
        num_changes=num_changes,
        clock_indices=clock_indices,
        baseline=baseline,
        solve_seconds=solved_at - began,
        realise_seconds=realised_at - solved_at,
    )
