"""What can happen to a job in virtual time, and that it happens as it really would."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseus_dist.messages.terms import Target
from perseus_dist.planner.lifecycle.events import StragglerReported, TargetSet
from perseus_dist.planning.schedule.instruction import profile_name
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job
from perseus_dist.simulation.virtual.training import virtual_training
from perseus_dist.simulator.presets import find_preset

PRESET = "a100"
PLANNED = 22  # iterations after which the plan from the saved profile is in force
SIMULATED = SimulatedJob(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=2, num_iterations=100, imbalance=0.1)


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The truth about the job on these GPUs."""
    preset, rows = find_preset(PRESET), {}
    for config in SIMULATED.trainers(("",) * SIMULATED.num_ranks):
        for time in config.times:
            assert time.kernel_class is not None
            for clock_mhz in preset.clocks_mhz[:40:4]:
                time_s = preset.kernel_time_s(time.kernel_class, time.seconds, clock_mhz)
                energy_j = time_s * preset.kernel_power_w(time.kernel_class, clock_mhz)
                rows[time.stage, profile_name(time.kind), clock_mhz] = (time_s, energy_j)
    path = tmp_path_factory.mktemp("profile") / "profile.csv"
    lines = [",".join(map(str, (*key, *values))) for key, values in rows.items()]
    path.write_text("\n".join(["stage,instruction,frequency,time,energy", *lines]) + "\n")
    return str(path)


@pytest.fixture
def job(profile: str) -> Iterator[VirtualJob]:
    """A job whose plan is in force."""
    with virtual_job(replace(SIMULATED, profile=profile), PRESET, quick_plans=True) as running:
        train(running, PLANNED)
        assert running.status.phase == "enforcing"
        assert locked(running) == [0, 1, 2, 3]
        yield running
        assert_recovers(running)


def train(job: VirtualJob, num_iterations: int) -> None:
    for _ in range(num_iterations):
        assert job.run_iteration() is not None


def locked(job: VirtualJob) -> list[int]:
    return [gpu.index for gpu in job.machine.gpus if not gpu.state().is_unlocked]


def assert_recovers(job: VirtualJob) -> None:
    """Everybody is attached again, the plan is followed, and nothing stays locked at the end."""
    if job.is_alive:
        train(job, 15)
        status = job.status
        assert status.phase == "enforcing"
        assert sum(pipeline.attached_ranks for pipeline in status.pipelines) == len(job.machine.gpus)
        job.end()
    job.wait(0.1)
    assert job.clocks_left_locked == 0


def test_a_killed_agent_unlocks_its_clock_at_once(job: VirtualJob) -> None:
    job.faults.kill_agent(1)
    job.wait(0.05)
    assert locked(job) == [0, 2, 3]
    train(job, 2)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [1, 2]
    num_reports = len(job.reports[1])
    job.faults.restart_agent(1)
    train(job, 4)
    assert job.reports[1][num_reports].iteration >= PLANNED + 2  # it has not seen earlier ones
    train(job, 4)  # some of them a probe at full clocks
    assert 1 in locked(job)


def test_a_stopped_agent_loses_its_lease_after_two_seconds(job: VirtualJob) -> None:
    job.faults.stop_agent(2)
    job.wait(1.9)
    assert 2 in locked(job)
    job.wait(0.2)
    assert 2 not in locked(job)
    train(job, 4)
    newest = job.reports[2][-1].iteration
    job.faults.continue_agent(2)
    train(job, 4)
    assert [report.iteration for report in job.reports[2]][-1] > newest + 4  # what it missed it has found


def test_an_agent_that_is_stopped_for_long_is_detached(job: VirtualJob) -> None:
    job.faults.stop_agent(0)
    train(job, 22)
    assert job.status.pipelines[0].attached_ranks == 1
    job.faults.continue_agent(0)


def test_a_lost_lease_is_taken_again(job: VirtualJob) -> None:
    job.faults.kill_lease(3)
    job.wait(0.1)
    assert 3 not in locked(job)
    train(job, 2)
    assert 3 in locked(job)


def test_a_stopped_lease_holder_changes_no_clock(job: VirtualJob) -> None:
    job.faults.stop_lease(3)
    job.wait(0.05)
    num_sets = job.machine.gpu(3).state().num_sets
    train(job, 1)
    assert job.machine.gpu(3).state().num_sets == num_sets
    job.faults.continue_lease(3)


def test_a_killed_planner_takes_up_what_is_durable(job: VirtualJob) -> None:
    before = job.status
    job.faults.kill_planner()
    train(job, 4)
    assert locked(job) == [0, 1, 2, 3]  # a named planner's clocks are held
    job.faults.restart_planner()
    job.wait(0.01)
    assert job.status.reason == "the planner was restarted"
    assert job.status.baseline == before.baseline
    train(job, 4)
    assert job.status.table_revision >= before.table_revision
    assert job.status.switch_revision >= before.switch_revision


