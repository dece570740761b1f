"""Jobs whose instructions cannot be seen, under plans by phase: agents change clocks by time."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from statistics import median

import pytest

from perseus_dist.agent.core.core import AgentCore
from perseus_dist.messages.terms import NO_POINT, T_MIN, Target
from perseus_dist.planner.lifecycle.events import TargetSet
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import Schedule, interleaved, one_f_one_b
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, run_virtual, virtual_job
from perseus_dist.simulation.virtual.training import VirtualIteration

SEEN = SimulatedJob(schedule=one_f_one_b(pp=4, microbatches=8), num_pipelines=1, num_iterations=60, imbalance=0.1)
MOST_LATE_NS = 10_000_000


def train(job: VirtualJob, num: int) -> list[VirtualIteration]:
    """The iterations, whose end no rank's death prevents."""
    iterations = [job.run_iteration() for _ in range(num)]
    return [iteration for iteration in iterations if iteration is not None]


def mean_s(iterations: list[VirtualIteration]) -> float:
    return sum(iteration.time_s for iteration in iterations) / len(iterations)


def mean_j(iterations: list[VirtualIteration]) -> float:
    return sum(iteration.energy_j for iteration in iterations) / len(iterations)


@contextmanager
def profiled(
    seen: SimulatedJob = SEEN, granularity: Granularity = Granularity.PHASE, *, noise_percent: float = 0.0
) -> Iterator[VirtualJob]:
    """A job that goes on unseen after its profile has been measured."""
    with virtual_job(seen, "a100", noise_percent=noise_percent, seed=3) as job:
        while job.planner.job.plan is None:
            train(job, 1)
        job.next_job(replace(seen, granularity=granularity))
        yield job
        job.end()
        assert job.clocks_left_locked == 0
        assert not job.went_back


@cache
def at_full_clocks(seen: SimulatedJob = SEEN, *, noise_percent: float = 0.0) -> list[VirtualIteration]:
    """The same job without a profile."""
    unseen = replace(seen, granularity=Granularity.PHASE)
    with virtual_job(unseen, "a100", noise_percent=noise_percent, seed=3) as job:
        return train(job, 60)[-30:]


def is_by_phase(job: VirtualJob) -> bool:
    plan = job.planner.job.plan
    return plan is not None and plan.summary.is_by_phase


