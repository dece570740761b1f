"""Plans with shared clocks: what holds for every frontier of them, on time, with energies as they are replayed."""

import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_baselines import problems

import perseus_dist
from perseus_dist.errors import ArgumentError, FrontierFileError, PlanningError
from perseus_dist.planning.coarse.clock_groups import clock_groups
from perseus_dist.planning.coarse.coarse_frontier import plan_by, plan_coarse_frontier, reaches_all
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.frontier_file import frontier_from_npz, frontier_npz, load_frontier, save_frontier
from perseus_dist.planning.frontier.plan import plan_document, plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, interleaved, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.units import PS_PER_MS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULES = {
    "1f1b": one_f_one_b(pp=4, microbatches=6),
    "gpipe": gpipe(pp=4, microbatches=3),
    "interleaved": interleaved(pp=2, microbatches=4, chunks=2),
}
MOST_PLANS = 800
COARSE = [Granularity.PHASE, Granularity.RANK]


def problem_of(schedule: Schedule, profile: Profile | None = None) -> PlanningProblem:
    measured = read_profile(EXAMPLE) if profile is None else profile
    return make_problem(schedule, measured, blocking_uw_of_rank=[80_000_000] * schedule.num_ranks)


def with_clocks(measured: Measurements, kept: slice | list[int]) -> Measurements:
    names = ("clocks_mhz", "times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j")
    return replace(measured, **{name: getattr(measured, name)[..., kept] for name in names})


@cache
def planned(name: str, granularity: Granularity, latency_ms: int = 0) -> Frontier:
    return plan_coarse_frontier(problem_of(SCHEDULES[name]), granularity, switch_latency_ps=latency_ms * PS_PER_MS)


@pytest.mark.parametrize("latency_ms", [0, pytest.param(12, marks=pytest.mark.stress)])
@pytest.mark.parametrize("granularity", COARSE)
@pytest.mark.parametrize("name", SCHEDULES)
def test_what_holds_for_every_frontier(name: str, granularity: Granularity, latency_ms: int) -> None:
    frontier = planned(name, granularity, latency_ms)
    groups = sharing(SCHEDULES[name], granularity)
    assert len(frontier.time_ps) > 10
    assert (np.diff(frontier.time_ps) > 0).all()
    assert (np.diff(frontier.effective_uj) < 0).all()
    assert frontier.time_ps[0] <= frontier.baseline.time_ps
    for point, clock_indices in enumerate(frontier.clock_indices):
        execution = replay(frontier.problem, clock_indices, switch_latency_ps=latency_ms * PS_PER_MS)
        assert (execution.time_ps, execution.effective_uj) == (frontier.time_ps[point], frontier.effective_uj[point])
        assert all(len(set(execution.clocks_mhz[group].tolist())) == 1 for group in groups)
        assert execution.changes.max() <= (2 if granularity == Granularity.PHASE else 0)
        assert reaches_all(frontier.problem, execution, latency_ms * PS_PER_MS)
    assert (frontier.gaps >= 0).all()
    assert frontier.gaps.max() < (0.01 if latency_ms == 0 else 0.05)


def test_finer_is_no_worse() -> None:
    """At the same deadline: a rank's plan is one by phases, and that one by instructions."""
    problem = problem_of(SCHEDULES["1f1b"])
    for slowdown in (1.0, 1.03, 1.1):
        deadline_ps = round(slowdown * replay_all_max(problem).time_ps)
        fine = plan_by(problem, Granularity.INSTRUCTION, deadlines_ps=[deadline_ps])
        coarse = [plan_coarse_frontier(problem, each, deadlines_ps=[deadline_ps], is_whole=False) for each in COARSE]
        energies = []
        for frontier in (fine, *coarse):
            point = frontier.point_for_deadline(deadline_ps)
            assert frontier.time_ps[point] <= deadline_ps
            energies.append(int(frontier.total_uj[point]))
        assert energies == sorted(energies)
        assert len(set(energies)) == 3


def every_plan(problem: PlanningProblem, granularity: Granularity) -> list[tuple[int, int]]:
    """Time [ps] and effective energy [uJ] of each plan with shared clocks."""
    groups = sharing(problem.dag.schedule, granularity)
    clocks_of = [problem.curves[curve].clocks_mhz.tolist() for curve in problem.curve_of.tolist()]
    common = [sorted(set.intersection(*(set(clocks_of[one]) for one in group))) for group in groups]
    if math.prod(map(len, common)) > MOST_PLANS:
        return []
    plans = []
    for clocks_mhz in product(*common):
        indices = np.zeros(problem.num_instructions, dtype=np.int32)
        for group, clock_mhz in zip(groups, clocks_mhz, strict=True):
            indices[group] = [clocks_of[one].index(clock_mhz) for one in group]
        execution = replay(problem, indices)
        plans.append((execution.time_ps, execution.effective_uj))
    return plans


