"""Threads in an order that a quiet machine rarely shows, where ``PERSEUS_TEST_THREADS`` names one.

A test that asserts what holds before a background thread has run, or what must hold soon after it, passes while
threads run when they usually do, and fails in one of these orders, each chosen by ``launch/flakes --threads``:

- ``early``: whoever starts or notifies a thread, or puts something in its queue, waits until it has most likely run.
- ``late``: a thread begins up to 200 ms after its start, and goes on up to 20 ms after it was notified.
- ``torn``: the interpreter changes between threads after each few instructions.

A loaded machine may choose each of them as well; none changes what a program means. The processes that tests start have
the same order (``quick_torch/sitecustomize.py``).
"""

import os
import queue
import random
import sys
import threading
import time
from typing import Any

VARIABLE = "PERSEUS_TEST_THREADS"
ORDERS = ("early", "late", "torn")
AFTER_START_S = 0.03
AFTER_NOTIFY_S = 0.005
LATEST_START_S = 0.2
LATEST_NOTICE_S = 0.02

_random = random.Random(os.getpid())


def pytest_configure() -> None:
    """Choose the order before any test is imported."""
    choose()


def choose() -> None:
    """Have this process' threads run in the order that the environment names, if it names one."""
    order = os.environ.get(VARIABLE, "")
    if order not in ("", *ORDERS):
        raise ValueError(f"{VARIABLE} is {order!r}; it is one of {', '.join(ORDERS)}")
    if order == "torn":
        sys.setswitchinterval(1e-6)
    elif order and queue.SimpleQueue is not queue._PySimpleQueue:  # type: ignore[attr-defined]
        queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined, misc]
        {"early": _early, "late": _late}[order]()


def _early() -> None:
    start, notify, leave = threading.Thread.start, threading.Condition.notify, threading.Condition.__exit__
    release = queue._PySimpleQueue.put  # type: ignore[attr-defined]

    def start_and_wait(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(AFTER_START_S)

    def note_and_notify(condition: Any, n: int = 1) -> None:
        condition.notifies = True
        notify(condition, n)

    def leave_and_wait(condition: Any, *error: Any) -> Any:
        notified = condition.__dict__.pop("notifies", False)
        result = leave(condition, *error)
        if notified:
            time.sleep(AFTER_NOTIFY_S)
        return result

    def put_and_wait(self: Any, *args: Any, **options: Any) -> None:
        release(self, *args, **options)
        time.sleep(AFTER_NOTIFY_S)

    threading.Thread.start = start_and_wait  # type: ignore[assignment, method-assign]
    threading.Condition.notify = note_and_notify  # type: ignore[assignment, method-assign]
    threading.Condition.__exit__ = leave_and_wait  # type: ignore[method-assign]
    queue._PySimpleQueue.put = put_and_wait  # type: ignore[attr-defined]


def _late() -> None:
    start, wait, get = threading.Thread.start, threading.Condition.wait, queue._PySimpleQueue.get  # type: ignore[attr-defined]

    def start_late(thread: threading.Thread) -> None:
        run = thread.run

        def run_late() -> None:
            time.sleep(_random.uniform(LATEST_NOTICE_S, LATEST_START_S))
            run()

        thread.run = run_late  # type: ignore[method-assign]
        start(thread)

    def wait_longer(condition: threading.Condition, timeout: float | None = None) -> bool:
        notified = wait(condition, timeout)
        if notified:
            time.sleep(_random.uniform(0, LATEST_NOTICE_S))
        return notified

    def get_late(self: Any, *args: Any, **options: Any) -> Any:
        item = get(self, *args, **options)
        time.sleep(_random.uniform(0, LATEST_NOTICE_S))
        return item

    threading.Thread.start = start_late  # type: ignore[assignment, method-assign]
    threading.Condition.wait = wait_longer  # type: ignore[assignment, method-assign]
    queue._PySimpleQueue.get = get_late  # type: ignore[attr-defined]
