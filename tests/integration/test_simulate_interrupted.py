"""``perseus-dist simulate`` leaves no process behind when it is interrupted, whenever that is.

By hand, for more moments: ``PERSEUS_NUM_MOMENTS=100 pytest tests/integration/test_simulate_interrupted.py``.
"""

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

pytestmark = pytest.mark.stress

MARK = "PERSEUS_TEST_MARK"
NUM_MOMENTS = int(os.environ.get("PERSEUS_NUM_MOMENTS", "6"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WALL = ["simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--iterations", "80"]
CAMPAIGN = ["simulate", "--virtual-time", "--chaos", "0-99", "--processes", "2"]


def marked(mark: str) -> dict[int, str]:
    """Processes that were given the mark, or whose parents were, with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has just ended, or is another user's
            continue
    return found


class Simulation:
    def __init__(self, command: list[str], folder: Path) -> None:
        self.mark = secrets.token_hex(8)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "perseus_dist", *command],
            env={**os.environ, MARK: self.mark, "TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def num_processes(self) -> int:
        return len(marked(self.mark))

    def await_processes(self, num: int) -> None:
        until_s = time.monotonic() + 60.0
        while self.num_processes() < num:
            assert self.process.poll() is None, self._end()
            assert time.monotonic() < until_s
            time.sleep(0.005)

    def interrupt(self, *numbers: int) -> None:
        """All signals at once; nothing is left then."""
        for number in numbers:
            self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        assert marked(self.mark) == {}
        if -self.process.returncode in numbers:
            return  # it had not got so far as to heed signals, nor to start anything
        if b"/perseus_dist/" not in said and said.rstrip().endswith(b"KeyboardInterrupt"):
            return  # nor had Python itself
        assert self.process.returncode - 128 in numbers, said.decode()
        assert said.splitlines()[-1] == b"perseus-dist: interrupted"
        assert b"Traceback" not in said

    def _end(self) -> str:
        _, said = self.process.communicate(timeout=60)
        return f"ended with {self.process.returncode}: {said.decode()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """For temporary files, with a name longer than a socket's address can be."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    return folder


@pytest.fixture
def start(folder: Path) -> Iterator["list[Simulation]"]:
    started: list[Simulation] = []
    yield started
    for simulation in started:
        for pid in marked(simulation.mark):
            os.kill(pid, signal.SIGKILL)
        simulation.process.communicate()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("moment", range(NUM_MOMENTS))
def test_at_any_moment_while_processes_start(moment: int, start: list[Simulation], folder: Path) -> None:
    """From the first import over clock daemon, planner, trainers, agents to a running job."""
    rng = random.Random(moment)
    simulation = Simulation(WALL, folder)
    start.append(simulation)
    simulation.await_processes(1 + moment % 6)
    time.sleep(rng.uniform(0.0, 0.3))
    simulation.interrupt(SIGNALS[moment % len(SIGNALS)])


def test_in_the_middle_of_a_job_and_more_than_once(start: list[Simulation], folder: Path) -> None:
    simulation = Simulation(WALL, folder)
    start.append(simulation)
    simulation.await_processes(7)
    time.sleep(2.0)
    simulation.interrupt(signal.SIGTERM, signal.SIGTERM, signal.SIGINT)


def test_a_campaign_on_several_processes(start: list[Simulation], folder: Path) -> None:
    simulation = Simulation(CAMPAIGN, folder)
    start.append(simulation)
    simulation.await_processes(3)
    time.sleep(1.0)
    simulation.interrupt(signal.SIGINT)


def test_processes_of_a_killed_campaign_end_with_it(start: list[Simulation], folder: Path) -> None:
    simulation = Simulation(CAMPAIGN, folder)
    start.append(simulation)
    simulation.await_processes(3)
    time.sleep(1.0)
    simulation.process.kill()
    simulation.process.communicate(timeout=60)
    wait_until(lambda: marked(simulation.mark) == {})
