"""The self-check: measured against predicted iterations, what explains the difference, and where it is said."""

import math
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from metrics_text import page_samples
from test_planner_lifecycle import Fleet

from perseus_dist.agent.following import timed_runs
from perseus_dist.cli.jobs.job_view import format_troubles
from perseus_dist.planner.job.predicted_saving import saving_interval, saving_shown
from perseus_dist.planner.job.self_check import (
    LIMIT,
    Comparison,
    Parts,
    SelfCheck,
    SelfCheckWatch,
    constant_s,
    self_check,
)
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.metrics.job_series import add_job
from perseus_dist.planner.metrics.page import Page
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.job_status_wire import decode_job_status, status_to_wire
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job


def full(measured_s: float) -> Comparison:
    return Comparison(predicted_s=1.0, measured_s=measured_s, predicted_j=100, measured_j=101, num_iterations=50)


def plan(measured_s: float, num_iterations: int = 50) -> Comparison:
    return Comparison(
        predicted_s=2.0, measured_s=measured_s, predicted_j=80, measured_j=80, num_iterations=num_iterations
    )


def checked(full_s: float, plan_s: float, *, instructions: float = 0.0, noise: float = 0.0005) -> SelfCheck:
    return self_check(full(full_s), plan(plan_s), noise=noise, instructions=instructions)


def test_what_is_as_predicted_is_not_said() -> None:
    found = checked(1.001, 2.018)
    assert not found.is_off
    assert found.error == pytest.approx(0.009)
    assert full(1.001).time_degree == pytest.approx(1.001)
    assert full(1.001).energy_degree == pytest.approx(1.01)


@pytest.mark.parametrize(
    ("full_s", "plan_s", "instructions", "part"),
    [
        (1.06, 2.06, 0.0, "between"),  # 60 ms more at full clocks, and as many under the plan
        (1.06, 2.06, 0.05, "instructions"),
        (1.0, 2.06, 0.04, "clocks"),
        (1.0, 2.06, 0.0, "unknown"),
        (0.94, 1.94, -0.04, "instructions"),
        (1.0, 1.94, -0.04, "unknown"),  # a clock that comes late makes nothing shorter
    ],
)
def test_a_difference_is_explained(full_s: float, plan_s: float, instructions: float, part: str) -> None:
    found = checked(full_s, plan_s, instructions=instructions)
    assert found.is_off
    shares = {
        name: getattr(found.parts, name) for name in ("instructions", "transfers", "between", "clocks", "unknown")
    }
    assert sum(shares.values()) == pytest.approx(found.error)
    assert abs(found.error) == pytest.approx(0.03)
    assert max(shares, key=lambda name: abs(shares[name])) == part
    assert ("longer" if found.error > 0 else "shorter") in found.sentence


def test_transfers_that_vary_explain_their_part_and_no_more() -> None:
    """60 ms more in both, of 2 s: 40 of them, or all, are transfers that are slower in some microbatches."""
    for varying_s, transfers, between in ((0.04, 0.02, 0.01), (0.2, 0.03, 0.0), (0.0, 0.0, 0.03)):
        found = self_check(full(1.06), plan(2.06), noise=0.0, instructions=0.0, varying_transfers_s=varying_s)
        assert (found.parts.transfers, found.parts.between) == pytest.approx((transfers, between))
        assert ("slower in some microbatches than in others" in found.sentence) == (varying_s > 0)
    shorter = self_check(full(0.94), plan(1.94), noise=0.0, instructions=0.0, varying_transfers_s=0.04)
    assert shorter.parts.transfers == 0.0


def test_the_sentence_has_both_times_and_the_parts() -> None:
    assert checked(1.06, 2.08, noise=0.0).sentence == (
        "iterations under the plan take 4.0 % longer than predicted, 2.0800 s instead of 2.0000 s, +6.0 % at full "
        "clocks; of this +3.0 % transfers or other work between instructions that the profile does not know, +1.0 % "
        "unknown; noise explains up to 0.0 %"
    )


