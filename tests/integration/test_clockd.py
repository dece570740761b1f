"""The lease daemon as a process, on simulated GPUs: who gets a lease, what is set, and what is left alone."""

import grp
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_for, wait_until

from perseus_dist.device.control import ClockControl, ClockReport
from perseus_dist.device.lease.client import LeaseClient
from perseus_dist.device.lease.clockd import ClockdError
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.connectors import SocketConnector
from perseus_dist.device.lease.server import MAX_CONNECTIONS_PER_USER
from perseus_dist.device.opening import open_clock_control
from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.machine import SimulatedMachine

GPUS = 4
LEASE_S = 0.6


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=GPUS) as machine:
        yield machine
        assert all(gpu.state().is_unlocked for gpu in machine.gpus)


@pytest.fixture
def clockd(machine: SimulatedMachine, tmp_path: Path) -> Iterator[ClockdProcess]:
    environ = {**os.environ, **machine.environment()}
    with ClockdProcess(tmp_path, environ, "--lease-s", str(LEASE_S), "--max-mhz", "1300") as clockd:
        yield clockd


@pytest.fixture
def lease(machine: SimulatedMachine, clockd: ClockdProcess) -> Iterator[Callable[..., ClockControl]]:
    opened: list[ClockControl] = []

    def open_lease(gpu: int = 0, mode: str = "auto", own_pids: tuple[int, ...] = ()) -> ClockControl:
        opened.append(open_clock_control(mode, machine.gpu(gpu).uuid, own_pids=own_pids, environ=clockd.environ))
        return opened[-1]

    yield open_lease
    for control in opened:
        control.close()


def next_report(control: ClockControl) -> ClockReport:
    return wait_for(lambda: control.poll(time.monotonic_ns()))[0]


def ask(control: ClockControl, clock_mhz: int | None) -> ClockReport:
    control.request(clock_mhz, time.monotonic_ns())
    return next_report(control)


def test_set_change_and_release(machine: SimulatedMachine, lease: Callable[..., ClockControl]) -> None:
    control = lease()
    assert control.name == "clockd"
    assert control.refusal == ""
    assert control.clocks_mhz[0] == 1290  # the highest within --max-mhz
    before_ns = time.monotonic_ns()
    report = ask(control, 1200)
    assert report.reached
    assert report.observed_mhz == 1200
    assert report.reached_ns is not None
    assert before_ns <= report.request_ns <= report.set_ns <= report.reached_ns <= time.monotonic_ns()
    assert machine.gpu(0).state().locked_mhz == (1200, 1200)
    assert ask(control, 900).observed_mhz == 900
    assert ask(control, None).reached
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    assert ask(control, 1200).reached
    control.close()
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    # Nothing else is ever set, no power limit and no memory clock.
    assert {call.function for call in machine.calls()} == {
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
    }


def test_newest_request_wins(
    machine: SimulatedMachine, clockd: ClockdProcess, lease: Callable[..., ClockControl]
) -> None:
    control = lease()
    machine.inject(Fault(function="nvmlDeviceSetGpuLockedClocks", delay_s=2.0, num_calls=1))
    clockd.process.send_signal(signal.SIGSTOP)  # all the others are requested while the first is being set
    for clock_mhz in control.clocks_mhz:
        control.request(clock_mhz, time.monotonic_ns())
    clockd.process.send_signal(signal.SIGCONT)
    report = next_report(control)
    while report.requested_mhz != control.clocks_mhz[-1]:
        report = next_report(control)
    assert machine.gpu(0).state().num_sets < len(control.clocks_mhz) / 2


def test_one_lease_per_gpu(lease: Callable[..., ClockControl]) -> None:
    control = lease(0)
    assert lease(1).refusal == ""
    keep = [control]

    second = open_in_other_process(keep, lease)
    assert second.name == "observe"
    assert f"held by process {os.getpid()}" in second.refusal
    assert ask(control, 1200).reached


