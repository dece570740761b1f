"""Refuses a signal of a test to the whole run: a process id that was read too early may be 0, for the own group."""

import os
from collections.abc import Callable, Iterator

import pytest


def aimed(send: Callable[[int, int], None], own: Callable[[], int]) -> Callable[[int, int], None]:
    """A way to send signals that ends no process of the run.

    Args:
        send: ``os.kill`` or ``os.killpg``.
        own: Gives the id that is the run's own.
    """

    def send_aimed(target: int, number: int) -> None:
        if target <= 1 or target == own():
            raise ValueError(f"saw a signal {number} to {target}, expected a process that the test has started")
        send(target, number)

    return send_aimed


@pytest.fixture(scope="session", autouse=True)
def _signals_are_aimed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "kill", aimed(os.kill, lambda: 0))  # to oneself is on purpose
        patch.setattr(os, "killpg", aimed(os.killpg, os.getpgrp))
        yield
