"""``torch.distributed.pipelining`` on simulated GPUs, each schedule under the plan for a saved profile."""

import json
import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from pipelining_harness_client import Harness
from waiting import PATIENCE_S

from perseus_dist.planning.schedule.instruction import Instruction
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.report.analysis.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.runlog.files import read_run
from perseus_dist.simulation.frameworks.pipelining_run import PipeliningRun
from perseus_dist.simulation.frameworks.training_job import TrainingJob, running_job
from perseus_dist.simulation.simulated_profile import profile_of_schedule
from perseus_dist.simulator.presets import PRESETS
from perseus_dist.simulator.work import WorkTimes

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SCRIPT = Path(__file__).parents[2] / "examples" / "pipelining_gpt.py"
PP_SIZE, NUM_MICROBATCHES = 2, 4
TIMES = WorkTimes(forward_s=0.03, backward_s=0.06, imbalance=0.3)
CONSTANTS_S = {"REDUCE": 0.0005, "REDUCE_CHUNK": 0.0005, "STEP": 0.002, "SEND_F": 0.0001, "SEND_B": 0.0001}


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness().running() as harness:
        yield harness


def promised(harness: Harness, name: str) -> Schedule:
    """The order that the adapter reads of torch's schedule."""
    (first, _) = harness.run_schedules(f"Schedule{name}", mb=NUM_MICROBATCHES, steps=("attach", "train", "train"))
    return parse_schedule(first[f"Schedule{name}"]["agents"][0]["spec"]["schedule"])


def run_in(folder: Path, name: str, schedule: Schedule, *, num_steps: int) -> PipeliningRun:
    profile = folder / "saved.csv"
    profile.write_text(profile_of_schedule(PRESETS["a100"], TIMES, schedule, constants_s=CONSTANTS_S))
    return PipeliningRun(
        script=SCRIPT,
        schedule=name,
        pp_size=PP_SIZE,
        num_microbatches=NUM_MICROBATCHES,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=TIMES.forward_s,
        backward_s=TIMES.backward_s,
        imbalance=TIMES.imbalance,
        perseus_options=("--perseus-profile", str(profile)),
    )


def num_enforced(job: TrainingJob) -> int:
    """Iterations under a plan, as rank 0's agent says."""
    enforced = json.loads((job.run.folder / JOB_FILE).read_text())["enforced"]
    return int(enforced["num_iterations"]) if enforced else 0


def test_input_and_weight_gradients_run_under_a_plan(harness: Harness, tmp_path: Path) -> None:
    schedule = promised(harness, "ZBVZeroBubble")
    run = run_in(tmp_path, "ZBVZeroBubble", schedule, num_steps=5000)
    with running_job(run) as job:
        job.wait_until(lambda: job.phase() == "enforcing" and num_enforced(job) >= 3, PATIENCE_S)
        job.wait_until(lambda: len(job.locked()) == PP_SIZE, PATIENCE_S)
        os.kill(job.pid_of_planner(), signal.SIGKILL)
        job.wait_until(lambda: not job.locked(), PATIENCE_S)
        num_steps = job.num_steps()
        job.wait_until(lambda: job.num_steps() > num_steps, PATIENCE_S)  # training goes on
    without = run_in(tmp_path, "ZBVZeroBubble", schedule, num_steps=num_steps)
    without.train_without()
    assert run.losses.read_text().splitlines()[:num_steps] == without.reference_losses.read_text().splitlines()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("InterleavedZeroBubble", marks=pytest.mark.stress),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("1F1B", "GPipe", "Interleaved1F1B", "DualPipeV")),
    ],
)
def test_a_schedule_runs_under_a_plan(harness: Harness, name: str, tmp_path: Path) -> None:
    schedule = promised(harness, name)
    run = run_in(tmp_path, name, schedule, num_steps=45)
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
