"""Jobs that lose and regain pipelines and stages, in virtual time: planned at once with what was measured before."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from perseus_dist.messages.from_planner import PlanTable
from perseus_dist.planner.job.facts.sweeps import CARRIED_ROUND
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planning.schedule.schedule import interleaved, one_f_one_b
from perseus_dist.rpc.codec import decode_planner_message
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

WHOLE = SimulatedJob(
    schedule=one_f_one_b(pp=4, microbatches=4), num_pipelines=2, num_iterations=0, imbalance=0.2, layers=(24,) * 4,
    target="slowdown=1.05",
)  # fmt: skip
SMALLER = replace(WHOLE, num_pipelines=1, schedule=one_f_one_b(pp=4, microbatches=8))
SHORTER = replace(WHOLE, schedule=one_f_one_b(pp=3, microbatches=4), layers=(32,) * 3)
SHORTER_YET = replace(SHORTER, num_pipelines=1, schedule=one_f_one_b(pp=3, microbatches=8))
CHUNKED = replace(WHOLE, schedule=interleaved(pp=2, microbatches=4, chunks=2))
SOON = 4  # iterations until a kept profile is planned with
LONG = 40  # iterations, in which plans are made ahead
AT_ONCE = 2  # until a plan that was made ahead is in force
AHEAD = Policy(plans_ahead=True)


def train(job: VirtualJob, num: int = 24) -> int:
    """Iterations before one ran under the plan."""
    phases = []
    for _ in range(num):
        iteration = job.run_iteration()
        assert iteration is not None
        phases.append(iteration.phase)
    assert phases[-1] == Phase.ENFORCING
    return phases.index(Phase.ENFORCING)


def is_swept(job: VirtualJob) -> bool:
    return any(one.num_round != CARRIED_ROUND for one in job.planner.job.profiling.sweeps.values())


def planned_s(job: VirtualJob) -> float:
    """[s] at all-maximum clocks, by the plan's profile."""
    assert job.planner.job.plan is not None
    return job.planner.job.plan.summary.baseline_time_ps / 1e12


def test_shapes_come_and_go_and_none_is_measured_twice() -> None:
    with virtual_job(WHOLE, "a100", quick_plans=True) as job:
        assert train(job) > SOON
        for shape in (SMALLER, WHOLE, SHORTER, CHUNKED, WHOLE):
            job.next_job(shape)
            assert train(job) <= SOON
            assert not is_swept(job)
            measured = job.status.baseline
            assert planned_s(job) == pytest.approx(measured.time_s, rel=2e-3)
            assert job.status.enforced.time_s < 1.055 * measured.time_s
            assert job.status.enforced.energy_j < 0.9 * measured.energy_j
        job.end()
        assert job.clocks_left_locked == 0
        assert not job.went_back


def test_a_planner_that_is_killed_between_two_shapes_and_amid_them_knows_what_was_measured() -> None:
    with virtual_job(WHOLE, "a100", quick_plans=True) as job:
        train(job)
        for shape in (SHORTER, WHOLE):
            job.faults.kill_planner()
            job.faults.restart_planner()
            job.next_job(shape)
            job.run_iteration()
            job.faults.kill_planner()
            job.run_iteration()
            job.faults.restart_planner()
            train(job)
            assert not is_swept(job)
            assert planned_s(job) == pytest.approx(job.status.baseline.time_s, rel=2e-3)
        job.end()
        assert job.clocks_left_locked == 0


@pytest.mark.parametrize(
    "other",
    [
        replace(SHORTER, layers=()),  # trainers do not say how many
        replace(SMALLER, time_scale=1.5),
        replace(SHORTER, imbalance=0.9),  # another head
    ],
    ids=["layers unknown", "longer microbatches", "other parameters"],
)
def test_what_does_not_follow_is_measured(other: SimulatedJob, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", quick_plans=True) as job:
        train(job)
        job.next_job(other)
        assert train(job, 40) > SOON
        assert is_swept(job)
        assert planned_s(job) == pytest.approx(job.status.baseline.time_s, rel=2e-3)
        job.end()
    assert sum("does not hold for this one" in record.message for record in caplog.records) == 1


def taken(records: Sequence[logging.LogRecord]) -> int:
    """Plans that were made ahead, and asked for."""
    return sum("the plan was made ahead" in record.message for record in records)


def test_a_job_that_comes_back_smaller_or_as_it_was_is_under_a_plan_that_was_made_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", AHEAD, quick_plans=True) as job:
        train(job, LONG)
        for number, (shape, soon) in enumerate(
            ((SMALLER, AT_ONCE), (WHOLE, AT_ONCE), (SHORTER, AT_ONCE), (WHOLE, AT_ONCE), (CHUNKED, SOON)), start=1
        ):
            job.next_job(shape)
            assert train(job) <= soon
            assert taken(caplog.records) == min(number, 4)
            assert planned_s(job) == pytest.approx(job.status.baseline.time_s, rel=2e-3)
            assert job.status.enforced.time_s < 1.055 * job.status.baseline.time_s
        job.end()
        assert job.clocks_left_locked == 0
        assert not job.went_back


def test_a_plan_that_was_made_ahead_is_what_planning_then_would_have_given() -> None:
    plans = []
    for policy in (Policy(), AHEAD):
        with virtual_job(WHOLE, "a100", policy, quick_plans=True) as job:
            train(job, LONG)
            job.next_job(SMALLER)
            train(job)
            plan = job.planner.job.plan
            assert plan is not None
            tables = [decode_planner_message(table) for table in plan.tables]
            assert {table.revision for table in tables if isinstance(table, PlanTable)} == {plan.revision}
            summary = replace(plan.summary, solve_seconds=0.0, realise_seconds=0.0)
            plans.append((tables, summary, plan.profile_csv))
    assert plans[0] == plans[1]


def test_plans_made_ahead_outlive_a_planner_that_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", AHEAD, quick_plans=True) as job:
        train(job, LONG)
        for number, shape in enumerate((SMALLER, SHORTER_YET), start=1):
            job.faults.kill_planner()
            job.faults.restart_planner()
            job.next_job(shape)
            job.run_iteration()
            job.faults.kill_planner()
            job.run_iteration()
            job.faults.restart_planner()
            train(job)
            assert taken(caplog.records) == number
        job.end()
        assert job.clocks_left_locked == 0


@pytest.mark.stress
@pytest.mark.parametrize(
    "other",
    [
        replace(SMALLER, target="slowdown=1.1"),
        replace(SMALLER, schedule=one_f_one_b(pp=4, microbatches=12)),
    ],
    ids=["other target", "other batch"],
)
def test_a_job_that_is_not_as_foreseen_is_planned_as_if_nothing_had_been(
    other: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", AHEAD, quick_plans=True) as job:
        train(job, LONG)
        job.next_job(other)
        train(job)
        assert taken(caplog.records) == 0
        assert planned_s(job) == pytest.approx(job.status.baseline.time_s, rel=2e-3)
        job.end()
