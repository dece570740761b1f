"""A rank that shows the job in a monitor of its own learns from its agent what rank 0 learns; the others do not."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import make_spec
from waiting import PATIENCE_S

from perseus_dist.hooks import Hook, attach
from perseus_dist.simulator.machine import SimulatedMachine


@contextmanager
def running_planner(folder: Path) -> Iterator[str]:
    address_file = folder / "address.json"
    command = [sys.executable, "-m", "perseus_dist", "planner", "--bind", "127.0.0.1:0"]
    command += ["--state-dir", str(folder / "state"), "--address-file", str(address_file)]
    with (folder / "planner.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
    try:
        while not address_file.exists():
            assert process.poll() is None
            time.sleep(0.02)
        yield json.loads(address_file.read_text())["address"]
    finally:
        process.terminate()
        process.wait()


def train_until(condition: Callable[[], bool], hooks: list[Hook], first: int) -> int:
    """Three pipelines of a stage each. The number of the next iteration."""
    until_s = time.monotonic() + PATIENCE_S
    for iteration in range(first, 1_000_000):
        if condition():
            return iteration
        assert time.monotonic() < until_s
        for hook in hooks:
            hook.iteration_begin(iteration)
        for kind in "FB":
            for hook in hooks:
                hook.begin(kind, 0, 0)
            time.sleep(0.02)
            for hook in hooks:
                hook.end(kind, 0, 0)
        for hook in hooks:
            hook.iteration_end(iteration)
    raise AssertionError


def knows_job(hook: Hook) -> bool:
    status = hook.status()
    return status is not None and status.phase != ""


def knows_all(hook: Hook) -> bool:
    status = hook.status()
    return status is not None and status.num_stragglers == 1 and status.job_energy_j is not None


def test_its_agent_tells_of_phase_target_and_stragglers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedMachine("a100", count=3) as machine, running_planner(tmp_path) as planner:
        for name, value in machine.environment().items():
            monkeypatch.setenv(name, value)
        specs = [
            make_spec(
                rank=rank,
                dp_rank=rank,
                dp_size=3,
                schedule="0F0 0B0\n",
                local_rank=rank,
                gpu_uuid=machine.gpus[rank].uuid,
                planner=planner,
                target="slowdown=1.05",
                report=str(tmp_path / "report"),
                control="observe",
                shows_job=rank == 2,
            )
            for rank in range(3)
        ]
        hooks = [attach(spec) for spec in specs]
        first, silent, last = hooks
        next_iteration = train_until(lambda: knows_job(first) and knows_job(last), hooks, 0)
        report = [sys.executable, "-m", "perseus_dist", "straggler", "report", "job", "--planner", planner]
        subprocess.run([*report, "--id", "rack7", "--pipeline", "1", "--degree", "1.25"], check=True)
        train_until(lambda: knows_all(first) and knows_all(last), hooks, next_iteration)
        for hook in (first, last):
            status = hook.status()
            assert status is not None
            assert (status.target, status.straggler_degree) == ("slowdown=1.05", 1.25)
            assert status.job_time_s >= 0.04
        status = silent.status()
        assert status is not None  # of its own iterations
        assert (status.iteration >= 0, status.phase, status.job_time_s) == (True, "", 0.0)
        for hook in hooks:
            hook.close()
        assert json.loads((tmp_path / "report" / "job.json").read_text())["num_ranks"] == 3
