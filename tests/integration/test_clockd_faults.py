"""Whatever dies, hangs or is refused: no clock of a simulated GPU stays locked."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from waiting import wait_until

from perseus_dist.device.control import ClockControl, ClockReport
from perseus_dist.device.lease.client import LeaseClient
from perseus_dist.device.lease.clockd import ClockdError
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.connectors import SocketConnector
from perseus_dist.device.opening import open_clock_control
from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.gpu import SimulatedGpu
from perseus_dist.simulator.machine import SimulatedMachine

GPUS = 8
LEASE_S = 0.5
CLOCK_MHZ = 1200

# Forks a client for each line, so that hundreds of processes cost little; each prints once its clock is reached.
CLIENTS = """
import json, os, signal, sys, time
from perseus_dist.device import opening
from perseus_dist.device.opening import open_clock_control

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    order = json.loads(line)
    if os.fork():
        continue
    control = open_clock_control(order["mode"], order["gpu"], own_pids=[])
    control.request(order["clock_mhz"], time.monotonic_ns())
    said = False
    until = time.monotonic() + 120
    while True:
        reached = any(report.reached for report in control.poll(time.monotonic_ns()))
        if not said and (reached or time.monotonic() > until):
            said = True
            answer = json.dumps({"pid": os.getpid(), "gpu": order["gpu"], "reached": reached})
            os.write(1, answer.encode() + b"\\n")  # in one piece, among other clients
        time.sleep(0.02)
"""


WITHOUT_SYS_ADMIN = """
import ctypes, sys
from perseus_dist.cli import main

PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
libc = ctypes.CDLL(None)
assert libc.capget(header, sets) == 0
for kind in range(3):
    sets[kind] &= ~(1 << CAP_SYS_ADMIN)
assert libc.capset(header, sets) == 0
sys.exit(main(["clockd", "--socket", "/nonexistent/clockd.sock"]))
"""


class Clients:
    """Client processes on demand."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", CLIENTS],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._pids: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._parent.pid, signal.SIGKILL)
        self._parent.communicate()

    def start(self, gpu: SimulatedGpu, mode: str = "clockd") -> None:
        """Let a client lock a GPU's clock; ``wait`` waits for it."""
        assert self._parent.stdin is not None
        order = {"mode": mode, "gpu": gpu.uuid, "clock_mhz": CLOCK_MHZ}
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()

    def wait(self) -> str:
        """Wait for the next client whose clock is locked.

        Returns:
            Its GPU.
        """
        assert self._parent.stdout is not None
        said = json.loads(self._parent.stdout.readline())
        self._pids[said["gpu"]] = said["pid"]
        assert said["reached"]
        gpu_uuid: str = said["gpu"]
        return gpu_uuid

    def kill(self, gpu_uuid: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a GPU's client."""
        os.kill(self._pids[gpu_uuid], number)
        if number == signal.SIGKILL:
            del self._pids[gpu_uuid]


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=GPUS) as machine:
        yield machine
        assert all(gpu.state().is_unlocked for gpu in machine.gpus)


@pytest.fixture
def clockd(machine: SimulatedMachine, tmp_path: Path) -> Iterator[ClockdProcess]:
    environ = {**os.environ, **machine.environment()}
    with ClockdProcess(tmp_path, environ, "--lease-s", str(LEASE_S)) as clockd:
        yield clockd


def is_locked(gpu: SimulatedGpu) -> bool:
    state = gpu.state()
    return state.locked_mhz == (CLOCK_MHZ, CLOCK_MHZ) and not state.is_pending


def next_report(control: ClockControl) -> ClockReport:
    reports: list[ClockReport] = []

    def has_report() -> bool:
        reports.extend(control.poll(time.monotonic_ns()))
        return bool(reports)

    wait_until(has_report)
    return reports[0]


@contextmanager
def opened(clockd: ClockdProcess, gpu: SimulatedGpu, mode: str = "clockd") -> Iterator[ClockControl]:
    control = open_clock_control(mode, gpu.uuid, own_pids=(), environ=clockd.environ)
    try:
        yield control
    finally:
        control.close()


def lock(control: ClockControl, clock_mhz: int = CLOCK_MHZ) -> ClockReport:
    control.request(clock_mhz, time.monotonic_ns())
    return next_report(control)


@pytest.mark.stress
def test_200_killed_clients(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    gpus = {gpu.uuid: gpu for gpu in machine.gpus}
    with Clients(clockd.environ) as clients:
        for gpu in machine.gpus:
            clients.start(gpu)
        left = 200
        while left:
            gpu = gpus[clients.wait()]
            assert is_locked(gpu)
            clients.kill(gpu.uuid)
            wait_until(lambda gpu=gpu: gpu.state().is_unlocked)  # type: ignore[misc]
            left -= 1
            if left >= GPUS:
                clients.start(gpu)


def test_stopped_clients_lose_their_leases(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    with Clients(clockd.environ) as clients:
        for gpu in machine.gpus:
            clients.start(gpu)
        for _ in machine.gpus:
            clients.wait()
        for gpu in machine.gpus:
            clients.kill(gpu.uuid, signal.SIGSTOP)
        wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus))
        for gpu in machine.gpus:
            clients.kill(gpu.uuid, signal.SIGCONT)
        for gpu in machine.gpus:  # and take them back
            wait_until(lambda gpu=gpu: is_locked(gpu))  # type: ignore[misc]


