"""Cost of a call of the trainer's hook, in host order and in device order, with a process that reads as an agent does.

Between calls the thread is busy with other Python code, as a framework is, and the device is behind, as it is where
training is fast. The doorbell alone is what waking a reader costs that has gone to sleep, which agents do after a
second without boundaries.
"""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.measure.errors import MeasureError
from perseus_dist.measure.estimates import Quantiles

MEDIAN_LIMIT_US = 10
P99_LIMIT_US = 50
DOORBELL = "doorbell alone, reader asleep"
_NUM_WARM_UP = 20
_NUM_MICROBATCHES = 8
_NUM_BUSY_ROUNDS = 5
_OTHER_DATA = [{"name": str(number), "values": list(range(8))} for number in range(8)]
_START_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCost:
    """One call of the hook.

    Attributes:
        order: ``host`` or ``device``; ``-`` for the doorbell.
        call: Of the hook.
        cost_us: [us] of it.
    """

    order: str
    call: str
    cost_us: Quantiles

    @property
    def is_within_limits(self) -> bool:
        """Whether it costs no more than a trainer should notice."""
        return self.cost_us.median < MEDIAN_LIMIT_US and self.cost_us.p99 < P99_LIMIT_US


def _nothing() -> None:
    pass


def measure_doorbell(num_calls: int) -> HookCost:
    """Cost of waking a sleeping reader, whatever is written."""
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    taken_us = []
    with _reading("sleep", ring, doorbell_fd):
        time.sleep(1)  # until Python has started there
        for _ in range(num_calls):
            _be_busy()
            begin_ns = time.perf_counter_ns()
            os.eventfd_write(doorbell_fd, 1)
            taken_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
    return HookCost(order="-", call=DOORBELL, cost_us=Quantiles.of(taken_us))


def measure_hook(
    num_iterations: int,
    *,
    device_stream: Callable[[], int] | None = None,
    work: Callable[[], None] = _nothing,
    wait: Callable[[], None] = _nothing,
) -> list[HookCost]:
    """Cost of each call of the hook.

    Args:
        num_iterations: Of eight instructions each.
        device_stream: As ``hooks.attach`` takes it; None for host order.
        work: Launches an instruction.
        wait: Waits for an iteration's.

    Raises:
        MeasureError: Boundaries did not stay in the order that was to be measured.
    """
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    taken_us: dict[str, list[float]] = defaultdict(list)
    with _reading("watch", ring, doorbell_fd):
        until_s = time.monotonic() + _START_S
        while not ring.is_watched and time.monotonic() < until_s:
            time.sleep(0.01)
        hook = Hook(ring, doorbell_fd, device_stream=device_stream)
        for iteration in range(_NUM_WARM_UP + num_iterations):
            if iteration == _NUM_WARM_UP:
                taken_us.clear()
            _run_iteration(hook, iteration, taken_us, work)
            wait()
            _be_busy()
        is_device_ordered = BoundaryReader(ring.fd, doorbell_fd).device_ordered
        hook.close()
    if is_device_ordered != (device_stream is not None):
        raise MeasureError("boundaries did not stay in device order; the hook's warning in the log says why")
    order = "host" if device_stream is None else "device"
    return [HookCost(order=order, call=call, cost_us=Quantiles.of(values)) for call, values in taken_us.items()]


@contextmanager
def _reading(mode: str, ring: RingWriter, doorbell_fd: int) -> Iterator[None]:
    reader = subprocess.Popen(
        [sys.executable, "-P", "-m", "perseus_dist.measure.proof.ring_reader", mode, str(ring.fd), str(doorbell_fd)],
        pass_fds=(ring.fd, doorbell_fd),
    )
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


def _run_iteration(hook: Hook, iteration: int, taken_us: dict[str, list[float]], work: Callable[[], None]) -> None:
    def timed(call: str, *args: object) -> None:
        method = getattr(hook, call)
        begin_ns = time.perf_counter_ns()
        method(*args)
        taken_us[call].append((time.perf_counter_ns() - begin_ns) / 1e3)

    timed("iteration_begin", iteration)
    for microbatch in range(_NUM_MICROBATCHES):
        timed("begin", "F", 0, microbatch)
        work()
        _be_busy()
        timed("end", "F", 0, microbatch)
    timed("mark", "grad_sync")
    timed("iteration_end", iteration)


def _be_busy() -> None:
    for _ in range(_NUM_BUSY_ROUNDS):
        json.loads(json.dumps(_OTHER_DATA))
