"""The energy of a job with a straggler: by hand, by its invariants, and against the published figures."""

import csv
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.planning.emulation import Emulation, Iteration, emulate
from perseus_dist.planning.frontier.frontier import Frontier, plan_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import replay_all_max
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import PS_PER_S, UJ_PER_J, energy_uj, ps_from_s, uj_from_j

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"


def iteration(time_s: float, energy_j: float) -> Iteration:
    return Iteration(time_ps=int(ps_from_s(time_s)), total_uj=int(uj_from_j(energy_j)))


def test_by_hand() -> None:
    """Four pipelines with 100 W of blocking power each; one takes 12 s where all-max takes 10 s."""
    job = Emulation(
        pipelines=4,
        straggler=1.2,
        blocking_uw=100 * 10**6,
        reference=iteration(10, 4000),
        intrinsic=iteration(9, 3500),
        others=iteration(11, 3000),
    )
    assert job.t_prime_ps == 12 * PS_PER_S
    assert job.all_max_uj == (4800 + 3 * (4000 + 200)) * UJ_PER_J
    straggler_j = 4200 + 120  # 10.8 s, then it waits
    assert job.intrinsic_uj == (straggler_j + 3 * (3500 + 300)) * UJ_PER_J
    assert job.planned_uj == (straggler_j + 3 * (3000 + 100)) * UJ_PER_J
    assert job.intrinsic_share == pytest.approx(1 - 15720 / 17400)
    assert job.extrinsic_share == pytest.approx(2100 / 17400)
    assert job.saving_share == pytest.approx(1 - 13620 / 17400)
    assert job.slowdown_share == 0


def test_a_plan_that_breaks_its_deadline_shows() -> None:
    late = Emulation(
        pipelines=2,
        straggler=1.5,
        blocking_uw=0,
        reference=iteration(10, 1),
        intrinsic=iteration(11, 1),
        others=iteration(12, 1),
    )
    assert late.slowdown_share == pytest.approx(0.1)


@cache
def example_frontier() -> Frontier:
    """Not a fixture: hypothesis would print it whole."""
    schedule = one_f_one_b(pp=4, microbatches=8)
    return plan_frontier(
        make_problem(schedule, read_profile(EXAMPLE), blocking_uw_of_rank=[80_000_000] * 4, tensor_parallel=2)
    )


@given(pipelines=st.integers(1, 200), straggler=st.floats(1, 3))
def test_what_holds_for_every_job(pipelines: int, straggler: float) -> None:
    frontier = example_frontier()
    job = emulate(frontier, pipelines=pipelines, straggler=straggler)
    assert job.blocking_uw == 4 * 2 * 80_000_000
    assert job.t_prime_ps == round(straggler * replay_all_max(frontier.problem).time_ps)
    assert job.slowdown_share == 0
    assert job.intrinsic_share + job.extrinsic_share == pytest.approx(job.saving_share)
    assert job.intrinsic_share > 0
    assert job.extrinsic_share >= 0
    assert job.planned_uj < job.all_max_uj


def test_no_straggler() -> None:
    frontier = example_frontier()
    job = emulate(frontier, pipelines=16, straggler=1)
    assert job.others == job.intrinsic
    assert job.extrinsic_share == 0
    reference, intrinsic = replay_all_max(frontier.problem), job.intrinsic
    assert intrinsic.time_ps <= reference.time_ps == job.t_prime_ps
    waiting_uj = energy_uj(job.blocking_uw, reference.time_ps - intrinsic.time_ps)
    assert job.saving_share == pytest.approx(1 - (intrinsic.total_uj + waiting_uj) / reference.total_uj)


def test_one_pipeline_has_nobody_who_waits() -> None:
    frontier = example_frontier()
    job = emulate(frontier, pipelines=1, straggler=1.3)
    assert job.extrinsic_share == 0
    assert job.saving_share == pytest.approx(emulate(frontier, pipelines=1, straggler=1).saving_share)


def test_those_who_wait_may_be_slower_than_t_star() -> None:
    frontier = example_frontier()
    slow = 1.1 * frontier.t_star_ps / frontier.baseline.time_ps
    assert emulate(frontier, pipelines=2, straggler=slow).others.time_ps > frontier.t_star_ps