def test_killed_daemon_restores_at_its_restart_and_clients_come_back(
    machine: SimulatedMachine, clockd: ClockdProcess
) -> None:
    with Clients(clockd.environ) as clients:
        for gpu in machine.gpus:
            clients.start(gpu)
        for _ in machine.gpus:
            clients.wait()
        for _ in range(3):
            clockd.kill()
            assert all(is_locked(gpu) for gpu in machine.gpus)
            num_resets = [gpu.state().num_resets for gpu in machine.gpus]
            clockd.start()
            # Listening means: all restored.
            assert all(gpu.state().num_resets > before for gpu, before in zip(machine.gpus, num_resets, strict=True))
            wait_until(lambda: all(is_locked(gpu) for gpu in machine.gpus))


def test_killed_daemon_and_clients_are_restored_at_the_restart(
    machine: SimulatedMachine, clockd: ClockdProcess
) -> None:
    with Clients(clockd.environ) as clients:
        for order in (("daemon", "clients"), ("clients", "daemon")):
            for gpu in machine.gpus:
                clients.start(gpu)
            for _ in machine.gpus:
                clients.wait()
            for victim in order:
                if victim == "daemon":
                    clockd.kill()
                else:
                    for gpu in machine.gpus:
                        clients.kill(gpu.uuid)
            clockd.start()
            wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus))