def open_in_other_process(alive: list[ClockControl], lease: Callable[..., ClockControl]) -> ClockControl:
    """Claim a held GPU while its holder keeps beating from a thread."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(LEASE_S / 8):
            for control in alive:
                control.poll(time.monotonic_ns())

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        return lease(0)
    finally:
        stop.set()
        thread.join()


def test_clocks_out_of_bounds_are_not_set(machine: SimulatedMachine, lease: Callable[..., ClockControl]) -> None:
    control = lease()
    report = ask(control, 1410)
    assert "not among the clocks" in report.error
    assert not report.reached
    assert machine.gpu(0).state().num_sets == 0


def test_a_silent_client_loses_its_lease_and_gets_it_back(
    machine: SimulatedMachine, lease: Callable[..., ClockControl]
) -> None:
    control = lease()
    ask(control, 1200)
    time.sleep(LEASE_S)
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    report = next_report(control)  # the newest request is asked for again
    assert report.reached
    assert report.requested_mhz == 1200
    assert control.refusal == ""


def test_mig_is_refused(machine: SimulatedMachine, lease: Callable[..., ClockControl]) -> None:
    machine.gpu(0).set_mig(True)
    control = lease()
    assert control.name == "observe"
    assert "MIG" in control.refusal
    assert control.clocks_mhz == ()
    assert machine.calls() == []


def test_another_jobs_process_is_refused_and_ends_a_lease(
    machine: SimulatedMachine, lease: Callable[..., ClockControl]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            # A child of ours is of our job; init is not.
            machine.gpu(0).add_process(child.pid)
            machine.gpu(1).add_process(1)
            own, other = lease(0, own_pids=(os.getpid(),)), lease(1)
            assert own.refusal == ""
            assert "also runs process 1 (" in other.refusal
            assert ask(own, 1200).reached
            machine.gpu(0).add_process(1)
            wait_until(lambda: own.poll(time.monotonic_ns()) is not None and own.refusal)
            assert "also runs process 1 (" in own.refusal
            wait_until(lambda: machine.gpu(0).state().is_unlocked)
        finally:
            child.communicate(b"\n")


def test_an_operators_lock_is_left_as_it_is(machine: SimulatedMachine, lease: Callable[..., ClockControl]) -> None:
    gpu = machine.gpu(0)
    gpu.request_clock(1005)
    gpu.stream.kernel("forward", 30.0)  # NVML says nothing about locks of an idle GPU
    wait_until(lambda: gpu.state().locked_mhz == (1005, 1005))
    control = lease(own_pids=(os.getpid(),))
    assert "are locked already" in control.refusal
    control.close()
    assert gpu.state().locked_mhz == (1005, 1005)
    assert [call.function for call in machine.calls()] == ["request"]
    gpu.request_clock(None)
    wait_until(lambda: gpu.state().is_unlocked)


def test_an_operators_lock_that_shows_only_under_load_is_left_as_it_is(
    machine: SimulatedMachine, lease: Callable[..., ClockControl]
) -> None:
    gpu = machine.gpu(0)
    control = lease(own_pids=(os.getpid(),))
    assert control.refusal == ""
    gpu.request_clock(1005)  # after the lease, before our first clock
    gpu.stream.kernel("forward", 30.0)
    wait_until(lambda: gpu.state().locked_mhz == (1005, 1005))
    report = ask(control, 1200)
    assert "are locked already" in report.error
    control.close()
    assert gpu.state().locked_mhz == (1005, 1005)
    gpu.request_clock(None)
    wait_until(lambda: gpu.state().is_unlocked)


def test_unknown_gpus_and_words(clockd: ClockdProcess) -> None:
    for gpu_uuid, reason in (("GPU-0000", "no GPU of that UUID"), ("MIG-1", "whole GPU only"), ("", "whole GPU only")):
        control = open_clock_control("auto", gpu_uuid, own_pids=(), environ=clockd.environ)
        assert control.name == "observe"
        assert reason in control.refusal
        control.close()
    control = open_clock_control("nvml", "GPU-0000", own_pids=(), environ=clockd.environ)
    assert "expected one of auto, clockd" in control.refusal
    assert list(clockd.lease_folder.iterdir()) == []


def test_the_sockets_mode_and_a_second_daemon(clockd: ClockdProcess, tmp_path: Path) -> None:
    assert stat.S_IMODE(clockd.socket_path.stat().st_mode) == 0o660
    again = subprocess.run(
        [sys.executable, "-m", "perseus_dist", "clockd", "--lease-dir", str(tmp_path / "other")],
        env=clockd.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert again.returncode == 1
    assert "another process listens there already" in again.stderr


def test_a_file_at_the_path_of_the_socket_stays(machine: SimulatedMachine, tmp_path: Path) -> None:
    clockd = ClockdProcess(tmp_path, {**os.environ, **machine.environment()})
    clockd.socket_path.write_text("results")
    with pytest.raises(ClockdError, match="something else than a socket is there"):
        clockd.start()
    assert clockd.socket_path.read_text() == "results"


def test_the_group_that_may_connect(machine: SimulatedMachine, tmp_path: Path) -> None:
    environ = {**os.environ, **machine.environment()}
    group = grp.getgrgid(os.getgroups()[0] if os.getgroups() else os.getgid())
    with ClockdProcess(tmp_path, environ, "--group", group.gr_name) as clockd:
        assert clockd.socket_path.stat().st_gid == group.gr_gid
    with ClockdProcess(tmp_path, environ, "--group", str(group.gr_gid)) as clockd:
        assert clockd.socket_path.stat().st_gid == group.gr_gid
    with pytest.raises(ClockdError, match="there is no such group"):
        ClockdProcess(tmp_path, environ, "--group", str(2**32 - 1)).start()
    with pytest.raises(ClockdError, match="there is no such group"):
        ClockdProcess(tmp_path, environ, "--group", "no-such-group").start()


HOSTILE = [
    b"\n",
    b"{}\n",
    b'{"op":"set","clock_mhz":1200,"request_ns":1}\n',
    b'{"op":"set","request_ns":1}\n',
    b'{"op":"acquire","version":1,"gpu":"GPU-../../x","pids":[]}\n',
    b"\xff\xfe" * 100 + b"\n",
    b"x" * 100_000,
    b"[" * 8000 + b"\n",
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_connections_are_cut_off(clockd: ClockdProcess, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.settimeout(5)
        hostile.connect(str(clockd.socket_path))
        answer = b""
        try:
            hostile.sendall(data)
            while received := hostile.recv(4096):
                answer += received
        except ConnectionError:
            pass
    assert b"refused" in answer or len(data) > 8192


def test_who_only_beats_is_cut_off(clockd: ClockdProcess) -> None:
    with socket.socket(socket.AF_UNIX) as beating:
        beating.connect(str(clockd.socket_path))

        def is_cut_off() -> bool:
            try:
                beating.sendall(b'{"op":"beat"}\n')
            except OSError:
                return True
            return False

        wait_until(is_cut_off)


def test_no_user_takes_all_connections(clockd: ClockdProcess, lease: Callable[..., ClockControl]) -> None:
    """Those that ask for no lease are cut off, and who waits gets one then."""
    flood = [socket.socket(socket.AF_UNIX) for _ in range(MAX_CONNECTIONS_PER_USER)]
    try:
        for connection in flood:
            connection.connect(str(clockd.socket_path))
        with socket.socket(socket.AF_UNIX) as one_more:
            one_more.connect(str(clockd.socket_path))
            assert f"has {MAX_CONNECTIONS_PER_USER} connections open already" in one_more.recv(4096).decode()
        assert ask(lease(), 1200).reached
    finally:
        for connection in flood:
            connection.close()


CONTAINED = """
import os, sys, time
from perseus_dist.device.opening import open_clock_control

