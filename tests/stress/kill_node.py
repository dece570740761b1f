"""A node with one simulated GPU and a job on it, whose parts can be killed; clockd and the planner are supervised."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from kill_cases import Case, Control, Part, Way

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.device.lease.file import LeaseFile
from perseus_dist.simulator.machine import SimulatedMachine

CLOCK_MHZ = 1200
SCHEDULE = "0F0 0F1 0B0 0B1"
START_S = 60.0
_RESTART_S = 0.5  # as launch/systemd/perseus-clockd.service has it
_LOOK_S = 0.01
_HERE = Path(__file__).parent
_IN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class NodeError(Exception):
    """The node did not come to the state from which parts are killed."""


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> float:
    """Wait, and say how long [s] it took.

    Raises:
        NodeError: It took too long.
    """
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() > began_s + timeout_s:
            raise NodeError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(_LOOK_S)
    return time.monotonic() - began_s


def children(pid: int) -> list[int]:
    """Of a process, all its threads together."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def command_line(pid: int) -> bytes:
    """Of a process; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, or to none."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _remove_group(group: Path) -> None:
    (group / "cgroup.kill").write_text("1")
    wait_for(lambda: "populated 0" in (group / "cgroup.events").read_text(), START_S, "an empty control group")
    group.rmdir()


class Supervised:
    """A process that is started again whenever it ends, as systemd would."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path, *, is_contained: bool) -> None:
        self._command = [*(_IN_NAMESPACE if is_contained else ()), *command]
        self._is_contained = is_contained
        self._environ = environ
        self._log = log
        self._is_over = threading.Event()
        self._process = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the process itself, the first one of its PID namespace if it has one; 0 while there is none."""
        pid = self._process.pid
        return next(iter(children(pid)), 0) if self._is_contained else pid

    def end(self) -> None:
        """For good."""
        self._is_over.set()
        self._thread.join()
        kill(self.pid)
        self._process.kill()
        self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _supervise(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            if self._process.poll() is not None and not self._is_over.wait(_RESTART_S):
                self._process = self._start()


class Node:
    """The node of a case. A context manager.

    Args:
        case: What will be killed.
        folder: Empty, for logs and sockets.
        groups: A folder of the unified hierarchy of control groups, for groups of our own; None where there is none.
    """

    def __init__(self, case: Case, folder: Path, groups: Path | None) -> None:
        self._case = case
        self._folder = folder
        self._groups = groups
        self.machine = SimulatedMachine("a100")
        self.gpu = self.machine.gpu(0)
        self.environ = {**os.environ, **self.machine.environment(), "PYTHONPATH": ""}
        self.lease_folder = Path(self.environ["PERSEUS_LEASE_DIR"])
        self._supervised: dict[Part, Supervised] = {}
        self.trainer: subprocess.Popen[bytes] | None = None
        self._made: list[Path] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for supervised in self._supervised.values():
            supervised.end()
        if self.trainer is not None:
            agents = self.pids(Part.AGENT)
            kill(self.trainer_pid)
            self.trainer.kill()
            self.trainer.wait()
            for agent in agents:
                kill(agent)
        for pid in self.pids(Part.LEASE_HOLDER):
            kill(pid)
        for group in self._made:
            with suppress(OSError, NodeError):
                _remove_group(group)
        self.machine.close()

    @property
    def trainer_pid(self) -> int:
        """0 once it has ended."""
        if self.trainer is None or self.trainer.poll() is not None:
            return 0
        return next(iter(children(self.trainer.pid)), 0) if self._is_contained(Part.TRAINER) else self.trainer.pid

    @property
    def is_locked(self) -> bool:
        """By the plan."""
        return self.gpu.state().locked_mhz == (CLOCK_MHZ, CLOCK_MHZ)

    @property
    def is_leased(self) -> bool:
        """Whether a living process holds the lease."""
        return LeaseFile(self.lease_folder, self.gpu.uuid).is_held()

    def pids(self, part: Part) -> list[int]:
        """Processes that a part has now. Those of a private lease holder are as it says: of its own PID namespace."""
        match part:
            case Part.TRAINER:
                return [pid for pid in (self.trainer_pid,) if pid]
            case Part.AGENT:
                return [pid for pid in children(self.trainer_pid) if b"perseus_dist.agent" in command_line(pid)]
            case Part.LEASE_HOLDER:
                with suppress(OSError, ValueError, KeyError):
                    pid = int(json.loads((self.lease_folder / f"{self.gpu.uuid}.lease").read_text())["pid"])
                    return [pid] if b"lease.process" in command_line(pid) else []
                return []
        supervised = self._supervised.get(part)
        return [supervised.pid] if supervised is not None and supervised.pid else []

    def make_group(self, name: str) -> Path:
        """A control group, removed at the end."""
        assert self._groups is not None
        group = self._groups / f"perseus-kill-{os.getpid()}-{self.machine.state_path.parent.name}-{name}"
        group.mkdir()
        self._made.append(group)
        return group

    def _start(self) -> None:
        port = self._start_planner()
        if self._case.control is Control.CLOCKD:
            self._supervise(Part.CLOCKD, [sys.executable, "-m", "perseus_dist", "clockd"])
            wait_for(Path(self.environ["PERSEUS_CLOCKD_SOCKET"]).exists, START_S, "clockd")
        self.job_group = self.make_group("job") if self._case.way is Way.GROUP else None
        self.trainer = self._start_trainer(port)
        wait_for(lambda: self.is_locked and self.pids(Part.AGENT), START_S, "the plan's clock")

    def _start_planner(self) -> int:
        """Its port, which it keeps."""
        command = [sys.executable, str(_HERE / "plan_server.py")]
        first = subprocess.Popen([*command, "0", str(CLOCK_MHZ), SCHEDULE], stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        port = int(first.stdout.readline())
        first.kill()
        first.communicate()
        self._supervise(Part.PLANNER, [*command, str(port), str(CLOCK_MHZ), SCHEDULE])
        return port

    def _supervise(self, part: Part, command: Sequence[str]) -> None:
        log = self._folder / f"{part}.log"
        self._supervised[part] = Supervised(command, self.environ, log, is_contained=self._is_contained(part))

    def _is_contained(self, part: Part) -> bool:
        """In a PID namespace of its own: those that die with one."""
        return self._case.way is Way.NAMESPACE and part in self._case.killed

    def _start_trainer(self, port: int) -> "subprocess.Popen[bytes]":
        spec = RankSpec(
            job_id="job",
            rank=0,
            pp_rank=0,
            dp_rank=0,
            tp_rank=0,
            pp_size=1,
            dp_size=1,
            tp_size=1,
            schedule=SCHEDULE + "\n",
            local_rank=0,
            gpu_uuid=self.gpu.uuid,
            planner=f"127.0.0.1:{port}",
            control=self._case.control,
        )
        prefix = list(_IN_NAMESPACE if self._is_contained(Part.TRAINER) else ())
        if self.job_group is not None:
            prefix = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.job_group / "cgroup.procs")]
        with (self._folder / "trainer.log").open("ab") as log:
            trainer = subprocess.Popen(
                [*prefix, sys.executable, str(_HERE / "light_trainer.py")],
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        assert trainer.stdin is not None
        with trainer.stdin:
            trainer.stdin.write(json.dumps(asdict(spec)).encode())
        return trainer