def test_a_difference_of_which_no_part_stands_out_is_said_so() -> None:
    check = SelfCheck(plan=Comparison(measured_s=1.02, predicted_s=1.0), parts=Parts(instructions=0.004), doubt=0.007)
    assert check.sentence.endswith("; no part of this stands out; noise explains up to 0.7 %")


def test_noise_is_no_difference_and_more_iterations_leave_less_of_it() -> None:
    noisy = self_check(None, plan(2.05, num_iterations=16), noise=0.02, instructions=0.0)
    assert not noisy.is_off
    assert noisy.doubt == pytest.approx(4 * 0.02 * math.sqrt(math.pi / 2 / 16))
    assert self_check(None, plan(2.05, num_iterations=64), noise=0.005, instructions=0.0).is_off
    assert self_check(None, None, noise=0.01, instructions=0.0) == SelfCheck()


def test_a_sentence_is_said_once_kept_while_it_holds_and_dropped_below_the_limit() -> None:
    watch = SelfCheckWatch()
    assert not watch.update(checked(1.0, 2.01))
    assert watch.update(checked(1.0, 2.05))
    said = watch.sentence
    assert "2.5 % longer" in said
    assert not watch.update(checked(1.0, 2.052))
    assert watch.sentence == said, "figures that hardly move are no news"
    assert not watch.update(checked(1.05, 2.05))
    assert "+2.5 % transfers" in watch.sentence, "a probe has shown what it is"
    assert not watch.update(checked(1.0, 2 * (1 + LIMIT) + 0.001))
    assert watch.sentence, "just above the limit it still holds"
    assert not watch.update(checked(1.0, 2.0))
    assert not watch.sentence
    assert not watch.update(checked(1.0, 2.05))
    assert watch.sentence
    assert watch.is_logged


def test_figures_and_sentence_go_to_the_log_the_status_and_the_wire() -> None:
    fleet = Fleet().to_enforcing()
    fleet.free_s = fleet.planned_s = 1.03  # as if probes had not been ordered yet
    fleet.iterate(30)
    said = [line for line in fleet.log if "than predicted" in line]
    assert len(said) == 1
    status = job_status(fleet.job)
    assert status.plan_time_degree == pytest.approx(1.03)
    assert status.troubles == (fleet.job.measured.self_check.sentence,)
    told, learnt = (event.sentence for event in status.events if event.kind == "self_check")
    assert "than predicted" in told
    assert "planning with 30.0 ms at the end of each" in learnt
    wire = status_to_wire(status)
    assert "than predicted" in format_troubles(wire)
    assert decode_job_status(wire.SerializeToString()).plan_time_degree == status.plan_time_degree


def test_a_straggler_that_is_known_is_no_error_of_the_prediction() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(20)
    before = fleet.job.measured.self_check.latest
    assert before.plan is not None
    fleet.job.detection.keeps_switch = True
    fleet.planned_s = 1.3
    fleet.iterate(20)
    assert fleet.job.measured.self_check.latest == before
    assert not fleet.job.measured.self_check.sentence


def test_a_new_table_is_checked_anew() -> None:
    fleet = Fleet().to_enforcing()
    fleet.planned_s = fleet.free_s = 1.03
    fleet.iterate(30)
    assert fleet.job.measured.self_check.sentence
    fleet.job.planning.again_at_s = 0.0
    fleet.iterate()
    assert fleet.phase() is Phase.PLANNING
    fleet.plan_ready()
    assert fleet.job.measured.self_check == SelfCheckWatch()


SIMULATED = SimulatedJob(schedule=one_f_one_b(pp=4, microbatches=8), num_pipelines=1, num_iterations=140, imbalance=0.1)


