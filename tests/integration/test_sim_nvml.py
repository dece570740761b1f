"""The real nvidia-ml-py, unmodified, on the simulated GPUs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pynvml
import pytest

from perseus_dist.simulator import Fault, SimulatedGpu, SimulatedMachine, Timing, find_preset, load_nvml

MS = 1_000_000


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    """Four A100s in virtual time, so that nothing waits."""
    with SimulatedMachine("a100", count=4, virtual=True) as made, load_nvml(made):
        pynvml.nvmlInit()
        yield made
        pynvml.nvmlShutdown()


@pytest.fixture
def gpu(machine: SimulatedMachine) -> SimulatedGpu:
    return machine.gpu(0)


@pytest.fixture
def handle(gpu: SimulatedGpu) -> object:
    return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)


def run_process(code: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)


def run_python(machine: SimulatedMachine, code: str) -> str:
    done = run_process(code, {**os.environ, **machine.environment()})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("preset", "name", "clocks", "memory"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB", (1410, 210, 81), 1593),
        ("a40", "NVIDIA A40", (1740, 210, 103), 7251),
        ("h100", "NVIDIA H100 80GB HBM3", (1980, 345, 110), 2619),
        ("h200", "NVIDIA H200", (1980, 345, 110), 3201),
    ],
)
def test_identity(preset: str, name: str, clocks: tuple[int, int, int], memory: int) -> None:
    with SimulatedMachine(preset, count=2, virtual=True) as machine, load_nvml(machine):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
        assert "simulated" in pynvml.nvmlSystemGetDriverVersion()
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetName(handle) == name
        assert pynvml.nvmlDeviceGetUUID(handle) == machine.gpu(1).uuid
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(machine.gpu(1).uuid)) == 1
        bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
        assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)) == 1
        memory_clocks = pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)
        assert memory_clocks[0] == memory
        supported = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_clocks[0])
        assert (supported[0], supported[-1], len(supported)) == clocks
        assert pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) == clocks[0]
        assert pynvml.nvmlDeviceGetPersistenceMode(handle) == 1
        assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
        assert pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU) == 45
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).total > 40 << 30
        assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) in ((8, 0), (8, 6), (9, 0))
        for wrong in (machine.gpu(1).uuid[:-1], "GPU-0", ""):
            with pytest.raises(pynvml.NVMLError_NotFound):
                pynvml.nvmlDeviceGetHandleByUUID(wrong)
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(2)
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 999)
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetFanSpeed(handle)
        pynvml.nvmlShutdown()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetCount()


def test_locks(machine: SimulatedMachine, gpu: SimulatedGpu, handle: object) -> None:
    gpu.stream.kernel("forward", 10.0)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1410  # success is not arrival
    machine.advance(20 * MS)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 900
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0x2
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    machine.advance(20 * MS)
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0
    for lo_mhz, hi_mhz in ((1410, 300), (100, 200), (2000, 2100), (0, 0)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, lo_mhz, hi_mhz)
    calls = [call for call in machine.calls() if call.result == 0]
    assert [(call.function, call.hi, call.pid) for call in calls] == [
        ("nvmlDeviceSetGpuLockedClocks", 900, os.getpid()),
        ("nvmlDeviceResetGpuLockedClocks", 0, os.getpid()),
    ]


def test_energy_power_and_fields(machine: SimulatedMachine, gpu: SimulatedGpu, handle: object) -> None:
    gpu.stream.kernel("forward", 1.0)
    machine.advance(500 * MS)
    state = gpu.state()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == state.energy_counter_mj
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == int(state.power_w * 1e3)
    gpu.set_thermal_cap(600)
    machine.advance(100 * MS)
    gpu.set_thermal_cap(None)
    gpu.set_power_limit_w(200)
    machine.advance(50 * MS)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 200_000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) == 500_000
    fields = {
        field.fieldId: (field.nvmlReturn, field.value.ullVal)
        for field in pynvml.nvmlDeviceGetFieldValues(handle, [74, 75, 83, 269, 270, 271, 4000])
    }
    assert fields[pynvml.NVML_FI_DEV_PERF_POLICY_POWER] == (0, 50 * MS)
    assert fields[pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL] == (0, 100 * MS)
    assert fields[pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN] == (0, 100 * MS)
    assert fields[pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN] == (0, 0)
    assert fields[pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN] == (0, 0)
    assert fields[pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION][1] == gpu.state().energy_counter_mj
    assert fields[4000][0] == pynvml.NVML_ERROR_NOT_SUPPORTED
    instant = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])[0].value.uiVal
    assert instant == int(gpu.state().power_w * 1e3)


def test_power_usage_is_an_average_except_on_a100() -> None:
    with SimulatedMachine("h100", virtual=True) as machine, load_nvml(machine):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        machine.gpu(0).stream.kernel("forward", 30.0)
        machine.advance(500 * MS)
        assert 100_000 < pynvml.nvmlDeviceGetPowerUsage(handle) < 0.6e3 * machine.gpu(0).state().power_w
        machine.advance(20_000 * MS)
        assert pynvml.nvmlDeviceGetPowerUsage(handle) == pytest.approx(1e3 * machine.gpu(0).state().power_w, rel=1e-3)
        pynvml.nvmlShutdown()


def test_faults(machine: SimulatedMachine, gpu: SimulatedGpu, handle: object) -> None:
    no_permission = Fault(
        function="nvmlDeviceSetGpuLockedClocks", result=pynvml.NVML_ERROR_NO_PERMISSION, num_skipped=1, num_calls=2
    )
    machine.inject(no_permission, gpu=0)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
    for _ in range(2):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, 600, 600)
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(1), 600, 600)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 900, 900)
    machine.advance(20 * MS)

    machine.inject(Fault(function="nvmlDevice*Locked*", is_ignored=True))  # success, but not reached
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 600, 600)
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    machine.advance(20 * MS)
    assert gpu.state().locked_mhz == (900, 900)

    machine.inject(
        Fault(function="nvmlDeviceGetCurrentClocksEventReasons", result=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    )
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):  # what an old driver looks like
        pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    machine.inject(Fault(function="nvmlInitWithFlags", result=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    machine.clear_faults()
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle) == 0x3

    gpu.set_lost(True)
    for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceResetGpuLockedClocks):
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            call(handle)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByIndex(0)
    gpu.set_lost(False)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) > 0


def test_a_driver_reload_voids_sessions(machine: SimulatedMachine, handle: object) -> None:
    machine.advance(1_000 * MS)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) > 50_000
    machine.set_driver_loaded(False)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
        pynvml.nvmlInit()
    machine.reload_driver()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)) == 0
    pynvml.nvmlShutdown()


def test_mig(gpu: SimulatedGpu, handle: object) -> None:
    gpu.set_mig(True)
    assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    uuid = pynvml.nvmlDeviceGetUUID(instance)
    assert uuid.startswith("MIG-")
    found = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    assert pynvml.nvmlDeviceIsMigDeviceHandle(found)
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
    assert pynvml.nvmlDeviceGetUUID(parent) == gpu.uuid
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetGpuLockedClocks(instance, 900, 900)


def test_processes(machine: SimulatedMachine, gpu: SimulatedGpu, handle: object) -> None:
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    gpu.stream.kernel("forward", 0.01)
    gpu.add_process(os.getppid())
    listed = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    assert listed == {os.getpid(), os.getppid()}
    gpu.remove_process(os.getppid())
    run_python(machine, "from perseus_dist.simulator import SimulatedStream; SimulatedStream.open(0)")
    listed = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    assert listed == {os.getpid()}  # the child has ended
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []


def test_on_an_unprivileged_machine_nobody_sets() -> None:
    with SimulatedMachine("a100", virtual=True, unprivileged=True) as machine:
        code = """\
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))
for call in (pynvml.nvmlDeviceSetGpuLockedClocks, pynvml.nvmlDeviceSetPowerManagementLimit):
    try:
        call(handle, *((900, 900) if "Locked" in call.__name__ else (200_000,)))
    except pynvml.NVMLError_NoPermission:
        print("no")
