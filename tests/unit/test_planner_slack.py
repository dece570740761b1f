"""Slack for noise: more of it where iterations are late, less where the noise that a plan is for is not there."""

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from test_planner_lifecycle import Fleet, summary

from perseus_dist.planner.lifecycle.enforcement.slack import slack_to_plan
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planning.frontier.noise_margin import MARGINS
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.chaos.world.profile_rows import undisturbed_profile
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

NOISE = 0.004


class NoisyFleet(Fleet):
    """Iterations vary, and last longer under the plan than at full clocks.

    Attributes:
        late: Share by which they do.
        noise: Their standard deviation.
    """

    def __init__(self, noise: float = NOISE) -> None:
        super().__init__()
        self.late, self.noise = 0.0, noise

    def iterate(self, num: int = 1, *, energy_j: float | None = 50.0) -> None:
        for _ in range(num):
            drawn = random.Random(self.iteration)
            self.free_s = drawn.gauss(1.0, self.noise)
            self.planned_s = drawn.gauss(1.0 + self.late, self.noise)
            super().iterate(energy_j=energy_j)

    def until_planning(self, *, late: float, most: int = 400) -> float:
        """The margin that is asked for."""
        self.late = late
        for _ in range(most):
            if self.phase() is Phase.PLANNING:
                break
            self.iterate()
        assert self.phase() is Phase.PLANNING
        return self.requests[-1].least_margin


def made(fleet: NoisyFleet, margin: float, noise: float = NOISE) -> None:
    asked = fleet.requests[-1].least_margin
    fleet.plan_ready(replace(summary(), margin=margin, noise=noise, least_margin=asked))
    assert fleet.phase() is Phase.ENFORCING


def test_a_plan_that_is_late_for_noise_gets_more_slack_until_it_is_not() -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    assert fleet.until_planning(late=0.008) == MARGINS[2], "clearly late: one step is left out"
    assert any("planning with a margin of 0.5" in line for line in fleet.log)
    assert fleet.requests[-1].seen_noise == pytest.approx(NOISE, rel=0.5)
    made(fleet, MARGINS[2])
    assert fleet.until_planning(late=0.0038) in MARGINS[3:]
    made(fleet, MARGINS[4])
    num_requests = len(fleet.requests)
    fleet.late = 0.001
    fleet.iterate(200)
    assert len(fleet.requests) == num_requests


def test_slack_is_asked_for_only_where_a_plan_by_instruction_is_in_force_and_none_is_to_come() -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    fleet.late, fleet.job.planning.num_slack_changes = 0.008, 6  # as often as a run may
    fleet.iterate(80)
    job = fleet.job
    assert job.plan is not None
    assert job.spec is not None
    assert slack_to_plan(deepcopy(job)) == ""
    job.planning.num_slack_changes = 5
    assert slack_to_plan(deepcopy(job))
    for changed in ("first plan", "no plan", "pending", "by phase"):
        other = deepcopy(job)
        if changed == "first plan":
            other.plan, other.planning.refine_at_s = replace(job.plan, is_first=True), 1e9
        elif changed == "no plan":
            other.plan = None
        elif changed == "pending":
            other.planning.pending = 1
        else:
            other.spec = replace(job.spec, granularity="phase")
        assert slack_to_plan(other) == "", changed


def test_slack_that_does_not_help_is_not_made_more() -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    margin = fleet.until_planning(late=0.006)
    made(fleet, margin)
    num_requests = len(fleet.requests)
    fleet.late = 0.006
    fleet.iterate(300)
    assert len(fleet.requests) <= num_requests + 1, "noise is not what makes it late"


@pytest.mark.parametrize(
    ("late", "noise", "ratios"),
    [(0.001, NOISE, {}), (0.006, 0.0, {}), (0.006, NOISE, {0: 1.05, 1: 1.0})],
    ids=["on time", "without noise", "a rank is not as in the profile"],
)
def test_what_noise_does_not_explain_needs_no_slack(late: float, noise: float, ratios: dict[int, float]) -> None:
    fleet = NoisyFleet(noise)
    fleet.to_planning()
    made(fleet, 0.0)
    fleet.time_ratios = ratios
    for _ in range(100):
        fleet.late, fleet.noise = late, noise
        fleet.iterate(1)
        assert fleet.requests[-1].least_margin == 0.0


