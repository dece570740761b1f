"""Waits for descriptors, for as short as the polling of the device wants.

epoll takes descriptors of any number, which ``select`` does not: those that a trainer with many open files passes on
are beyond its limit. But epoll counts in whole milliseconds and rounds up: 0.5 ms took 1.08 ms. A sleep of 0.5 ms takes
0.57 ms, so what is shorter than two milliseconds is slept.
"""

import select
import time

SHORTEST_NS = 2_000_000
"""The shortest wait that a descriptor can interrupt."""

_MS = 1_000_000


class Waiter:
    """Descriptors are added once and stay until the process ends."""

    def __init__(self) -> None:
        self._epoll = select.epoll()

    def add(self, descriptor: int) -> None:
        """Wake up once this one is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def wait(self, timeout_ns: int) -> frozenset[int]:
        """Descriptors that are readable. May return up to a millisecond early; no descriptor interrupts a short sleep.

        Args:
            timeout_ns: Not negative.
        """
        if timeout_ns < SHORTEST_NS:
            time.sleep(timeout_ns / 1e9)
            timeout_ns = 0
        return frozenset(descriptor for descriptor, _ in self._epoll.poll(timeout_ns // _MS / 1e3))
