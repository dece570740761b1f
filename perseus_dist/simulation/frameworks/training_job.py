"""A training job that runs on simulated GPUs, and its processes: to see what happens when one of them dies."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.frameworks.training_run import TrainingRun, as_started
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.stream import STATE_VARIABLE

_LOOK_S = 0.005


class TrainingJob:
    """A job with Perseus. Its processes are those that were given its simulated machine.

    Attributes:
        run: What it runs.
        machine: Its GPUs.
        process: The launcher.
    """

    def __init__(self, run: TrainingRun, machine: SimulatedMachine, process: subprocess.Popen[bytes]) -> None:
        self.run = run
        self.machine = machine
        self.process = process

    def pids(self, *words: str, environment: Sequence[str] = ()) -> list[int]:
        """The job's processes, ascending; where words are given, those that have all of them on their command lines.

        A child that is about to execute another program has its parent's command line until then, and is none of those.

        Args:
            words: Whole ones.
            environment: What must be in theirs, as in ``RANK=0``.
        """
        mark = f"{STATE_VARIABLE}={self.machine.environment()[STATE_VARIABLE]}"
        parent_of: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                command = (path / "cmdline").read_bytes().split(b"\0")
                variables = (path / "environ").read_bytes().split(b"\0")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
            is_ours = all(variable.encode() in variables for variable in (mark, *environment))
            if is_ours and all(word.encode() in command for word in words):
                parent_of[int(path.name)] = parent
        return sorted(pid for pid, parent in parent_of.items() if not words or parent not in parent_of)

    def pid_of_planner(self) -> int:
        """Process id of the embedded planner."""
        return self._only(self.pids("planner", "--embedded"), "planner")

    def pid_of_rank(self, rank: int) -> int:
        """The process number of a rank's trainer."""
        return self._only(self.pids(str(self.run.script), environment=[f"RANK={rank}"]), f"rank {rank}")

    def pid_of_agent(self, rank: int) -> int:
        """Process id of a rank's agent."""
        trainer = self.pid_of_rank(rank)
        children = Path(f"/proc/{trainer}/task/{trainer}/children").read_text().split()
        return self._only(sorted(set(map(int, children)) & set(self.pids("perseus_dist.agent"))), f"agent {rank}")

    def locked(self) -> set[int]:
        """Indices of the GPUs whose clocks are locked."""
        return {gpu.index for gpu in self.machine.gpus if not gpu.state().is_unlocked}

    def num_steps(self) -> int:
        """How many the trainer has told the losses of."""
        return len(self.run.losses.read_text().splitlines()) if self.run.losses.exists() else 0

    def phase(self) -> str:
        """As rank 0's agent last wrote it; empty before."""
        path = self.run.folder / JOB_FILE
        return str(json.loads(path.read_text())["phase"]) if path.exists() else ""

    def wait_until(self, condition: Callable[[], object], longest_s: float) -> float:
        """Wait; how long it took [s].

        Raises:
            SimulationError: Longer than that.
        """
        began_s = time.monotonic()
        while not condition():
            if time.monotonic() > began_s + longest_s:
                raise SimulationError(f"{longest_s:g} s did not suffice; the job is {self.phase() or 'not attached'}")
            time.sleep(_LOOK_S)
        return time.monotonic() - began_s

    @staticmethod
    def _only(pids: Sequence[int], what: str) -> int:
        if len(pids) != 1:
            raise SimulationError(f"{what}: saw {len(pids)} processes, expected one")
        return pids[0]


@contextmanager
def running_job(run: TrainingRun) -> Iterator[TrainingJob]:
    """Start a job with Perseus; whatever is left of it at the end is killed.

    Args:
        run: What to run; with a preset.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    assert run.preset is not None, "its processes are told by their simulated machine"
    with SimulatedMachine(run.preset, count=run.num_ranks) as machine, (run.folder / "training.log").open("wb") as log:
        process = subprocess.Popen(
            as_started(run.command(with_perseus=True)),
            env=run.environment(machine),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,  # a terminal's Ctrl-C is ours to pass on
        )
        job = TrainingJob(run, machine, process)
        try:
            yield job
        finally:
            while pids := job.pids():  # one that was just being started comes a little later
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(_LOOK_S)
            process.wait()
