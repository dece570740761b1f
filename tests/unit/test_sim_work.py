"""Simulated work, in virtual time: when kernels run, and what the GPU does in between."""

import json
import math
from collections.abc import Iterator

import pytest

from perseus_dist.simulator import Load, SimulatedMachine, SimulatedWork, SimulatorError, WorkTimes, work_environment
from perseus_dist.simulator.work import WORK_VARIABLE

MS = 1_000_000
TIMES = WorkTimes(forward_s=0.035, backward_s=0.065)


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=4, virtual=True) as made:
        yield made


@pytest.fixture
def work(machine: SimulatedMachine) -> SimulatedWork:
    return SimulatedWork(machine.gpu(1).stream, gpu=1, times=TIMES, num_stages=2)


def test_a_stages_times_grow_from_the_first_to_the_last() -> None:
    times = WorkTimes(forward_s=0.1, backward_s=0.2, imbalance=0.3)
    forwards = [times.kernel("F", stage, num_stages=4) for stage in range(4)]
    assert [kernel and kernel[0] for kernel in forwards] == ["forward"] * 4
    assert [kernel and kernel[1] for kernel in forwards] == pytest.approx([0.1, 0.11, 0.12, 0.13])
    assert times.kernel("B", 0, num_stages=4) == ("backward", 0.2)
    assert times.kernel("B", 0, num_stages=1) == ("backward", 0.2)


def test_halves_of_a_backward_and_chunks_of_a_rank() -> None:
    assert TIMES.kernel("I", 0, num_stages=4) == TIMES.kernel("W", 3, num_stages=4) == ("backward", 0.0325)
    assert TIMES.kernel("F", 5, num_stages=8, num_chunks=2) == ("forward", 0.0175)


def test_constants_take_no_kernel() -> None:
    assert TIMES.kernel("STEP", 0, num_stages=4) is None
    assert TIMES.kernel("LOAD", 0, num_stages=4) is None


def test_the_environment_keeps_the_times() -> None:
    environment = work_environment(forward_s=0.035, backward_s=0.065, imbalance=0.1)
    assert WorkTimes.from_json(environment[WORK_VARIABLE]) == WorkTimes(
        forward_s=0.035, backward_s=0.065, imbalance=0.1
    )


@pytest.mark.parametrize(
    ("forward_s", "backward_s", "imbalance", "words"),
    [
        (0.0, 0.1, 0.0, "a simulated forward of 0 ms"),
        (0.1, -0.1, 0.0, "a simulated backward of -100 ms"),
        (math.nan, 0.1, 0.0, "a simulated forward of nan ms"),
        (0.1, math.inf, 0.0, "a simulated backward of inf ms"),
        (0.1, 0.1, -1.0, "imbalance -1; expected more than -1"),
        (0.1, 0.1, math.inf, "imbalance inf"),
        (0.1, 0.1, math.nan, "imbalance nan"),
    ],
)
def test_impossible_times_are_refused(forward_s: float, backward_s: float, imbalance: float, words: str) -> None:
    with pytest.raises(SimulatorError, match=words):
        work_environment(forward_s=forward_s, backward_s=backward_s, imbalance=imbalance)


@pytest.mark.parametrize("transfer_s", [-0.001, math.nan, math.inf])
def test_impossible_transfers_are_refused(transfer_s: float) -> None:
    with pytest.raises(SimulatorError, match="a simulated transfer of"):
        work_environment(forward_s=0.1, backward_s=0.2, transfer_s=transfer_s)


@pytest.mark.parametrize("step_s", [-0.001, math.nan, math.inf])
def test_impossible_steps_are_refused(step_s: float) -> None:
    with pytest.raises(SimulatorError, match="a simulated step of"):
        work_environment(forward_s=0.1, backward_s=0.2, step_s=step_s)


def test_a_step_takes_its_time_at_every_clock_and_at_blocking_power(machine: SimulatedMachine) -> None:
    gpu = machine.gpu(1)
    environment = work_environment(forward_s=0.035, backward_s=0.065, imbalance=0.5, step_s=0.02)
    times = WorkTimes.from_json(environment[WORK_VARIABLE])
    work = SimulatedWork(gpu.stream, gpu=1, times=times, num_stages=2)
    for clock_mhz in (1410, 1050):
        gpu.request_clock(clock_mhz)
        machine.advance(100 * MS)
        start_ns, before = machine.now_ns, gpu.state()
        for kind in ("REDUCE", "STEP"):
            work.begin(kind, 1)
            assert gpu.state().load is Load.BLOCKED
            work.end()
        after = gpu.state()
        assert machine.now_ns == start_ns + 20 * MS
        assert after.true_energy_j - before.true_energy_j == pytest.approx(0.02 * before.power_w)
    work.begin("STEP", 1)
    machine.advance(30 * MS)
    work.end()
    assert (work.num_instructions, work.num_outlasting) == (0, 0)


@pytest.mark.parametrize("text", ["", "35", "null", '{"forward_s": 1}', '{"forward_s": "x", "backward_s": 1}', "{"])
def test_texts_that_are_no_times_are_refused(text: str) -> None:
    with pytest.raises(SimulatorError, match="expected a JSON object of the numbers forward_s, backward_s, imbalance"):
        WorkTimes.from_json(text)
    with pytest.raises(SimulatorError, match="expected a JSON object"):
        WorkTimes.from_json(json.dumps({"forward_s": 1, "backward_s": 1, "unknown": 1}))


