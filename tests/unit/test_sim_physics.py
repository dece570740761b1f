"""One simulated GPU in virtual time: clocks, progress, energy, and the reasons that NVML would give."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from perseus_dist.simulator import Load, SimulatedGpu, SimulatedMachine, Timing, find_preset

MS = 1_000_000
EXACT = Timing(call_latency_s=0.006, call_jitter_s=0.0, settle_s=0.006, energy_period_s=0.02)
IDLE, USER_CLOCKS, POWER_CAP, THERMAL = 0x1, 0x2, 0x4, 0x20


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", virtual=True, timing=EXACT) as made:
        yield made


@pytest.fixture
def gpu(machine: SimulatedMachine) -> SimulatedGpu:
    return machine.gpu(0)


def test_a_lock_takes_call_latency_and_settling(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.stream.kernel("forward", 1.0)
    gpu.request_clock(900)
    assert machine.next_event_ns() == machine.now_ns + 12 * MS
    machine.advance(12 * MS - 1)
    assert gpu.state().is_pending
    assert gpu.state().clock_mhz == 1410
    machine.advance(1)
    state = gpu.state()
    assert (state.locked_mhz, state.clock_mhz, state.is_pending) == ((900, 900), 900, False)
    assert state.event_reasons == USER_CLOCKS


def test_the_newest_request_replaces_one_on_its_way(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.request_clock(900)
    machine.advance(6 * MS)
    gpu.request_clock(None)
    machine.advance(100 * MS)
    assert gpu.state().is_unlocked
    assert (gpu.state().num_sets, gpu.state().num_resets) == (1, 1)
    assert [call.function for call in machine.calls()] == ["request", "release"]


def test_a_request_between_two_clocks_takes_the_lower(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.request_clock(1001)
    machine.advance(20 * MS)
    assert gpu.state().locked_mhz == (990, 990)


def test_progress_and_energy_follow_the_clock_exactly(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    preset = machine.preset
    begin = gpu.state()
    gpu.stream.kernel("forward", 0.1)
    gpu.request_clock(900)  # in effect after 12 ms
    done = gpu.stream.event()
    gpu.stream.synchronize()
    slow_s = (1 - 0.012 / 0.1) * preset.kernel_time_s("forward", 0.1, 900)
    ended_ns = done.time_ns()
    assert ended_ns is not None
    assert (ended_ns - begin.time_ns) * 1e-9 == pytest.approx(0.012 + slow_s, abs=2e-9)
    energy_j = gpu.state().true_energy_j - begin.true_energy_j
    fast_w, slow_w = preset.kernel_power_w("forward", 1410), preset.kernel_power_w("forward", 900)
    assert energy_j == pytest.approx(0.012 * fast_w + slow_s * slow_w, rel=1e-7)


def test_power_of_running_blocked_and_idle(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    assert (gpu.state().load, gpu.state().event_reasons, gpu.state().clock_mhz) == (Load.IDLE, IDLE, 210)
    gpu.stream.fixed(0.01)
    assert gpu.state().load is Load.BLOCKED
    assert gpu.state().power_w == pytest.approx(83.64)
    machine.advance(10 * MS)
    assert gpu.state().load is Load.BLOCKED  # 50 ms without work make it idle
    machine.advance(50 * MS)
    assert (gpu.state().load, gpu.state().power_w) == (Load.IDLE, machine.preset.idle_power_w)
    assert machine.next_event_ns() is None


def test_a_stream_that_waits_for_a_peer_blocks_and_never_idles(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.stream.wait(0, 1)
    machine.advance(1_000 * MS)
    assert (gpu.state().load, gpu.state().clock_mhz) == (Load.BLOCKED, 1410)
    gpu.request_clock(705)
    machine.advance(1_000 * MS)
    assert gpu.state().power_w == pytest.approx(machine.preset.blocking_power_at_w(705))


def test_the_counter_is_published_once_a_period_and_lags(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.stream.kernel("forward", 0.9)
    seen = []
    for _ in range(800):
        machine.advance(MS)
        state = gpu.state()
        lag_mj = state.true_energy_j * 1e3 - state.energy_counter_mj
        assert 0 <= lag_mj <= 20e-3 * state.power_w * 1e3 + 1
        seen.append(state.energy_counter_mj)
    assert seen == sorted(seen)
    assert 39 <= len(set(seen)) <= 42


def test_a_thermal_cap_limits_below_the_lock_and_says_so(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.stream.kernel("forward", 10.0)
    gpu.set_thermal_cap(1000)
    assert (gpu.state().clock_mhz, gpu.state().event_reasons) == (990, THERMAL)
    gpu.request_clock(1200)
    machine.advance(20 * MS)
    assert (gpu.state().clock_mhz, gpu.state().event_reasons) == (990, THERMAL)
    gpu.set_thermal_cap(None)
    assert (gpu.state().clock_mhz, gpu.state().event_reasons) == (1200, USER_CLOCKS)


def test_a_power_cap_keeps_the_mean_power_at_its_share_of_the_limit(gpu: SimulatedGpu) -> None:
    gpu.stream.kernel("backward", 10.0)
    gpu.set_power_limit_w(300.0)
    state = gpu.state()
    assert state.event_reasons == POWER_CAP
    assert state.power_w == pytest.approx(294.0)
    assert 1000 < state.clock_mhz < 1200
    gpu.set_event_reasons(0x80)
    assert gpu.state().event_reasons == POWER_CAP | 0x80


def test_energy_starts_again_with_the_driver_and_locks_are_gone(machine: SimulatedMachine, gpu: SimulatedGpu) -> None:
    gpu.request_clock(900)
    machine.advance(1_000 * MS)
    assert gpu.state().energy_counter_mj > 50_000
    machine.reload_driver()
    assert gpu.state().energy_counter_mj == 0
    assert gpu.state().is_unlocked
    machine.advance(10 * MS)
    assert 0 <= gpu.state().energy_counter_mj < 2_000
    assert gpu.state().true_energy_j > 50  # the truth remembers


def test_each_clock_settles_in_its_own_time() -> None:
    timing = replace(EXACT, settle_by_clock_s=((900, 0.05), (1200, 0.02), (1410, 0.002)))
    with SimulatedMachine("a100", virtual=True, timing=timing) as machine:
        for clock_mhz, settle_ms in ((900, 50), (1050, 35), (1200, 20), (1410, 2), (None, 6)):
            machine.gpu(0).request_clock(clock_mhz)
            next_ns = machine.next_event_ns()
            assert next_ns == machine.now_ns + (6 + settle_ms) * MS
            machine.advance(100 * MS)


def test_latencies_vary_within_the_jitter_and_repeat() -> None:
    timing = replace(find_preset("a100").timing, settle_s=0.0)

    def latencies_ns() -> list[int]:
        with SimulatedMachine("a100", virtual=True, timing=timing) as machine:
            latencies = []
            for _ in range(50):
                machine.gpu(0).request_clock(900)
                next_ns = machine.next_event_ns()
                assert next_ns is not None
                latencies.append(next_ns - machine.now_ns)
                machine.advance(20 * MS)
            return latencies

    first = latencies_ns()
    assert first == latencies_ns()
    assert 6 * MS <= min(first) < max(first) <= 7.5 * MS


def test_time_goes_by_in_any_steps() -> None:
    def energy_j(step_ns: int) -> float:
        with SimulatedMachine("a40", virtual=True, timing=EXACT) as machine:
            gpu = machine.gpu(0)
            for clock_mhz in (1740, 900, 1200):
                gpu.request_clock(clock_mhz)
                gpu.stream.kernel("forward", 0.1)
                for _ in range(120 * MS // step_ns):
                    machine.advance(step_ns)
            return gpu.state().true_energy_j

    assert energy_j(MS) == pytest.approx(energy_j(120 * MS), rel=1e-9)
