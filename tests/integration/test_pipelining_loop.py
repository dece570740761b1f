"""``torch.distributed.pipelining`` on simulated GPUs, each schedule under the plan for a saved profile."""

import json
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pipelining_harness_client import Harness
from pipelining_loops import PP_SIZE, pipelining_run_in, promised
from waiting import PATIENCE_S

from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.runlog.files import read_run
from perseus_dist.simulation.frameworks.training_job import TrainingJob, running_job

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness().running() as harness:
        yield harness


def num_enforced(job: TrainingJob) -> int:
    """Iterations under a plan, as rank 0's agent says."""
    enforced = json.loads((job.run.folder / JOB_FILE).read_text())["enforced"]
    return int(enforced["num_iterations"]) if enforced else 0


@pytest.mark.stress
def test_input_and_weight_gradients_run_under_a_plan(harness: Harness, tmp_path: Path) -> None:
    schedule = promised(harness, "ZBVZeroBubble")
    run = pipelining_run_in(tmp_path, "ZBVZeroBubble", schedule, num_steps=5000)
    with running_job(run) as job:
        job.wait_until(lambda: job.phase() == "enforcing" and num_enforced(job) >= 3, PATIENCE_S)
        job.wait_until(lambda: len(job.locked()) == PP_SIZE, PATIENCE_S)
        os.kill(job.pid_of_planner(), signal.SIGKILL)
        job.wait_until(lambda: not job.locked(), PATIENCE_S)
        num_steps = job.num_steps()
        job.wait_until(lambda: job.num_steps() > num_steps, PATIENCE_S)  # training goes on
    without = pipelining_run_in(tmp_path, "ZBVZeroBubble", schedule, num_steps=num_steps)
    without.train_without()
    assert run.losses.read_text().splitlines()[:num_steps] == without.reference_losses.read_text().splitlines()


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("InterleavedZeroBubble", "1F1B", "GPipe", "Interleaved1F1B", "DualPipeV")
        ),
    ],
)
def test_a_schedule_runs_under_a_plan(harness: Harness, name: str, tmp_path: Path) -> None:
    schedule = promised(harness, name)
    run = pipelining_run_in(tmp_path, name, schedule, num_steps=45)
    assert run.train() == 0
    run.train_without()
    assert losses_equal(run.losses, run.reference_losses)
    log = (tmp_path / "training.log").read_text()
    report = build_report(tmp_path)
    assert report.is_planned, f"{report.job.reason}\n{log[-3000:]}"
    assert "another order" not in log
    timelines = read_run(tmp_path).timelines
    assert len(timelines) == PP_SIZE
    for pp_rank, timeline in timelines.items():
        order = schedule.ranks[pp_rank]
        stages = sorted({instruction.stage for instruction in order})
        assert timeline.iterations
        for iteration in timeline.iterations:
            ran = [Instruction(stages[kept.chunk], kept.kind, kept.microbatch) for kept in iteration.runs]
            assert ran == list(order)
