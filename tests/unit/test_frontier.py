"""The frontier's look-ups on made-up points, and what holds for every frontier that is planned."""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.frontier import Bound, Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import PS_PER_MS, PS_PER_S, deadline_ps_from_s, energy_uj

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
LATENCY_PS = 10 * PS_PER_MS


@cache
def example_problem(*, microbatches: int = 4) -> PlanningProblem:
    schedule = one_f_one_b(pp=4, microbatches=microbatches)
    return make_problem(schedule, read_profile(EXAMPLE), blocking_uw_of_rank=[80_000_000] * 4)


@cache
def example_frontier(*, switch_latency_ps: int = 0) -> Frontier:
    return plan_frontier(example_problem(), switch_latency_ps=switch_latency_ps, num_points=24)


def made_up(points: list[tuple[int, int]]) -> Frontier:
    """Points are (time [s], effective energy [J]); waiting draws 4 x 80 W."""
    time_ps, effective_uj = np.array(points, dtype=np.int64).T * [[PS_PER_S], [10**6]]
    problem = example_problem()
    return Frontier(
        problem=problem,
        switch_latency_ps=0,
        bound=Bound(time_ps=time_ps, effective_uj=effective_uj, total_blocking_uw=problem.total_blocking_uw),
        time_ps=time_ps,
        effective_uj=effective_uj,
        num_changes=np.zeros(len(points), dtype=np.int32),
        clock_indices=np.zeros((len(points), problem.num_instructions), dtype=np.uint16),
        baseline=replay_all_max(problem),
    )


def test_look_ups_by_hand() -> None:
    """Total energies are 1320, 1300, 1330, 1280 and 1300 J."""
    frontier = made_up([(1, 1000), (2, 660), (3, 370), (4, 0), (5, -300)])
    np.testing.assert_array_equal(frontier.total_uj, np.array([1320, 1300, 1330, 1280, 1300]) * 10**6)
    assert frontier.deadline_points.tolist() == [0, 1, 3]
    assert (frontier.fastest_ps, frontier.t_star_ps) == (PS_PER_S, 4 * PS_PER_S)
    for deadline_ms, own, straggler in [
        (1000, 0, 0),
        (1999, 0, 0),
        (2000, 1, 1),
        (3500, 1, 2),
        (4000, 3, 3),
        (5000, 3, 4),
        (60_000, 3, 4),
    ]:
        assert frontier.point_for_deadline(deadline_ms * PS_PER_MS) == own
        assert frontier.point_for_straggler(deadline_ms * PS_PER_MS) == straggler
    np.testing.assert_allclose(frontier.gaps, np.zeros(5), atol=1e-12)


def test_a_deadline_before_the_fastest_plan() -> None:
    """The deadline that the message names, rounded up to the nanosecond, is met."""
    frontier = made_up([(2, 1000), (3, 0)])
    frontier = replace(frontier, time_ps=frontier.time_ps + 1)
    message = (
        r"the deadline of 1\.5 s cannot be met: the fastest plan takes (2\.000000001) s; give a deadline of at "
        "least that"
    )
    for look_up in (frontier.point_for_deadline, frontier.point_for_straggler):
        with pytest.raises(PlanningError, match=f"^{message}$") as caught:
            look_up(3 * PS_PER_S // 2)
        named = re.fullmatch(message, str(caught.value))
        assert named is not None
        assert look_up(deadline_ps_from_s(float(named[1]))) == 0


@st.composite
def staircases(draw: st.DrawFn) -> list[tuple[int, int]]:
    times = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=12)))
    num = len(times)
    energies = sorted(draw(st.sets(st.integers(-9000, 9000), min_size=num, max_size=num)), reverse=True)
    return list(zip(times, energies, strict=True))


