"""Zeus, EnvPipe, and the comparison of perseus-dist with them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perseus_dist.errors import PlanningError
from perseus_dist.planning.baselines.baselines import zeus_global, zeus_per_stage
from perseus_dist.planning.baselines.comparison import Comparison, compare
from perseus_dist.planning.baselines.envpipe import envpipe
from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.problem import PlanningProblem, make_problem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.profile.profile import Measurements, Profile, read_profile
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, one_f_one_b
from perseus_dist.units import PS_PER_MS, PS_PER_S, UJ_PER_J

Point = tuple[int, float, float]  # clock [MHz], time [s], energy [J]
BLOCKING_W = 50

# Light and heavy stages. At 500 MHz everything takes twice as long and draws 90 % of the energy.
LIGHT: dict[str, list[Point]] = {"F": [(1000, 1, 200), (500, 2, 180)], "B": [(1000, 2, 400), (500, 4, 360)]}
HEAVY: dict[str, list[Point]] = {"F": [(1000, 2, 400), (500, 4, 360)], "B": [(1000, 4, 800), (500, 8, 720)]}


def make(schedule: Schedule, stages: Sequence[Mapping[str, Sequence[Point]]], **options: int) -> PlanningProblem:
    def measured(points: Sequence[Point]) -> Measurements:
        clocks_mhz, times_s, energies_j = map(np.array, zip(*points, strict=True))
        unknown = np.full((1, len(points)), np.nan)
        return Measurements(
            clocks_mhz=clocks_mhz.astype(np.int64),
            gpus=("",),
            times_s=times_s[None].astype(np.float64),
            energies_j=energies_j[None].astype(np.float64),
            num_samples=np.ones((1, len(points))),
            time_std_s=unknown,
            energy_std_j=unknown,
        )

    measurements = {(s, kind): measured(points) for s, kinds in enumerate(stages) for kind, points in kinds.items()}
    profile = Profile(source="made up", measurements=measurements)
    blocking_uw = [BLOCKING_W * 10**6] * schedule.num_ranks
    return make_problem(schedule, profile, blocking_uw_of_rank=blocking_uw, **options)


def light_then_heavy() -> PlanningProblem:
    """All-max: 15 s, 3600 J of work and 12 s of waiting."""
    return make(one_f_one_b(pp=2, microbatches=2), [LIGHT, HEAVY])


def slowed(problem: PlanningProblem, clock_indices: Int32Array) -> set[str]:
    """The instructions that are not at their maximum clock."""
    return {str(problem.dag.instructions[i]) for i in np.flatnonzero(clock_indices)}


def time_and_energy(problem: PlanningProblem, clock_indices: Int32Array) -> tuple[float, float]:
    execution = replay(problem, clock_indices)
    return execution.time_ps / PS_PER_S, execution.total_uj / UJ_PER_J


def test_zeus_global_sweeps_all_clocks() -> None:
    problem = light_then_heavy()
    assert [time_and_energy(problem, choice) for choice in zeus_global(problem)] == [(15, 4200), (30, 4440)]


def test_zeus_global_takes_the_nearest_clock_and_the_higher_of_two() -> None:
    other = {
        "F": [(1100, 1.0, 1.0), (900, 1.1, 1.0), (600, 1.2, 1.0)],
        "B": [(900, 1.0, 1.0), (600, 1.1, 1.0)],
        "LOAD": [(1000, 1.0, 1.0)],
    }
    schedule = Schedule(
        ranks=(
            (Instruction(0, "F", 0), Instruction(0, "B", 0)),
            (Instruction(1, "LOAD", 0), Instruction(1, "F", 0), Instruction(1, "B", 0)),
        )
    )
    problem = make(schedule, [LIGHT, other])
    assert [problem.clocks_mhz(choice).tolist() for choice in zeus_global(problem)] == [
        [1000, 1000, 0, 1100, 900],  # for 1100 MHz
        [1000, 1000, 0, 1100, 900],  # 1000
        [1000, 1000, 0, 900, 900],  # 900
        [500, 500, 0, 600, 600],  # 600
        [500, 500, 0, 600, 600],  # 500
    ]


def test_zeus_per_stage_balances_forwards_and_may_be_late() -> None:
    problem = light_then_heavy()
    balanced, slow = zeus_per_stage(problem)
    assert slowed(problem, balanced) == {"0F0", "0F1", "0B0", "0B1"}
    assert time_and_energy(problem, balanced) == (18, 4080)  # 0F0 is 1 s longer before all the rest, 0B1 2 s after it
    assert time_and_energy(problem, slow) == (30, 4440)


def test_zeus_per_stage_gives_each_chunk_a_clock() -> None:
    problem = make(interleaved(pp=2, microbatches=2, chunks=2), [LIGHT, LIGHT, LIGHT, HEAVY])
    balanced = problem.clocks_mhz(zeus_per_stage(problem)[0])
    stages = [instruction.stage for instruction in problem.dag.instructions]
    assert set(zip(stages, balanced.tolist(), strict=True)) == {(0, 500), (1, 500), (2, 500), (3, 1000)}


def test_envpipe_slows_what_is_outside_the_envelope() -> None:
    problem = light_then_heavy()
    clocks = envpipe(problem)
    assert slowed(problem, clocks) == {"0F1", "0B0"}
    assert time_and_energy(problem, clocks) == (15, 4200 - (150 - 80) - (300 - 160))  # effective energies


def test_envpipe_raises_one_clock_at_a_time() -> None:
    """0B0 has 6 s, from the end of 1B0 to the start of 0B1, and begins with 8."""
    light: dict[str, list[Point]] = {**LIGHT, "B": [(1000, 2, 400), (750, 5, 380), (500, 6, 360), (400, 8, 340)]}
    problem = make(one_f_one_b(pp=2, microbatches=2), [light, HEAVY])
    clocks = envpipe(problem)
    assert slowed(problem, clocks) == {"0F1", "0B0"}
    assert set(problem.clocks_mhz(clocks)[clocks > 0].tolist()) == {500}
    assert time_and_energy(problem, clocks)[0] == 15


def test_envpipe_ends_where_the_last_stage_is_not_the_heaviest() -> None:
    problem = make(one_f_one_b(pp=2, microbatches=2), [HEAVY, LIGHT])
    assert not slowed(problem, envpipe(problem))


@st.composite
def problems(draw: st.DrawFn) -> PlanningProblem:
    """Small pipelines with noisy curves, clock lists of their own, split backwards and constant instructions."""
    schedule = one_f_one_b(pp=draw(st.integers(1, 3)), microbatches=draw(st.integers(1, 4)))
    split = draw(st.sets(st.integers(0, schedule.num_ranks - 1)))
    constant = draw(st.booleans())
    ranks = []
    for stage, order in enumerate(schedule.ranks):
        rank = [Instruction(0, "LOAD", 0)] if constant and stage == 0 else []
        for instruction in order:
            halves = instruction.kind == Kind.BACKWARD and stage in split
            kinds = (Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT) if halves else (instruction.kind,)
            rank += [instruction._replace(kind=kind) for kind in kinds]
        ranks.append((*rank, Instruction(stage, "STEP", NO_MICROBATCH)) if constant else tuple(rank))
    stages = []
    for run in ranks:
        clocks = sorted(draw(st.sets(st.sampled_from(range(900, 1500, 75)), min_size=2, max_size=4)), reverse=True)
        stages.append(
            {
                kind: [
                    (clock, draw(st.integers(1, 30)) / 10, draw(st.integers(1, 60)) * 10.0)
                    for clock in (clocks if kind in set(Kind) else clocks[:1])
                ]
                for kind in sorted({instruction.kind for instruction in run})
            }
        )
    return make(Schedule(ranks=tuple(ranks)), stages, tensor_parallel=draw(st.sampled_from([1, 2])))


@given(problems())
def test_zeus_has_one_clock(problem: PlanningProblem) -> None:
    constant = np.array([instruction.is_constant for instruction in problem.dag.instructions])
    stage = np.array([instruction.stage for instruction in problem.dag.instructions])
    lists = {curve.stage: curve.clocks_mhz for curve in problem.curves if curve.kind == Kind.FORWARD}
    wanted_mhz = sorted(set(np.concatenate(list(lists.values())).tolist()), reverse=True)
    for wanted, choice in zip(wanted_mhz, zeus_global(problem), strict=True):
        clocks_mhz = problem.clocks_mhz(choice)
        assert (clocks_mhz[constant] == 0).all()
        for s, list_mhz in lists.items():
            own = clocks_mhz[~constant & (stage == s)]
            assert (np.abs(own - wanted) == np.abs(list_mhz - wanted).min()).all()
    for choice in zeus_per_stage(problem):
        clocks_mhz = problem.clocks_mhz(choice)
        assert (clocks_mhz[constant] == 0).all()
        assert all(len(set(clocks_mhz[~constant & (stage == s)].tolist())) == 1 for s in lists)


@given(problems())
def test_zeus_per_stage_starts_with_no_forward_longer_than_the_heaviest(problem: PlanningProblem) -> None:
    forwards = [i for i, instruction in enumerate(problem.dag.instructions) if instruction.kind == Kind.FORWARD]

    def longest_ps(clock_indices: Int32Array) -> int:
        execution = replay(problem, clock_indices)
        return int((execution.end_ps - execution.start_ps)[forwards].max())

    at_max = np.zeros(problem.num_instructions, dtype=np.int32)
    assert longest_ps(zeus_per_stage(problem)[0]) <= longest_ps(at_max)


@given(problems())
def test_envpipe_is_never_late_and_keeps_its_envelope(problem: PlanningProblem) -> None:
    schedule, clocks = problem.dag.schedule, envpipe(problem)
    assert replay(problem, clocks).time_ps <= replay_all_max(problem).time_ps
    last_stage, last_microbatch = schedule.num_stages - 1, schedule.num_microbatches - 1
    for i in np.flatnonzero(clocks):
        stage, kind, microbatch = problem.dag.instructions[i]
        assert kind in set(Kind)
        assert stage != last_stage
        assert microbatch != (0 if kind == Kind.FORWARD else last_microbatch)


def by_key(comparison: Comparison) -> dict[str, tuple[str, float, float]]:
    """Slowdown and saving in percent, rounded."""
    return {
        plan.key: (plan.name, round(100 * plan.slowdown_share, 3), round(100 * plan.saving_share, 3))
        for plan in comparison.plans
    }


def test_comparison_by_hand() -> None:
    """With all else on the critical path, and each second of it worth more than it saves, nothing beats EnvPipe."""
    frontier = plan_frontier(light_then_heavy())
    assert by_key(compare(frontier)) == {
        "all_max": ("all-max", 0, 0),
        "zeus_global": ("Zeus-global", 0, 0),
        "zeus_global_least_energy": ("Zeus-global, least energy", 0, 0),
        "zeus_per_stage": ("Zeus-per-stage, fastest", 20, 2.857),
        "zeus_per_stage_least_energy": ("Zeus-per-stage, least energy", 20, 2.857),
        "envpipe": ("EnvPipe", 0, 5),
        "perseus_rank_deadline": ("perseus-dist by rank at T_min", 0, 0),
        "perseus_rank_t_star": ("perseus-dist by rank at T*", 0, 0),
        "perseus_phase_deadline": ("perseus-dist by phase at T_min", 0, 0),
        "perseus_phase_t_star": ("perseus-dist by phase at T*", 0, 0),
        "perseus_fastest": ("perseus-dist, fastest", 0, 5),
        "perseus_all_max_time": ("perseus-dist at T_min", 0, 5),
        "perseus_t_star": ("perseus-dist at T*", 0, 5),
    }
    later = by_key(compare(frontier, deadline_ps=18 * PS_PER_S))
    assert later["zeus_per_stage"] == ("Zeus-per-stage", 20, 2.857)
    assert later["perseus_deadline"] == ("perseus-dist at the deadline", 0, 5)
    all_max = compare(frontier).plans[0]
    assert all_max.power_w == pytest.approx(4200 / 15)


def test_comparison_refuses_an_impossible_deadline() -> None:
    with pytest.raises(PlanningError, match="14 s cannot be met"):
        compare(plan_frontier(light_then_heavy()), deadline_ps=14 * PS_PER_S)


@pytest.mark.parametrize("num_examples", [20, pytest.param(60, marks=pytest.mark.stress)])
def test_comparison_is_on_one_footing(num_examples: int) -> None:
    @settings(max_examples=num_examples)
    @given(problems(), st.sampled_from([0, 200 * PS_PER_MS]))
    def holds(problem: PlanningProblem, switch_latency_ps: int) -> None:
        frontier = plan_frontier(problem, switch_latency_ps=switch_latency_ps)
        comparison = compare(frontier)
        reference = replay_all_max(problem)
        plans = {plan.key: plan for plan in comparison.plans}
        for plan in comparison.plans:
            assert plan.slowdown_share == pytest.approx(plan.execution.time_ps / reference.time_ps - 1)
            assert plan.saving_share == pytest.approx(1 - plan.execution.total_uj / reference.total_uj)
        assert (plans["all_max"].slowdown_share, plans["all_max"].saving_share) == (0, 0)
        assert plans["perseus_all_max_time"].slowdown_share <= 0
        assert plans["perseus_all_max_time"].saving_share >= 0
        for choice, plan in zip(zeus_global(problem), comparison.sweeps["zeus_global"], strict=True):
            realised = replay(problem, choice, switch_latency_ps=switch_latency_ps)
            assert (plan.execution.time_ps, plan.execution.total_uj) == (realised.time_ps, realised.total_uj)
        for key, sweep in comparison.sweeps.items():
            assert plans[f"{key}_least_energy"].saving_share == max(plan.saving_share for plan in sweep)
            in_time = [plan for plan in sweep if plan.slowdown_share <= 0]
            shortest = [plan for plan in sweep if plan.slowdown_share == min(other.slowdown_share for other in sweep)]
            assert plans[key].saving_share == max(plan.saving_share for plan in in_time or shortest)
            assert plans[key].name.endswith("fastest") == (not in_time)

    holds()


@pytest.mark.parametrize(
    ("profile", "blocking_w", "microbatches", "published_percent"),
    [
        ("gpt3-175b+a100_sxm_bf16.csv", 83.64, 12, 14.1),
        ("gpt3-175b+a100_sxm_bf16.csv", 83.64, 96, 12.9),
        ("bloom+a40_bf16.csv", 70.38, 12, 6.1),
        ("bloom+a40_bf16.csv", 70.38, 96, 0.8),
    ],
)
def test_envpipe_saves_what_was_published(
    shared_data: Path, profile: str, blocking_w: float, microbatches: int, published_percent: float
) -> None:
    """Published: planned energies, in Perseus, SOSP '24."""
    problem = make_problem(
        one_f_one_b(pp=8, microbatches=microbatches),
        read_profile(shared_data / "sosp24" / "stage_profile" / profile),
        blocking_uw_of_rank=[round(blocking_w * 1e6)] * 8,
    )
    execution, reference = replay(problem, envpipe(problem)), replay_all_max(problem)
    assert execution.time_ps <= reference.time_ps
    assert 100 * (1 - execution.total_uj / reference.total_uj) == pytest.approx(published_percent, abs=0.2)