def test_a_kernel_takes_its_time_and_the_gpu_is_blocked_around_it(
    machine: SimulatedMachine, work: SimulatedWork
) -> None:
    gpu = machine.gpu(1)
    assert work.uuid == gpu.uuid
    before = gpu.state()
    machine.advance(10_000 * MS)
    blocked = gpu.state()
    assert blocked.load is Load.BLOCKED
    assert blocked.true_energy_j - before.true_energy_j == pytest.approx(10 * 83.64)
    start_ns = machine.now_ns
    work.begin("F", 0)
    assert gpu.state().load is Load.RUNNING
    work.end()
    assert machine.now_ns == start_ns + 35 * MS
    assert gpu.state().load is Load.BLOCKED
    work.begin("B", 0)
    work.end()
    assert machine.now_ns == start_ns + 100 * MS
    machine.advance(1_000 * MS)
    assert gpu.state().load is Load.BLOCKED
    assert gpu.state().running_s == pytest.approx(0.1)
    assert machine.gpu(0).state().load is Load.IDLE


def test_a_host_that_is_late_changes_nothing_on_the_device(machine: SimulatedMachine, work: SimulatedWork) -> None:
    gpu = machine.gpu(1)
    before = gpu.state()
    work.begin("F", 0)
    machine.advance(200 * MS)
    work.end()
    after = gpu.state()
    assert after.running_s == pytest.approx(0.035)
    assert after.true_energy_j - before.true_energy_j == pytest.approx(0.035 * 467.6 + 0.165 * 83.64)


def test_instructions_that_real_work_outlasts_are_counted(machine: SimulatedMachine) -> None:
    times = WorkTimes(forward_s=0.035, backward_s=0.065, transfer_s=0.005)
    work = SimulatedWork(machine.gpu(1).stream, gpu=1, times=times, num_stages=2)
    for kind, host_ms in (("F", 0), ("F", 34), ("B", 66), ("STEP", 10)):
        work.begin(kind, 0)
        machine.advance(host_ms * MS)
        work.end()
        work.end()
        work.send(kind, 0)
    assert (work.num_instructions, work.num_outlasting) == (3, 1)


def test_the_clock_decides_how_long_it_takes(machine: SimulatedMachine, work: SimulatedWork) -> None:
    machine.gpu(1).request_clock(1050)
    machine.advance(100 * MS)
    start_ns = machine.now_ns
    work.begin("F", 0)
    work.end()
    assert (machine.now_ns - start_ns) / MS == pytest.approx(35 * 1.2608, rel=1e-6)


def test_constants_leave_the_gpu_blocked(machine: SimulatedMachine, work: SimulatedWork) -> None:
    start_ns = machine.now_ns
    work.begin("STEP", 0)
    assert machine.gpu(1).state().load is Load.BLOCKED
    work.end()
    work.end()
    assert machine.now_ns == start_ns


def test_a_transfer_holds_its_sender_up_where_another_rank_gets_the_result(machine: SimulatedMachine) -> None:
    times = WorkTimes(forward_s=0.035, backward_s=0.065, transfer_s=0.005)
    first, last = (SimulatedWork(machine.gpu(at).stream, gpu=at, times=times, num_stages=3) for at in (0, 2))
    for work, kind, stage, ms in (
        (first, "F", 0, 5),
        (first, "B", 0, 0),
        (first, "STEP", 0, 0),
        (last, "F", 2, 0),
        (last, "B", 2, 5),
        (last, "I", 2, 5),
        (last, "W", 2, 0),
    ):
        work.begin(kind, stage)
        work.end()
        start_ns, before = machine.now_ns, machine.gpu(0).state()
        work.send(kind, stage)
        assert machine.now_ns == start_ns + ms * MS
        assert machine.gpu(0).state().running_s == before.running_s


def test_ranks_with_several_chunks_have_no_simulated_transfers(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = work_environment(forward_s=0.035, backward_s=0.065, transfer_s=0.005)
    for name, value in {**machine.environment(), **environment}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SimulatorError, match="leave --transfer-ms out where ranks have several chunks"):
        SimulatedWork.from_environment(gpu=0, num_stages=4, num_chunks=2)


def test_an_instruction_that_never_ended_does_not_hold_the_next_one_up(
    machine: SimulatedMachine, work: SimulatedWork
) -> None:
    work.begin("F", 0)
    work.begin("B", 0)
    work.end()
    assert machine.gpu(1).state().running_s == pytest.approx(0.1)
    assert machine.gpu(1).state().load is Load.BLOCKED


def test_closed_the_gpu_falls_idle_and_can_work_again(machine: SimulatedMachine, work: SimulatedWork) -> None:
    gpu = machine.gpu(1)
    for _ in range(3):
        work.close()
        work.close()
        machine.advance(60 * MS)
        assert gpu.state().load is Load.IDLE
        work.begin("F", 0)
        work.end()
        machine.advance(60 * MS)
        assert gpu.state().load is Load.BLOCKED


def test_work_that_follows_other_work_on_the_gpu(machine: SimulatedMachine, work: SimulatedWork) -> None:
    gpu = machine.gpu(1)
    work.begin("F", 0)
    work.end()
    later = SimulatedWork(gpu.stream, gpu=1, times=TIMES, num_stages=4)  # the earlier one was not closed yet
    work.close()
    for _ in range(3):
        later.begin("B", 0)
        later.end()
        machine.advance(60 * MS)
        assert gpu.state().load is Load.BLOCKED
    assert gpu.state().running_s == pytest.approx(0.035 + 3 * 0.065)


def test_ranks_do_not_release_each_other(machine: SimulatedMachine, work: SimulatedWork) -> None:
    other = SimulatedWork(machine.gpu(2).stream, gpu=2, times=TIMES, num_stages=2)
    for _ in range(5):
        other.begin("F", 0)
        other.end()
    assert machine.gpu(1).state().running_s == 0
    work.close()
    machine.advance(60 * MS)
    assert machine.gpu(1).state().load is Load.IDLE
    assert machine.gpu(2).state().load is Load.BLOCKED