@given(staircases(), st.integers(0, 70))
def test_look_ups_find_the_least_energy(points: list[tuple[int, int]], limit_s: int) -> None:
    frontier = made_up(points)
    total = frontier.total_uj.tolist()
    assert total == [(j + 320 * s) * 10**6 for s, j in points]
    on_time = [k for k, (s, _) in enumerate(points) if s <= limit_s]
    if on_time:
        assert frontier.point_for_deadline(limit_s * PS_PER_S) == min(on_time, key=lambda k: (total[k], k))
        assert frontier.point_for_straggler(limit_s * PS_PER_S) == min(on_time, key=lambda k: points[k][1])
    else:
        with pytest.raises(PlanningError):
            frontier.point_for_deadline(limit_s * PS_PER_S)
    assert total[frontier.deadline_points[-1]] == min(total)
    assert frontier.t_star_ps == points[total.index(min(total))][0] * PS_PER_S
    own = frontier.deadline_points.tolist()
    assert own[0] == 0
    assert all(total[a] > total[b] for a, b in pairwise(own))


def test_bound_between_and_beyond_its_vertices() -> None:
    bound = Bound(
        time_ps=np.array([1, 2]) * PS_PER_S, effective_uj=np.array([900, 100]) * 10**6, total_blocking_uw=50 * 10**6
    )
    times_ps = np.array([[1000, 1250], [2000, 4000]]) * PS_PER_MS
    np.testing.assert_allclose(bound.total_uj(times_ps), np.array([[950, 762.5], [200, 300]]) * 1e6)


@pytest.mark.parametrize("latency_ps", [0, LATENCY_PS])
def test_planned_points(latency_ps: int) -> None:
    frontier = example_frontier(switch_latency_ps=latency_ps)
    assert np.all(np.diff(frontier.time_ps) > 0)
    assert np.all(np.diff(frontier.effective_uj) < 0)
    assert frontier.clock_indices.dtype == np.uint16
    for point in range(0, len(frontier.time_ps), 3):
        execution = frontier.execution(point)
        assert execution.time_ps == frontier.time_ps[point]
        assert execution.total_uj == frontier.total_uj[point]
        assert execution.changes.sum() == frontier.num_changes[point]
    assert np.all(frontier.gaps >= -1e-9)


@pytest.mark.parametrize("latency_ms", [10, 150, 400])
def test_every_change_of_clock_arrives_within_its_instruction(latency_ms: int) -> None:
    """The next one would overtake it, and the rank would run at other clocks than planned; forwards take 37 ms here."""
    problem, latency_ps = example_problem(), latency_ms * PS_PER_MS
    frontier = example_frontier(switch_latency_ps=latency_ps)
    previous: dict[int, int] = {}
    pairs = []
    for index, instruction in enumerate(problem.dag.instructions):
        if instruction.kind in ("F", "B"):
            pp_rank = int(problem.dag.pp_rank[index])
            if pp_rank in previous:
                pairs.append((previous[pp_rank], index))
            previous[pp_rank] = index
    assert len(pairs) == 4 * 7
    num_changes = 0
    for plan in frontier.clock_indices:
        played = replay(problem, plan, switch_latency_ps=latency_ps)
        for before, index in pairs:
            if played.clocks_mhz[before] != played.clocks_mhz[index]:
                num_changes += 1
                assert played.end_ps[before] + latency_ps < played.end_ps[index]
    assert num_changes > 0 or len(frontier.time_ps) == 1


@pytest.mark.parametrize("latency_ps", [0, LATENCY_PS])
def test_a_plan_no_slower_than_all_max_saves_energy(latency_ps: int) -> None:
    frontier = example_frontier(switch_latency_ps=latency_ps)
    baseline = replay(
        example_problem(), np.zeros(example_problem().num_instructions, int), switch_latency_ps=latency_ps
    )
    assert frontier.baseline.time_ps == baseline.time_ps
    assert frontier.time_ps[0] <= baseline.time_ps
    assert frontier.total_uj[frontier.point_for_deadline(baseline.time_ps)] < 0.95 * baseline.total_uj


