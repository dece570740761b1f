"""`deepspeed --perseus` trains a real job on simulated GPUs, from baseline to report; and parts of it are killed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.report.losses import losses_equal
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.deepspeed_run import DeepSpeedRun
from perseus_dist.simulator.machine import SimulatedMachine

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTED_S = 90.0
"""Until a job is under its plan; most of it is `import torch`, on a machine that does other things too."""


def run_in(folder: Path, *, num_steps: int) -> DeepSpeedRun:
    return DeepSpeedRun(
        script=EXAMPLES / "deepspeed_gpt.py",
        config=EXAMPLES / "deepspeed_gpt.json",
        num_stages=2,
        num_pipelines=1,
        num_steps=num_steps,
        folder=folder,
        preset="a100",
        forward_s=0.03,
        backward_s=0.055,
        imbalance=0.3,
        launcher="perseus-deepspeed",
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeepSpeedRun, int]:
    """A job that ran from its baseline to the plan, and how many clocks it left locked."""
    run = run_in(tmp_path_factory.mktemp("trained"), num_steps=85)
    return run, run.train()


def test_a_job_goes_from_baseline_to_plan(trained: tuple[DeepSpeedRun, int]) -> None:
    run, num_locked = trained
    report = build_report(run.folder)
    assert num_locked == 0
    assert report.baseline.num_iterations >= 5
    assert report.is_planned, report.job.reason
    assert report.saving_percent is not None
    assert report.predicted_saving_percent is not None
    assert report.predicted_saving_percent > 4
    assert report.saving_percent > 2  # a machine that does other things too makes waiting of it


def test_the_launcher_has_made_the_report(trained: tuple[DeepSpeedRun, int]) -> None:
    folder = trained[0].folder
    document = json.loads((folder / "report.json").read_text())
    assert document["simulated_gpus"] is True
    for name in ("report.html", "frontier.svg", "timeline.svg", "trace.json"):
        assert (folder / name).stat().st_size > 1000


def test_losses_are_those_of_the_job_without(trained: tuple[DeepSpeedRun, int], tmp_path: Path) -> None:
    with_perseus, _ = trained
    without = replace(with_perseus, folder=tmp_path)
    without.train_without()
    assert losses_equal(with_perseus.losses, without.reference_losses)


class Job:
    """A job that runs, and its processes."""

    def __init__(self, run: DeepSpeedRun, machine: SimulatedMachine, process: subprocess.Popen[bytes]) -> None:
        self.run = run
        self.machine = machine
        self.process = process

    def pids(self, *words: str) -> list[int]:
        """Processes of this job with all these words on their command lines, oldest first."""
        state = self.machine.environment()["PERSEUS_SIM_STATE"].encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().split(b"\0")
                is_ours = state in (path / "environ").read_bytes()
            except OSError:
                continue
            if is_ours and all(word.encode() in command for word in words):
                found.append(int(path.name))
        return sorted(found)

    def pid_of_rank(self, rank: int) -> int:
        (pid,) = self.pids(f"--local_rank={rank}", "--perseus-options")
        return pid

    def agent_of_rank(self, rank: int) -> int:
        children = Path(f"/proc/{self.pid_of_rank(rank)}/task/{self.pid_of_rank(rank)}/children").read_text().split()
        (pid,) = set(map(int, children)) & set(self.pids("perseus_dist.agent"))
        return pid

    def locked(self) -> set[int]:
        return {gpu.index for gpu in self.machine.gpus if not gpu.state().is_unlocked}

    def num_losses(self) -> int:
        return len(self.run.losses.read_text().splitlines()) if self.run.losses.exists() else 0

    def phase(self) -> str:
        path = self.run.folder / "job.json"
        return str(json.loads(path.read_text())["phase"]) if path.exists() else ""


@pytest.fixture
def planned_job(trained: tuple[DeepSpeedRun, int], tmp_path: Path) -> Iterator[Job]:
    """A job under the plan for the profile that the other one has measured."""
    profile = trained[0].folder / "profile.csv"
    run = run_in(tmp_path, num_steps=2000)
    command = run.command(with_perseus=True)
    command[1:1] = ["--perseus-profile", str(profile)]
    with SimulatedMachine("a100", count=2) as machine, (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=run.environment(machine), stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
        )
        job = Job(run, machine, process)
        try:
            wait_until(lambda: job.phase() == "enforcing" and len(job.locked()) == 2, STARTED_S, job)
            yield job
        finally:
            for pid in job.pids():
                os.kill(pid, signal.SIGKILL)
            process.wait()


def wait_until(condition: Callable[[], Any], longest_s: float, job: Job) -> float:
    """How long it took [s]."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() < began_s + longest_s, (job.run.folder / "log").read_text()[-4000:]
        time.sleep(0.02)
    return time.monotonic() - began_s


def test_whoever_is_killed_clocks_are_unlocked_and_training_goes_on(planned_job: Job) -> None:
    job = planned_job
    (planner,) = job.pids("planner", "--embedded")
    os.kill(planner, signal.SIGKILL)
    wait_until(lambda: not job.locked(), 5.0, job)
    assert job.process.poll() is None
    wait_until(lambda: len(job.locked()) == 2, 30.0, job)  # the planner is back, and so is the plan

    os.kill(job.agent_of_rank(1), signal.SIGKILL)
    wait_until(lambda: 1 not in job.locked(), 5.0, job)
    num_losses = job.num_losses()
    wait_until(lambda: job.num_losses() > num_losses + 3, 60.0, job)
    assert job.process.poll() is None
    assert 1 not in job.locked()

    os.kill(job.agent_of_rank(0), signal.SIGKILL)  # and the planner with it
    wait_until(lambda: not job.locked(), 5.0, job)
    num_losses = job.num_losses()
    wait_until(lambda: job.num_losses() > num_losses + 3, 60.0, job)
    assert job.process.poll() is None


def test_a_killed_rank_ends_the_job_as_it_would_without(planned_job: Job) -> None:
    job = planned_job
    os.kill(job.pid_of_rank(1), signal.SIGKILL)
    wait_until(lambda: not job.locked(), 5.0, job)
    wait_until(lambda: job.process.poll() is not None, 60.0, job)
    assert job.process.returncode != 0
    wait_until(lambda: not job.pids(), 30.0, job)
