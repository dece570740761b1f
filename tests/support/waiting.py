"""Waiting in tests: for outcomes, with a patience that no slow machine exceeds, and never to time them."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 300.0
LEAST_REST_S, MOST_REST_S = 0.01, 0.2
REST_SHARE = 4.0  # of the time that a question takes

T = TypeVar("T")


def wait_for(get: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Call ``get`` again and again and return its first true value; after ``patience_s`` the test fails.

    Every 10 ms where that costs nothing; a question that takes longer leaves the processor to those who are waited for.
    """
    until_s = time.monotonic() + patience_s
    while True:
        asked_s = time.monotonic()
        if value := get():
            return value
        now_s = time.monotonic()
        assert now_s < until_s, f"still {value!r} after {patience_s:.0f} s"
        time.sleep(min(max(LEAST_REST_S, REST_SHARE * (now_s - asked_s)), MOST_REST_S))


def wait_until(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """As ``wait_for``, where only the outcome counts."""
    wait_for(condition, patience_s)