def test_the_bound_spans_from_the_fastest_to_the_cheapest_iteration() -> None:
    """The ends of the bound are replays: all at their fastest clock, and all at their cheapest."""
    frontier, problem = example_frontier(), example_problem()
    fastest = replay(problem, np.array([curve.choices[0] for curve in problem.curves])[problem.curve_of])
    cheapest = replay(problem, np.array([curve.at_least_energy for curve in problem.curves])[problem.curve_of])
    assert frontier.bound.time_ps[0] == fastest.time_ps == frontier.fastest_ps
    assert frontier.bound.time_ps[-1] == cheapest.time_ps
    waiting_uj = energy_uj(problem.total_blocking_uw, cheapest.time_ps)
    below_uj = cheapest.total_uj - waiting_uj - frontier.bound.effective_uj[-1]
    assert 0 <= below_uj <= 2 + problem.num_instructions, "energies are whole microjoules"
    slopes = np.diff(frontier.bound.effective_uj) / np.diff(frontier.bound.time_ps)
    assert np.all(np.diff(slopes) > 0)
    assert slopes[-1] < 0


def test_deadlines_get_plans_of_their_own() -> None:
    all_max_ps = replay_all_max(example_problem()).time_ps
    deadlines_ps = [round(all_max_ps * factor) for factor in (1.013, 1.027, 1.041, 2.0, 0.5)]  # unsorted, some outside
    coarse = plan_frontier(example_problem(), num_points=2)
    frontier = plan_frontier(example_problem(), num_points=2, deadlines_ps=deadlines_ps)
    for deadline_ps in deadlines_ps[:3]:
        found, without = frontier.point_for_deadline(deadline_ps), coarse.point_for_deadline(deadline_ps)
        assert frontier.time_ps[found] <= deadline_ps
        assert frontier.total_uj[found] < coarse.total_uj[without]
        assert frontier.total_uj[found] <= 1.01 * frontier.bound.total_uj(np.array(deadline_ps))


@pytest.mark.parametrize("microbatches", [12, 96])
@pytest.mark.parametrize(
    ("name", "blocking_uw"), [("gpt3-175b+a100_sxm_bf16", 83_640_000), ("bloom+a40_bf16", 70_380_000)]
)
def test_gaps_on_published_profiles(shared_data: Path, name: str, blocking_uw: int, microbatches: int) -> None:
    profile = read_profile(shared_data / "sosp24" / "stage_profile" / f"{name}.csv")
    problem = make_problem(one_f_one_b(pp=8, microbatches=microbatches), profile, blocking_uw_of_rank=[blocking_uw] * 8)
    frontier = plan_frontier(problem)
    assert len(frontier.time_ps) >= 200
    assert -1e-9 <= frontier.gaps.min() <= frontier.gaps.max() <= 0.005
    assert frontier.gaps.mean() <= 0.0015
    assert frontier.fastest_ps <= frontier.baseline.time_ps


@pytest.mark.parametrize("phase", ["exact frontier", "realised plans"])
def test_planning_is_cancelled_in_either_phase(phase: str) -> None:
    seen: list[tuple[str, float]] = []

    def until_the_phase(now: str, done: float) -> bool:
        seen.append((now, done))
        return now != phase

    with pytest.raises(PlanningError, match=r"^planning was cancelled; nothing was written$"):
        plan_frontier(example_problem(microbatches=3000), tolerance=0, progress=until_the_phase)
    assert seen[-1][0] == phase
    assert sum(now == phase for now, _ in seen) == 1
    assert all(0 <= done <= 1 for _, done in seen)


@pytest.mark.parametrize("phase", ["exact frontier", "realised plans"])
def test_what_progress_raises_passes_through(phase: str) -> None:
    def fail_in_phase(now: str, _: float) -> bool:
        if now == phase:
            raise LookupError(phase)
        return True

    with pytest.raises(LookupError, match=phase):
        plan_frontier(example_problem(microbatches=3000), tolerance=0, progress=fail_in_phase)
