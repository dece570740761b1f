"""The meter on simulated GPUs, through the real nvidia-ml-py, in this process."""

import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
from waiting import PATIENCE_S

from perseus_dist.device.nvml import power_profiles
from perseus_dist.device.nvml.discovery import find_gpu
from perseus_dist.device.nvml.meter import GpuMeter
from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=2) as machine, load_nvml(machine):
        import pynvml

        yield machine
        with suppress(pynvml.NVMLError):
            while True:
                pynvml.nvmlShutdown()


def test_sample(machine: SimulatedMachine) -> None:
    gpu = machine.gpu(1)
    meter = GpuMeter(gpu.uuid)
    assert "A100" in meter.name
    assert meter.driver_version
    assert meter.clocks_mhz[0] == 1410
    assert (meter.memory_mib, meter.default_power_limit_w, meter.power_limit_w) == (81920, 500.0, 500.0)
    gpu.set_power_limit_w(250.0)
    assert GpuMeter(gpu.uuid).power_limit_w == 250.0
    gpu.set_power_limit_w(500.0)
    before_ns = time.monotonic_ns()
    sample = meter.sample()
    assert before_ns <= sample.time_before_ns <= sample.time_after_ns <= time.monotonic_ns()
    assert sample.energy_mj is not None
    assert sample.power_mw == pytest.approx(gpu.state().power_w * 1e3, rel=0.01)
    assert sample.clock_mhz == gpu.state().clock_mhz
    assert sample.event_reasons == 1
    assert sample.temperature_c == 45
    assert meter.trouble == ""


def test_energy_and_its_period(machine: SimulatedMachine) -> None:
    meter = GpuMeter(machine.gpu(0).uuid)
    machine.gpu(0).stream.kernel("forward", 5.0)
    assert meter.energy_period_s() == pytest.approx(0.02, rel=0.3)
    first, true_first_j = meter.energy_mj(), machine.gpu(0).state().true_energy_j
    time.sleep(0.4)
    second, true_second_j = meter.energy_mj(), machine.gpu(0).state().true_energy_j
    assert first is not None
    assert second is not None
    assert (second - first) / 1e3 == pytest.approx(true_second_j - true_first_j, rel=0.15)


def test_reloaded_driver_makes_no_negative_joules(machine: SimulatedMachine) -> None:
    meter = GpuMeter(machine.gpu(0).uuid)
    time.sleep(0.05)
    readings = [meter.energy_mj()]
    machine.reload_driver()
    until = time.monotonic() + PATIENCE_S
    while len(readings) < 5 and time.monotonic() < until:
        if (energy_mj := meter.energy_mj()) is not None:
            readings.append(energy_mj)
        time.sleep(0.05)
    assert readings == sorted(reading for reading in readings if reading is not None)
    assert len(readings) == 5
    assert meter.trouble == ""


@pytest.mark.parametrize(
    ("raw_mj", "counted_mj"),
    [
        ((800_000, 799_990, 799_995, 800_100), (0, 0, 0, 100)),  # a step back, as a driver's correction makes it
        ((800_000, 50, 1_050), (0, 50, 1_050)),  # from 0 again, though no call has failed
    ],
    ids=["a step back", "from 0"],
)
def test_a_counter_that_falls(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch, raw_mj: tuple[int, ...], counted_mj: tuple[int, ...]
) -> None:
    meter = GpuMeter(machine.gpu(0).uuid)
    readings = iter(raw_mj)
    monkeypatch.setattr("pynvml.nvmlDeviceGetTotalEnergyConsumption", lambda _: next(readings))
    found_mj = [meter.energy_mj() or 0 for _ in raw_mj]
    assert [one_mj - found_mj[0] for one_mj in found_mj] == list(counted_mj)


