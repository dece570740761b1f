"""Iterations without a barrier: the problem of one between others, against many played one behind the other."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plan_requests import request

from perseus_dist.planner.worker.frontier_build import planned_request
from perseus_dist.planning.frontier.following_on import following_on
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.several_cases import Case, on_time_in_all
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule, gpipe, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import IntArray

MS_PS, BLOCKING_UW = 10**9, 80_000_000
ZBV = parse_schedule(  # torch's ScheduleZBVZeroBubble of two ranks and four microbatches
    "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3\n"
    "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3\n"
)
SCHEDULES = {"zbv": ZBV, "1f1b": one_f_one_b(pp=3, microbatches=5), "gpipe": gpipe(pp=3, microbatches=4)}
NUM_ITERATIONS = 40


def problem_with(schedule: Schedule, growth: float) -> PlanningProblem:
    """Stages that are longer the later they come."""
    clocks_mhz = np.array([1400, 1200, 1000], dtype=np.int64)
    dag = build_dag(schedule)
    curves: dict[tuple[int, str], CostCurve] = {}
    for stage, kind in sorted({one[:2] for one in dag.instructions}):
        length = (20 if kind == Kind.BACKWARD else 10) * MS_PS * (1 + growth * stage)
        durations_ps = np.rint(length * (0.3 + 0.7 * 1400 / clocks_mhz)).astype(np.int64)
        watts = 100 + 200 * (clocks_mhz / 1400) ** 3
        curves[stage, kind] = curve_of_choices(
            stage=stage,
            kind=kind,
            clocks_mhz=clocks_mhz,
            durations_ps=durations_ps,
            energies_uj=np.rint(durations_ps * watts / 10**6).astype(np.int64),
            blocking_uw=BLOCKING_UW,
        )
    blocking_uw = np.full(schedule.num_ranks, BLOCKING_UW, dtype=np.int64)
    return problem_of(dag, curves, blocking_uw=blocking_uw, tensor_parallel=1)


def between_iterations_ps(problem: PlanningProblem, plan: NDArray[np.integer]) -> float:
    """[ps] from one iteration to the next, of many: each rank begins as soon as it has ended the one before."""
    alone = replay(problem, plan)
    lasts_ps = (alone.end_ps - alone.start_ps).tolist()
    dag = problem.dag
    needs: list[list[int]] = [[] for _ in lasts_ps]
    for before, after in dag.edges.tolist():
        needs[after].append(before)
    order = np.argsort(alone.start_ps, kind="stable").tolist()
    free_ps = [0] * len(problem.blocking_uw)
    ends: list[int] = []
    for _ in range(NUM_ITERATIONS):
        end_ps = [0] * len(lasts_ps)
        for node in order:
            rank = int(dag.pp_rank[node])
            begin_ps = max([free_ps[rank], *(end_ps[before] for before in needs[node])])
            end_ps[node] = begin_ps + lasts_ps[node]
        for node, ended_ps in enumerate(end_ps):
            rank = int(dag.pp_rank[node])
            free_ps[rank] = max(free_ps[rank], ended_ps)
        ends.append(max(end_ps))
    half = NUM_ITERATIONS // 2
    return (ends[-1] - ends[half]) / (NUM_ITERATIONS - 1 - half)


def all_max(problem: PlanningProblem) -> IntArray:
    return np.zeros(problem.num_instructions, dtype=np.int64)


@pytest.mark.parametrize("name", SCHEDULES)
@given(growth=st.sampled_from([-0.2, -0.05, 0.0, 0.1, 0.3]))
@settings(max_examples=5, deadline=None)
def test_it_lasts_as_long_as_from_one_iteration_to_the_next_of_many(name: str, growth: float) -> None:
    problem = problem_with(SCHEDULES[name], growth)
    between, overlap_ps = following_on(problem)
    period_ps = replay_all_max(between).time_ps - overlap_ps
    assert period_ps == pytest.approx(between_iterations_ps(problem, all_max(problem)), rel=1e-9)
    assert period_ps <= replay_all_max(problem).time_ps


def test_a_schedule_whose_first_rank_ends_last_gains_nothing() -> None:
    problem = problem_with(SCHEDULES["1f1b"], 0.1)
    assert following_on(problem) == (problem, 0)


def test_plans_for_one_iteration_alone_are_late_and_those_of_both_cases_are_not() -> None:
    problem = problem_with(ZBV, 0.1)
    between, overlap_ps = following_on(problem)
    period_ps = between_iterations_ps(problem, all_max(problem))
    alone, together = (plan_frontier(one, thorough=True) for one in (problem, between))
    assert between_iterations_ps(problem, alone.clock_indices[0]) > 1.01 * period_ps
    merged = on_time_in_all(
        Case(alone, alone.baseline.time_ps), [Case(together, together.baseline.time_ps, overlap_ps)]
    )
    for point, row in enumerate(merged.clock_indices):
        share = merged.time_ps[point] / alone.baseline.time_ps
        assert between_iterations_ps(problem, row) <= 1.001 * share * period_ps
    assert all(first < second for first, second in pairwise(merged.time_ps.tolist()))


@pytest.mark.parametrize(("of_gain", "is_known"), [(0.9, True), (0.5, True), (0.2, False), (-1.0, False)])
def test_full_clocks_tell_whether_ranks_wait_for_one_another(of_gain: float, *, is_known: bool) -> None:
    of_two = request(pp=2)
    forwards = [one for one in of_two.contributions[0].samples if one.kind == Kind.FORWARD]
    samples = tuple(replace(one, chunk=chunk, kind=kind) for one in forwards for chunk in (0, 1) for kind in "FIW")
    contributions = tuple(replace(one, samples=samples) for one in of_two.contributions)
    zbv = replace(of_two, schedule_text=format_schedule(ZBV), contributions=contributions)
    bare = planned_request(zbv)
    between, overlap_ps = following_on(bare.frontier.problem)
    alone_s = bare.summary.baseline_time_ps / 1e12
    gained_s = alone_s - (replay_all_max(between).time_ps - overlap_ps) / 1e12
    assert gained_s > 0
    found = planned_request(replace(zbv, full_s=alone_s - of_gain * gained_s))
    late_ps = between_iterations_ps(found.frontier.problem, found.frontier.clock_indices[0])
    assert (late_ps <= 1.001e12 * (alone_s - gained_s)) is is_known
    assert found.summary.baseline_time_ps == bare.summary.baseline_time_ps
    assert found.summary.gained_ps == (pytest.approx(1e12 * gained_s, rel=1e-6) if is_known else 0)
