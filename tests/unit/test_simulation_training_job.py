"""Processes of a job on simulated GPUs, as tests find and end them."""

import sys
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.simulation.frameworks.training_job import running_job
from perseus_dist.simulation.frameworks.training_run import TrainingRun

LAUNCHER = """
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "child"]) for _ in range(2)]
print("begun", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(TrainingRun):
    """A launcher with two children."""

    @property
    def num_ranks(self) -> int:
        return 1

    def command(self, *, with_perseus: bool) -> list[str]:
        return [sys.executable, "-c", LAUNCHER, f"{with_perseus=}"]


def test_whatever_is_left_of_a_job_is_ended_children_too(tmp_path: Path) -> None:
    """Only the launcher was: two trainers of each such test computed until the last test had run."""
    run = Family(
        script=tmp_path / "train.py",
        num_steps=1,
        folder=tmp_path,
        preset="a100",
        forward_s=0.01,
        backward_s=0.02,
        imbalance=0.0,
    )
    with running_job(run) as job:
        job.wait_until(lambda: "begun" in (tmp_path / "training.log").read_text(), 60.0)
        job.wait_until(lambda: len(job.pids("child")) == 2, 60.0)
        assert len(job.pids()) == 3
        assert job.pids(LAUNCHER) == [job.process.pid]
    assert job.pids() == []