@settings(max_examples=60)
@given(problems(), st.sampled_from(COARSE), st.sampled_from([1.0, 1.003, 1.05, 1.2, 1.5]))
def test_against_every_plan_there_is(problem: PlanningProblem, granularity: Granularity, slowdown: float) -> None:
    """On curves of pure noise."""
    deadline_ps = round(slowdown * replay_all_max(problem).time_ps)
    plans = every_plan(problem, granularity)
    if plans:
        frontier = plan_coarse_frontier(problem, granularity, deadlines_ps=[deadline_ps], is_whole=False)
        best_uj = min(effective_uj for time_ps, effective_uj in plans if time_ps <= deadline_ps)
        assert frontier.effective_uj[frontier.point_for_straggler(deadline_ps)] == best_uj


def test_with_few_plans_the_best_is_found_for_every_deadline() -> None:
    """Of 256 plans, some of which are found by branch and bound alone."""
    profile = read_profile(EXAMPLE)
    few = {key: with_clocks(measured, slice(None, None, 10)) for key, measured in profile.measurements.items()}
    problem = problem_of(SCHEDULES["gpipe"], replace(profile, measurements=few))
    plans = every_plan(problem, Granularity.RANK)
    assert len(plans) == 256
    best_uj = {at_ps: at_uj for at_ps, at_uj in plans if at_uj == min(uj for time_ps, uj in plans if time_ps <= at_ps)}
    frontier = plan_coarse_frontier(problem, Granularity.RANK, deadlines_ps=sorted(best_uj), is_whole=False)
    found_uj = {at_ps: frontier.effective_uj[frontier.point_for_straggler(at_ps)] for at_ps in best_uj}
    assert found_uj == best_uj


@settings(max_examples=30)
@given(problems(), st.sampled_from(COARSE), st.sampled_from([10, 200, 10_000]))
def test_late_changes_on_any_problem(problem: PlanningProblem, granularity: Granularity, latency_ms: int) -> None:
    latency_ps = latency_ms * PS_PER_MS
    frontier = plan_coarse_frontier(problem, granularity, switch_latency_ps=latency_ps, is_whole=False)
    assert frontier.fastest_ps <= frontier.baseline.time_ps
    assert all(reaches_all(problem, frontier.execution(at), latency_ps) for at in range(len(frontier.time_ps)))
    loaded = frontier_from_npz(frontier_npz(frontier), "saved")
    np.testing.assert_array_equal(loaded.clock_indices, frontier.clock_indices)


def test_the_bound_covers_changes_of_clocks_that_take_time() -> None:
    """A late change mixes two clocks in one computation, which no plan without latency can."""
    problem = problem_of(SCHEDULES["1f1b"])
    strict = plan_coarse_frontier(problem, Granularity.PHASE, is_whole=False)
    late = plan_coarse_frontier(problem, Granularity.PHASE, switch_latency_ps=12 * PS_PER_MS, is_whole=False)
    at_ps = np.array([strict.baseline.time_ps])
    assert late.bound.total_uj(at_ps)[0] < strict.bound.total_uj(at_ps)[0]


def test_changes_that_no_rank_can_follow_are_left_out() -> None:
    """With a latency longer than every computation, only what waiting hides is changed."""
    problem = problem_of(SCHEDULES["1f1b"])
    latency_ps = 200 * PS_PER_MS
    frontier = plan_coarse_frontier(problem, Granularity.PHASE, switch_latency_ps=latency_ps)
    by_rank = plan_coarse_frontier(problem, Granularity.RANK, switch_latency_ps=latency_ps)
    for point in range(len(frontier.time_ps)):
        assert reaches_all(problem, frontier.execution(point), latency_ps)
    for deadline_ps in by_rank.time_ps[by_rank.deadline_points].tolist()[::8]:
        assert frontier.time_ps[frontier.point_for_deadline(deadline_ps)] <= deadline_ps


