"""A small job of two trainers a pipeline on simulated GPUs, and no planner but the one that it embeds."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.fingerprint import Workload
from perseus_dist.planning.profile.profile_csv import Row, write_rows
from perseus_dist.simulation.trainers.trainer_config import InstructionTime, TrainerConfig
from perseus_dist.simulator.machine import SimulatedMachine

SCHEDULE = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n"
WORKLOAD = Workload(framework="trainer", microbatch_size=4)
SECONDS = {"F": 0.030, "B": 0.055}
IMBALANCE = 1.4  # of stage 1: stage 0 has time to lose


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
    """Trainers on simulated GPUs, two for each pipeline, and no planner but their own."""

    def __init__(
        self,
        folder: Path,
        machine: SimulatedMachine,
        stack: ExitStack,
        *,
        name: str = "job",
        num_iterations: int = 100_000,
        working_folder: Path | None = None,
        cache: Path | None = None,
        schedule: str = SCHEDULE,
        number: int = 0,
        dp: int = 1,
        is_swept: bool = False,
        named_profile: Path | None = None,
        run_id: str | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.name = name
        self.num_iterations = num_iterations
        self.machine = machine
        self.working_folder = working_folder
        self.cache = cache
        self.schedule = schedule
        self.number = number  # among the jobs of this machine
        self.dp = dp
        self.run_id = run_id or str(folder)
        self.rendezvous = folder / "rendezvous"
        self.report = folder / "report"
        self.logs = [folder / f"rank{rank}.log" for rank in range(2 * dp)]
        profile = None if is_swept else folder / "profile.csv"
        if profile is not None:
            write_profile(machine, profile)
        profile = named_profile or profile
        self.trainers = [stack.enter_context(self._trainer(rank, profile)) for rank in range(2 * dp)]

    def pid_of_planner(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(json.loads((self.rendezvous / f"perseus-planner-{self.name}.json").read_text())["pid"])
        return None

    def agent_of(self, rank: int) -> int:
        for task in Path(f"/proc/{self.trainers[rank].pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                if b"perseus_dist.agent" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        raise AssertionError(f"rank {rank} has no agent")

    def kill_all(self) -> None:
        """Trainers, agents and planner at once, as a batch system may."""
        for trainer in self.trainers:
            trainer.send_signal(signal.SIGSTOP)  # or it would start its agent again
        agents = [self.agent_of(rank) for rank in range(len(self.trainers))]
        for agent in agents:
            os.kill(agent, signal.SIGSTOP)  # or it would start the planner again
        planner = self.pid_of_planner()
        for process in agents if planner is None else [*agents, planner]:
            os.kill(process, signal.SIGKILL)
        for trainer in self.trainers:
            trainer.kill()
            trainer.wait()

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
    def _trainer(self, rank: int, profile: Path | None) -> Iterator["subprocess.Popen[bytes]"]:
        spec = RankSpec(
            job_id=self.name,
            rank=rank,
            pp_rank=rank % 2,
            dp_rank=rank // 2,
            tp_rank=0,
            pp_size=2,
            dp_size=self.dp,
            tp_size=1,
            schedule=self.schedule,
            local_rank=rank,
            gpu_uuid=self.machine.gpus[rank].uuid,
            rendezvous=str(self.rendezvous),
            profile=None if profile is None else str(profile),
            report=str(self.report),
            control="direct",
            run_id=self.run_id,
            workload=WORKLOAD,
            options={
                "planner_stragglers": "show",
                **({} if profile is None else {"blocking_power_w": "83.6"}),
                **({} if self.cache is None else {"cache": str(self.cache)}),
            },
        )
        times = tuple(
            InstructionTime(stage=rank % 2, kind=kind, seconds=seconds_of(rank % 2, kind)) for kind in SECONDS
        )
        iterations = self.num_iterations
        config = TrainerConfig(
            spec=spec,
            gpu=rank,
            times=times,
            num_iterations=iterations,
            device_ordered=False,
            first_semaphore=1000 * self.number,
        )
        with self.logs[rank].open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "perseus_dist.simulation.trainers.trainer"],
                env={**os.environ, **self.machine.environment()},
                cwd=self.working_folder,
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
