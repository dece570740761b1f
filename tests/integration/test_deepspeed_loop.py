"""`deepspeed --perseus` trains a real job on simulated GPUs, from baseline to report; and parts of it are killed."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from deepspeed_loops import deepspeed_run_in, saved_profile

from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.runlog.accounting.record_files import records_in
from perseus_dist.simulation.frameworks.deepspeed_run import DeepSpeedRun
from perseus_dist.simulation.frameworks.training_job import TrainingJob, running_job

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

NUM_STEPS = 70
"""Of a job that sweeps."""

STARTED_S = 300.0
"""Until a job is under its plan; most of it is `import torch`, on a machine that does other things too."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeepSpeedRun, int]:
    """A job that ran from its baseline to the plan, and how many clocks it left locked."""
    folder = tmp_path_factory.mktemp("trained")
    run = deepspeed_run_in(folder, num_steps=NUM_STEPS)
    run = replace(run, perseus_options=("--perseus-cache", str(folder / "cache")))
    return run, run.train()


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The losses of as many steps without Perseus, which no GPU changes."""
    run = deepspeed_run_in(tmp_path_factory.mktemp("plain"), num_steps=NUM_STEPS)
    run.train_without()
    return run.reference_losses


@pytest.mark.alone
@pytest.mark.stress
def test_a_job_goes_from_baseline_to_plan(trained: tuple[DeepSpeedRun, int]) -> None:
    run, num_locked = trained
    report = build_report(run.folder)
    assert num_locked == 0
    assert report.baseline.num_iterations >= 4  # five, and one less where probes were faster
    phases = [phase.phase for phase in report.job.phases]  # not "planning", which an agent may be too slow to see
    assert phases.index("profiling") < phases.index("enforcing"), report.job.reason
    if "released" in phases:  # excused where the machine was busy then: slower than before at full clocks, too
        assert report.job.guard.reference_s > 1.02 * report.baseline.time_s, report.job.reason
        return
    assert report.is_planned, report.job.reason
    assert report.saving_percent is not None
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > 4
    assert report.saving_percent > 2  # a machine that does other things too makes waiting of it


@pytest.mark.alone
@pytest.mark.stress
def test_the_next_start_of_the_same_script_is_under_the_plan_at_once(
    trained: tuple[DeepSpeedRun, int], tmp_path: Path
) -> None:
    again = replace(trained[0], folder=tmp_path, num_steps=15)
    assert again.train() == 0
    report = build_report(tmp_path)
    assert report.is_planned, report.job.reason
    phases = [phase.phase for phase in report.job.phases]  # later its transfers may be others, and it is planned again
    assert not {"profiling", "planning"} & set(phases[: phases.index("enforcing")]), report.job.phases


@pytest.mark.alone
@pytest.mark.stress
def test_each_rank_says_what_its_iterations_were(trained: tuple[DeepSpeedRun, int]) -> None:
    run, _ = trained
    for rank in range(2):
        iterations = [json.loads(line) for line in (run.folder / f"rank-{rank}.jsonl").read_text().splitlines()]
        assert {iteration["tokens"] for iteration in iterations} == {8 * 2 * 32}  # as the example has it
        waits_s = [iteration["input_wait_s"] for iteration in iterations if iteration["input_wait_s"] is not None]
        assert waits_s  # first and last stage load
        assert all(0 < wait_s < 1 for wait_s in waits_s)


@pytest.mark.alone
@pytest.mark.stress
def test_the_launcher_has_made_the_report(trained: tuple[DeepSpeedRun, int]) -> None:
    folder = trained[0].folder
    document = json.loads((folder / "report.json").read_text())
    assert document["simulated_gpus"] is True
    for name in ("report.html", "frontier.svg", "timeline.svg", "trace.json"):
        assert (folder / name).stat().st_size > 1000


@pytest.mark.alone
@pytest.mark.stress
def test_the_run_has_its_whole_energy_record(trained: tuple[DeepSpeedRun, int]) -> None:
    run, _ = trained
    (record,) = records_in(run.folder)
    assert record.is_complete, record.reason
    assert record.num_gpus == 2
    # Those before the ranks are connected are not seen.
    assert run.num_steps / 2 < record.num_iterations <= run.num_steps
    assert all(gpu.energy_j for gpu in record.gpus)


@pytest.mark.alone
@pytest.mark.stress
def test_losses_are_those_of_the_job_without(trained: tuple[DeepSpeedRun, int], plain_losses: Path) -> None:
    with_perseus, _ = trained
    assert losses_equal(with_perseus.losses, plain_losses)


@pytest.fixture
def planned_job(tmp_path: Path) -> Iterator[TrainingJob]:
    """A job under a plan, by a profile that spares it the sweep."""
    run = deepspeed_run_in(tmp_path, num_steps=2000)
    with running_job(replace(run, perseus_options=saved_profile(run))) as job:
        job.wait_until(lambda: job.phase() == "enforcing" and len(job.locked()) == 2, STARTED_S)
        yield job


@pytest.mark.stress
def test_whoever_is_killed_clocks_are_unlocked_and_training_goes_on(planned_job: TrainingJob) -> None:
    job = planned_job
    os.kill(job.pid_of_planner(), signal.SIGKILL)
    job.wait_until(lambda: not job.locked(), 30.0)
    assert job.process.poll() is None
    job.wait_until(lambda: len(job.locked()) == 2, 180.0)  # the planner is back, and so is the plan

    os.kill(job.pid_of_agent(1), signal.SIGKILL)
    job.wait_until(lambda: 1 not in job.locked(), 30.0)
    num_steps = job.num_steps()
    job.wait_until(lambda: job.num_steps() > num_steps + 3, 180.0)
    assert job.process.poll() is None
    job.wait_until(lambda: len(job.locked()) == 2, 180.0)  # under the agent that the trainer has started since

    os.kill(job.pid_of_agent(0), signal.SIGKILL)  # and the planner with it
    job.wait_until(lambda: not job.locked(), 30.0)
    num_steps = job.num_steps()
    job.wait_until(lambda: job.num_steps() > num_steps + 3, 180.0)
    assert job.process.poll() is None


@pytest.mark.stress
def test_a_killed_rank_ends_the_job_as_it_would_without(planned_job: TrainingJob) -> None:
    job = planned_job
    os.kill(job.pid_of_rank(1), signal.SIGKILL)
    job.wait_until(lambda: not job.locked(), 30.0)
    job.wait_until(lambda: job.process.poll() is not None, 180.0)
    assert job.process.returncode != 0
    job.wait_until(lambda: not job.pids(), 30.0)


@pytest.mark.soak
def test_stages_on_different_gpus_are_planned_with_equal_losses(plain_losses: Path, tmp_path: Path) -> None:
    """Stage 0 on an A100, stage 1 on an A40; the next start on GPUs that have changed places measures anew."""
    run = replace(deepspeed_run_in(tmp_path, num_steps=NUM_STEPS), preset="a100,a40")
    run = replace(run, perseus_options=("--perseus-cache", str(tmp_path / "cache")))
    assert run.train() == 0
    report = build_report(tmp_path)
    assert report.gpu_name == "NVIDIA A100-SXM4-80GB, NVIDIA A40"
    assert report.is_planned, report.job.reason
    assert report.saving_percent is not None
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > 8
    assert report.saving_percent > 5  # a machine that does other things too makes waiting of it
    assert losses_equal(run.losses, plain_losses)

    (tmp_path / "swapped").mkdir()
    swapped = replace(run, preset="a40,a100", folder=tmp_path / "swapped", num_steps=15)
    assert swapped.train() == 0
    assert not build_report(swapped.folder).is_planned