def test_a_driver_that_is_reloaded_counts_from_0_however_little_it_had_counted(
    machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = GpuMeter(machine.gpu(0).uuid)
    now_ns = time.monotonic_ns()
    monkeypatch.setattr("perseus_dist.device.nvml.meter.time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    readings = iter((1_000, 1_000, 900))
    monkeypatch.setattr("pynvml.nvmlDeviceGetTotalEnergyConsumption", lambda _: next(readings))
    assert meter.energy_mj() == 1_000
    machine.gpu(0).set_lost(True)
    assert meter.sample().clock_mhz is None
    machine.gpu(0).set_lost(False)
    now_ns += 500_000_000
    assert meter.energy_mj() == 1_900


def test_no_energy_counter(machine: SimulatedMachine) -> None:
    machine.inject(Fault(function="nvmlDeviceGetTotalEnergyConsumption", result=3))
    meter = GpuMeter(machine.gpu(0).uuid)
    sample = meter.sample()
    assert sample.energy_mj is None
    assert sample.power_mw is not None
    assert "energy cannot be read" in meter.trouble
    assert meter.energy_period_s() == 0


def test_old_driver(machine: SimulatedMachine) -> None:
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetFieldValues"):
        machine.inject(Fault(function=function, result=13))
    meter = GpuMeter(machine.gpu(0).uuid)
    sample = meter.sample()
    assert sample.temperature_c == 45
    assert sample.power_mw is not None
    assert meter.trouble == ""


def test_lost_gpu_comes_back(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = GpuMeter(machine.gpu(0).uuid)
    now_ns = time.monotonic_ns()
    monkeypatch.setattr("perseus_dist.device.nvml.meter.time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    machine.gpu(0).set_lost(True)
    sample = meter.sample()
    assert (sample.energy_mj, sample.power_mw, sample.clock_mhz, sample.event_reasons) == (None, None, None, None)
    assert "GPU" in meter.trouble
    machine.gpu(0).set_lost(False)
    assert meter.energy_mj() is None  # it is not asked again at once
    now_ns += 499_000_000
    assert meter.energy_mj() is None
    now_ns += 1_000_000
    assert meter.sample().energy_mj is not None
    assert meter.trouble == ""


def test_workload_power_profiles_are_named_where_the_gpu_has_them(machine: SimulatedMachine) -> None:
    gpu = machine.gpu(1)
    assert GpuMeter(gpu.uuid).power_profiles == ""
    assert GpuMeter(gpu.uuid).trouble == ""
    gpu.set_power_profiles(())
    assert GpuMeter(gpu.uuid).power_profiles == "none"
    gpu.set_power_profiles((1, 20, 63), enforced=(1, 63))
    assert GpuMeter(gpu.uuid).power_profiles == "max-q + profile 63"
    assert GpuMeter(machine.gpu(0).uuid).power_profiles == ""


def test_profiles_have_the_names_of_nvidias_bindings() -> None:
    import pynvml

    prefix = "NVML_POWER_PROFILE_"
    theirs = {
        value: name.removeprefix(prefix).lower().replace("_", "-")
        for name, value in vars(pynvml).items()
        if name.startswith(prefix) and "OPERATION" not in name and name != f"{prefix}MAX"
    }
    assert dict(enumerate(power_profiles.NAMES)) == theirs


def test_unknown_gpu(machine: SimulatedMachine) -> None:
    meter = GpuMeter("GPU-0000")
    assert meter.sample().energy_mj is None
    assert "no GPU of that UUID" in meter.trouble
    assert (meter.name, meter.clocks_mhz, meter.energy_period_s()) == ("", (), 0)
    assert (meter.memory_mib, meter.default_power_limit_w, meter.power_limit_w) == (0, 0, 0)
    assert machine.calls() == []


def test_discovery(machine: SimulatedMachine) -> None:
    assert find_gpu(1, {}).uuid == machine.gpu(1).uuid
    assert find_gpu(0, {"CUDA_VISIBLE_DEVICES": "1"}).uuid == machine.gpu(1).uuid
    assert find_gpu(0, {"CUDA_VISIBLE_DEVICES": "MIG-1"}).uuid is None
    machine.inject(Fault(function="nvmlDeviceGetCount*", result=9))
    assert "driver" in find_gpu(0, {}).trouble
