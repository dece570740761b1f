"""A training script run by its framework's launcher, with and without Perseus, on simulated GPUs or real ones."""

import json
import os
import random
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.frameworks.injection import Injection
from perseus_dist.simulation.processes import end_process
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.search_path import searchable_path
from perseus_dist.simulator.throttle import Throttle, ThrottleScript
from perseus_dist.simulator.work import work_environment

_LOOK_S = 0.25
_RELEASE_S = 2.0  # agents outlive their trainers by a moment
_TAIL_LINES = 30
_PORTS = (20_000, 32_000)  # below those that Linux gives to connections, so that none takes it before the launcher does


class TrainingFailedError(SimulationError):
    """The launcher ended with a status other than 0.

    Attributes:
        log_tail: The last lines that the job printed.
    """

    def __init__(self, launcher: str, status: int, log: Path) -> None:
        super().__init__(f"{launcher} ended with status {status}; its log is {log}")
        self.log_tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun(ABC):
    """A training script, and what it is to run on. A framework says how it is launched.

    Attributes:
        script: Takes ``--losses FILE``, and writes a JSON line a step there.
        num_steps: Iterations to train.
        folder: Gets the report, the logs and the losses.
        preset: Of simulated GPUs, as ``SimulatedMachine`` takes it; None trains on the machine's own.
        forward_s, backward_s: What a rank's kernels of a microbatch take on a simulated GPU, at the maximum clock.
        imbalance: By how much the last stage is heavier than the first.
        transfer_s: [s] sending a result to the next rank on simulated GPUs.
        options: More for the script.
        perseus_options: More for Perseus, such as ``--perseus-profile``.
        throttles: Of simulated GPUs, in mid-run, counted in iterations; only where Perseus trains.
    """

    script: Path
    num_steps: int
    folder: Path
    preset: str | None
    forward_s: float
    backward_s: float
    imbalance: float
    options: tuple[str, ...] = ()
    perseus_options: tuple[str, ...] = ()
    throttles: tuple[Throttle, ...] = ()
    transfer_s: float = 0.0

    @property
    @abstractmethod
    def num_ranks(self) -> int:
        """One GPU each."""

    @abstractmethod
    def command(self, *, with_perseus: bool) -> list[str]:
        """As a user would type it."""

    def framework_environment(self) -> dict[str, str]:
        """Environment that the framework needs besides; where GPUs are simulated, to compute on the CPU."""
        return {}

    @property
    def losses(self) -> Path:
        """Of the job with Perseus, a line a step."""
        return self.folder / "losses.jsonl"

    @property
    def reference_losses(self) -> Path:
        """Of the job without."""
        return self.folder / "losses-without.jsonl"

    def train(self, watch: Callable[[Mapping[str, Any]], None] = lambda _job: None) -> int:
        """Train with Perseus.

        Args:
            watch: Called with the content of ``job.json`` whenever that has changed.

        Returns:
            How many clocks are still locked afterwards.

        Raises:
            SimulatorError: No such preset, too many GPUs, or throttles of GPUs that are not simulated.
            TrainingFailedError: The job failed.
        """
        machine: AbstractContextManager[SimulatedMachine | None] = nullcontext()
        if self.preset is not None:
            machine = SimulatedMachine(self.preset, count=self.num_ranks)
        with machine as simulated:
            script = ThrottleScript(self.throttles, simulated.gpus if simulated else ())
            injection = Injection(script, self.folder, self._newest_iteration)
            job_file = _JobFile(self.folder, watch)
            self.losses.unlink(missing_ok=True)  # of an earlier run

            def look() -> None:
                injection.look()
                job_file.look()

            self._run(self.command(with_perseus=True), self.environment(simulated), "training.log", look)
            return 0 if simulated is None else _num_locked(simulated)

    def train_without(self) -> None:
        """Train the same without Perseus: nothing is simulated, so it takes as long as the real work alone.

        Raises:
            TrainingFailedError: The job failed.
        """
        self._run(self.command(with_perseus=False), self.environment(None), "training-without.log", lambda: None)

    def environment(self, machine: SimulatedMachine | None) -> dict[str, str]:
        """Environment of the job's processes."""
        environment = {**os.environ, "PATH": searchable_path(str(Path(sys.executable).parent))}
        environment.setdefault("PERSEUS_CACHE", "off")  # each run is to show the whole way to the plan
        environment |= self.framework_environment()
        if self.preset is not None:
            environment["OMP_NUM_THREADS"] = "1"
        if machine is not None:
            environment |= machine.environment()
            environment |= work_environment(
                forward_s=self.forward_s,
                backward_s=self.backward_s,
                imbalance=self.imbalance,
                transfer_s=self.transfer_s,
            )
        return environment

    def _newest_iteration(self) -> int:
        """The newest begun: a step's loss is written as it ends. -1 before the first loss."""
        return len(self.losses.read_bytes().splitlines()) if self.losses.exists() else -1

    def _run(self, command: list[str], environment: dict[str, str], log_name: str, look: Callable[[], None]) -> None:
        log_path = self.folder / log_name
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                as_started(command), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                while process.poll() is None:
                    time.sleep(_LOOK_S)
                    look()
            finally:
                end_process(process)
        look()
        if process.returncode:
            raise TrainingFailedError(Path(command[0]).name, process.returncode, log_path)


class _JobFile:
    """The job's record, written by rank 0's agent."""

    def __init__(self, folder: Path, watch: Callable[[Mapping[str, Any]], None]) -> None:
        self._path = folder / JOB_FILE
        self._path.unlink(missing_ok=True)  # of an earlier run
        self._watch = watch
        self._seen_ns = 0

    def look(self) -> None:
        try:
            written_ns = self._path.stat().st_mtime_ns
        except OSError:
            return
        if written_ns != self._seen_ns:
            self._seen_ns = written_ns
            self._watch(json.loads(self._path.read_text()))


def as_started(command: Sequence[str]) -> list[str]:
    """A command with this environment's interpreter before a script of this environment.

    In the first line of a script a system reads no path of an interpreter with a space in it.
    """
    script = Path(sys.executable).parent / command[0]
    is_ours = os.sep not in command[0] and script.is_file()
    return [sys.executable, "-P", str(script), *command[1:]] if is_ours else list(command)


def free_port() -> int:
    """A port that no other call on this machine returns while this process runs; launchers all choose the same one."""
    while True:
        port = random.randrange(*_PORTS)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0perseus-dist-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            reservation.close()
            continue
        reservation.detach()  # the port's name stays taken while this process runs
        return port


def _num_locked(machine: SimulatedMachine) -> int:
    until_s = time.monotonic() + _RELEASE_S
    while (num := sum(not gpu.state().is_unlocked for gpu in machine.gpus)) and time.monotonic() < until_s:
        time.sleep(0.02)
    return num