def late_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every alarm of every agent comes up to 10 ms late."""
    on_time = AgentCore.next_timer_ns

    def late(core: AgentCore) -> int | None:
        due_ns = on_time(core)
        return None if due_ns is None else due_ns + random.Random(due_ns).randrange(MOST_LATE_NS)

    monkeypatch.setattr(AgentCore, "next_timer_ns", late)


@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b(pp=4, microbatches=8),
        pytest.param(interleaved(pp=2, microbatches=4, chunks=2), marks=pytest.mark.stress),
    ],
)
def test_clocks_by_time_save_as_planned(schedule: Schedule) -> None:
    seen = replace(SEEN, schedule=schedule)
    by_phase, by_rank = (
        run_virtual(replace(seen, granularity=granularity), "a100")
        for granularity in (Granularity.PHASE, Granularity.RANK)
    )
    assert by_phase.enforced.num_iterations > 40
    assert by_phase.predicted_saving_percent > by_rank.predicted_saving_percent + 1
    # Free clocks draw a little more than the highest one, by which plans by rank save more than planned as well.
    free = by_rank.saving_percent - by_rank.predicted_saving_percent
    assert by_phase.saving_percent - free == pytest.approx(by_phase.predicted_saving_percent, abs=0.5)
    assert by_phase.slowdown_percent < 1
    assert by_phase.clocks_left_locked == 0


@pytest.mark.parametrize(
    ("noise_percent", "has_late_alarms"),
    [
        (0.0, False),
        *(pytest.param(*one, marks=pytest.mark.stress) for one in ((0.0, True), (1.0, False), (1.0, True))),
    ],
)
def test_noise_and_late_alarms_cost_little(
    monkeypatch: pytest.MonkeyPatch, *, noise_percent: float, has_late_alarms: bool
) -> None:
    full = at_full_clocks(noise_percent=noise_percent)
    if has_late_alarms:
        late_alarms(monkeypatch)
    with profiled(noise_percent=noise_percent) as job:
        train(job, 30)
        planned = [one for one in train(job, 60) if one.phase == "enforcing"]
        assert is_by_phase(job)
        assert "each rank and phase has one clock" in job.status.reason
        assert mean_s(planned) < 1.01 * mean_s(full)
        saving = 1 - median(one.energy_j for one in planned) / mean_j(full)  # some are probes at full clocks
        assert saving == pytest.approx(job.status.predicted_saving, abs=0.005)
        assert saving > 0.04
        assert len(planned) == 60


def test_a_job_asks_for_one_clock_for_each_rank() -> None:
    with profiled(granularity=Granularity.RANK) as job:
        train(job, 20)
        assert job.status.phase == "enforcing"
        assert not is_by_phase(job)


@pytest.mark.parametrize("later", [Granularity.RANK, Granularity.PHASE])
def test_the_next_run_may_ask_for_the_other(later: Granularity) -> None:
    (earlier,) = {Granularity.RANK, Granularity.PHASE} - {later}
    with profiled(granularity=earlier) as job:
        train(job, 20)
        assert is_by_phase(job) == (earlier == Granularity.PHASE)
        job.next_job(replace(SEEN, granularity=later))
        train(job, 20)
        assert is_by_phase(job) == (later == Granularity.PHASE)
        assert job.status.phase == "enforcing"


def test_an_agent_that_follows_no_moments_brings_the_plan_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    with profiled() as job:
        train(job, 20)
        assert is_by_phase(job)
        job.faults.kill_agent(2)
        older = replace(job._ranks[2]._spec, options={"granularity": "rank"})
        monkeypatch.setattr(job._ranks[2], "_spec", older)
        train(job, 2)
        job.faults.restart_agent(2)
        full = at_full_clocks()
        train(job, 20)
        assert not is_by_phase(job)
        assert job.status.phase == "enforcing"
        assert {report.point for reports in job.reports for report in reports[-3:]} == {job.planner.job.point(0)}
        assert mean_s(train(job, 5)) < 1.005 * mean_s(full)


@pytest.mark.stress
def test_a_pipeline_waits_for_a_gpu_that_overheats_and_recovers() -> None:
    with profiled(replace(SEEN, num_pipelines=2)) as job:
        planned = train(job, 30)[-5:]
        job.set_thermal_cap_mhz(1, 1000)
        held_up = train(job, 60)[-10:]
        assert job.status.phase == "enforcing"
        (verdict,) = job.planner.job.detection.verdicts
        assert (verdict.rank, str(verdict.cause)) == (1, "thermal")
        assert mean_j(held_up) < 0.95 * mean_j(planned)
        job.set_thermal_cap_mhz(1, None)
        again = train(job, 80)[-10:]
        assert job.planner.job.detection.verdicts == ()
        assert is_by_phase(job)
        assert mean_s(again) == pytest.approx(mean_s(planned), rel=0.002)
        assert mean_j(again) == pytest.approx(mean_j(planned), rel=0.01)


def test_it_goes_on_after_planner_and_agent_were_killed() -> None:
    with profiled() as job:
        planned = train(job, 30)[-5:]
        job.faults.kill_planner()
        train(job, 5)
        job.faults.restart_planner()
        train(job, 10)
        assert is_by_phase(job)
        job.faults.kill_agent(1)
        train(job, 3)
        assert job.locked_without_lease == 0
        job.faults.restart_agent(1)
        again = train(job, 60)[-5:]
        assert is_by_phase(job)
        assert mean_s(again) == pytest.approx(mean_s(planned), rel=0.002)
        assert mean_j(again) == pytest.approx(mean_j(planned), rel=0.002)


@pytest.mark.parametrize("share", [0.1, pytest.param(0.5, marks=pytest.mark.stress), 0.95])
def test_an_agent_killed_within_an_iteration_begins_with_the_next_one(share: float) -> None:
    with profiled() as job:
        planned = train(job, 30)[-5:]
        for rank in range(4):
            job.wait(share * mean_s(planned))
            job.faults.kill_agent(rank)
            job.faults.restart_agent(rank)
            assert mean_s(train(job, 4)) < 1.01 * mean_s(planned)
        assert mean_j(train(job, 40)[-5:]) == pytest.approx(mean_j(planned), rel=0.002)


@pytest.mark.parametrize(
    "slowness",
    [
        *(pytest.param(one, marks=pytest.mark.stress) for one in ((1.3, 1.0, 1.0, 1.0), (0.6, 1.0, 1.0, 0.6))),
        (0.5,) * 4,
    ],
)
def test_phases_that_are_late_twice_give_way_to_one_clock_for_each_rank(slowness: tuple[float, ...]) -> None:
    """The profile is of other GPUs: no moment of its plan fits."""

    def become_others(job: VirtualJob) -> None:
        for rank, of_rank in enumerate(slowness):
            job.slow_down(rank, of_rank)

    with virtual_job(replace(SEEN, granularity=Granularity.PHASE), "a100") as unplanned:
        become_others(unplanned)
        full_s = mean_s(train(unplanned, 20)[-5:])
    with profiled() as job:
        train(job, 30)
        assert is_by_phase(job)
        become_others(job)
        train(job, 60)
        assert not is_by_phase(job)
        assert mean_s(train(job, 20)) < 1.005 * full_s
        assert job.status.phase == "enforcing"
        assert job.planner.job.point(0) != NO_POINT


def test_another_target_in_mid_iteration_counts_from_the_next_one() -> None:
    with profiled() as job:
        planned = train(job, 30)[-5:]
        chosen = TargetSet(target=Target(slowdown=1.1))
        for share in (0.05, 0.4, 0.8):
            now = job.run_iteration((share * mean_s(planned), partial(job.planner.tell, chosen)))
            assert now is not None
            assert now.time_s == pytest.approx(mean_s(planned), rel=0.002)
            train(job, 12)
            slower = [one.time_s for one in train(job, 10)]
            assert median(slower) == pytest.approx(1.1 * mean_s(planned), rel=0.01)
            job.planner.tell(TargetSet(target=T_MIN))
            train(job, 12)
            assert median(one.time_s for one in train(job, 10)) == pytest.approx(mean_s(planned), rel=0.002)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (2, 3))])
def test_whatever_dies_in_mid_iteration_no_iteration_is_late(seed: int) -> None:
    chance = random.Random(seed)
    seen = replace(SEEN, num_pipelines=chance.choice((1, 2)))
    full_s = mean_s(at_full_clocks(seen))
    with profiled(seen) as job:
        train(job, 20)
        faults = job.faults
        for _ in range(6):
            rank = chance.randrange(seen.num_ranks)
            begin, end = chance.choice(
                (
                    (partial(faults.kill_agent, rank), partial(faults.restart_agent, rank)),
                    (partial(faults.stop_agent, rank), partial(faults.continue_agent, rank)),
                    (partial(faults.cut_network, rank), partial(faults.mend_network, rank)),
                    (partial(faults.delay_messages, rank, 3.0), partial(faults.delay_messages, rank, 0.0)),
                    (partial(faults.kill_lease, rank), bool),
                    (faults.kill_planner, faults.restart_planner),
                )
            )
            disturbed = [job.run_iteration((full_s * chance.random(), begin)), *train(job, chance.randrange(1, 6))]
            disturbed += [job.run_iteration((full_s * chance.random(), end)), *train(job, 4)]
            assert all(one is not None and one.time_s < 1.01 * full_s for one in disturbed)
        train(job, 40)
        assert is_by_phase(job)
        assert job.status.phase == "enforcing"
