"""A block of code that leaves no process behind, however and whenever it is interrupted.

The process becomes the reaper of its orphans: what children of children it has, agents and lease processes among them,
come to it when their parents end. So at the end of the block nothing has to be known of who started what: all
descendants that were not there before are ended. That holds where an exception comes between a process's start and the
first look at it, too.
"""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_NATURAL_END_S = 5.0  # agents write their last word
_TERMINATED_S = 1.5
_LOOK_S = 0.02
_RESOURCE_TRACKER = b"multiprocessing.resource_tracker"  # ends with the process that it belongs to, and not before


class InterruptedBySignalError(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP.

    Attributes:
        number: Which.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def supervised() -> Iterator[None]:
    """Whatever processes are started in the block have ended at its end. For the main thread.

    The first of SIGINT, SIGTERM and SIGHUP, unless it is ignored, asks all these processes to end, and raises in the
    block; later ones change nothing.

    Raises:
        InterruptedBySignalError: One of them came.
    """
    descendants = _Descendants()
    is_ending = False

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            descendants.signal(signal.SIGTERM)  # all at once: one by one, they would wait for each other
            raise InterruptedBySignalError(number)

    was_reaper = _set_subreaper(is_on=True)
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores
    handlers = {number: signal.signal(number, interrupt) for number in heeded}
    natural_end_s = 0.0
    try:
        try:
            yield
            natural_end_s = _NATURAL_END_S
        finally:
            is_ending = True
    finally:
        is_ending = True
        descendants.end(natural_end_s)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _set_subreaper(is_on=was_reaper)


class _Descendants:
    """Processes below this one that were not there when this object was made."""

    def __init__(self) -> None:
        self._before = frozenset(_children(os.getpid()))

    def signal(self, number: int) -> None:
        """Send it to all."""
        for pid in self._pids():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def end(self, natural_end_s: float) -> None:
        """Wait for their end, ask for it, and at last enforce it."""
        if self._await_end(natural_end_s):
            return
        self.signal(signal.SIGTERM)
        if self._await_end(_TERMINATED_S):
            return
        while not self._await_end(_LOOK_S):  # a process that is killed may just have started another
            self.signal(signal.SIGKILL)

    def _await_end(self, longest_s: float) -> bool:
        until_s = time.monotonic() + longest_s
        while self._pids():
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def _pids(self) -> list[int]:
        """Those that run; those that have ended are reaped."""
        found: list[int] = []
        waiting = [pid for pid in _children(os.getpid()) if pid not in self._before]
        for pid in waiting:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        while waiting:
            pid = waiting.pop()
            if _runs(pid):
                found.append(pid)
                waiting += _children(pid)
        return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):
                found += map(int, (task / "children").read_text().split())
    return found


def _runs(pid: int) -> bool:
    try:
        has_ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return not has_ended and _RESOURCE_TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, IndexError):
        return False


def _set_subreaper(*, is_on: bool) -> bool:
    """Have orphans among its descendants become this process's children, or no longer; whether they did before."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)
    return bool(before.value)
