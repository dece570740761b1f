"""Virtual jobs on GPUs of different models: stages are swept each over its own clocks, replicas are left alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.simulation.chaos.world.profile_rows import undisturbed_profile
from perseus_dist.simulation.job import SimulatedJob, as_simulated
from perseus_dist.simulation.virtual.run import VirtualJob, run_virtual, virtual_job

JOB = SimulatedJob(
    schedule=as_simulated(make_schedule("1f1b", pp=2, microbatches=4)),
    num_pipelines=2,
    num_iterations=90,
    imbalance=0.1,
)
MIXED, ALIKE = "a100,a100,a40,a40", "a100"


@pytest.mark.parametrize(
    ("gpus", "num_pipelines"), [("a100,a40", 1), ("a40,a100", 1), ("a100,a40,a100,a40", 2)], ids=str
)
def test_stages_on_different_gpus_save_energy_and_keep_their_time(gpus: str, num_pipelines: int) -> None:
    """An A40 goes up to 1740 MHz and an A100 to 1410: with the clocks of both alone, plans are 3 % late."""
    outcome = run_virtual(replace(JOB, num_pipelines=num_pipelines), gpus)
    assert outcome.enforced.num_iterations > 30, outcome.reason
    assert outcome.slowdown_percent < 0.5
    assert outcome.saving_percent > 5
    assert outcome.saving_percent == pytest.approx(outcome.predicted_saving_percent, abs=1.0)
    assert outcome.clocks_left_locked == 0


@pytest.mark.parametrize("gpus", [MIXED, "a100,a40,a40,a100", "a100,a100,a100,a40", "a40,a100,a100,a100"])
def test_replicas_on_different_gpus_train_at_full_clocks_from_the_start(gpus: str) -> None:
    """A plan of two models' measurements together is 3 % slow."""
    outcome = run_virtual(JOB, gpus)
    assert "pipelines on different GPU models are not planned, and train at full clocks" in outcome.reason
    assert outcome.enforced.num_iterations == 0
    assert outcome.slowdown_percent == pytest.approx(0.0, abs=1e-9)
    assert outcome.clocks_left_locked == 0


@pytest.mark.parametrize("profile", ["sweep", "saved"])
def test_neither_kills_nor_a_saved_profile_lead_to_a_plan_for_two_models(profile: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.csv"
    saved.write_text(undisturbed_profile(JOB, ALIKE))
    with virtual_job(replace(JOB, profile=str(saved) if profile == "saved" else None), MIXED, quick_plans=True) as job:
        for fault, arguments in (
            (job.faults.kill_planner, ()),
            (job.faults.restart_planner, ()),
            (job.faults.kill_agent, (0,)),
            (job.faults.restart_agent, (0,)),
            (job.faults.kill_agent, (3,)),
            (job.faults.restart_agent, (3,)),
            (job.kill_trainers, ()),
            (job.restart_trainers, ()),
        ):
            if job.is_alive:
                train(job, 10)
            fault(*arguments)
        train(job, 15)
        assert job.status.phase == "observing"
        assert {round(iteration.time_s, 6) for iteration in job.iterations} == {round(job.iterations[0].time_s, 6)}


def test_a_job_is_planned_before_and_after_it_is_on_two_models() -> None:
    with virtual_job(JOB, ALIKE, quick_plans=True) as job:
        for gpus, phase in ((ALIKE, "enforcing"), (MIXED, "observing"), (ALIKE, "enforcing"), (MIXED, "observing")):
            job.next_job(JOB, gpus)
            train(job, 70)
            assert job.status.phase == phase, job.status.reason


def train(job: VirtualJob, num_iterations: int) -> None:
    for _ in range(num_iterations):
        assert job.run_iteration() is not None
        assert job.status.phase != "observing" or not job.clocks_left_locked