def trained(simulated: SimulatedJob, *, transfer_s: float = 0.0, seed: int = 0) -> VirtualJob:
    with virtual_job(simulated, "a100", quick_plans=True, noise_percent=0.5, seed=seed) as job:
        for rank in range(simulated.num_ranks):
            job.set_transfer_s(rank, transfer_s)
        for _ in range(simulated.num_iterations):
            assert job.run_iteration() is not None
    return job


@pytest.mark.parametrize(
    ("pp", "microbatches", "pipelines", "seed"),
    [
        (2, 4, 1, 0),
        *(pytest.param(*one, marks=pytest.mark.stress) for one in ((2, 4, 1, 1), (4, 8, 1, 2), (4, 8, 2, 3))),
        (1, 4, 2, 4),
    ],
)
def test_no_false_alarm_in_jobs_with_noise(pp: int, microbatches: int, pipelines: int, seed: int) -> None:
    schedule = one_f_one_b(pp=pp, microbatches=microbatches)
    job = trained(replace(SIMULATED, schedule=schedule, num_pipelines=pipelines), seed=seed)
    check, status = job.planner.job.measured.self_check, job.status
    assert not check.is_logged
    assert status.troubles == ()
    assert abs(status.plan_time_degree - 1) < LIMIT
    assert abs(status.full_time_degree - 1) < LIMIT
    assert abs(status.plan_energy_degree - 1) < LIMIT


def test_transfers_are_known_where_they_were_measured() -> None:
    job = trained(SIMULATED, transfer_s=0.02)
    check, status = job.planner.job.measured.self_check, job.status
    assert not check.is_logged
    assert abs(status.plan_time_degree - 1) < LIMIT
    assert abs(status.full_time_degree - 1) < LIMIT


def test_transfers_that_the_profile_does_not_know_are_named_and_their_time_is_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_runs, "MAX_RUNS", 0)  # as of agents that do not tell times
    job = trained(replace(SIMULATED, num_iterations=30), transfer_s=0.02)
    check, status = job.planner.job.measured.self_check, job.status
    assert check.is_logged
    assert status.full_time_degree > 1.1
    parts = check.latest.parts
    assert parts.between > 5 * max(abs(parts.instructions), abs(parts.clocks), abs(parts.unknown))
    assert "transfers or other work between instructions" in status.troubles[0]
    status = trained(replace(SIMULATED, num_iterations=60), transfer_s=0.02).status
    assert abs(status.full_time_degree - 1) < LIMIT
    assert abs(status.full_energy_degree - 1) < LIMIT
    assert status.plan_time_degree < 1.02, "a plan that gives slack away pays for transfers once more"


def is_as_predicted(job: VirtualJob) -> bool:
    """Whether iterations take what is predicted, at full clocks and under the plan, and draw it."""
    status = job.status
    shares = (status.full_time_degree, status.plan_time_degree, status.full_energy_degree, status.plan_energy_degree)
    return all(abs(share - 1) < LIMIT for share in shares)


@pytest.mark.parametrize("target", [None, "slowdown=1.05", "deadline=1.95"])
def test_time_between_iterations_is_learnt_and_planned_with(target: str | None) -> None:
    """A deadline was missed for good, and a slowdown counted from an iteration that nothing takes."""
    job = trained(replace(SIMULATED, optimizer_s=0.1, num_iterations=100, target=target))
    assert any("ms at the end of each" in event.sentence for event in job.status.events if event.kind == "self_check")
    assert job.planner.job.planning.extra_s == pytest.approx(0.1, abs=0.005)
    assert is_as_predicted(job)
    assert not job.status.troubles
    assert job.status.phase == "enforcing"
    assert not job.planner.job.enforcement.guard.num_falls
    newest_s = median(one.time_s for one in job.iterations[-20:])
    wanted_s = {None: 1.8, "slowdown=1.05": 1.05 * 1.8, "deadline=1.95": 1.95}[target]
    assert newest_s == pytest.approx(wanted_s, rel=0.005)


