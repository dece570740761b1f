"""Ends what an interrupted test run leaves: trainers, agents and planners that nobody would look for.

Each pytest process, main or worker, marks the environment of all it starts, and has a watcher beside it. Once pytest is
gone, however it ended, the watcher kills whatever still bears the mark.
"""

import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "PYTEST_RUN_MARK"
LOOK_S = 0.2
NUM_ROUNDS = 10  # in which nothing is found any more, or what is killed has started more


def pytest_configure() -> None:
    """Mark this process' children to be, and start the watcher."""
    os.environ[MARK] = mark = secrets.token_hex(16)
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    command = [sys.executable, "-I", __file__, mark, str(os.getpid())]
    os.posix_spawn(sys.executable, command, {}, file_actions=null, setsid=True)


def processes_with(name: str, value: str) -> Iterator[int]:
    """Process ids of those of ours that were started with an environment variable at a value."""
    entry = f"{name}={value}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def kill_marked(mark: str) -> int:
    """Kill every process of ours that was started with the mark; how many those are."""
    killed = 0
    for pid in processes_with(MARK, mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


def watch(mark: str, parent: int) -> None:
    """Wait until the parent is gone, and kill what it left."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    for _ in range(NUM_ROUNDS):
        if not kill_marked(mark):
            break
        time.sleep(LOOK_S)


if __name__ == "__main__":
    watch(sys.argv[1], int(sys.argv[2]))
