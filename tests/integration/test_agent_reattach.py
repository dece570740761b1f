"""A trainer whose schedule changes attaches anew; one whose planner is not there yet attaches later."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import wait_until

from perseus_dist.simulator.machine import SimulatedMachine

# Trains with few microbatches until it is told to change, then with more. It costs little: no GPU work.
_TRAINER = """
import json, os, sys, time
from itertools import count
from perseus_dist.hooks import RankSpec, attach

told = json.loads(sys.argv[1])
spec, change = told["spec"], told["change"]
iteration = count()

def train(microbatches, rendezvous, is_over):
    orders = ["".join(f"{stage}F{mb} {stage}B{mb} " for mb in range(microbatches)) for stage in range(2)]
    hook = attach(RankSpec(**spec, schedule="\\n".join(orders) + "\\n", rendezvous=rendezvous))
    while not is_over():
        number = next(iteration)
        hook.iteration_begin(number)
        for mb in range(microbatches):
            for kind in "FB":
                hook.begin(kind, 0, mb)
                time.sleep(0.02)
                hook.end(kind, 0, mb)
        hook.iteration_end(number)
    hook.close()

train(2, told["rendezvous"][0], lambda: os.path.exists(change))
train(3, told["rendezvous"][1], lambda: False)
"""


class Job:
    """Two ranks on simulated GPUs."""

    def __init__(self, folder: Path, machine: SimulatedMachine, planner: str | None) -> None:
        self.machine = machine
        self.change = folder / "change"
        self.report = folder / "report"
        self.logs = [folder / f"rank{rank}.log" for rank in range(2)]
        self.rendezvous = [folder / "first", folder / "second"]
        self.trainers = [self._start(rank, planner) for rank in range(2)]

    def schedule(self) -> str:
        try:
            return str(json.loads((self.report / "job.json").read_text())["schedule"])
        except OSError:
            return ""

    def phase(self) -> str:
        try:
            return str(json.loads((self.report / "job.json").read_text())["phase"])
        except OSError:
            return ""

    def are_locked(self) -> bool:
        return all(gpu.state().locked_mhz is not None for gpu in self.machine.gpus)

    def are_unlocked(self) -> bool:
        return all(gpu.state().is_unlocked for gpu in self.machine.gpus)

    def said(self) -> str:
        return "".join(log.read_text() for log in self.logs)

    def end(self) -> None:
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()

    def _start(self, rank: int, planner: str | None) -> "subprocess.Popen[bytes]":
        spec = {
            "job_id": "job",
            "rank": rank,
            "pp_rank": rank,
            "dp_rank": 0,
            "tp_rank": 0,
            "pp_size": 2,
            "dp_size": 1,
            "tp_size": 1,
            "local_rank": rank,
            "gpu_uuid": self.machine.gpus[rank].uuid,
            "planner": planner,
            "report": str(self.report),
            "control": "direct",
        }
        told = {
            "spec": spec,
            "change": str(self.change),
            "rendezvous": [None if planner else str(folder) for folder in self.rendezvous],
        }
        with self.logs[rank].open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _TRAINER, json.dumps(told)],
                env={**os.environ, **self.machine.environment()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )


@contextmanager
def job_of(folder: Path, planner: str | None) -> Iterator[Job]:
    with SimulatedMachine("a100", count=2) as machine:
        job = Job(folder, machine, planner)
        try:
            yield job
        finally:
            job.end()
            wait_until(job.are_unlocked)


@contextmanager
def running_planner(folder: Path, port: int = 0) -> Iterator[str]:
    """The address of one that keeps everything in memory that outlives nothing."""
    address_file = folder / "address.json"
    command = [sys.executable, "-m", "perseus_dist", "planner", "--bind", f"127.0.0.1:{port}"]
    command += ["--state-dir", str(folder / "state"), "--address-file", str(address_file)]
    with (folder / "planner.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_until(address_file.exists)
        yield json.loads(address_file.read_text())["address"]
    finally:
        process.terminate()
        process.wait()


def check_that_it_begins_anew(job: Job) -> None:
    wait_until(lambda: job.phase() == "profiling" and job.are_locked())
    assert "0F1" in job.schedule()
    job.change.touch()
    wait_until(lambda: "0F2" in job.schedule())
    wait_until(lambda: job.phase() == "profiling" and job.are_locked())
    assert "0F2" in job.schedule()
    assert "cannot be set" not in job.said()
    assert "out of step" not in job.said()


@pytest.mark.stress
def test_a_job_with_another_schedule_begins_anew_at_a_planner_of_its_own(tmp_path: Path) -> None:
    with job_of(tmp_path, None) as job:
        check_that_it_begins_anew(job)
        wait_until(lambda: not job.rendezvous[0].exists())
    wait_until(lambda: not job.rendezvous[1].exists())


def test_a_job_with_another_schedule_begins_anew_at_a_planner_that_stays(tmp_path: Path) -> None:
    with running_planner(tmp_path) as planner, job_of(tmp_path, planner) as job:
        check_that_it_begins_anew(job)
    log = (tmp_path / "planner.log").read_text()
    assert "the schedule was " in log
    assert "plan and baseline begin anew, the profile is kept" in log


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_a_planner_that_cannot_be_reached_is_one_warning(tmp_path: Path, host: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with job_of(tmp_path, f"{host}:{port}") as job:
        wait_until(lambda: "cannot be reached" in job.said())
        ours = [line for line in job.said().splitlines() if line.startswith("perseus")]  # gRPC may have its own to say
        expected = rf"perseus rank 0: planner at {host}:{port} cannot be reached \(.+\); training goes on"
        assert [bool(re.match(expected, line)) for line in ours] == [True], ours
        wait_until(lambda: "cannot be reached" in json.loads((job.report / "job.json").read_text())["reason"])
        if host == "127.0.0.1":
            with running_planner(tmp_path, port):
                wait_until(lambda: job.phase() == "profiling")
        assert job.said().count("cannot be reached") == 1
        assert all(trainer.poll() is None for trainer in job.trainers)
