"""Processes that a simulated run starts, and their end."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from perseus_dist.simulation.trainers.trainer_config import TrainerConfig

_END_S = 15.0
_PREFIX = "PERSEUS_"
_KEPT = ("PERSEUS_CONFIG", "PERSEUS_LOG", "PERSEUS_SIM_", "PERSEUS_TEST_")


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without settings of real jobs: simulated ones know neither their planner nor tokens or caches."""
    return {
        name: value for name, value in environment.items() if not name.startswith(_PREFIX) or name.startswith(_KEPT)
    }


@contextmanager
def trainer_process(
    config: TrainerConfig, environment: Mapping[str, str], log: IO[bytes]
) -> Iterator["subprocess.Popen[str]"]:
    """A stand-in trainer, which starts its agent; asked to end with the block.

    Args:
        config: Of its rank.
        environment: Of a simulated machine, and of the lease daemon that its agent shall find.
        log: What trainer and agent write on standard error.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "perseus_dist.simulation.trainers.trainer"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=log,
        text=True,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(config.to_json())
        process.stdin.close()
        yield process
    finally:
        end_process(process)


def are_training(trainers: "Sequence[subprocess.Popen[str]]") -> bool:
    """Whether trainers of one job run, and none of them has failed: the others would wait for it for minutes."""
    statuses = [trainer.poll() for trainer in trainers]
    return None in statuses and not any(statuses)


def end_process(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Ask a process to end, and kill it if it does not; nothing happens to one that has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
