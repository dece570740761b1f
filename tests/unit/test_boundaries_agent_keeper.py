"""Replacing agents that were killed: real child processes, and the pace of restarts without any."""

import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from perseus_dist.boundaries.agent_keeper import AgentKeeper, RestartPace

WAIT_S = 30


class Agents:
    """Starts children that wait for their end; each pid is put into ``started``."""

    def __init__(self) -> None:
        self.started: queue.Queue[int] = queue.Queue()
        self.has_ended = threading.Event()

    def start(self, code: str = "import time; time.sleep(600)") -> int:
        process = subprocess.Popen([sys.executable, "-S", "-c", code])
        process.returncode = 0
        self.started.put(process.pid)
        return process.pid

    def keep(self, code: str = "import time; time.sleep(600)") -> AgentKeeper:
        pid = self.start(code)
        return AgentKeeper(rank=3, pid=pid, start=self.start, end=self.has_ended.set)


def test_a_killed_agent_is_replaced_until_the_hook_is_closed_and_then_once(caplog: pytest.LogCaptureFixture) -> None:
    agents = Agents()
    keeper = agents.keep()
    first = agents.started.get(timeout=WAIT_S)
    os.kill(first, signal.SIGKILL)
    second = agents.started.get(timeout=WAIT_S)
    assert second != first
    assert "the agent of rank 3 was killed by signal 9: starting it again" in caplog.text
    keeper.stop()
    os.kill(second, signal.SIGKILL)
    last = agents.started.get(timeout=WAIT_S)  # for what the second may have left
    assert not agents.has_ended.wait(0.1)  # it uses what is given back in the end
    os.kill(last, signal.SIGKILL)
    assert agents.has_ended.wait(WAIT_S)
    assert agents.started.empty()
    with pytest.raises(ChildProcessError):  # no zombie is left of it
        os.waitpid(last, 0)


@pytest.mark.parametrize("code", [0, 2])
def test_an_agent_that_ended_by_itself_is_not_replaced(code: int) -> None:
    agents = Agents()
    agents.keep(f"raise SystemExit({code})")
    assert agents.has_ended.wait(WAIT_S)
    agents.started.get_nowait()
    assert agents.started.empty()


def test_an_agent_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    agents = Agents()
    failures = [OSError("no memory")]

    def start() -> int:
        if failures:
            raise failures.pop()
        return agents.start("pass")

    pid = agents.start("raise SystemExit(1)")
    AgentKeeper(rank=3, pid=pid, start=start, end=agents.has_ended.set)
    assert agents.has_ended.wait(WAIT_S)
    assert "the agent of rank 3 cannot be started, and will be tried again: no memory" in caplog.text
    assert agents.started.qsize() == 2


def test_restarts_become_rare_where_all_die_soon() -> None:
    pace = RestartPace()
    assert [pace.delay_s(0.25, was_killed=False) for _ in range(8)] == [0.0] + [0.75] * 7
    assert [pace.delay_s(0.0, was_killed=False) for _ in range(8)] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert pace.delay_s(59.0, was_killed=False) == 1.0
    assert pace.delay_s(60.0, was_killed=False) == 0.0
    assert pace.delay_s(0.0, was_killed=False) == 0.0
    assert pace.delay_s(0.0, was_killed=False) == 1.0
    assert pace.delay_s(5.0, was_killed=False) == 0.0


def test_an_agent_that_is_killed_again_and_again_is_still_replaced_soon() -> None:
    pace = RestartPace()
    assert [pace.delay_s(0.0, was_killed=True) for _ in range(20)] == [0.0] + [1.0] * 7 + [2.0] * 12