@pytest.mark.parametrize("noise", [NOISE / 4, NOISE / 16])
def test_a_plan_that_is_late_though_instructions_take_less_than_the_profile_says_gets_slack_for_good(
    noise: float,
) -> None:
    """Clocks that fell late made most ranks faster; those that stayed high were taken for slow, and got no slack."""
    fleet = NoisyFleet(noise)
    fleet.to_planning()
    made(fleet, 0.0)
    fleet.time_ratios = {0: 0.97, 1: 1.0}
    margin = fleet.until_planning(late=0.006)
    assert margin > 0, "and no rank that is slow"
    assert any("and no rank's instructions do so: planning with a margin" in line for line in fleet.log)
    assert fleet.requests[-1].seen_noise == 0.0
    made(fleet, margin, noise=0.0)
    num_requests = len(fleet.requests)
    fleet.late, fleet.noise = 0.0, NOISE / 16
    fleet.iterate(200)
    assert len(fleet.requests) == num_requests


def test_what_was_late_while_others_waited_needs_no_slack() -> None:
    """A link was slow for a while, and the plan waited for it: 2.8 % late was taken for noise."""
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    for late in (0.028, 0.028, 0.0, 0.0):
        fleet.late = late
        fleet.iterate(8)
        assert fleet.requests[-1].least_margin == 0.0


def test_slack_is_kept_over_a_restart_and_by_the_next_run() -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    margin = fleet.until_planning(late=0.008)
    made(fleet, margin)
    fleet.restart()
    assert fleet.job.planning.margin == margin
    fleet.attach_all()
    fleet.run_id = "run 2"
    fleet.restart()
    fleet.iteration = 0
    fleet.attach_all()
    assert fleet.job.planning.margin == margin


@pytest.mark.parametrize("factor", [0.2, 4.0], ids=["noise is over", "noise is common"])
def test_slack_goes_where_iterations_do_not_vary_as_the_plan_expects(factor: float) -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.5, noise=NOISE)
    fleet.late = 0.0
    fleet.iterate(80)
    num_requests = len(fleet.requests)
    for _ in range(300):
        fleet.late, fleet.noise = 0.0, factor * NOISE
        fleet.iterate(1)
        if len(fleet.requests) > num_requests:
            break
    assert fleet.phase() is Phase.PLANNING
    assert fleet.requests[-1].least_margin == 0.0
    assert fleet.requests[-1].seen_noise == pytest.approx(factor * NOISE, rel=1.0)
    made(fleet, 0.0, noise=fleet.requests[-1].seen_noise)
    num_requests = len(fleet.requests)
    fleet.late, fleet.noise = 0.0, factor * NOISE
    fleet.iterate(200)
    assert len(fleet.requests) == num_requests


@pytest.mark.stress
def test_noise_that_comes_and_goes_is_planned_for_a_few_times_alone() -> None:
    fleet = NoisyFleet()
    fleet.to_planning()
    made(fleet, 0.0)
    num_requests = len(fleet.requests)
    for number in range(3000):
        is_noisy = number // 150 % 2 == 0
        has_slack = fleet.job.plan is not None and fleet.job.plan.summary.margin > 0
        fleet.late = 0.008 if is_noisy and not has_slack else 0.0
        fleet.noise = NOISE if is_noisy else NOISE / 10
        fleet.iterate()
        if fleet.phase() is Phase.PLANNING:
            made(fleet, fleet.requests[-1].least_margin, noise=fleet.requests[-1].seen_noise)
    assert 2 <= len(fleet.requests) - num_requests <= 6


def trained(job: VirtualJob, num: int) -> Iterator[tuple[float, float]]:
    for _ in range(num):
        iteration = job.run_iteration()
        assert iteration is not None
        yield iteration.time_s, iteration.energy_j


@pytest.mark.stress
def test_a_profile_that_says_nothing_of_noise_gets_slack_and_gives_it_back(tmp_path: Path) -> None:
    """The whole loop: a saved profile of 10 clocks, 2 % of noise, a planner that dies, and no noise any more."""
    schedule = one_f_one_b(pp=4, microbatches=16)
    job = SimulatedJob(schedule=schedule, num_pipelines=1, num_iterations=260, imbalance=0.1)
    file = tmp_path / "profile.csv"
    file.write_text(undisturbed_profile(job, "a100"))
    job = replace(job, profile=str(file))
    with virtual_job(job, "a100", quick_plans=True, noise_percent=2.0, seed=1) as loop:
        full_s = fmean(time_s for time_s, _ in trained(loop, 8))
        list(trained(loop, 80))
        planner = loop.planner.job
        assert planner.plan is not None
        assert planner.plan.summary.margin > 0
        loop.faults.kill_planner()
        loop.faults.restart_planner()
        assert loop.planner.job.plan is not None
        assert loop.planner.job.plan.summary.margin == loop.planner.job.planning.margin > 0
        late_s = fmean(time_s for time_s, _ in trained(loop, 60))
        assert late_s < 1.004 * full_s
        loop.set_noise_percent(0.0)
        list(trained(loop, 100))
        assert loop.planner.job.plan is not None
        assert loop.planner.job.plan.summary.margin == 0.0
        assert loop.status.phase == "enforcing"