def test_a_deadline_that_changes_of_clocks_make_the_least_energy_miss(tmp_path: Path) -> None:
    """A slower plan is on time, and not that at full clocks alone."""
    backwards_j = {1400: 40, 1200: 32, 1000: 34, 800: 40}
    rows = [
        f"{stage},{name},{mhz},{time_s * 1400 / mhz},{energy_j}"
        for stage in range(2)
        for mhz, backward_j in backwards_j.items()
        for name, time_s, energy_j in (("forward", 0.05, 10 + mhz / 100), ("backward", 0.1, backward_j))
    ]
    path = tmp_path / "profile.csv"
    path.write_text("\n".join(["stage,instruction,frequency,time,energy", *rows]) + "\n")
    schedule = one_f_one_b(pp=2, microbatches=2)
    problem = make_problem(schedule, read_profile(path), blocking_uw_of_rank=[20_000_000] * 2)
    at_once, in_time = (
        plan_coarse_frontier(problem, Granularity.PHASE, switch_latency_ps=latency_ms * PS_PER_MS, is_whole=False)
        for latency_ms in (0, 20)
    )
    deadline_ps = (int(at_once.time_ps[-1]) + int(in_time.time_ps[-1])) // 2
    assert at_once.time_ps[-1] < deadline_ps < in_time.time_ps[-1]
    frontier = plan_coarse_frontier(
        problem, Granularity.PHASE, switch_latency_ps=20 * PS_PER_MS, deadlines_ps=[deadline_ps], is_whole=False
    )
    found = frontier.point_for_straggler(deadline_ps)
    assert frontier.baseline.time_ps < frontier.time_ps[found] <= deadline_ps
    assert frontier.effective_uj[found] < 0.8 * frontier.baseline.effective_uj


def test_constants_and_tensor_parallel(tmp_path: Path) -> None:
    lines = EXAMPLE.read_text().rstrip().splitlines()
    path = tmp_path / "profile.csv"
    path.write_text("\n".join([*lines, "0,load,1410,0.01,1", "0,step,1410,0.05,3"]) + "\n")
    text = "\n".join(str(perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=4)).splitlines())
    schedule = parse_schedule("0LOAD0 " + text.replace("\n", " 0STEP\n", 1))
    problem = make_problem(schedule, read_profile(path), blocking_uw_of_rank=[80_000_000] * 4, tensor_parallel=2)
    for granularity in COARSE:
        frontier = plan_coarse_frontier(problem, granularity)
        assert frontier.gaps.max() < 0.01
        constants = [str(i) in {"0LOAD0", "0STEP"} for i in problem.dag.instructions]
        assert (frontier.execution(0).clocks_mhz[constants] == 0).all()


def test_refuses_computations_of_other_maximum_clocks() -> None:
    """Even where the second highest clock is the same."""
    profile = read_profile(EXAMPLE)
    num_clocks = len(profile.measurements[1, "F"].clocks_mhz)
    kept_of = {"F": [0, *range(2, num_clocks)], "B": [*range(1, num_clocks)]}
    cut = {(1, kind): with_clocks(profile.measurements[1, kind], kept) for kind, kept in kept_of.items()}
    assert len({int(measured.clocks_mhz[1]) for measured in cut.values()}) == 1
    problem = problem_of(SCHEDULES["1f1b"], replace(profile, measurements={**profile.measurements, **cut}))
    with pytest.raises(
        PlanningError, match="saw stage 1 backward 1395 MHz, stage 1 forward 1410 MHz, expected one clock"
    ) as caught:
        plan_coarse_frontier(problem, Granularity.RANK)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("granularity", COARSE)
def test_a_saved_frontier_gives_back_the_same(granularity: Granularity, tmp_path: Path) -> None:
    frontier = planned("1f1b", granularity)
    save_frontier(frontier, tmp_path / "frontier.npz")
    loaded = load_frontier(tmp_path / "frontier.npz")
    assert loaded.granularity == granularity
    np.testing.assert_array_equal(loaded.clock_indices, frontier.clock_indices)
    np.testing.assert_array_equal(loaded.bound.effective_uj, frontier.bound.effective_uj)
    assert frontier_npz(loaded) == frontier_npz(frontier)
    deadline_ps = round(1.05 * frontier.baseline.time_ps)
    document = plan_document(plan_for_deadline(loaded, deadline_ps))
    assert document["granularity"] == granularity
    execution = plan_for_deadline(frontier, deadline_ps).execution
    for pp_rank, rank in enumerate(document["ranks"]):
        own = execution.dag.pp_rank == pp_rank
        clocks_mhz = [clock["clock_mhz"] for clock in rank["clocks"]]
        assert len(clocks_mhz) == (1 if granularity == Granularity.RANK else 3)
        assert set(clocks_mhz) == set(execution.clocks_mhz[own].tolist())
        begins_ps = [round(clock["begin_s"] * 1e12) for clock in rank["clocks"]]
        assert begins_ps[0] == 0
        assert set(begins_ps[1:]) <= set(execution.end_ps[own].tolist())
        of_first = execution.start_ps[own][-1] if granularity == Granularity.PHASE else 0
        assert begins_ps[-1] <= of_first


