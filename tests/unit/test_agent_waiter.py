"""Descriptors of any number, and short times."""

import fcntl
import os
import resource
import time

import pytest

from perseus_dist.agent.process.waiter import Waiter

MS = 1_000_000


def test_descriptors_beyond_the_limit_of_select_wake_it_up() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 2048:
        pytest.skip("no more than 2048 descriptors may be open")
    first = os.eventfd(0)
    descriptor = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 2000)
    try:
        waiter = Waiter()
        waiter.add(descriptor)
        assert waiter.wait(0) == frozenset()
        os.eventfd_write(first, 1)
        assert waiter.wait(30_000 * MS) == {descriptor}
    finally:
        os.close(first)
        os.close(descriptor)


@pytest.mark.parametrize("timeout_ms", [0.5, 3.7])
def test_it_waits_as_long_as_it_is_told_to_but_for_part_of_a_millisecond(timeout_ms: float) -> None:
    waiter = Waiter()
    took_ms = []
    for _ in range(20):
        begin_ns = time.monotonic_ns()
        assert waiter.wait(round(timeout_ms * MS)) == frozenset()
        took_ms.append((time.monotonic_ns() - begin_ns) / MS)
    assert min(took_ms) > timeout_ms - 1
    assert min(took_ms) < timeout_ms + 5
