"""Device order on the simulated GPU: the real ctypes calls, the real ring, and every call failing once."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.machine import SimulatedMachine

CUDA_ERROR_NOT_SUPPORTED = 801
NUM_ITERATIONS = 5

# Two instructions of 30 ms in each iteration, enqueued at once; then the boundaries as an agent sees them.
TRAINER = """
import ctypes, json, logging, os, sys, threading, time
from perseus_dist.boundaries.reader import BoundaryReader
from perseus_dist.boundaries.ring import RingWriter
from perseus_dist.hooks import Hook
from perseus_dist.simulator.stream import SimulatedStream

if {has_context}:
    driver = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    driver.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
stream = SimulatedStream.open(0)
ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
reader = BoundaryReader(os.dup(ring.fd), os.dup(doorbell_fd))
hook = Hook(ring, doorbell_fd, device_stream=lambda: {stream})
most_pending = 0
boundaries = []

def read():
    global most_pending
    boundaries.extend((b.event.name, b.iteration, t, b.device_ns, b.timed_sequence, b.sequence)
                      for b, t in reader.read(time.monotonic_ns()))
    most_pending = max(most_pending, reader.pending)

for iteration in range({num_iterations}):
    hook.iteration_begin(iteration)
    for microbatch in range(2):
        hook.begin("F", 0, microbatch)
        stream.kernel("forward", 0.03)
        hook.end("F", 0, microbatch)
    hook.work(4096)
    hook.iteration_end(iteration)
    read()
    stream.synchronize()
deadline = time.monotonic() + 120
while reader.pending and time.monotonic() < deadline:
    time.sleep(0.01)
    read()
print(json.dumps({{"device_ordered": reader.device_ordered, "refusal": hook._device.refusal, "boundaries": boundaries,
                   "most_pending": most_pending, "lost": reader.lost, "pending": reader.pending}}))
hook.close()
"""


def train(
    machine: SimulatedMachine, *, has_context: bool = True, stream: str = "stream.handle", cuda: bool = True
) -> dict[str, Any]:
    script = TRAINER.format(has_context=has_context, stream=stream, num_iterations=NUM_ITERATIONS)
    environment = {**os.environ, **machine.environment(cuda=cuda)}
    trainer = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(trainer.stdout)
    found["stderr"] = trainer.stderr
    return found


def names(found: dict[str, Any]) -> list[str]:
    return [boundary[0] for boundary in found["boundaries"] if boundary[0] != "TIMING"]


ALL_NAMES = ["ITERATION_BEGIN", "BEGIN", "END", "BEGIN", "END", "WORK", "ITERATION_END"] * NUM_ITERATIONS


@pytest.mark.parametrize("stream", ["stream.handle", "0"])
def test_boundaries_are_passed_when_the_device_is_there(stream: str) -> None:
    with SimulatedMachine("a100") as machine:
        found = train(machine, stream=stream)
    assert found["device_ordered"]
    assert found["refusal"] == ""
    assert found["pending"] == found["lost"] == 0
    # A whole iteration was enqueued while its first instruction still ran.
    assert found["most_pending"] >= 4
    assert names(found) == ALL_NAMES


def test_exact_times_follow() -> None:
    with SimulatedMachine("a100") as machine:
        found = train(machine)
    boundaries = {sequence: (name, iteration) for name, iteration, *_, sequence in found["boundaries"]}
    timings = [boundary for boundary in found["boundaries"] if boundary[0] == "TIMING"]
    # One is read per boundary, from the second iteration on.
    assert len(timings) >= (NUM_ITERATIONS - 2) * 6
    times_ms: dict[int, list[float]] = {}
    for _, iteration, _, device_ns, timed_sequence, _ in timings:
        assert boundaries[timed_sequence][1] == iteration
        assert boundaries[timed_sequence][0] != "WORK"  # which the device passes nothing for
        times_ms.setdefault(iteration, []).append(device_ns / 1e6)
    for iteration_ms in times_ms.values():
        assert iteration_ms[0] == 0
        assert iteration_ms == sorted(iteration_ms)
    # The second instruction was enqueued while the first ran, unless Python was very late.
    durations_ms = [iteration_ms[4] - iteration_ms[3] for iteration_ms in times_ms.values() if len(iteration_ms) == 6]
    assert min(durations_ms) == pytest.approx(30, abs=0.001)


@pytest.mark.parametrize(
    ("function", "num_skipped"),
    [
        ("cuCtxGetCurrent", 0),
        ("cuMemHostRegister_v2", 0),
        ("cuMemHostGetDevicePointer_v2", 0),
        # Not the first call, so that boundaries are in device order when it fails.
        ("cuStreamIsCapturing", 5),
        ("cuStreamWriteValue32_v2", 5),
        ("cuEventCreate", 5),
        ("cuEventRecord", 5),
        ("cuEventQuery", 0),
        ("cuEventElapsedTime", 1),
    ],
)
def test_any_failing_call_leaves_host_order(function: str, num_skipped: int) -> None:
    with SimulatedMachine("a100") as machine:
        machine.inject(Fault(function=function, result=CUDA_ERROR_NOT_SUPPORTED, num_skipped=num_skipped))
        found = train(machine)
    assert not found["device_ordered"]
    assert f"{function.removesuffix('_v2')} failed: operation not supported (801)" in found["refusal"]
    assert found["stderr"].count("boundaries follow the host") == 1
    assert found["pending"] == found["lost"] == 0
    assert names(found) == ALL_NAMES


def test_writes_that_never_arrive_leave_host_order() -> None:
    with SimulatedMachine("a100") as machine:
        machine.inject(Fault(function="cuStreamWriteValue32_v2", is_ignored=True))
        found = train(machine)
    assert not found["device_ordered"]
    assert "none of its writes has arrived" in found["refusal"]
    assert names(found) == ALL_NAMES


def test_no_context_leaves_host_order() -> None:
    with SimulatedMachine("a100") as machine:
        found = train(machine, has_context=False)
    assert not found["device_ordered"]
    assert "no CUDA context" in found["refusal"]
    assert names(found) == ALL_NAMES


def test_stream_that_cannot_be_told_leaves_host_order() -> None:
    with SimulatedMachine("a100") as machine:
        found = train(machine, stream="1 // 0")
    assert not found["device_ordered"]
    assert "modulo by zero" in found["refusal"]
    assert names(found) == ALL_NAMES


def test_no_driver_leaves_host_order() -> None:
    with SimulatedMachine("a100") as machine:
        found = train(machine, has_context=False, cuda=False)
    assert not found["device_ordered"]
    assert "libcuda.so.1 cannot be loaded" in found["refusal"]
    assert names(found) == ALL_NAMES
