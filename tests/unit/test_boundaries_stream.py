"""Device order on a driver whose device is always there: for weeks, and hook after hook."""

import ctypes
import os
import subprocess
import threading
from itertools import count
from pathlib import Path

import pytest
from builders import make_spec

from perseus_dist import hooks
from perseus_dist.boundaries import stream
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import CAPACITY, HEADER_BYTES, RingWriter
from perseus_dist.hooks import Hook


class InstantDriver:
    """``CudaDriver``, of a device that passes everything at once."""

    def __init__(self) -> None:
        self._events = count(1)

    def has_context(self) -> bool:
        return True

    def is_capturing(self, _: int) -> bool:
        return False

    def check(self, result: int, _: str) -> None:
        assert result == 0

    def map_for_device(self, address: int, _: int) -> int:
        return address

    def write_value(self, _: int, address: int, value: int, __: int) -> int:
        ctypes.c_uint32.from_address(address).value = value
        return 0

    def create_event(self) -> int:
        return next(self._events)

    def event_record(self, _: int, __: int) -> int:
        return 0

    def event_query(self, _: int) -> int:
        return 0

    def elapsed_ns(self, _: int, __: int) -> int:
        return 1000


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CudaDriver", InstantDriver)


def run_iteration(hook: Hook, iteration: int) -> None:
    hook.iteration_begin(iteration)
    for microbatch in range(2):
        hook.begin("F", 0, microbatch)
        hook.end("F", 0, microbatch)
    hook.iteration_end(iteration)


def test_the_word_of_the_device_is_0_again_after_weeks_and_its_order_stays() -> None:
    ring = RingWriter()
    hook = Hook(ring, os.eventfd(0, os.EFD_NONBLOCK), device_stream=lambda: 0)
    reader = BoundaryReader(os.dup(ring.fd), os.eventfd(0, os.EFD_NONBLOCK))
    for iteration in range(6):
        run_iteration(hook, iteration)
    hook.iteration_begin(6)
    ring.head = 2**32 - 1
    hook.begin("F", 0, 0)
    assert ring.progress == 0
    hook.end("F", 0, 0)
    assert reader.device_ordered
    assert ring.progress > 0


@pytest.mark.parametrize("agent", [("sleep", "1.5"), ("true",)], ids=["that ends last", "that ends first"])
def test_hook_after_hook_leaves_no_descriptors_and_no_records(
    agent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the batch changes every hundred iterations, and all ranks join again each time.
    memories: list[int] = []

    def start_agent(*_: object, ring_fd: int, **__: object) -> int:
        memories.append(os.dup(ring_fd))
        process = subprocess.Popen(agent)
        process.returncode = 0
        return process.pid

    monkeypatch.setattr(hooks, "start_agent", start_agent)
    num_descriptors = num_open()
    for _ in range(2):
        run_hook()
    assert num_open() == num_descriptors + len(memories)
    for memory in memories:
        assert os.fstat(memory).st_blocks * 512 <= HEADER_BYTES
        os.close(memory)


def num_open() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def run_hook() -> None:
    """Attach, write as many records as there are places, and let go, the agent too."""
    hook = hooks.attach(make_spec(rank=0, schedule="0F0 0B0\n"), device_stream=lambda: 0)
    for iteration in range(CAPACITY // 10):
        run_iteration(hook, iteration)
    hook.close()
    for thread in threading.enumerate():
        if thread.name == "perseus-agent-keeper":
            thread.join(30)
