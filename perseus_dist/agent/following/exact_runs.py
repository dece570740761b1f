"""How long runs really took: the host knows where it orders boundaries, the device tells an iteration later.

In device order a boundary is seen late by the polling, and later still on a busy host. Nothing that is compared with a
profile or expected again may be taken from such a sight.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from perseus_dist.agent.following.position import Run

_MAX_WAITING = 16_384  # as many as boundaries fit into the shared memory
_new = tuple.__new__  # for what is made of every run: the class does the same in four times the time


class RanAt(NamedTuple):
    """The clocks behind a run.

    Attributes:
        clocks_mhz: Of its whole iteration; None for released.
        held_mhz: The clock that it ran at from its begin to its end; None where that is not known.
    """

    clocks_mhz: tuple[int, ...] | None
    held_mhz: int | None


class ExactRun(NamedTuple):
    """A run whose times are exact.

    Attributes:
        place: The instruction's index in the rank's order.
        iteration: That it ran in.
        idle_ns: [ns] between the end of the instruction before it, or the iteration's begin, and its own begin.
        duration_ns: [ns] from its begin to its end.
    """

    place: int
    iteration: int
    idle_ns: int
    duration_ns: int
    ran_at: RanAt


class ExactRuns:
    """Runs until their times are exact. Times that never come are forgotten with the next ones that do.

    Args:
        learn: Called with every run whose times are exact, once they are.
        forget: Called with every run whose times will not be.
    """

    def __init__(self, learn: Callable[[ExactRun], None], forget: Callable[[Run], None]) -> None:
        self._learn = learn
        self._forget = forget
        self._waiting: deque[tuple[Run, RanAt]] = deque()
        self._device_ns: dict[int, int] = {}  # by sequence, of the iteration whose times are coming in
        self._iteration = -1

    def add(self, run: Run, ran_at: RanAt, *, is_host_timed: bool) -> None:
        """A run has ended; unless its boundaries were timed by the host, they were only seen to be passed."""
        if is_host_timed:
            self._learn(_new(ExactRun, (run.place, run.iteration, run.idle_ns, run.duration_ns, ran_at)))
            return
        self._waiting.append((run, ran_at))
        if len(self._waiting) > _MAX_WAITING:
            self._forget(self._waiting.popleft()[0])

    def add_device_time(self, sequence: int, iteration: int, device_ns: int) -> None:
        """When the device passed a boundary, after its iteration's first."""
        if iteration != self._iteration:
            self._iteration = iteration
            self._device_ns.clear()
        self._device_ns[sequence] = device_ns
        while self._waiting and self._waiting[0][0].end.sequence < sequence:
            self._forget(self._waiting.popleft()[0])
        if not self._waiting or self._waiting[0][0].end.sequence != sequence:
            return
        run, ran_at = self._waiting.popleft()
        before_ns, begin_ns = self._device_ns.get(run.before.sequence), self._device_ns.get(run.begin.sequence)
        if before_ns is None or begin_ns is None:
            self._forget(run)
        else:
            self._learn(ExactRun(run.place, run.iteration, begin_ns - before_ns, device_ns - begin_ns, ran_at))
