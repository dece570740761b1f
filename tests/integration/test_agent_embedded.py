"""A job without a planner gets one from its rank 0, which all its ranks find, and which may die as any process may."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.planning.profile_csv import Row, write_rows
from perseus_dist.simulation.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

PATIENCE_S = 60.0
SCHEDULE = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"
SECONDS = {"F": 0.030, "B": 0.055}
IMBALANCE = 1.4  # of stage 1: stage 0 has time to lose


def wait_until(condition: Callable[[], object]) -> float:
    """How long it took."""
    begin_s = time.monotonic()
    while not condition():
        assert time.monotonic() < begin_s + PATIENCE_S
        time.sleep(0.01)
    return time.monotonic() - begin_s


def seconds_of(stage: int, kind: str) -> float:
    return SECONDS[kind] * IMBALANCE**stage


def write_profile(machine: SimulatedMachine, path: Path) -> None:
    """What a sweep would find, which takes half a minute."""
    kernels = {"F": "forward", "B": "backward"}
    rows = []
    for stage in range(2):
        for kind, kernel in kernels.items():
            for clock in machine.preset.clocks_mhz[:40:4]:
                time_s = machine.preset.kernel_time_s(kernel, seconds_of(stage, kind), clock)
                energy_j = time_s * machine.preset.kernel_power_w(kernel, clock)
                rows.append(Row(0, stage, kind, clock, time_s, energy_j))
    write_rows(path, rows)


class Job:
    """Two trainers on simulated GPUs, and no planner but their own."""

    def __init__(self, folder: Path, machine: SimulatedMachine, stack: ExitStack) -> None:
        self.machine = machine
        self.rendezvous = folder / "rendezvous"
        self.report = folder / "report"
        self.logs = [folder / f"rank{rank}.log" for rank in range(2)]
        write_profile(machine, folder / "profile.csv")
        self.trainers = [stack.enter_context(self._trainer(rank, folder / "profile.csv")) for rank in range(2)]

    def pid_of_planner(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(json.loads((self.rendezvous / "perseus-planner-job.json").read_text())["pid"])
        return None

    def agent_of(self, rank: int) -> int:
        for task in Path(f"/proc/{self.trainers[rank].pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"perseus_dist.agent" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        raise AssertionError(f"rank {rank} has no agent")

    def told(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.report / "job.json").read_text())
        except OSError:
            return {"phase": "", "ended_at": None}
        return found

    def are_locked(self) -> bool:
        """Both under the plan: stage 0 below the maximum clock."""
        locked_mhz = [gpu.state().locked_mhz for gpu in self.machine.gpus]
        return locked_mhz[0] is not None and locked_mhz[0] < (1400, 1400) and locked_mhz[1] is not None

    def are_unlocked(self) -> bool:
        return all(gpu.state().is_unlocked for gpu in self.machine.gpus)

    def said(self, rank: int) -> str:
        return self.logs[rank].read_text()

    @contextmanager
    def _trainer(self, rank: int, profile: Path) -> Iterator["subprocess.Popen[bytes]"]:
        spec = RankSpec(
            job_id="job",
            rank=rank,
            pp_rank=rank,
            dp_rank=0,
            tp_rank=0,
            pp_size=2,
            dp_size=1,
            tp_size=1,
            schedule=SCHEDULE,
            local_rank=rank,
            gpu_uuid=self.machine.gpus[rank].uuid,
            rendezvous=str(self.rendezvous),
            profile=str(profile),
            report=str(self.report),
            control="direct",
            options={"blocking_power_w": "83.6", "planner_stragglers": "show"},
        )
        times = tuple(InstructionTime(stage=rank, kind=kind, seconds=seconds_of(rank, kind)) for kind in SECONDS)
        config = TrainerConfig(spec=spec, gpu=rank, times=times, num_iterations=100_000, device_ordered=False)
        with self.logs[rank].open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "perseus_dist.simulation.trainer"],
                env={**os.environ, **self.machine.environment()},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        assert process.stdin is not None
        process.stdin.write(config.to_json().encode())
        process.stdin.close()
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))
        yield Job(tmp_path, machine, stack)


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that its parent has not looked at."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_planner_that_is_killed_comes_back_with_its_plan_and_goes_with_the_job(job: Job) -> None:
    wait_until(job.are_locked)
    planner = job.pid_of_planner()
    assert planner is not None
    assert b"--stragglers\0show\0" in Path(f"/proc/{planner}/cmdline").read_bytes()
    assert stat.S_IMODE((job.rendezvous / "perseus-planner-job.json").stat().st_mode) == 0o600
    wait_until(lambda: job.told()["phase"] == "enforcing" and job.told()["enforced"]["num_iterations"] >= 5)
    os.kill(planner, signal.SIGKILL)
    took_s = wait_until(job.are_unlocked)
    assert took_s < 1.0
    wait_until(job.are_locked)
    assert job.pid_of_planner() not in (None, planner)
    wait_until(lambda: job.told()["phases"][-1]["phase"] == "enforcing")
    # It remembers: nothing is measured or planned again.
    phases = [phase["phase"] for phase in job.told()["phases"]]
    assert "profiling" not in phases
    assert phases.count("planning") <= 1
    assert job.told()["table_revision"] == 1
    for rank in range(2):
        assert job.said(rank).count("the job's planner is gone: clocks released until it is back") == 1
    assert "the job's planner has ended with status -9: starting it again" in job.said(0)
    assert "planner" not in job.said(1).replace("the job's planner is gone", "")

    for trainer in job.trainers:
        trainer.kill()
    took_s = wait_until(job.are_unlocked)
    assert took_s < 1.0
    wait_until(lambda: job.told()["ended_at"])
    assert job.told()["phase"] == "done"
    assert (job.report / "frontier.csv").exists()
    assert (job.report / "profile.csv").exists()
    for rank in range(2):
        header, *iterations = (
            json.loads(line) for line in (job.report / f"timeline-{rank}.jsonl").read_text().splitlines()
        )
        assert (header["rank"], header["simulated"], header["gpu"]["control"]) == (rank, True, "direct")
        assert [iteration["planned_clocks_mhz"] is None for iteration in iterations] == [True] * 3 + [False] * 5
    wait_until(lambda: not job.rendezvous.exists())


def test_when_rank_0s_agent_is_killed_its_planner_goes_and_all_clocks_with_it(job: Job) -> None:
    wait_until(job.are_locked)
    planner = job.pid_of_planner()
    assert planner is not None
    os.kill(job.agent_of(0), signal.SIGKILL)
    took_s = wait_until(job.are_unlocked)
    assert took_s < 1.0
    wait_until(lambda: has_ended(planner))
    wait_until(lambda: not job.rendezvous.exists())
    time.sleep(2.0)  # its agent looks for a planner again and again
    assert job.said(1).count("the job's planner is gone") == 1
    assert job.said(1).count("\n") == 1
    assert all(trainer.poll() is None for trainer in job.trainers)