@pytest.mark.stress
def test_1000_sets_in_flight_at_a_disconnect_never_land_after_the_restore(
    machine: SimulatedMachine, clockd: ClockdProcess
) -> None:
    failures: list[str] = []

    def race(gpu: SimulatedGpu, num_races: int) -> None:
        randomness = random.Random(gpu.index)
        for _ in range(num_races):
            client = LeaseClient("clockd", SocketConnector(str(clockd.socket_path)), gpu.uuid, own_pids=())
            if not client.open(timeout_s=10):
                failures.append(client.refusal)
            elif not gpu.state().is_unlocked:
                failures.append(f"GPU {gpu.index} was locked when its lease was granted")
            for clock_mhz in randomness.sample(client.clocks_mhz, randomness.randint(1, 3)):
                client.request(clock_mhz, time.monotonic_ns())
                time.sleep(randomness.uniform(0, 0.008))
            client._disconnect()
            client._epoll.close()

    threads = [threading.Thread(target=race, args=(gpu, 1000 // GPUS)) for gpu in machine.gpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for gpu in machine.gpus:  # once a lease is granted, the one before is over
        client = LeaseClient("clockd", SocketConnector(str(clockd.socket_path)), gpu.uuid, own_pids=())
        assert client.open(timeout_s=10)
        client._disconnect()
        client._epoll.close()
    time.sleep(0.05)  # longer than a set takes that would have been left behind
    assert all(gpu.state().is_unlocked for gpu in machine.gpus)
    assert sum(gpu.state().num_sets for gpu in machine.gpus) > 500
    last = {call.gpu: call.function for call in machine.calls()}
    assert set(last.values()) == {"nvmlDeviceResetGpuLockedClocks"}


def test_permission_lost_in_mid_run(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    with opened(clockd, machine.gpu(0)) as control:
        assert lock(control).reached
        machine.inject(Fault(function="nvmlDevice*etGpuLockedClocks", result=4), gpu=0)
        assert "needs root" in lock(control, 900).error
        wait_until(lambda: control.poll(time.monotonic_ns()) is not None and control.refusal)
        assert is_locked(machine.gpu(0))
        with opened(clockd, machine.gpu(1)) as other:  # the others go on
            assert lock(other).reached
        machine.clear_faults()
        wait_until(lambda: control.poll(time.monotonic_ns()) is not None and not control.refusal)
    assert "CLOCKS MAY STILL BE LOCKED" in clockd.log_path.read_text()
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_lost_gpu_is_restored_when_it_is_back(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    with opened(clockd, machine.gpu(0)) as control:
        assert lock(control).reached
        machine.gpu(0).set_lost(True)
        assert "GPU" in lock(control, 900).error
    assert is_locked(machine.gpu(0))
    with opened(clockd, machine.gpu(1)) as other:
        assert lock(other).reached
    machine.gpu(0).set_lost(False)
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_a_call_that_hangs_hangs_nobody_else(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    hang_s = 12.0  # longer than opening waits, on a busy machine too
    with opened(clockd, machine.gpu(0)) as control, opened(clockd, machine.gpu(1)) as other:
        assert lock(control).reached
        machine.inject(Fault(function="nvmlDeviceSetGpuLockedClocks", delay_s=hang_s, num_calls=1), gpu=0)
        control.request(900, time.monotonic_ns())
        time.sleep(0.1)
        control.close()  # its restore has to wait for the set
        assert lock(other).reached
    with opened(clockd, machine.gpu(0)) as again:
        assert "its 'set' has not returned for" in again.refusal
    assert is_locked(machine.gpu(0))
    wait_until(lambda: machine.gpu(0).state().num_sets == 2)  # now the late set lands
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_a_hung_check_refuses_in_time(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    machine.inject(Fault(function="nvmlDeviceGetMigMode", delay_s=12, num_calls=1), gpu=0)
    with opened(clockd, machine.gpu(0)) as control:
        assert control.name == "observe"
        assert "did not answer within 3 s" in control.refusal


def test_reset_that_hangs_at_the_end_of_the_daemon(machine: SimulatedMachine, tmp_path: Path) -> None:
    environ = {**os.environ, **machine.environment()}
    with ClockdProcess(tmp_path, environ) as clockd, opened(clockd, machine.gpu(0)) as control:
        assert lock(control).reached
        machine.inject(Fault(function="nvmlDeviceResetGpuLockedClocks", delay_s=60, num_calls=1), gpu=0)
        assert clockd.stop() == 1
        assert is_locked(machine.gpu(0))
        clockd.start()
        wait_until(lambda: machine.gpu(0).state().is_unlocked)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(function="nvmlInit*", result=9), "kernel driver is not loaded"),
        (Fault(function="nvmlDeviceGet*Reasons", result=13), "too old"),
        (Fault(function="nvmlDeviceGetComputeRunningProcesses*", result=13), "too old"),
        (Fault(function="nvmlDeviceGetMigMode", result=13), ""),  # a driver older than MIG
    ],
)
def test_missing_and_old_drivers(machine: SimulatedMachine, clockd: ClockdProcess, fault: Fault, reason: str) -> None:
    machine.inject(fault)
    with opened(clockd, machine.gpu(0)) as control:
        if reason:
            assert reason in control.refusal
        else:
            assert lock(control).reached


def test_reloaded_driver(machine: SimulatedMachine, clockd: ClockdProcess) -> None:
    with opened(clockd, machine.gpu(0)) as control:
        assert lock(control).reached
        machine.reload_driver()  # which lifts all locks
        assert machine.gpu(0).state().is_unlocked
        report = lock(control)
        while not report.reached:  # the first call after a reload fails; the lease is lost, and comes back
            report = next_report(control)
        assert control.refusal == ""
        assert is_locked(machine.gpu(0))


def test_a_daemon_without_a_driver_says_so_and_ends(tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    with pytest.raises(ClockdError, match=r"clockd cannot set clocks: .*no libnvidia-ml\.so\.1"):
        ClockdProcess(tmp_path, environ).start()
    assert not (tmp_path / "clockd.sock").exists()


def test_a_daemon_without_a_driver_is_not_started_again_at_once_by_systemd(tmp_path: Path) -> None:
    """On a node without GPUs it would cost a core, for ever."""
    environ = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    begun_s = time.monotonic()
    with pytest.raises(ClockdError, match=r"clockd cannot set clocks: .*no libnvidia-ml\.so\.1"):
        ClockdProcess(tmp_path, {**environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}).start()
    assert time.monotonic() - begun_s >= 5.0


def test_a_daemon_without_bindings_says_so_and_ends(machine: SimulatedMachine, tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    environ = {**os.environ, **machine.environment(), "PYTHONPATH": str(tmp_path)}
    with pytest.raises(ClockdError, match=r"clockd cannot set clocks: .*nvidia-ml-py is not installed"):
        ClockdProcess(tmp_path, environ).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives up a capability of root's")
def test_a_daemon_without_rights_says_so_and_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_SYS_ADMIN], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 2
    assert "clockd cannot set clocks: setting clocks needs CAP_SYS_ADMIN" in ended.stderr


def test_a_daemon_that_cannot_set_clocks_any_more_is_passed_over(
    machine: SimulatedMachine, clockd: ClockdProcess
) -> None:
    machine.inject(Fault(function="nvmlDeviceGetSupportedMemoryClocks", result=4), gpu=0)
    control = open_clock_control("auto", machine.gpu(0).uuid, own_pids=(), environ=clockd.environ)
    assert "clockd can set no clocks: nvmlDeviceGetSupportedMemoryClocks" in control.refusal or control.name == "direct"
    control.close()
    asked = open_clock_control("clockd", machine.gpu(0).uuid, own_pids=(), environ=clockd.environ)
    assert asked.refusal.startswith("clockd can set no clocks: nvmlDeviceGetSupportedMemoryClocks")
    machine.clear_faults()