sys.stdin.readline()
assert os.getpid() == 1
control = open_clock_control(sys.argv[1], sys.argv[2], own_pids=[os.getpid()])
print(control.refusal)
control.close()
"""


@pytest.mark.parametrize("mode", ["clockd", "direct"])
def test_a_trainer_that_is_the_first_process_of_its_container_is_no_stranger(
    machine: SimulatedMachine, clockd: ClockdProcess, mode: str
) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode != 0:
        pytest.skip("PID namespaces cannot be made here: needs root and unshare")
    gpu = machine.gpu(0)
    with subprocess.Popen(
        [*command, sys.executable, "-c", CONTAINED, mode, gpu.uuid],
        env=clockd.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as unshare:
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
        wait_until(children.read_text)
        # NVML tells process ids of the namespace of who asks.
        gpu.add_process(int(children.read_text()) if mode == "clockd" else 1)
        said, _ = unshare.communicate("\n", timeout=30)
    assert said == "\n"


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_refusal_outlives_a_daemon_that_says_nothing_any_more(tmp_path: Path, hangs_up: bool) -> None:  # noqa: FBT001
    """It is asked again and again, and the last answer may never come."""
    refusal = b'{"op":"refused","reason":"GPU-0000 also runs process 7","retry":true,"unusable":false}\n'
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        listening.listen()

        def refuse_once() -> None:
            first, _ = listening.accept()
            with first:
                first.recv(4096)
                first.sendall(refusal)
            if hangs_up:
                listening.accept()[0].close()

        thread = threading.Thread(target=refuse_once)
        thread.start()
        client = LeaseClient("clockd", SocketConnector(str(tmp_path / "sock")), "GPU-0000", own_pids=())
        assert not client.open(timeout_s=1.0)
        thread.join()
        assert client.refusal == "clockd refuses: GPU-0000 also runs process 7"
        client.close()


def test_a_log_that_nobody_reads_keeps_nothing_up(machine: SimulatedMachine, tmp_path: Path) -> None:
    environ = {**os.environ, **machine.environment()}
    clockd = ClockdProcess(tmp_path, environ)
    os.mkfifo(clockd.log_path)
    reader = os.open(clockd.log_path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(clockd.log_path, os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    with clockd:
        control = open_clock_control("clockd", machine.gpu(0).uuid, own_pids=(), environ=clockd.environ)
        assert ask(control, 1200).reached
        control.close()
        wait_until(lambda: machine.gpu(0).state().is_unlocked)
        assert clockd.stop() == 0
    os.close(reader)
    os.close(writer)


def test_idle_and_unread_connections_do_no_harm(
    machine: SimulatedMachine, clockd: ClockdProcess, lease: Callable[..., ClockControl]
) -> None:
    idle = [socket.socket(socket.AF_UNIX) for _ in range(100)]
    unread = socket.socket(socket.AF_UNIX)
    try:
        for connection in idle:
            connection.connect(str(clockd.socket_path))
        unread.connect(str(clockd.socket_path))
        acquire = {"op": "acquire", "version": 1, "gpu": machine.gpu(3).uuid, "pids": []}
        unread.sendall(json.dumps(acquire).encode() + b"\n")
        wrong = json.dumps({"op": "set", "clock_mhz": 1, "request_ns": 1}).encode() + b"\n"
        with pytest.raises(OSError, match=r"pipe|reset"):
            unread.sendall(wrong * 100_000)  # every one is answered, and no answer is read
        assert ask(lease(), 1200).reached
    finally:
        for connection in [*idle, unread]:
            connection.close()


def test_term_restores_and_says_so(
    machine: SimulatedMachine, clockd: ClockdProcess, lease: Callable[..., ClockControl]
) -> None:
    controls = [lease(gpu) for gpu in range(GPUS)]
    for control in controls:
        ask(control, 1200)
    with socket.socket(socket.AF_UNIX) as idle:  # has no lease that could be waited for
        idle.connect(str(clockd.socket_path))
        assert clockd.stop() == 0
    assert "Traceback" not in clockd.log_path.read_text()
    assert not clockd.socket_path.exists()
    wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus))
    for control in controls:
        control.poll(time.monotonic_ns())
        assert "ended the connection" in control.refusal


def test_systemd_hears_when_it_is_ready_and_when_it_stops(machine: SimulatedMachine, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        environ = {**os.environ, **machine.environment(), "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with ClockdProcess(tmp_path, {**environ, "WATCHDOG_USEC": "10000000"}):
            assert {receiver.recv(100) for _ in range(2)} == {b"READY=1", b"WATCHDOG=1"}
        assert receiver.recv(100) == b"STOPPING=1"


def test_no_permission_is_said_and_nothing_is_reset(tmp_path: Path) -> None:
    with SimulatedMachine("a100", unprivileged=True) as machine:
        with ClockdProcess(tmp_path, {**os.environ, **machine.environment()}) as clockd:
            control = open_clock_control("auto", machine.gpu(0).uuid, own_pids=(), environ=clockd.environ)
            report = ask(control, 1200)
            assert "needs root" in report.error
            wait_until(lambda: control.poll(time.monotonic_ns()) is not None and control.refusal)
            assert "needs root" in control.refusal
            control.close()
        assert {call.function for call in machine.calls()} == {"nvmlDeviceSetGpuLockedClocks"}


def test_a_success_that_is_none_is_reported(machine: SimulatedMachine, lease: Callable[..., ClockControl]) -> None:
    machine.inject(Fault(function="nvmlDeviceSetGpuLockedClocks", is_ignored=True))
    report = ask(lease(), 900)
    assert not report.reached
    assert report.error == ""
    assert report.observed_mhz != 900


def test_a_throttled_gpu_is_reported_with_its_reason(
    machine: SimulatedMachine, lease: Callable[..., ClockControl]
) -> None:
    machine.gpu(0).set_thermal_cap(900)
    report = ask(lease(), 1200)
    assert not report.reached
    assert report.observed_mhz == 900
    assert report.event_reasons & 0x20
