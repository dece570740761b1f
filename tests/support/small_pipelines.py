"""Pipelines of a few instructions and clocks, whose plans can be worked out by hand."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from perseus_dist.planning.frontier.frontier import Bound, Frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.profile.curve_doubt import CurveDoubt
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import TIMED_APART
from perseus_dist.planning.schedule.schedule_text import parse_schedule

MS = 10**9  # picoseconds

Points = Mapping[int, tuple[float, int]]
"""By clock [MHz], from the highest down: time [ms] and energy [uJ]."""


def small_curve(
    stage: int,
    kind: str,
    points: Points,
    *,
    blocking_uw: int = 0,
    time_errors: Iterable[float] = (),
    energy_errors: Iterable[float] = (),
    spread: float = 0.0,
) -> CostCurve:
    """A curve of these points; errors are shares of each, and there are none where the profile does not say."""
    curve = curve_of_choices(
        stage=stage,
        kind=kind,
        clocks_mhz=np.array(list(points), dtype=np.int64),
        durations_ps=np.array([round(ms * MS) for ms, _ in points.values()], dtype=np.int64),
        energies_uj=np.array([uj for _, uj in points.values()], dtype=np.int64),
        blocking_uw=blocking_uw,
    )
    times, energies = (np.array([*shares], dtype=np.float64) for shares in (time_errors, energy_errors))
    nothing = np.zeros(len(points))
    doubt = CurveDoubt(
        time_share=times if len(times) else nothing,
        energy_share=energies if len(energies) else nothing,
        energy_common_share=nothing,
        is_between=nothing > 0,
        is_from_samples=True,
    )
    return replace(curve, doubt=doubt if len(times) or len(energies) else None, spread=spread)


def small_problem(orders: str, curves: Iterable[CostCurve], *, blocking_uw: int = 0) -> PlanningProblem:
    """A schedule, as text, with these curves; transfers that have one take time."""
    schedule = parse_schedule(orders)
    by_key = {(curve.stage, curve.kind): curve for curve in curves}
    dag = build_dag(schedule, {key for key in by_key if key[1] in TIMED_APART})
    return problem_of(
        dag, by_key, blocking_uw=np.full(schedule.num_ranks, blocking_uw, dtype=np.int64), tensor_parallel=1
    )


def plan_of(problem: PlanningProblem, **slow: int) -> np.ndarray:
    """Indices of clocks: those named, as ``_0F1=2``, and the maximum of all others."""
    names = [str(one) for one in problem.dag.instructions]
    plan = np.zeros(len(names), dtype=np.uint16)
    for name, index in slow.items():
        plan[names.index(name.removeprefix("_"))] = index
    return plan


def frontier_of(problem: PlanningProblem, plans: Iterable[np.ndarray], *, switch_latency_ps: int = 0) -> Frontier:
    """A frontier of these plans, ascending in time."""
    rows = list(plans)
    played = [replay(problem, row, switch_latency_ps=switch_latency_ps) for row in rows]
    time_ps = np.array([one.time_ps for one in played], dtype=np.int64)
    effective_uj = np.array([one.effective_uj for one in played], dtype=np.int64)
    return Frontier(
        problem=problem,
        switch_latency_ps=switch_latency_ps,
        bound=Bound(time_ps=time_ps, effective_uj=effective_uj, total_blocking_uw=problem.total_blocking_uw),
        time_ps=time_ps,
        effective_uj=effective_uj,
        num_changes=np.array([one.changes.sum() for one in played], dtype=np.int32),
        clock_indices=np.array(rows, dtype=np.uint16),
        baseline=replay_all_max(problem),
    )
