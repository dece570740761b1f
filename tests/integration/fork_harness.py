"""What the harnesses of training frameworks share: a framework is imported once, and each case forks its ranks.

A process of its own, so that whoever runs the tests imports no torch. Reads a case as one line of JSON on standard
input and answers with one line: a list with what each rank saw. Answers go to the descriptor that is its argument,
since frameworks write to standard output.
"""

import json
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.record import Event
from perseus_dist.simulation.frameworks.training_run import free_port

LIMIT_S = 120.0

Case = dict[str, Any]
RankMain = Callable[[Case], dict[str, Any]]


class Recorder:
    """In the place of a rank's agent: keeps who it was started for, and reads the boundaries at the end."""

    def __init__(self) -> None:
        self.agents: list[tuple[RankSpec, BoundaryReader]] = []
        self.rings: list[int] = []

    def start(self, spec: RankSpec, *, ring_fd: int, doorbell_fd: int) -> int:
        """Instead of ``start_agent``."""
        self.rings.append(os.dup(ring_fd))
        self.agents.append((spec, BoundaryReader(self.rings[-1], os.dup(doorbell_fd))))
        return 0

    def answer(self) -> list[dict[str, Any]]:
        """Who was started, and what it was told: boundaries, and the work of iterations apart from them."""
        answers = []
        for spec, reader in self.agents:
            read = [passed.boundary for passed in reader.read(time.monotonic_ns())]
            work = [b for b, after in pairwise(read) if b.event is Event.WORK and after.event is Event.ITERATION_END]
            boundaries = [b for b in read if b not in work]
            answers.append(
                {
                    "spec": asdict(spec),
                    "boundaries": [[b.event.name, b.kind, b.chunk, b.microbatch, b.iteration] for b in boundaries],
                    "work": {b.iteration: {"tokens": b.timed_sequence, "wait_ns": b.device_ns} for b in work},
                }
            )
        return answers


class Sentences(logging.Handler):
    """What Perseus says in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.levelname}: {record.getMessage()}")


def serve(version: str, rank_main: RankMain) -> None:
    """Serve cases until standard input ends.

    Args:
        version: The framework's.
        rank_main: One rank of a case; returns what it saw.
    """
    import torch._dynamo.eval_frame  # noqa: F401 - the whole of it: each rank would import parts, for seconds

    answers = os.fdopen(int(sys.argv[1]), "w")
    answers.write(json.dumps({"version": version}) + "\n")
    answers.flush()
    for line in sys.stdin:
        with tempfile.TemporaryDirectory(prefix="perseus-harness-", ignore_cleanup_errors=True) as folder:
            answers.write(json.dumps(_run_case(json.loads(line), rank_main, Path(folder))) + "\n")
            answers.flush()


def _run_case(case: Case, rank_main: RankMain, folder: Path) -> list[dict[str, Any]]:
    """Fork the case's ranks and gather what they saw."""
    num_ranks = case["pp"] * case.get("dp", 1) * case.get("tp", 1) * case.get("cp", 1)
    port = free_port()
    pids = []
    for rank in range(num_ranks):
        pid = os.fork()
        if pid == 0:
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(num_ranks),
                LOCAL_SIZE=str(num_ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
            _be_rank(case, rank_main, rank, folder)
        pids.append(pid)
    codes = _wait(pids)
    seen = []
    for rank, code in enumerate(codes):
        if code != 0:
            log = (folder / f"{rank}.log").read_text(errors="replace")
            seen.append({"failed": f"rank {rank} of {num_ranks} ended with {code}: {log[-4000:]}"})
        else:
            seen.append(json.loads((folder / f"{rank}.json").read_text()))
    return seen


def _be_rank(case: Case, rank_main: RankMain, rank: int, folder: Path) -> None:
    """In the forked child; leaves by _exit, since an interpreter with gloo's threads may abort as it ends."""
    code = 1
    try:
        log_fd = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.chdir(folder)
        tempfile.tempdir = str(folder)  # no agent is there to remove what is made in it
        (folder / f"{rank}.json").write_text(json.dumps(rank_main(case)))
        _wait_for_others()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait_for_others() -> None:
    """The store that all of them use goes with rank 0."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def _wait(pids: list[int]) -> list[int]:
    """The ranks' exit codes. Once one has failed, or it takes too long, the others are ended."""
    codes: dict[int, int] = {}
    end = time.monotonic() + LIMIT_S
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        if any(codes.values()) and end > time.monotonic() + 5:
            end = time.monotonic() + 5
        if time.monotonic() > end:
            for pid in set(pids) - codes.keys():
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[pid] for pid in pids]
