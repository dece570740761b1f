"""A small job that loses a pipeline and a stage and regains them: planned with what was measured, or measured anew."""

from dataclasses import replace

import pytest

from perseus_dist.planner.job.facts.sweeps import CARRIED_ROUND
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

WHOLE = SimulatedJob(
    schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=0, imbalance=0.2, layers=(12, 12),
    target="slowdown=1.05",
)  # fmt: skip
SMALLER = replace(WHOLE, num_pipelines=1, schedule=one_f_one_b(pp=2, microbatches=8))
LONGER = replace(WHOLE, schedule=one_f_one_b(pp=3, microbatches=4), layers=(8,) * 3, num_pipelines=1)
SOON = 10  # iterations until a kept profile is planned with; a sweep takes more


def enforced_after(job: VirtualJob, limit: int = 80) -> int:
    """Iterations before one ran under the plan."""
    for number in range(limit):
        iteration = job.run_iteration()
        assert iteration is not None
        if iteration.phase == Phase.ENFORCING:
            return number
    raise AssertionError(f"no plan in force after {limit} iterations")


def is_swept(job: VirtualJob) -> bool:
    return any(one.num_round != CARRIED_ROUND for one in job.planner.job.profiling.sweeps.values())


def test_what_was_measured_of_a_stage_is_planned_with_in_other_shapes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", Policy(plans_ahead=True), quick_plans=True) as job:
        assert enforced_after(job) > SOON
        assert is_swept(job)
        for _ in range(80):  # in which plans are made ahead
            job.run_iteration()
        for shape in (SMALLER, WHOLE):
            job.next_job(shape)
            assert enforced_after(job) <= SOON
            assert not is_swept(job)
        job.end()
        assert job.clocks_left_locked == 0
    said = [record.message for record in caplog.records]
    assert any("the plan was made ahead" in message for message in said)
    assert any("is used as it was measured in another shape: no sweep" in message for message in said)


def test_a_stage_that_does_not_follow_is_measured_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), virtual_job(WHOLE, "a100", quick_plans=True) as job:
        enforced_after(job)
        job.next_job(replace(LONGER, layers=()))
        assert enforced_after(job) > SOON
        assert is_swept(job)
        job.end()
        assert job.clocks_left_locked == 0
    (said,) = [record.message for record in caplog.records if "does not hold for this one" in record.message]
    assert said.endswith(": profiling anew")