def test_a_signal_to_a_dead_planner_does_nothing(job: VirtualJob) -> None:
    job.faults.kill_planner()
    job.faults.stop_planner()
    job.faults.restart_planner()
    train(job, 4)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [2, 2]


def test_a_planner_that_was_stopped_goes_on(job: VirtualJob) -> None:
    job.faults.stop_planner()
    messages = job.status.messages
    train(job, 3)
    assert job.status.messages == messages
    job.faults.continue_planner()
    train(job, 1)
    assert job.status.messages > messages
    job.faults.stop_planner()
    train(job, 20)  # agents give it up, and come back
    job.faults.continue_planner()


def test_what_a_full_disk_did_not_take_is_made_up_for(job: VirtualJob) -> None:
    job.faults.fill_disk()
    job.planner.tell(TargetSet(target=Target(slowdown=1.1)))
    train(job, 3)
    assert not job.planner.answers[-1].accepted
    assert job.status.target == Target(slowdown=1.1)  # in memory
    job.faults.free_disk()
    train(job, 8)
    job.faults.kill_planner()
    job.faults.restart_planner()
    assert job.status.target == Target(slowdown=1.1)


def test_what_a_full_disk_did_not_take_is_lost_with_the_planner(job: VirtualJob) -> None:
    job.faults.fill_disk()
    job.planner.tell(TargetSet(target=Target(slowdown=1.1)))
    train(job, 3)
    job.faults.kill_planner()
    job.faults.free_disk()
    job.faults.restart_planner()
    assert job.status.target == Target()


def test_a_cut_network_is_noticed_by_both_ends(job: VirtualJob) -> None:
    job.faults.cut_network(1)
    train(job, 8)
    assert job.status.pipelines[0].attached_ranks == 2  # nobody has noticed
    train(job, 14)
    assert job.status.pipelines[0].attached_ranks == 1
    job.faults.mend_network(1)
    train(job, 3)
    assert job.status.pipelines[0].attached_ranks == 2


def test_messages_may_be_late_and_stay_in_order(job: VirtualJob) -> None:
    for rank in range(4):
        job.faults.delay_messages(rank, 0.4)
    train(job, 3)
    job.planner.tell(StragglerReported(straggler_id="operator", degree=1.2, dp_rank=0))
    train(job, 8)
    for reports in job.reports:
        numbers = [report.iteration for report in reports]
        assert numbers == sorted(numbers)
    assert job.status.pipelines[1].is_waiting
    assert job.status.refused_reports == 0


def test_messages_that_are_too_late_are_none(job: VirtualJob) -> None:
    """Each end takes the other for gone where a sign of life takes longer than it is waited for."""
    job.faults.delay_messages(1, 6.0)
    job.wait(16.0)
    train(job, 1)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [1, 2]
    job.faults.delay_messages(1, 0.0)
    job.wait(2.0)
    train(job, 3)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [2, 2]


def test_a_repeated_message_changes_nothing(job: VirtualJob) -> None:
    for rank in range(4):
        job.faults.repeat_messages(rank, 1.0)
    before = job.planner.job.switch
    train(job, 8)
    assert job.planner.job.num_refused_reports >= 4  # each report's twin
    assert job.planner.job.switch == before
    job.planner.tell(TargetSet(target=Target(slowdown=1.1)))
    train(job, 6)
    assert [answer.accepted for answer in job.planner.answers] == [True]
    assert [one for one in job.went_back if one] == []
    assert job.status.pipelines[0].attached_ranks == 2
    for rank in range(4):
        job.faults.repeat_messages(rank, 0.0)


def test_with_a_lost_message_goes_its_stream(job: VirtualJob) -> None:
    num_reports = len(job.reports[1])
    job.faults.lose_messages(1, 1.0)
    train(job, 5)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [1, 2]
    assert len(job.reports[1]) == num_reports
    assert 1 in locked(job)  # a plan outlives its stream
    job.faults.lose_messages(1, 0.0)
    train(job, 5)
    assert [pipeline.attached_ranks for pipeline in job.status.pipelines] == [2, 2]


def test_samples_on_a_broken_stream_are_told_again(profile: str) -> None:
    with virtual_job(replace(SIMULATED, profile=profile), PRESET, quick_plans=True) as job:
        for rank in range(4):
            job.faults.delay_messages(rank, 0.3)
        train(job, 1)
        job.faults.break_stream(0)
        job.faults.delay_messages(0, 0.0)
        train(job, PLANNED)
        assert job.status.phase == "enforcing"


