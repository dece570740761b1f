"""Replacing an agent that was killed: without one, no process releases its clock.

A daemon thread of the trainer sleeps until the agent ends, so that a boundary costs nothing more. An agent that has
finished (status 0), or has ended by an error that it names (status 2), at its start or later, is not replaced. One that
crashed or was killed is.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)

_SHORTEST_LIFE_S = 1.0
_LONGEST_KILLED_S = 2.0
_LONGEST_S = 60.0
_STEADY_S = 60.0  # one that has lived this long has not died of what it is
_FAST_RESTARTS = 8
_FINAL_CODES = (0, 2)  # it has finished, or ended by an error that it names
_NEVER_STARTED = -1


class RestartPace:
    """How long to wait before an agent is started again: not the first time, since a clock may be locked meanwhile.

    Then no more than one a second, and fewer if all die soon: one in 2 s where they are killed, and one a minute at
    last where they crash by themselves, which leaves their lease processes alive and no clock locked; or where the end
    is not known, as in a trainer that ignores SIGCHLD.
    """

    def __init__(self) -> None:
        self._num_short = 0

    def delay_s(self, lived_s: float, *, was_killed: bool) -> float:
        """[s] to wait after one that lived for ``lived_s``."""
        self._num_short = 0 if lived_s >= _STEADY_S else self._num_short + 1
        if self._num_short <= 1:
            return 0.0
        doublings = min(max(0, self._num_short - _FAST_RESTARTS), 10)
        longest_s = _LONGEST_KILLED_S if was_killed else _LONGEST_S
        return max(0.0, min(longest_s, _SHORTEST_LIFE_S * (1 << doublings)) - lived_s)


class AgentKeeper:
    """Waits for the end of a rank's agent, and starts another one if it was killed or crashed.

    Args:
        rank: For the log.
        pid: Of the agent, a child of this process.
        start: Starts another one and returns its pid; raises OSError if it cannot.
        end: Called once, when the last one has ended and no other will be started.

    Attributes:
        is_over: The last agent has ended; ``end`` is being called, or has been.
    """

    def __init__(self, *, rank: int, pid: int, start: Callable[[], int], end: Callable[[], None]) -> None:
        self._rank = rank
        self._start = start
        self._end = end
        self.is_over = False
        self._is_closed = threading.Event()
        threading.Thread(target=self._run, args=(pid,), name="perseus-agent-keeper", daemon=True).start()

    def stop(self) -> None:
        """The hook is closed. Returns at once.

        An agent that is killed from now on is replaced once more: it may have left a clock locked.
        """
        self._is_closed.set()

    def _run(self, pid: int) -> None:
        pace = RestartPace()
        try:
            while True:
                began_s = time.monotonic()
                code = _wait_for_end(pid) if pid else _NEVER_STARTED
                if code in _FINAL_CODES:
                    return
                lived_s = time.monotonic() - began_s
                is_last = self._is_closed.wait(pace.delay_s(lived_s, was_killed=code == -signal.SIGKILL))
                if pid:
                    _log.warning("the agent of rank %d %s: starting it again", self._rank, _describe(code))
                pid = self._restart()
                if is_last:
                    if pid:
                        _wait_for_end(pid)
                    return
        finally:
            self.is_over = True
            self._end()

    def _restart(self) -> int:
        """The pid; 0 if it cannot be started now."""
        try:
            return self._start()
        except OSError as error:
            _log.warning("the agent of rank %d cannot be started, and will be tried again: %s", self._rank, error)
            return 0


def _wait_for_end(pid: int) -> int | None:
    """The exit code, negative for a signal; None where another part of the trainer, or the kernel, has collected it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _describe(code: int | None) -> str:
    if code is None:
        return "has ended"
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
