"""Waiting in tests: for outcomes, with a patience that no slow machine exceeds, and never to time them."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 120.0

T = TypeVar("T")


def wait_for(get: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Call ``get`` every 10 ms and return its first true value; after ``patience_s`` the test fails."""
    until_s = time.monotonic() + patience_s
    while not (value := get()):
        assert time.monotonic() < until_s, f"still {value!r} after {patience_s:.0f} s"
        time.sleep(0.01)
    return value


def wait_until(condition: Callable[[], object]) -> None:
    """As ``wait_for``, where only the outcome counts."""
    wait_for(condition)