def test_dead_trainers_end_their_agents(job: VirtualJob) -> None:
    num_iterations = len(job.iterations)
    assert job.run_iteration((0.2, job.kill_trainers)) is None
    assert len(job.iterations) == num_iterations
    with pytest.raises(SimulationError, match="dead"):
        job.run_iteration()
    job.wait(0.1)
    assert job.clocks_left_locked == 0
    assert sum(pipeline.attached_ranks for pipeline in job.status.pipelines) == 0
    job.restart_trainers()
    train(job, 3)
    assert {reports[-1].iteration for reports in job.reports} <= {0, 1, 2}  # they number anew
    assert job.iterations[-1].time_s == pytest.approx(job.iterations[0].time_s, rel=0.01)


def test_another_job_follows_under_its_name(job: VirtualJob, profile: str) -> None:
    before, now_ns = job.status, job.machine.now_ns
    job.next_job(replace(SIMULATED, schedule=one_f_one_b(pp=2, microbatches=6)), "a40")
    assert job.machine.preset.name == "a40"
    assert job.machine.now_ns > now_ns
    train(job, 3)
    assert job.status.phase == "warming_up"
    assert job.iterations[-1].time_s > 1.2 * job.iterations[0].time_s
    assert job.status.table_revision <= before.table_revision
    job.next_job(replace(SIMULATED, profile=profile), PRESET)
    train(job, PLANNED)


def test_a_job_that_begins_within_another_one_s_sweep_measures_from_its_begin() -> None:
    """The sweep is ordered as the first iteration is launched, at that moment: time must not stand still then."""
    with virtual_job(SIMULATED, PRESET, quick_plans=True) as job:
        while job.clocks_left_locked == 0:
            train(job, 1)
        assert job.status.phase == "profiling"
        job.next_job(SIMULATED)
        train(job, 12)
        assert job.status.phase == "profiling"
        assert len(locked(job)) == SIMULATED.num_ranks


def test_disturbed_the_same_with_and_without_perseus() -> None:
    times_s: list[list[float]] = []
    for kind in (virtual_job, virtual_training):
        with kind(SIMULATED, PRESET, noise_percent=1.0, seed=3) as training:
            for iteration in range(8):
                if iteration == 2:
                    training.slow_down(1, 1.3)
                    training.set_transfer_s(0, 0.01)
                if iteration == 4:
                    training.slow_down(1, 1.0)
                    training.set_transfer_s(0, 0.0)
                    training.set_thermal_cap_mhz(2, 1005)
                if iteration == 6:
                    training.set_thermal_cap_mhz(2, None)
                    training.set_power_limit_w(3, 300)
                training.run_iteration()
            times_s.append([iteration.time_s for iteration in training.iterations])
            training.set_power_limit_w(3, None)
            assert training.machine.gpu(3).state().power_limit_w == 500
    assert times_s[0] == times_s[1]
    usual_s, slow_s, hot_s, capped_s = (times_s[0][iteration] for iteration in (1, 3, 5, 7))
    assert slow_s > 1.25 * usual_s
    assert hot_s > 1.1 * usual_s
    assert capped_s > 1.02 * usual_s
    assert len(set(times_s[0])) == 8


def test_noise_repeats_with_its_seed() -> None:
    def times_s(seed: int) -> list[float]:
        with virtual_training(SIMULATED, PRESET, noise_percent=2.0, seed=seed) as training:
            for _ in range(5):
                training.run_iteration()
            return [iteration.time_s for iteration in training.iterations]

    assert times_s(1) == times_s(1) != times_s(2)


def test_the_same_history_is_the_same_run(profile: str) -> None:
    def run() -> tuple[object, ...]:
        with virtual_job(replace(SIMULATED, profile=profile), PRESET, noise_percent=0.5, seed=7) as job:
            train(job, 12)
            job.faults.kill_planner()
            job.faults.delay_messages(1, 0.05)
            train(job, 3)
            job.faults.restart_planner()
            job.faults.kill_agent(2)
            train(job, 3)
            job.faults.restart_agent(2)
            train(job, 12)
            job.end()
            return job.iterations, job.reports, job.status.events, job.machine.true_energy_j

    assert run() == run()


def test_a_job_that_ends_in_its_sweep_is_swept_again_when_it_comes_back() -> None:
    with virtual_job(SIMULATED, PRESET, quick_plans=True) as job:
        while job.status.phase != "profiling":
            train(job, 1)
        train(job, 5)
        job.next_job(SIMULATED)
        for _ in range(100):
            if job.status.phase == "enforcing":
                return
            train(job, 1)
        raise AssertionError(job.status.reason)
