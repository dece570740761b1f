"""Iterations that follow one another without a barrier: a pp_rank that ends early begins the next one at once.

What an iteration then takes, over many, is less than it would take alone, by the time in which pp_ranks wait at its
begin and its end. Each pp_rank begins so much later than the first as it does at all-maximum clocks over many
iterations, and has so much longer than the first to end: a constant before its first instruction, and one behind its
last. A plan that is on time in such a problem keeps iterations as frequent as they are at all-maximum clocks.
"""

from dataclasses import replace

import numpy as np

from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.units import IntArray, energy_uj

_LEAD, _LAG = "lead", "lag"  # no kinds that a schedule can have
_MAX_ITERATIONS = 32


def following_on(problem: PlanningProblem) -> tuple[PlanningProblem, int]:
    """The same iteration between others of its like.

    Returns:
        (the problem, [ps] how much longer its executions last than from one iteration's begin to the next one's). The
        second is 0, and the problem the same, where a barrier would make no difference.
    """
    alone_ps = replay_all_max(problem).time_ps
    lead_ps = np.zeros(len(problem.blocking_uw), dtype=np.int64)
    for _ in range(_MAX_ITERATIONS):
        before_ps, lead_ps = lead_ps, _next_lead_ps(problem, lead_ps)
        if np.array_equal(before_ps, lead_ps):
            break
    most_ps = int(lead_ps.max())
    between = _with_constants(problem, lead_ps)
    if not most_ps or replay_all_max(between).time_ps - most_ps >= alone_ps:
        return problem, 0
    return between, most_ps


def _next_lead_ps(problem: PlanningProblem, lead_ps: IntArray) -> IntArray:
    """(num_ranks) [ps] how much later than the first to end each pp_rank ends an iteration that it began so late."""
    begun_late = _with_constants(problem, lead_ps)
    end_ps = replay_all_max(begun_late).end_ps[: problem.dag.num_scheduled]
    ends_ps = np.zeros_like(lead_ps)
    np.maximum.at(ends_ps, problem.dag.pp_rank[: len(end_ps)], end_ps)
    later_ps: IntArray = ends_ps - ends_ps.min()
    return later_ps


def _with_constants(problem: PlanningProblem, lead_ps: IntArray) -> PlanningProblem:
    """With a constant before each pp_rank's first instruction, and one behind its last, where they are not 0."""
    dag = problem.dag
    curves: dict[tuple[int, str], CostCurve] = {(curve.stage, curve.kind): curve for curve in problem.curves}
    instructions, pp_ranks, edges = list(dag.instructions), dag.pp_rank.tolist(), dag.edges.tolist()
    lag_ps = lead_ps.max() - lead_ps
    first = 0
    for pp_rank, order in enumerate(dag.schedule.ranks):
        last = first + len(order) - 1
        for kind, time_ps in ((_LEAD, int(lead_ps[pp_rank])), (_LAG, int(lag_ps[pp_rank]))):
            if time_ps and order:
                node = Instruction(order[0].stage, kind, NO_MICROBATCH)
                edges.append([len(instructions), first] if kind == _LEAD else [last, len(instructions)])
                instructions.append(node)
                pp_ranks.append(pp_rank)
                curves[node.stage, kind] = _constant(node, time_ps, blocking_uw=int(problem.blocking_uw[pp_rank]))
        first = last + 1
    num_more = len(instructions) - len(dag.instructions)
    return problem_of(
        replace(
            dag,
            instructions=tuple(instructions),
            pp_rank=np.array(pp_ranks, dtype=np.int32),
            edges=np.array(sorted(edges, key=lambda edge: edge[1]), dtype=np.int32).reshape(-1, 2),
            previous_on_rank=np.append(dag.previous_on_rank, np.full(num_more, -1, dtype=np.int32)),
        ),
        curves,
        blocking_uw=problem.blocking_uw,
        tensor_parallel=problem.tensor_parallel,
    )


def _constant(node: Instruction, time_ps: int, *, blocking_uw: int) -> CostCurve:
    """Time in which a pp_rank waits."""
    return curve_of_choices(
        stage=node.stage,
        kind=node.kind,
        clocks_mhz=np.zeros(1, dtype=np.int64),
        durations_ps=np.array([time_ps], dtype=np.int64),
        energies_uj=np.array([energy_uj(blocking_uw, time_ps)], dtype=np.int64),
        blocking_uw=blocking_uw,
    )