class Published:
    """What Perseus, SOSP '24, has on one of its models: all-max is granted the time of the fastest plan, and nobody
    runs slower than T*.
    """

    def __init__(self, folder: Path, model: str, microbatches: int) -> None:
        profile, frontier, blocking_uw = {
            "gpt3": ("gpt3-175b+a100_sxm_bf16.csv", "a100_sxm+gpt3-175b_bf16", 83_640_000),
            "bloom": ("bloom+a40_bf16.csv", "a40+bloom_bf16", 70_380_000),
        }[model]
        self.problem = make_problem(
            one_f_one_b(pp=8, microbatches=microbatches),
            read_profile(folder / "stage_profile" / profile),
            blocking_uw_of_rank=[blocking_uw] * 8,
        )
        with (folder / "frontier" / f"{frontier}_mb{microbatches}.csv").open() as file:
            plans = [iteration(float(row["time"]), float(row["energy"])) for row in csv.DictReader(file)]
        self.plans = sorted(plans, key=lambda plan: plan.time_ps)
        all_max = replay_all_max(self.problem)
        self.blocking_uw = 8 * blocking_uw
        saved_by_waiting_less_uj = energy_uj(self.blocking_uw, all_max.time_ps - self.plans[0].time_ps)
        self.reference = Iteration(time_ps=self.plans[0].time_ps, total_uj=all_max.total_uj - saved_by_waiting_less_uj)

    def job(self, pipelines: int, straggler: float) -> Emulation:
        t_star_ps = min(self.plans, key=lambda plan: plan.total_uj).time_ps
        limit_ps = min(round(straggler * self.reference.time_ps), t_star_ps)
        return Emulation(
            pipelines=pipelines,
            straggler=straggler,
            blocking_uw=self.blocking_uw,
            reference=self.reference,
            intrinsic=self.plans[0],
            others=[plan for plan in self.plans if plan.time_ps <= limit_ps][-1],
        )


@pytest.mark.parametrize(
    ("model", "microbatches", "intrinsic_percent", "together_percent"),
    [
        ("gpt3", 12, 15.2, {1.05: 21.6, 1.1: 24.4, 1.2: 24.8, 1.5: 23.1}),
        ("gpt3", 96, 13.3, {1.05: 20.6, 1.1: 25.0, 1.2: 27.0, 1.5: 25.5}),
        ("bloom", 12, 7.0, {1.05: 16.6, 1.1: 19.3, 1.2: 18.8, 1.5: 17.2}),
        ("bloom", 96, 2.4, {1.05: 11.6, 1.1: 18.4, 1.2: 21.1, 1.5: 19.5}),
    ],
)
def test_the_published_frontier_gives_the_published_savings(
    shared_data: Path,
    model: str,
    microbatches: int,
    intrinsic_percent: float,
    together_percent: dict[float, float],
) -> None:
    published = Published(shared_data / "sosp24", model, microbatches)
    fastest, reference = published.plans[0], published.reference
    assert round(100 * (1 - fastest.total_uj / reference.total_uj), 1) == intrinsic_percent
    for straggler, percent in together_percent.items():
        job = published.job(1536 // microbatches, straggler)
        assert round(100 * job.saving_share, 1) == percent


@pytest.mark.parametrize(
    ("model", "microbatches", "less_left"),
    [("gpt3", 12, 0), ("gpt3", 96, 0.002), ("bloom", 12, 0.02), ("bloom", 96, 0.01)],
)
def test_ours_saves_no_less_than_the_published_frontier_from_16_to_1024_pipelines(
    shared_data: Path, model: str, microbatches: int, less_left: float
) -> None:
    """By reacting to the straggler about as much: the more a plan saves without one, the less is left for that."""
    published = Published(shared_data / "sosp24", model, microbatches)
    stragglers = (1.05, 1.1, 1.2, 1.5)
    all_max_ps = replay_all_max(published.problem).time_ps
    frontier = plan_frontier(published.problem, deadlines_ps=[round(one * all_max_ps) for one in (1.0, *stragglers)])
    for pipelines in (16, 32, 64, 128, 256, 512, 1024):
        for straggler in stragglers:
            ours = emulate(frontier, pipelines=pipelines, straggler=straggler)
            theirs = published.job(pipelines, straggler)
            assert ours.saving_share > theirs.saving_share
            assert ours.intrinsic_share > theirs.intrinsic_share
            assert ours.extrinsic_share > theirs.extrinsic_share - less_left
            assert ours.slowdown_share == 0
