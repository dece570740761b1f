"""Jobs that lose and regain pipelines and stages, in virtual time: planned at once with what was measured before."""

from dataclasses import replace

import pytest

from perseus_dist.planner.job.facts import CARRIED_ROUND
from perseus_dist.planner.lifecycle.lifecycle import Phase
from perseus_dist.planning.schedule.schedule import interleaved, one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

WHOLE = SimulatedJob(
    schedule=one_f_one_b(pp=4, microbatches=4), num_pipelines=2, num_iterations=0, imbalance=0.2, layers=(24,) * 4,
    target="slowdown=1.05",
)  # fmt: skip
SMALLER = replace(WHOLE, num_pipelines=1, schedule=one_f_one_b(pp=4, microbatches=8))
SHORTER = replace(WHOLE, schedule=one_f_one_b(pp=3, microbatches=4), layers=(32,) * 3)
CHUNKED = replace(WHOLE, schedule=interleaved(pp=2, microbatches=4, chunks=2))
SOON = 4  # iterations until a kept profile is planned with


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