@pytest.mark.stress
def test_what_was_learnt_is_kept_over_runs_and_unlearnt_where_it_is_over() -> None:
    simulated = replace(SIMULATED, optimizer_s=0.1, num_iterations=60, target="deadline=1.95")
    with virtual_job(simulated, "a100", quick_plans=True, noise_percent=0.5, seed=0) as job:
        for _ in range(60):
            job.run_iteration()
        learnt_s = job.planner.job.planning.extra_s
        assert learnt_s > 0.09
        job.faults.kill_planner()
        job.faults.restart_planner()
        for _ in range(10):
            job.run_iteration()
        assert job.planner.job.planning.extra_s == learnt_s
        job.next_job(simulated)
        for _ in range(30):
            job.run_iteration()
        assert job.planner.job.planning.extra_s == learnt_s
        assert is_as_predicted(job)
        job.set_optimizer_s(0.0)
        for _ in range(200):
            job.run_iteration()
        assert job.planner.job.planning.extra_s < 0.02
        assert is_as_predicted(job)


def test_a_slow_link_that_plans_know_is_no_time_between_iterations() -> None:
    """A plan is on time with the link slow and well, and iterations may take what either predicts.

    They were said to take 11 % longer than predicted, and in another job that became time between iterations, which
    stayed when the link was well again: 10 % late.
    """
    simulated = SimulatedJob(
        schedule=one_f_one_b(pp=3, microbatches=12), num_pipelines=2, num_iterations=80, imbalance=0.0, time_scale=0.21
    )
    with virtual_job(simulated, "a100", quick_plans=True, noise_percent=0.5, seed=0) as job:
        for number in range(80):
            if number == 26:  # the first plan is being made
                job.set_transfer_s(3, 0.0047)
            job.run_iteration()
        known = job.planner.job
        assert known.plan is not None
        assert known.plan.summary.case_factor > 1.1
        assert known.planning.extra_s == 0
        assert known.measured.self_check.latest.plan is not None
        said = [event.sentence for event in job.status.events if event.kind == "self_check"]
        assert len(said) == 1, "of the first plan, which does not know the link"


def test_a_deadline_that_cannot_be_kept_with_what_was_learnt_is_said() -> None:
    job = trained(replace(SIMULATED, optimizer_s=0.1, num_iterations=60, target="deadline=1.75"))
    assert any("a deadline of 1.75 s cannot be met" in trouble for trouble in job.status.troubles)


@pytest.mark.parametrize(
    ("full_s", "plan_s", "instructions", "learnt_s"),
    [
        (1.06, 2.06, 0.0, 0.06),
        (1.06, 2.03, 0.0, 0.03),  # more at full clocks alone: they are of long ago, or a plan's slack hides it
        (1.06, 2.10, 0.0, 0.06),  # more under the plan alone: clocks, or slack that it gave away
        (1.06, 1.97, 0.0, 0.0),
        (1.06, 2.12, 0.06, 0.0),  # instructions take longer, in proportion
        (0.97, 1.97, 0.0, -0.03),
        (1.06, None, 0.0, 0.06),
        (1.06, None, 0.04, 0.02),
    ],
)
def test_a_constant_is_what_full_clocks_and_plan_agree_on(
    full_s: float, plan_s: float | None, instructions: float, learnt_s: float
) -> None:
    found_s = constant_s(full(full_s), plan(plan_s) if plan_s else None, instructions=instructions)
    assert found_s == pytest.approx(learnt_s)


def test_iterations_of_other_work_teach_nothing() -> None:
    fleet = Fleet()
    fleet.free_s = fleet.planned_s = 5.0
    fleet.to_enforcing()
    fleet.iterate(60)
    assert fleet.job.planning.extra_s == 0


