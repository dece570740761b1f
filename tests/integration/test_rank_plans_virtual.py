"""Jobs whose instructions cannot be seen: one clock for each rank, from a profile measured while they could be."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

import pytest

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, run_virtual, virtual_job
from perseus_dist.simulation.virtual.training import VirtualIteration

SEEN = SimulatedJob(
    schedule=one_f_one_b(pp=4, microbatches=8), num_pipelines=1, num_iterations=60, imbalance=0.1,
    target="slowdown=1.05",
)  # fmt: skip
UNSEEN = replace(SEEN, granularity=Granularity.RANK)


def train(job: VirtualJob, num: int) -> list[VirtualIteration]:
    """The iterations, whose end no rank's death prevents."""
    iterations = [job.run_iteration() for _ in range(num)]
    return [iteration for iteration in iterations if iteration is not None]


def mean_s(iterations: list[VirtualIteration]) -> float:
    return sum(iteration.time_s for iteration in iterations) / len(iterations)


def mean_j(iterations: list[VirtualIteration]) -> float:
    return sum(iteration.energy_j for iteration in iterations) / len(iterations)


def num_changes(job: VirtualJob) -> int:
    return sum(state.clock_changes for state in job.planner.job.members.ranks.values())


@contextmanager
def profiled(seen: SimulatedJob) -> Iterator[VirtualJob]:
    """A job that goes on unseen after its profile has been measured."""
    with virtual_job(seen, "a100") as job:
        train(job, 30)
        assert job.planner.job.plan is not None
        job.next_job(replace(seen, granularity=Granularity.RANK))
        yield job
        job.end()
        assert job.clocks_left_locked == 0
        assert not job.went_back


@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b(pp=4, microbatches=8),
        pytest.param(interleaved(pp=2, microbatches=4, chunks=2), marks=pytest.mark.stress),
    ],
)
def test_one_clock_for_each_rank_saves_as_planned(schedule: Schedule) -> None:
    outcome = run_virtual(replace(UNSEEN, schedule=schedule), "a100")
    assert outcome.enforced.num_iterations > 40
    assert outcome.predicted_saving_percent > 10
    assert outcome.saving_percent == pytest.approx(outcome.predicted_saving_percent, abs=1.0)
    assert 0 < outcome.slowdown_percent < 5.1
    assert outcome.clocks_left_locked == 0


def test_a_clock_is_kept_from_one_iteration_to_the_next() -> None:
    with profiled(SEEN) as job:
        train(job, 20)
        assert job.status.phase == "enforcing"
        assert "each rank has one clock" in job.status.reason
        before = num_changes(job)
        iterations = train(job, 10)
        planned = {report.point for reports in job.reports for report in reports[-3:]}
        assert planned == {job.planner.job.point(0)} != {NO_POINT}
        assert len({round(iteration.time_s, 5) for iteration in iterations}) == 1
        assert num_changes(job) == before


def test_without_a_profile_it_trains_at_full_clocks() -> None:
    with virtual_job(UNSEEN, "a100") as job:
        iterations = train(job, 30)
        assert job.status.phase == "observing"
        assert "no whole profile of them is there" in job.status.reason
        assert job.planner.job.profiling.samples == {}
        assert len({round(iteration.time_s, 6) for iteration in iterations}) == 1
        assert job.clocks_left_locked == 0
        job.end()


def test_a_sweep_that_was_cut_off_goes_on_where_instructions_are_seen_again() -> None:
    with virtual_job(SEEN, "a100") as job:
        while job.status.phase != "profiling" or not job.planner.job.profiling.samples:
            train(job, 1)
        job.next_job(UNSEEN)
        train(job, 20)
        assert job.status.phase == "observing"
        samples = job.planner.job.profiling.samples
        assert samples
        job.next_job(SEEN)
        train(job, 30)
        assert job.planner.job.profiling.samples.items() >= samples.items()
        assert job.status.phase == "enforcing"


@pytest.mark.stress
def test_a_pipeline_waits_for_a_gpu_that_overheats() -> None:
    with profiled(replace(SEEN, num_pipelines=2, target=None)) as job:
        full = train(job, 20)[-5:]
        assert mean_s(full) == pytest.approx(1.7017, abs=0.001)  # nothing is saved, and nothing lost
        job.set_thermal_cap_mhz(1, 1000)
        held_up = train(job, 60)[-10:]
        assert job.status.phase == "enforcing"
        (verdict,) = job.planner.job.detection.verdicts
        assert (verdict.rank, str(verdict.cause)) == (1, "thermal")
        assert mean_j(held_up) < 0.92 * mean_j(full)
        job.set_thermal_cap_mhz(1, None)
        assert mean_s(train(job, 60)[-10:]) == pytest.approx(mean_s(full), rel=0.001)
        assert job.planner.job.detection.verdicts == ()


def test_the_guard_gives_up_a_plan_that_is_slow_and_sweeps_nothing() -> None:
    with profiled(SEEN) as job:
        planned = train(job, 30)[-5:]
        job.slow_down(1, 1.2)
        slow = train(job, 80)
        assert "released" in {iteration.phase for iteration in slow}
        assert not {"profiling", "re-profiling"} & {iteration.phase for iteration in slow}
        job.slow_down(1, 1.0)
        back = median(iteration.time_s for iteration in train(job, 40)[-20:])
        assert back == pytest.approx(mean_s(planned), rel=0.002)


def test_it_goes_on_after_planner_and_agent_were_killed() -> None:
    with profiled(SEEN) as job:
        planned = train(job, 30)[-5:]
        job.faults.kill_planner()
        train(job, 5)
        job.faults.restart_planner()
        train(job, 10)
        job.faults.kill_agent(1)
        train(job, 3)
        assert job.locked_without_lease == 0
        job.faults.restart_agent(1)
        assert mean_s(train(job, 60)[-5:]) == pytest.approx(mean_s(planned), rel=0.002)
