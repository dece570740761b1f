"""What a call of the trainer's hook costs, in host order and in device order: median and 99th percentile.

``python benchmarks/hook_overhead.py`` measures device order on a simulated GPU in virtual time, so that the simulation
does not run beside the calls; ``--gpu`` on the default stream of a real GPU instead. A second process reads the
boundaries as an agent does, so that the doorbell wakes somebody. Between calls the thread is busy with other Python
code, as a framework is, and the device is behind, as it is where training is fast. The first row is what a call costs
on top where the agent has gone to sleep, which it does after a second without boundaries.
"""

import argparse
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import NoReturn

from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml

MEDIAN_LIMIT_US = 10
P99_LIMIT_US = 50
_NUM_ITERATIONS = 500
_NUM_WARM_UP = 20
_NUM_MICROBATCHES = 8
_INSTRUCTION_NS = 5_000_000
_NUM_BUSY_ROUNDS = 5
_OTHER_DATA = [{"name": str(number), "values": list(range(8))} for number in range(8)]
_POLL_S = 0.002
_CALLS = ("iteration_begin", "begin", "end", "mark", "iteration_end")

Times = dict[str, list[float]]


def _nothing() -> None:
    pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="device order on a real GPU instead of a simulated one")
    parser.add_argument("--sleep", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--watch", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sleep:
        _sleep(*args.sleep)
    if args.watch:
        _watch(*args.watch)
    print("| order | call | calls | median [us] | p99 [us] | worst [us] | within the limits |")
    print("|---|---|---|---|---|---|---|")
    _print_row("-", "doorbell alone, reader asleep", _measure_doorbell())
    _print_rows("host", _measure(None))
    with ExitStack() as stack:
        if args.gpu:
            _make_context()
            _print_rows("device", _measure(lambda: 0))
            return
        machine = stack.enter_context(SimulatedMachine("a100", virtual=True))
        stack.enter_context(load_nvml(machine, cuda=True))
        _make_context()
        stream = machine.gpu(0).stream
        handle = stream.handle

        def work() -> None:
            stream.kernel("forward", _INSTRUCTION_NS / 1e9)

        def wait() -> None:
            machine.advance(_NUM_MICROBATCHES * _INSTRUCTION_NS)

        _print_rows("device, simulated GPU", _measure(lambda: handle, work, wait))


def _print_rows(order: str, times_us: Times) -> None:
    for call in _CALLS:
        _print_row(order, f"`{call}`", times_us[call])


def _print_row(order: str, call: str, times_us: list[float]) -> None:
    ascending_us = sorted(times_us)
    median_us, p99_us = ascending_us[len(ascending_us) // 2], ascending_us[len(ascending_us) * 99 // 100]
    verdict = "yes" if median_us < MEDIAN_LIMIT_US and p99_us < P99_LIMIT_US else "NO"
    figures = f"{median_us:.1f} | {p99_us:.1f} | {ascending_us[-1]:.0f}"
    print(f"| {order} | {call} | {len(ascending_us)} | {figures} | {verdict} |")


def _measure_doorbell() -> list[float]:
    """[us] what waking the reader costs on this machine, whatever is written; about nothing while it is awake."""
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    reader = _start_reader(ring, doorbell_fd, "--sleep")
    time.sleep(1)  # until Python has started there
    times_us = []
    for _ in range(_NUM_ITERATIONS):
        _be_busy()
        begin_ns = time.perf_counter_ns()
        os.eventfd_write(doorbell_fd, 1)
        times_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
    reader.terminate()
    reader.wait()
    return times_us


def _start_reader(ring: RingWriter, doorbell_fd: int, mode: str = "--watch") -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, mode, str(ring.fd), str(doorbell_fd)]
    return subprocess.Popen(command, pass_fds=(ring.fd, doorbell_fd))


def _measure(
    device_stream: Callable[[], int] | None, work: Callable[[], None] = _nothing, wait: Callable[[], None] = _nothing
) -> Times:
    """[us] of every call, by its name."""
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    reader = _start_reader(ring, doorbell_fd)
    while not ring.is_watched:
        time.sleep(0.01)
    hook = Hook(ring, doorbell_fd, device_stream=device_stream)
    times_us: Times = defaultdict(list)
    for iteration in range(_NUM_WARM_UP + _NUM_ITERATIONS):
        if iteration == _NUM_WARM_UP:
            times_us.clear()
        _run_iteration(hook, iteration, times_us, work)
        wait()
        _be_busy()
    if BoundaryReader(ring.fd, doorbell_fd).device_ordered != (device_stream is not None):
        raise SystemExit("boundaries were not in the order that was to be measured")
    hook.close()
    reader.terminate()
    reader.wait()
    return times_us


def _run_iteration(hook: Hook, iteration: int, times_us: Times, work: Callable[[], None]) -> None:
    def timed(call: str, *args: object) -> None:
        method = getattr(hook, call)
        begin_ns = time.perf_counter_ns()
        method(*args)
        times_us[call].append((time.perf_counter_ns() - begin_ns) / 1e3)

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


def _make_context() -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    context = ctypes.c_void_p()
    if driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or driver.cuCtxSetCurrent(context):
        raise SystemExit("no CUDA context could be made on GPU 0")


def _sleep(ring_fd: int, doorbell_fd: int) -> NoReturn:
    """Sleep until the doorbell rings, as an agent does whose trainer has been silent for a while."""
    reader = BoundaryReader(ring_fd, doorbell_fd)
    while True:
        select.select([doorbell_fd], [], [])
        reader.read(time.monotonic_ns())


def _watch(ring_fd: int, doorbell_fd: int) -> NoReturn:
    """Look often, as an agent does while its trainer trains."""
    reader = BoundaryReader(ring_fd, doorbell_fd)
    reader.set_watched(True)
    while True:
        time.sleep(_POLL_S)
        reader.read(time.monotonic_ns())


if __name__ == "__main__":
    main()