def test_lessons_come_ever_less_often_where_the_time_comes_and_goes() -> None:
    fleet = Fleet().to_enforcing()
    learnt_at_s = []
    for number in range(3000):
        fleet.free_s = fleet.planned_s = 1.05 if number // 40 % 2 else 1.0
        before = fleet.job.planning.num_lessons
        fleet.iterate()
        if fleet.job.planning.num_lessons > before:
            learnt_at_s.append(fleet.now_s)
        if fleet.phase() is Phase.PLANNING:
            fleet.plan_ready()
    gaps_s = [after - one for one, after in pairwise(learnt_at_s)]
    assert 0 < len(gaps_s) < 8
    assert all(gap_s >= 30 * 2**number for number, gap_s in enumerate(gaps_s))


def test_full_clocks_are_compared_before_a_plan_is_and_while_clocks_are_released() -> None:
    fleet = Fleet()
    fleet.free_s, fleet.planned_s = 1.04, 1.3
    fleet.to_enforcing()
    fleet.iterate(3)
    assert fleet.job.measured.self_check.latest.full is not None
    while fleet.phase() is not Phase.RELEASED:
        fleet.iterate()
    fleet.iterate(3)
    assert fleet.phase() is Phase.RELEASED
    check = fleet.job.measured.self_check
    assert check.latest.plan is None
    assert check.latest.error == pytest.approx(0.04, abs=0.001)
    assert "iterations at full clocks take 4.0 % longer" in check.sentence


def test_the_figures_are_metrics() -> None:
    fleet = Fleet().to_enforcing()
    fleet.free_s = fleet.planned_s = 1.03
    fleet.iterate(30)
    page = Page()
    add_job(page, fleet.job)
    found = {
        (one.labels["iterations"], one.labels["quantity"]): one.value
        for one in page_samples(page)
        if one.name == "perseus_job_measured_over_predicted_ratio"
    }
    assert found["plan", "time"] == pytest.approx(1.03)
    assert found.keys() == {(one, quantity) for one in ("full", "plan") for quantity in ("time", "energy")}


def test_the_interval_of_the_saving_reaches_to_what_iterations_show() -> None:
    full = Comparison(predicted_s=1.0, measured_s=1.0, predicted_j=100.0, measured_j=100.0, num_iterations=9)
    plan = replace(full, predicted_j=80.0, measured_j=84.0)
    assert saving_shown(0.2, SelfCheck()) == 0.2
    assert saving_shown(0.2, SelfCheck(full=full)) == 0.2
    assert saving_shown(0.2, SelfCheck(full=full, plan=plan)) == pytest.approx(0.16)
    untold = SelfCheck(full=replace(full, measured_j=0.0), plan=replace(plan, measured_s=1.05, measured_j=0.0))
    assert saving_shown(0.2, untold) == pytest.approx(0.16)  # as much longer, at the mean power


def test_the_interval_of_a_job_goes_to_the_status_the_wire_and_the_metrics() -> None:
    simulated = SimulatedJob(
        schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=80, imbalance=0.15
    )
    with virtual_job(simulated, "a100", noise_percent=1.0) as job:
        while job.planner.job.switch is None:
            job.run_iteration()
        assert job.planner.job.measured.self_check.latest.plan is None
        before = saving_interval(job.planner.job)
        assert before is not None
        assert before[0] < before[1]
        job.planner.job.measured.self_check.latest = SelfCheck(
            full=Comparison(predicted_s=1.0, measured_s=1.0),
            plan=Comparison(predicted_s=1.0, measured_s=1.1),
        )
        stretched = saving_interval(job.planner.job)
        assert stretched is not None
        assert stretched[0] < before[0]
        assert stretched[1] == before[1]
        status = job.status
        assert (status.predicted_saving_low, status.predicted_saving_high) == stretched
        assert decode_job_status(status_to_wire(status).SerializeToString()).predicted_saving_low == stretched[0]
        page = Page()
        add_job(page, job.planner.job)
        values = {one.name: one.value for one in page_samples(page)}
        assert values["perseus_job_predicted_saving_low_ratio"] == stretched[0]
        assert values["perseus_job_predicted_saving_high_ratio"] == stretched[1]
