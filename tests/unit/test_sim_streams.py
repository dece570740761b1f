"""Streams of several simulated GPUs in virtual time: order, semaphores, events."""

from collections.abc import Iterator

import pytest

from perseus_dist.simulator import SimulatedMachine, SimulatedStream, SimulatorError

MS = 1_000_000


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=4, virtual=True) as made:
        yield made


def test_a_pipeline_runs_on_the_devices_time(machine: SimulatedMachine) -> None:
    start_ns = machine.now_ns
    events = []
    for stage, gpu in enumerate(machine.gpus):
        if stage > 0:
            gpu.stream.wait(stage - 1, 1)
        gpu.stream.kernel("forward", 0.05)
        gpu.stream.fixed(0.001)
        events.append(gpu.stream.event())
        gpu.stream.signal(stage)
    machine.advance(1_000 * MS)  # in one step: being late changes nothing
    assert [event.time_ns() for event in events] == [start_ns + 51 * MS * (stage + 1) for stage in range(4)]
    assert [machine.semaphore(stage) for stage in range(4)] == [1, 1, 1, 1]


def test_an_event_that_was_not_reached_has_no_time(machine: SimulatedMachine) -> None:
    stream = machine.gpu(0).stream
    stream.kernel("forward", 0.05)
    event = stream.event()
    machine.advance(50 * MS - 1)
    assert event.time_ns() is None
    machine.advance(1)
    assert event.time_ns() == machine.now_ns
    event.close()


def test_synchronising_advances_virtual_time_as_far_as_needed(machine: SimulatedMachine) -> None:
    start_ns = machine.now_ns
    machine.gpu(0).stream.kernel("forward", 0.02)
    machine.gpu(0).stream.signal(7)
    machine.gpu(1).stream.wait(7, 1)
    machine.gpu(1).stream.kernel("forward", 0.03)
    machine.gpu(1).stream.synchronize()
    assert machine.now_ns == start_ns + 50 * MS


def test_a_signal_may_take_time_while_the_stream_goes_on(machine: SimulatedMachine) -> None:
    start_ns = machine.now_ns
    sender, receiver = machine.gpu(0).stream, machine.gpu(1).stream
    for after_s in (0.025, 0.02, 0.0):  # two overtake nobody: signals that take time arrive in order
        sender.kernel("forward", 0.01)
        sender.signal(7, after_s)
    sent = sender.event()
    received = []
    for value in (1, 2, 3):
        receiver.wait(7, value)
        received.append(receiver.event())
    machine.advance(200 * MS)
    assert sent.time_ns() == start_ns + 30 * MS
    assert [event.time_ns() for event in received] == [start_ns + ms * MS for ms in (30, 35, 40)]


def test_more_signals_on_their_way_than_a_gpu_can_have_arrive_early_and_none_is_lost(machine: SimulatedMachine) -> None:
    for _ in range(600):
        machine.gpu(0).stream.signal(3, 0.5)
    assert machine.semaphore(3) == 600 - 256
    machine.advance(500 * MS)
    assert machine.semaphore(3) == 600


def test_signals_that_are_on_their_way_are_dropped_with_the_stream(machine: SimulatedMachine) -> None:
    machine.gpu(0).stream.signal(3, 0.5)
    machine.drop_work()
    machine.advance(1000 * MS)
    assert machine.semaphore(3) == 0


def test_a_deadlock_is_said(machine: SimulatedMachine) -> None:
    machine.gpu(2).stream.wait(0, 1)
    with pytest.raises(SimulatorError, match=r"GPU 2: its stream waits .*: semaphore 0 is 0, expected 1 or more"):
        machine.gpu(2).stream.synchronize()


def test_the_host_raises_a_semaphore(machine: SimulatedMachine) -> None:
    for gpu in (machine.gpu(0), machine.gpu(3)):
        gpu.stream.wait(9, 5)
        gpu.stream.kernel("forward", 0.01)
    machine.gpu(1).stream.raise_semaphore(9, 4)
    machine.advance(100 * MS)
    assert machine.gpu(0).state().running_s == machine.gpu(3).state().running_s == 0
    machine.gpu(1).stream.raise_semaphore(9, 6)
    machine.gpu(1).stream.raise_semaphore(9, 2)
    assert machine.gpu(0).stream.semaphore(9) == 6
    machine.advance(10 * MS)
    assert [machine.gpu(index).state().running_s for index in (0, 3)] == pytest.approx([0.01, 0.01])


def test_synchronising_with_a_part_of_what_was_enqueued(machine: SimulatedMachine) -> None:
    stream = machine.gpu(0).stream
    start_ns = machine.now_ns
    stream.kernel("forward", 0.02)
    position = stream.num_enqueued
    stream.wait(0, 1)
    stream.synchronize(position)
    assert machine.now_ns == start_ns + 20 * MS


def test_more_operations_than_the_queue_holds(machine: SimulatedMachine) -> None:
    stream = machine.gpu(0).stream
    for _ in range(20_000):
        stream.fixed(1e-6)
    stream.synchronize()
    assert machine.gpu(0).state().num_completed == 20_000


def test_events_come_back(machine: SimulatedMachine) -> None:
    stream = machine.gpu(0).stream
    for _ in range(10_000):
        stream.event().close()
    held = [stream.event() for _ in range(8_192)]
    with pytest.raises(SimulatorError, match="no free event"):
        stream.event()
    held[0].close()
    assert stream.event().time_ns() == machine.now_ns


def test_impossible_operations_are_refused(machine: SimulatedMachine) -> None:
    stream = machine.gpu(0).stream
    with pytest.raises(SimulatorError, match="kernel class 'sideways'"):
        stream.kernel("sideways", 0.1)
    with pytest.raises(SimulatorError, match="semaphore 4096"):
        stream.signal(4096)
    with pytest.raises(SimulatorError, match="semaphore 4096"):
        stream.raise_semaphore(4096, 1)
    with pytest.raises(SimulatorError, match="a duration of nan s"):
        stream.kernel("forward", float("nan"))
    with SimulatedMachine("a100") as in_wall_time, pytest.raises(SimulatorError, match="wall time"):
        in_wall_time.advance(1)


def test_a_stream_needs_a_machine_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, machine: SimulatedMachine
) -> None:
    monkeypatch.delenv("PERSEUS_SIM_STATE", raising=False)
    with pytest.raises(SimulatorError, match="perseus-dist sim"):
        SimulatedStream.open(0)
    monkeypatch.setenv("PERSEUS_SIM_STATE", machine.environment()["PERSEUS_SIM_STATE"])
    assert SimulatedStream.open(3).handle != SimulatedStream.open(2).handle
    with pytest.raises(SimulatorError, match="has 4, counted from 0"):
        SimulatedStream.open(4)