def test_a_file_that_shares_no_clocks_as_it_says_is_refused() -> None:
    fine = plan_by(problem_of(SCHEDULES["1f1b"]), Granularity.INSTRUCTION)
    for granularity in COARSE:
        with pytest.raises(FrontierFileError, match="parts do not fit together"):
            frontier_from_npz(frontier_npz(replace(fine, granularity=granularity)), "made up")


def test_cancelling_ends_planning() -> None:
    problem = problem_of(SCHEDULES["1f1b"])
    with pytest.raises(PlanningError, match="cancelled"):
        plan_coarse_frontier(problem, Granularity.RANK, progress=lambda *_: False)
    seen: list[float] = []

    def progress(_: str, done: float) -> bool:
        seen.append(done)
        return True

    plan_coarse_frontier(problem, Granularity.RANK, progress=progress)
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_deadlines_that_no_plan_meets() -> None:
    frontier = planned("1f1b", Granularity.RANK)
    with pytest.raises(PlanningError, match="cannot be met"):
        frontier.point_for_deadline(frontier.fastest_ps - 1)
    with pytest.raises(PlanningError, match="expected whole picoseconds"):
        plan_coarse_frontier(frontier.problem, Granularity.RANK, deadlines_ps=[0.5])  # type: ignore[list-item]
    same = plan_coarse_frontier(frontier.problem, Granularity.RANK, deadlines_ps=[1, 10**18])
    assert same.fastest_ps == frontier.fastest_ps


def test_the_library() -> None:
    schedule = perseus_dist.Schedule.one_f_one_b(pp=4, microbatches=6)
    frontier = perseus_dist.plan(EXAMPLE, schedule, blocking_power_w=80, granularity="rank", slowdowns=[1.05])
    assert frontier.granularity == "rank"
    assert "one clock for each rank" in frontier.summary()
    clocks = frontier.at(slowdown=1.05).clocks_mhz
    assert len({clock for name, clock in clocks.items() if name.startswith("0")}) == 1
    for wrong in ("Rank", "", 3, None, ["rank"]):
        with pytest.raises(ArgumentError, match=r"granularity: saw .*, expected 'instruction', 'phase' or 'rank'"):
            perseus_dist.plan(EXAMPLE, schedule, blocking_power_w=80, granularity=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_as_fast", [0, 2])
def test_choices_of_a_group_are_those_worth_choosing(num_as_fast: int) -> None:
    """Dropping a clock that another one beats changes nothing that can be planned."""
    profile = read_profile(EXAMPLE)
    for measured in profile.measurements.values():  # clocks that are as fast as the highest, and take less energy
        measured.times_s[..., 1 : 1 + num_as_fast] = measured.times_s[..., :1]
    groups = clock_groups(problem_of(SCHEDULES["1f1b"], profile), Granularity.RANK)
    for group, number in enumerate(groups.num_choices.tolist()):
        columns = np.vstack([groups.choice_ps[group], groups.choice_uj[group]])[:, :number]
        beats = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)
        assert beats.sum() == number
        assert (groups.choice_uj[group, number:] == groups.choice_uj[group, number - 1]).all()


def test_an_iteration_of_nanoseconds_comes_to_an_end(tmp_path: Path) -> None:
    """The shortest times that a profile may have: the shares by which faster clocks are sought round to nothing."""
    rows = [f"0,{name},{clock},1e-9,1e-6" for name in ("forward", "backward") for clock in (1400, 700)]
    (tmp_path / "profile.csv").write_text("\n".join(["stage,instruction,frequency,time,energy", *rows]))
    schedule = perseus_dist.Schedule.gpipe(pp=1, microbatches=1)
    frontier = perseus_dist.plan(tmp_path / "profile.csv", schedule, blocking_power_w=80, granularity="rank")
    assert frontier.fastest_s == frontier.t_star_s == frontier.t_min_s == 2e-9
    assert perseus_dist.compare(frontier)["all_max"].time_s == 2e-9