"""
        assert run_python(machine, code).split() == ["0", "no", "no"]
        assert machine.gpu(0).state().num_sets == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_reads_but_does_not_set() -> None:
    with SimulatedMachine("a100", virtual=True) as machine:
        code = """\
import os, pynvml
pynvml.nvmlInit()
os.setgid(65534)
os.setuid(65534)
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetPowerUsage(handle))
try:
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
except pynvml.NVMLError_NoPermission:
    print("no")
"""
        assert run_python(machine, code).split() == ["57000", "no"]


def test_without_a_machine_there_is_no_driver() -> None:
    with SimulatedMachine("a100", virtual=True) as machine:
        environment = {**os.environ, **machine.environment()}
    code = "import pynvml; pynvml.nvmlInit()"
    for state in ("", "/dev/null", environment["PERSEUS_SIM_STATE"]):
        done = run_process(code, {**environment, "PERSEUS_SIM_STATE": state})
        assert "NVMLError_DriverNotLoaded" in done.stderr


def test_calls_take_their_time_and_locks_outlive_a_killed_process() -> None:
    timing = Timing(call_latency_s=0.05, call_jitter_s=0.0, settle_s=0.01, energy_period_s=0.02)
    with SimulatedMachine(replace(find_preset("a100"), timing=timing)) as machine, load_nvml(machine):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        began = time.monotonic()
        pynvml.nvmlDeviceGetPowerUsage(handle)
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1200, 1200)
        assert time.monotonic() - began >= 0.05
        machine.inject(Fault(function="nvmlDeviceGetPowerUsage", delay_s=0.1, num_calls=1))
        began = time.monotonic()
        pynvml.nvmlDeviceGetPowerUsage(handle)
        assert time.monotonic() - began >= 0.1

        code = """\
import pynvml, time
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
pynvml.nvmlDeviceSetGpuLockedClocks(handle, 510, 510)
print("locked", flush=True)
while True:
    pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
"""
        environment = {**os.environ, **machine.environment()}
        for _ in range(3):
            child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            child.communicate()
            assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) > 0  # whoever died, its lock is not in the way
        time.sleep(0.05)
        assert machine.gpu(0).state().locked_mhz == (510, 510)
        pynvml.nvmlShutdown()
