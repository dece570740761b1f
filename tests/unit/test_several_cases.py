"""Plans that are on time in several cases, against replays of each."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.planning.frontier.bounding_case import BoundingCase
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import frontier_from_npz, frontier_npz
from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.several_cases import Case, as_played, on_time_in_all
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.schedule.dag import build_dag
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD, Kind
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, interleaved, one_f_one_b

MS_PS, BLOCKING_UW = 10**9, 80_000_000
CLOCKS_MHZ = np.array([1400, 1300, 1200, 1100, 1000, 900], dtype=np.int64)
SCHEDULES = {
    "1f1b": one_f_one_b(pp=3, microbatches=5),
    "gpipe": gpipe(pp=3, microbatches=4),
    "interleaved": interleaved(pp=2, microbatches=4, chunks=2),
}
LATE = 1.0006  # what is allowed, and rounding

Links = Mapping[int, int]  # [ms] by the stage before it


def curve(stage: int, kind: str, rng: np.random.Generator, roughness: float) -> CostCurve:
    """Slower and cheaper at lower clocks, on the whole."""
    length = (10 if kind == Kind.FORWARD else 20) * MS_PS * (1 + 0.1 * stage)
    rough = 1 + roughness * rng.uniform(-1, 1, (2, len(CLOCKS_MHZ)))
    durations_ps = np.rint(length * (0.3 + 0.7 * 1400 / CLOCKS_MHZ) * rough[0]).astype(np.int64)
    watts = 100 + 200 * (CLOCKS_MHZ / 1400) ** 3 * rough[1]
    return curve_of_choices(
        stage=stage,
        kind=kind,
        clocks_mhz=CLOCKS_MHZ,
        durations_ps=durations_ps,
        energies_uj=np.rint(durations_ps * watts / 10**6).astype(np.int64),
        blocking_uw=BLOCKING_UW,
    )


def transfer(stage: int, kind: str, ms: int) -> CostCurve:
    values = [np.array([value], dtype=np.int64) for value in (0, ms * MS_PS, 0)]
    clocks_mhz, durations_ps, energies_uj = values
    return curve_of_choices(
        stage=stage,
        kind=kind,
        clocks_mhz=clocks_mhz,
        durations_ps=durations_ps,
        energies_uj=energies_uj,
        blocking_uw=BLOCKING_UW,
    )


def problem(schedule: Schedule, links: Links, *, seed: int = 0, roughness: float = 0.0) -> PlanningProblem:
    rng = np.random.default_rng(seed)
    curves: dict[tuple[int, str], CostCurve] = {
        (stage, kind): curve(stage, kind, rng, roughness)
        for stage in range(schedule.num_stages)
        for kind in (Kind.FORWARD, Kind.BACKWARD)
    }
    rank_of_stage = schedule.rank_of_stage
    for stage, ms in links.items():
        if ms and stage + 1 < schedule.num_stages and rank_of_stage[stage] != rank_of_stage[stage + 1]:
            curves[stage, SEND_FORWARD] = transfer(stage, SEND_FORWARD, ms)
            curves[stage + 1, SEND_BACKWARD] = transfer(stage + 1, SEND_BACKWARD, ms)
    dag = build_dag(schedule, {key for key in curves if key[1] in (SEND_FORWARD, SEND_BACKWARD)})
    blocking_uw = np.full(schedule.num_ranks, BLOCKING_UW, dtype=np.int64)
    return problem_of(dag, curves, blocking_uw=blocking_uw, tensor_parallel=1)


def case(schedule: Schedule, links: Links, latency_ms: int = 0, *, seed: int = 0, roughness: float = 0.0) -> Case:
    frontier = plan_frontier(
        problem(schedule, links, seed=seed, roughness=roughness),
        switch_latency_ps=latency_ms * MS_PS,
        num_points=16,
        thorough=False,
    )
    return Case(frontier, frontier.baseline.time_ps)


LINKS = st.dictionaries(st.integers(0, 2), st.integers(0, 40), max_size=3)


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    links=st.lists(LINKS, min_size=2, max_size=4),
    latency_ms=st.sampled_from((0, 2, 12)),
    seed=st.integers(0, 100),
    roughness=st.sampled_from((0.0, 0.02)),
)
def test_every_plan_is_on_time_in_every_case(
    name: str, links: list[Links], latency_ms: int, seed: int, roughness: float
) -> None:
    schedule = SCHEDULES[name]
    first, *others = (case(schedule, one, latency_ms, seed=seed, roughness=roughness) for one in links)
    merged = on_time_in_all(first, others)
    played = as_played(merged)
    loaded = frontier_from_npz(frontier_npz(played), Path("frontier.npz"))  # which replays every plan of it
    assert loaded.time_ps.tolist() == played.time_ps.tolist()
    assert {*map(bytes, played.clock_indices)} <= {*map(bytes, merged.clock_indices)}
    num_scheduled = first.frontier.problem.dag.num_scheduled
    for point, plan in enumerate(merged.clock_indices):
        share = merged.time_ps[point] / first.reference_ps
        for other in others:
            clocks = np.zeros(other.frontier.problem.num_instructions, dtype=np.uint16)
            clocks[:num_scheduled] = plan[:num_scheduled]
            execution = replay(other.frontier.problem, clocks, switch_latency_ps=latency_ms * MS_PS)
            assert execution.time_ps <= LATE * share * other.reference_ps
    at_full_speed = merged.point_for_deadline(first.reference_ps)
    assert merged.total_uj[at_full_speed] <= first.frontier.baseline.total_uj


@pytest.mark.stress
@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    links=st.lists(LINKS, min_size=3, max_size=6),
    latency_ms=st.sampled_from((0, 2, 12)),
    seed=st.integers(0, 100),
    roughness=st.sampled_from((0.0, 0.02)),
)
def test_every_plan_is_on_time_in_pipelines_that_have_no_frontier(
    name: str, links: list[Links], latency_ms: int, seed: int, roughness: float
) -> None:
    schedule = SCHEDULES[name]
    first = case(schedule, links[0], latency_ms, seed=seed, roughness=roughness)
    together = {stage: max(one.get(stage, 0) for one in links) for stage in range(3)}
    latency_ps = latency_ms * MS_PS
    bounding = BoundingCase(
        problem(schedule, together, seed=seed, roughness=roughness), first.reference_ps, switch_latency_ps=latency_ps
    )
    merged = on_time_in_all(first, [], [bounding])
    pipelines = [problem(schedule, one, seed=seed, roughness=roughness) for one in links]
    slowest_ps = max(replay_all_max(one).time_ps for one in pipelines)
    num_scheduled = first.frontier.problem.dag.num_scheduled
    for time_ps, plan in zip(merged.time_ps.tolist(), merged.clock_indices, strict=True):
        for pipeline in pipelines:
            clocks = np.zeros(pipeline.num_instructions, dtype=np.uint16)
            clocks[:num_scheduled] = plan[:num_scheduled]
            played = replay(pipeline, clocks, switch_latency_ps=latency_ps)
            assert played.time_ps <= LATE * max(time_ps, slowest_ps)


@pytest.mark.parametrize("latency_ms", [0, 2])
def test_what_two_cases_cost_together_lies_between_nothing_and_all_that_is_saved(latency_ms: int) -> None:
    schedule = one_f_one_b(pp=3, microbatches=5)
    well, slow = case(schedule, {}, latency_ms), case(schedule, {0: 4, 1: 8}, latency_ms)
    merged = on_time_in_all(well, [slow])
    deadline_ps = well.reference_ps
    alone_uj, together_uj = (int(one.total_uj[one.point_for_deadline(deadline_ps)]) for one in (well.frontier, merged))
    all_max_uj = well.frontier.baseline.total_uj
    saved, saved_alone = 1 - together_uj / all_max_uj, 1 - alone_uj / all_max_uj
    assert 0.4 * saved_alone < saved <= saved_alone
    times_ps = merged.time_ps.tolist()  # and slower plans are there for whoever waits
    steps = [later / earlier for earlier, later in pairwise(times_ps)]
    assert max(steps) < 1.03
    assert times_ps[-1] >= well.frontier.time_ps[-1]


def test_a_case_that_is_like_the_first_costs_nothing() -> None:
    schedule = one_f_one_b(pp=3, microbatches=5)
    first = case(schedule, {0: 5})
    merged = on_time_in_all(first, [case(schedule, {0: 5})])
    at = merged.point_for_deadline(first.reference_ps)
    assert merged.total_uj[at] == first.frontier.total_uj[first.frontier.point_for_deadline(first.reference_ps)]
    assert on_time_in_all(first, []) is first.frontier


def test_a_pipeline_that_waits_for_another_one_has_time() -> None:
    schedule = one_f_one_b(pp=3, microbatches=5)
    slow, elsewhere = case(schedule, {0: 30}), case(schedule, {1: 10})
    waiting = Case(elsewhere.frontier, slow.reference_ps)
    late, together = on_time_in_all(slow, [elsewhere]), on_time_in_all(slow, [waiting])
    deadline_ps = slow.reference_ps
    assert (
        together.total_uj[together.point_for_deadline(deadline_ps)]
        < late.total_uj[late.point_for_deadline(deadline_ps)]
    )
