"""With PERSEUS_TEST_LEFTOVERS=1, a test file fails that leaves a process running after its last test.

Processes are found by an environment variable that they inherit, so that a process whose parent is gone is found too.
What a session's fixture starts may outlive the file. One that is started without the test's
environment is not seen.
"""

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from leftovers import processes_with

FILE_MARK = "PYTEST_FILE_MARK"
END_S = 5.0  # in which a process that was told to end does so
NUM_EMPTY = 2  # looks in a row that find nothing: one that is just becoming another program has no environment


@pytest.fixture(scope="module", autouse=True)
def _leaves_no_process() -> Iterator[None]:
    """Fail with the command lines of the processes that the file started and that still run, and kill them."""
    if os.environ.get("PERSEUS_TEST_LEFTOVERS") != "1":
        yield
        return
    mark = secrets.token_hex(16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FILE_MARK, mark)
        yield
    deadline = time.monotonic() + END_S
    num_empty = 0
    while num_empty < NUM_EMPTY and time.monotonic() < deadline:
        left = _running(mark)
        num_empty = 0 if left else num_empty + 1
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    if left:
        lines = "".join(f"\n  {pid}: {command}" for pid, command in left.items())
        pytest.fail(f"the tests of this file left processes running; end them in the test:{lines}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """Leave what a session's fixture starts without the file's mark."""
    with pytest.MonkeyPatch.context() as patch:
        if fixturedef.scope == "session":
            patch.delenv(FILE_MARK, raising=False)
        return (yield)


def _running(mark: str) -> dict[int, str]:
    """Command line of each process with the mark, by process id."""
    commands = {}
    for pid in processes_with(FILE_MARK, mark):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if "multiprocessing.resource_tracker" not in command:  # ends with pytest itself
                commands[pid] = command
    return commands
