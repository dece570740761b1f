"""One simulated machine, several processes, wall time."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from waiting import PATIENCE_S, wait_until

from perseus_dist.simulator import Load, SimulatedGpu, SimulatedMachine, SimulatorError, stream

STAGE = """\
import sys
from perseus_dist.simulator import SimulatedStream
stage = int(sys.argv[1])
stream = SimulatedStream.open(stage)
events = []
for microbatch in range(5):
    if stage > 0:
        stream.wait(stage - 1, microbatch + 1)
    stream.kernel("forward", 0.03)
    events.append(stream.event())
    stream.signal(stage)
stream.synchronize()
print(*[event.time_ns() for event in events])
"""


def spawn(machine: SimulatedMachine, code: str, *arguments: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **machine.environment()}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_a_pipeline_of_processes_keeps_the_devices_time() -> None:
    with SimulatedMachine("a100", count=3) as machine:
        children = [spawn(machine, STAGE, str(stage)) for stage in range(3)]
        times_ns = [[int(word) for word in child.communicate(timeout=60)[0].split()] for child in children]
        for stage, own_ns in enumerate(times_ns):
            assert machine.gpu(stage).state().running_s > 0.1499
            gaps_ns = [later - earlier for earlier, later in pairwise(own_ns)]
            assert min(gaps_ns) >= 30_000_000
            if stage > 0:  # however late hosts are, a stage follows its peer to the nanosecond or is still busy itself
                for microbatch, reached_ns in enumerate(own_ns):
                    assert reached_ns >= times_ns[stage - 1][microbatch] + 30_000_000
        assert [machine.semaphore(stage) for stage in range(3)] == [5, 5, 5]


def test_the_work_of_a_killed_process_ends_and_the_next_one_can_start() -> None:
    code = """\
import time
from perseus_dist.simulator import SimulatedStream
stream = SimulatedStream.open(0)
stream.wait(0, 1)
stream.kernel("forward", 100.0)
print("enqueued", flush=True)
stream.synchronize()
"""
    with SimulatedMachine("a100") as machine:
        gpu: SimulatedGpu = machine.gpu(0)
        child = spawn(machine, code)
        assert child.stdout is not None
        child.stdout.readline()
        assert gpu.state().load is Load.BLOCKED
        child.send_signal(signal.SIGKILL)
        child.communicate()
        wait_until(lambda: gpu.state().load is Load.IDLE)
        gpu.stream.kernel("forward", 0.01)
        gpu.stream.synchronize()
        assert gpu.state().running_s > 0.0099


def test_synchronising_can_be_interrupted() -> None:
    code = """\
from perseus_dist.simulator import SimulatedStream
stream = SimulatedStream.open(0)
stream.kernel("forward", 1000.0)
try:
    print("enqueued", flush=True)
    stream.synchronize()
except KeyboardInterrupt:
    print("interrupted")
"""
    with SimulatedMachine("a100") as machine:
        child = spawn(machine, code)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=PATIENCE_S)[0] == "interrupted\n"


def test_the_state_is_gone_with_the_machine() -> None:
    with SimulatedMachine("a100") as machine:
        path = machine.state_path
        assert path.exists()
    assert not path.parent.exists()


def test_the_next_machine_removes_what_a_killed_one_left() -> None:
    code = """\
import sys
from perseus_dist.simulator.machine import SimulatedMachine
with SimulatedMachine("a100") as machine:
    print(machine.state_path, flush=True)
    sys.stdin.read()
"""
    running, killed = [
        subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    with running, killed:
        assert running.stdout is not None
        assert killed.stdout is not None
        kept, left = Path(running.stdout.readline().strip()), Path(killed.stdout.readline().strip())
        killed.kill()
        killed.wait()
        assert left.exists()
        with SimulatedMachine("a100"):
            assert not left.parent.exists()
            assert kept.exists()
        running.communicate()
    assert not kept.parent.exists()


def test_the_engine_sleeps_while_gpus_only_wait() -> None:
    others = {task.name for task in Path("/proc/self/task").iterdir()}
    with SimulatedMachine("a100", count=8) as machine:
        for gpu in machine.gpus:
            gpu.stream.wait(0, 1)
            for _ in range(40):
                gpu.stream.kernel("forward", 0.05)
        machine.gpu(0).request_clock(1200)
        (engine,) = (task for task in Path("/proc/self/task").iterdir() if task.name not in others)

        def is_asleep() -> bool:
            before = engine.joinpath("status").read_text()
            time.sleep(0.1)
            return "State:\tS" in before and engine.joinpath("status").read_text() == before

        wait_until(is_asleep)  # a loop that computes or looks often changes its state or its count of switches


def test_a_wait_that_nobody_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STALL_S", 0.3)
    with SimulatedMachine("a100") as machine:
        machine.gpu(0).stream.wait(1, 5)
        with pytest.raises(SimulatorError, match=r" 0.3 s .*: semaphore 1 is 0, expected 5 or more; signal it"):
            machine.gpu(0).stream.synchronize()


def test_a_wait_lasts_while_other_streams_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STALL_S", 0.3)
    with SimulatedMachine("a100", count=2) as machine:
        began = machine.gpu(1).stream.event()
        machine.gpu(0).stream.wait(1, 1)
        machine.gpu(1).stream.kernel("forward", 1.0)
        machine.gpu(1).stream.signal(1, after_s=0.6)
        ended = machine.gpu(0).stream.event()
        machine.gpu(0).stream.synchronize()
        began_ns, ended_ns = began.time_ns(), ended.time_ns()
        assert began_ns is not None
        assert ended_ns is not None
        assert ended_ns - began_ns > 1.5e9, "of the device's time"
