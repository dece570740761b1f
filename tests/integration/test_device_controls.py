"""Direct control and zeusd, which are private lease processes, on simulated GPUs."""

import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from waiting import wait_for, wait_until

from perseus_dist.device.control import ClockControl, ClockReport
from perseus_dist.device.lease.client import HANG_NS, LeaseClient
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.connectors import SocketConnector
from perseus_dist.device.opening import open_clock_control
from perseus_dist.simulator.machine import SimulatedMachine

# Opens a control, locks, says so, and holds until it is killed.
HOLDER = """
import sys, time
from perseus_dist.device.opening import open_clock_control

control = open_clock_control(sys.argv[1], sys.argv[2], own_pids=[])
control.request(1200, time.monotonic_ns())
until = time.monotonic() + 120
reached = False
while reached or time.monotonic() < until:
    if any(report.reached for report in control.poll(time.monotonic_ns())):
        reached = True
        print(control.holder_pid, flush=True)
    time.sleep(0.02)
sys.exit(f"never locked; refusal: {control.refusal!r}")
"""

Open = Callable[..., ClockControl]


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=2) as machine:
        yield machine
        wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus))


@pytest.fixture
def environ(machine: SimulatedMachine, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        **machine.environment(),
        "PERSEUS_LEASE_DIR": str(tmp_path / "leases"),
        "PERSEUS_CLOCKD_SOCKET": str(tmp_path / "none.sock"),
        "ZEUSD_SOCK_PATH": str(tmp_path / "zeusd.sock"),
    }


def ask(control: ClockControl, clock_mhz: int | None) -> ClockReport:
    control.request(clock_mhz, time.monotonic_ns())
    return next_report(control)


def next_report(control: ClockControl) -> ClockReport:
    return wait_for(lambda: control.poll(time.monotonic_ns()))[0]


def hold(
    mode: str, gpu_uuid: str, environ: dict[str, str], stderr: int | None = None
) -> tuple["subprocess.Popen[str]", int]:
    """A process that holds a locked clock, and the process id of its private lease process."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, mode, gpu_uuid], env=environ, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def kill(holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.communicate()


def test_direct_control(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    control = open_clock_control("direct", machine.gpu(0).uuid, own_pids=(), environ=environ)
    assert (control.name, control.refusal) == ("direct", "")
    assert ask(control, 1200).reached
    control.close()
    assert machine.gpu(0).state().num_resets == 1
    control.request(900, time.monotonic_ns())
    assert (control.fileno(), control.poll(time.monotonic_ns())) == (-1, [])
    control.close()


def test_direct_control_without_the_right_is_tried_ever_more_rarely(environ: dict[str, str]) -> None:
    with SimulatedMachine("a100", unprivileged=True) as machine:
        control = open_clock_control(
            "direct", machine.gpu(0).uuid, own_pids=(), environ={**environ, **machine.environment()}
        )
        assert control.refusal == ""  # until it was tried
        control.request(1200, time.monotonic_ns())
        wait_until(lambda: control.poll(time.monotonic_ns()) is not None and bool(control.refusal))
        until = time.monotonic() + 3
        while time.monotonic() < until:
            control.poll(time.monotonic_ns())
            assert control.refusal
            time.sleep(0.01)
        control.close()
        assert 1 < sum("SetGpuLockedClocks" in call.function for call in machine.calls()) <= 5


def test_direct_control_of_a_held_gpu(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    holder, lease_pid = hold("direct", machine.gpu(0).uuid, environ)
    control = open_clock_control("direct", machine.gpu(0).uuid, own_pids=(), environ=environ)
    assert f"direct control (process {lease_pid})" in control.refusal
    kill(holder)


def test_killed_holder_of_direct_control(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    holder, _ = hold("direct", machine.gpu(0).uuid, environ)
    assert not machine.gpu(0).state().is_unlocked
    kill(holder)
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_a_lease_process_whose_standard_error_nobody_reads_restores(
    machine: SimulatedMachine, environ: dict[str, str]
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    os.set_blocking(writer, True)
    holder, _ = hold("direct", machine.gpu(0).uuid, environ, stderr=writer)
    os.kill(holder.pid, signal.SIGSTOP)  # silent, of which the lease process has something to say
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    kill(holder)
    os.close(reader)
    os.close(writer)


def test_killed_lease_process_is_replaced_and_restores(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    holder, lease_pid = hold("direct", machine.gpu(0).uuid, environ)
    os.kill(lease_pid, signal.SIGKILL)
    wait_until(lambda: machine.gpu(0).state().num_sets == 2)
    assert machine.gpu(0).state().num_resets == 1
    kill(holder)
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_a_lease_process_that_hangs_is_replaced(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    gpu = machine.gpu(0)
    control = open_clock_control("direct", gpu.uuid, own_pids=(), environ=environ)
    assert isinstance(control, LeaseClient)
    control.request(1200, time.monotonic_ns())
    wait_until(lambda: control.poll(time.monotonic_ns()))
    hung = control.holder_pid
    os.kill(hung, signal.SIGSTOP)
    control.request(900, time.monotonic_ns())
    control.poll(time.monotonic_ns() + HANG_NS // 2)
    assert (control.holder_pid, control.refusal) == (hung, "")
    later_ns = HANG_NS + 1_000_000_000
    control.poll(time.monotonic_ns() + later_ns)
    assert control.refusal == "the direct lease daemon hangs"
    wait_until(lambda: not Path(f"/proc/{hung}").exists())
    wait_until(lambda: control.poll(time.monotonic_ns() + later_ns))
    assert (gpu.state().locked_mhz, control.refusal) == ((900, 900), "")
    assert control.holder_pid != hung
    control.close()
    wait_until(lambda: gpu.state().is_unlocked)


def test_a_daemon_of_the_node_that_hangs_is_left_to_its_watchdog(
    machine: SimulatedMachine, environ: dict[str, str], tmp_path: Path
) -> None:
    with ClockdProcess(tmp_path, environ) as clockd:
        control = open_clock_control("clockd", machine.gpu(0).uuid, own_pids=(), environ=clockd.environ)
        control.request(1200, time.monotonic_ns())
        wait_until(lambda: control.poll(time.monotonic_ns()))
        clockd.process.send_signal(signal.SIGSTOP)
        control.request(900, time.monotonic_ns())
        control.poll(time.monotonic_ns() + 2 * HANG_NS)
        assert control.refusal == ""
        clockd.process.send_signal(signal.SIGCONT)
        wait_until(lambda: control.poll(time.monotonic_ns()))
        assert machine.gpu(0).state().locked_mhz == (900, 900)
        control.close()


def test_a_lease_process_is_no_child_of_its_client(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    control = open_clock_control("direct", machine.gpu(0).uuid, own_pids=(), environ=environ)
    assert isinstance(control, LeaseClient)
    parent, group, session = Path(f"/proc/{control.holder_pid}/stat").read_text().rpartition(")")[2].split()[1:4]
    assert int(parent) != os.getpid()
    assert group == session != str(os.getsid(0))
    control.close()


@pytest.mark.parametrize("has_noticed", [False, True])
def test_close_restores_what_a_killed_lease_process_left(
    machine: SimulatedMachine,
    environ: dict[str, str],
    has_noticed: bool,  # noqa: FBT001
) -> None:
    control = open_clock_control("direct", machine.gpu(0).uuid, own_pids=(), environ=environ)
    assert isinstance(control, LeaseClient)
    assert ask(control, 1200).reached
    os.kill(control.holder_pid, signal.SIGKILL)
    if has_noticed:
        wait_until(lambda: control.poll(time.monotonic_ns()) is not None and control.refusal)
    control.close()
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


OPENS_AND_CLOSES = """
import sys
from perseus_dist.device.opening import open_clock_control

control = open_clock_control("direct", sys.argv[1], own_pids=[])
print(control.refusal)
control.close()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives simulated GPUs away, and makes a PID namespace")
@pytest.mark.parametrize("owner", [0, 65534])
def test_direct_control_says_that_it_cannot_outlive_a_container(
    machine: SimulatedMachine, environ: dict[str, str], owner: int
) -> None:
    """Not of simulated GPUs of one's own, whose locks end with the simulation."""
    os.chown(machine.state_path, owner, -1)
    contain = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*contain, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("PID namespaces cannot be made here")
    ran = subprocess.run(
        [*contain, sys.executable, "-c", OPENS_AND_CLOSES, machine.gpu(0).uuid],
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.stdout == "\n"
    assert ran.stderr.count("direct control cannot outlive its container: ") == int(owner != 0)


def test_what_a_daemon_warns_of_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    granted = {"op": "granted", "clocks_mhz": [1200], "lease_s": 2.0, "pid": 7, "caveat": "it cannot outlive the job"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        listening.listen()

        def grant() -> socket.socket:
            connected, _ = listening.accept()
            connected.recv(4096)
            connected.sendall(json.dumps(granted).encode() + b"\n")
            return connected

        connections: list[socket.socket] = []
        first = threading.Thread(target=lambda: connections.append(grant()))
        first.start()
        client = LeaseClient("direct", SocketConnector(str(tmp_path / "sock")), "GPU-0000", own_pids=())
        assert client.open()
        first.join()
        assert client.holder_pid == 7
        connections.pop().close()
        again = threading.Thread(target=lambda: connections.append(grant()))
        again.start()
        wait_until(lambda: client.poll(time.monotonic_ns()) or client.refusal)
        wait_until(lambda: client.poll(time.monotonic_ns()) or not client.refusal)
        again.join()
        connections.pop().close()
        client.close()
    assert caplog.text.count("it cannot outlive the job") == 1


class _ScriptedDaemon:
    """A connector to a daemon that closes each connection at once, after it said the next of ``answers``."""

    answer_s = 30.0

    def __init__(self, *answers: dict[str, object] | None) -> None:
        self._answers = list(answers)

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            if (answer := self._answers.pop(0)) is not None:
                theirs.sendall(json.dumps(answer).encode() + b"\n")
        return ours

    def end_hung(self, pid: int) -> bool:  # noqa: ARG002 - as the protocol wants it
        return False

    def close(self) -> None:
        assert not self._answers


@pytest.mark.parametrize(
    ("answers", "refusal"),
    [
        ([("full", True), ("held", False)], "clockd refuses: held"),
        ([None, ("held", False)], "clockd refuses: held"),
        ([None, None], "ended the connection"),
    ],
)
def test_a_daemon_that_hangs_up_before_it_is_asked_is_heard_and_asked_again(
    answers: list[tuple[str, bool] | None], refusal: str
) -> None:
    daemon = _ScriptedDaemon(
        *(a and {"op": "refused", "reason": a[0], "retry": a[1], "unusable": False} for a in answers)
    )
    client = LeaseClient("clockd", daemon, "GPU-0000", own_pids=())
    assert not client.open()
    assert refusal in client.refusal
    client.close()


def test_auto_is_never_direct_on_real_gpus(tmp_path: Path) -> None:
    environ = {name: str(tmp_path / "none") for name in ("PERSEUS_CLOCKD_SOCKET", "ZEUSD_SOCK_PATH")}
    control = open_clock_control("auto", "GPU-0000", own_pids=(), environ=environ)
    assert control.name == "observe"
    assert "direct:" not in control.refusal
    assert "start 'perseus-dist clockd' as root on this node" in control.refusal


def test_both_killed_and_released_by_hand(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    holder, lease_pid = hold("direct", machine.gpu(0).uuid, environ)
    assert release(environ)[0]["result"] == "held"
    os.kill(holder.pid, signal.SIGSTOP)  # or it would replace its lease process
    os.kill(lease_pid, signal.SIGKILL)
    kill(holder)
    assert machine.gpu(0).state().locked_mhz == (1200, 1200)
    assert release(environ) == [{"gpu_uuid": machine.gpu(0).uuid, "result": "restored", "detail": ""}]
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    assert release(environ) == []


def test_release_by_name_lifts_any_lock(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    for gpu in machine.gpus:
        gpu.request_clock(900)
    wait_until(lambda: all(gpu.state().locked_mhz == (900, 900) for gpu in machine.gpus))
    assert results(release(environ)) == ["locked", "locked"]
    assert results(release(environ, "1")) == ["restored"]
    wait_until(lambda: machine.gpu(1).state().is_unlocked)
    assert machine.gpu(0).state().locked_mhz == (900, 900)
    (left,) = release(environ)
    assert "no lease on this node accounts for it" in left["detail"]
    assert len(release(environ, "--all")) == 2


def test_release_by_number_beside_a_lost_gpu(machine: SimulatedMachine, environ: dict[str, str]) -> None:
    """A GPU keeps its number in nvidia-smi while one before it is lost."""
    machine.gpu(1).request_clock(900)
    machine.gpu(0).set_lost(True)
    assert [gpu["gpu_uuid"] for gpu in release(environ, "1")] == [machine.gpu(1).uuid]
    wait_until(lambda: machine.gpu(1).state().is_unlocked)
    refused = subprocess.run(
        [sys.executable, "-m", "perseus_dist", "release", "0"], env=environ, capture_output=True, text=True, check=False
    )
    assert "0: this GPU is lost" in refused.stderr
    machine.gpu(0).set_lost(False)


def test_a_sweep_lifts_what_a_lost_container_left_and_nothing_that_is_used(
    machine: SimulatedMachine, environ: dict[str, str]
) -> None:
    """Lease files of a container are lost with it."""
    first, second = machine.gpus
    holder, lease_pid = hold("direct", first.uuid, environ)
    assert results(release(environ, "--all", "--if-unleased", fails=False)) == ["held", "restored"]
    os.kill(holder.pid, signal.SIGSTOP)
    os.kill(lease_pid, signal.SIGKILL)
    kill(holder)
    (Path(environ["PERSEUS_LEASE_DIR"]) / f"{first.uuid}.lease").unlink()
    second.request_clock(900)
    second.add_process(os.getpid())
    assert results(release(environ)) == ["locked", "locked"]
    swept = release(environ, "--all", "--if-unleased", fails=False)
    assert results(swept) == ["restored", "in use"]
    assert f"process {os.getpid()} (" in swept[1]["detail"]
    wait_until(lambda: first.state().is_unlocked)
    assert second.state().locked_mhz == (900, 900)
    second.request_clock(None)


def test_a_sweep_lifts_what_a_lease_file_names_also_from_a_gpu_in_use(
    machine: SimulatedMachine, environ: dict[str, str]
) -> None:
    holder, lease_pid = hold("direct", machine.gpu(0).uuid, environ)
    os.kill(holder.pid, signal.SIGSTOP)
    os.kill(lease_pid, signal.SIGKILL)
    kill(holder)
    machine.gpu(0).add_process(os.getpid())
    assert results(release(environ, "--all", "--if-unleased", fails=False)) == ["restored", "restored"]
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_release_without_a_driver_says_so(environ: dict[str, str]) -> None:
    bare = {name: value for name, value in environ.items() if name != "LD_LIBRARY_PATH"}
    said = subprocess.run(
        [sys.executable, "-m", "perseus_dist", "release"], env=bare, capture_output=True, text=True, check=False
    )
    assert said.returncode == 2
    assert "No GPU could be looked at: " in said.stdout
    assert "no libnvidia-ml.so.1" in said.stdout


def results(released: list[dict[str, str]]) -> list[str]:
    return [gpu["result"] for gpu in released]


def release(environ: dict[str, str], *arguments: str, fails: bool = True) -> list[dict[str, str]]:
    """What it did; its exit code is 1 if a GPU was not restored, where that ``fails``."""
    done = subprocess.run(
        [sys.executable, "-m", "perseus_dist", "release", "--json", *arguments],
        env=environ,
        stdout=subprocess.PIPE,
        check=False,
        timeout=30,
    )
    said: list[dict[str, str]] = json.loads(done.stdout)["gpus"]
    assert done.returncode == int(fails and any(gpu["result"] != "restored" for gpu in said))
    return said


class Zeusd:
    """What zeusd does with its HTTP API, as far as it is used, on simulated GPUs."""

    def __init__(self, machine: SimulatedMachine, path: str) -> None:
        self.requests: list[str] = []
        self.groups = ["gpu-control", "gpu-read"]
        self.token = ""
        zeusd = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                # Numbered in an order of its own.
                gpus = [
                    {"id": 1 - gpu.index, "name": "A100", "pci_address": pci_address(gpu.index)} for gpu in machine.gpus
                ]
                body = {
                    "gpus": gpus,
                    "cpus": [],
                    "enabled_api_groups": zeusd.groups,
                    "auth_required": bool(zeusd.token),
                }
                self.answer(200, json.dumps(body).encode())

            def do_POST(self) -> None:
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                zeusd.requests.append(url.path)
                if zeusd.token and self.headers["Authorization"] != f"Bearer {zeusd.token}":
                    self.answer(401, b'{"error":"Authentication required."}')
                    return
                gpu = machine.gpu(1 - int(query["gpu_ids"]))
                assert query["block"] == "true"
                if url.path == "/gpu/set_gpu_locked_clocks":
                    assert query["min_clock_mhz"] == query["max_clock_mhz"]
                    gpu.request_clock(int(query["max_clock_mhz"]))
                elif url.path == "/gpu/reset_gpu_locked_clocks":
                    gpu.request_clock(None)
                self.answer(200, b"")

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self) -> str:
                return "client"

            def log_message(self, *_: object) -> None:
                pass

        self._path, self._handler = path, Handler
        self.open()

    def open(self) -> None:
        self._server = socketserver.ThreadingUnixStreamServer(self._path, self._handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        Path(self._path).unlink()


def pci_address(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00.0"


@pytest.fixture
def zeusd(machine: SimulatedMachine, environ: dict[str, str]) -> Iterator[Zeusd]:
    zeusd = Zeusd(machine, environ["ZEUSD_SOCK_PATH"])
    yield zeusd
    zeusd.close()


def test_zeusd_is_found_and_used(machine: SimulatedMachine, environ: dict[str, str], zeusd: Zeusd) -> None:
    control = open_clock_control("auto", machine.gpu(1).uuid, own_pids=(), environ=environ)
    assert (control.name, control.refusal) == ("zeusd", "")
    assert ask(control, 1200).reached
    assert machine.gpu(1).state().locked_mhz == (1200, 1200)
    assert machine.gpu(0).state().is_unlocked
    control.close()
    assert zeusd.requests == ["/gpu/set_gpu_locked_clocks", "/gpu/reset_gpu_locked_clocks"]


def test_killed_holder_of_zeusds_clocks(machine: SimulatedMachine, environ: dict[str, str], zeusd: Zeusd) -> None:
    holder, _ = hold("zeusd", machine.gpu(0).uuid, environ)
    kill(holder)
    wait_until(lambda: machine.gpu(0).state().is_unlocked)
    assert len(zeusd.requests) == 2


def test_zeusd_that_refuses(machine: SimulatedMachine, environ: dict[str, str], zeusd: Zeusd) -> None:
    zeusd.token = "secret"
    gpu_uuid = machine.gpu(0).uuid
    control = open_clock_control("zeusd", gpu_uuid, own_pids=(), environ=environ)
    assert "set ZEUSD_TOKEN" in control.refusal
    control = open_clock_control("zeusd", gpu_uuid, own_pids=(), environ={**environ, "ZEUSD_TOKEN": "wrong"})
    assert "HTTP 401" in ask(control, 1200).error
    control.close()
    control = open_clock_control("zeusd", gpu_uuid, own_pids=(), environ={**environ, "ZEUSD_TOKEN": "secret"})
    assert ask(control, 1200).reached
    control.close()
    zeusd.groups = ["gpu-read"]
    control = open_clock_control("zeusd", gpu_uuid, own_pids=(), environ=environ)
    assert "gpu-control is not among those enabled" in control.refusal


def test_zeusd_that_ends_and_comes_back(machine: SimulatedMachine, environ: dict[str, str], zeusd: Zeusd) -> None:
    control = open_clock_control("zeusd", machine.gpu(0).uuid, own_pids=(), environ=environ)
    zeusd.close()
    assert "zeusd /gpu/set_gpu_locked_clocks" in ask(control, 1200).error
    zeusd.open()
    assert ask(control, 1200).reached
    zeusd.close()
    control.close()
    assert not machine.gpu(0).state().is_unlocked
    zeusd.open()
    wait_until(lambda: machine.gpu(0).state().is_unlocked)


def test_nothing_there(environ: dict[str, str]) -> None:
    Path(environ["ZEUSD_SOCK_PATH"]).touch()  # left behind
    control = open_clock_control("zeusd", "GPU-0000", own_pids=(), environ=environ)
    assert "zeusd.sock cannot be reached" in control.refusal
    Path(environ["ZEUSD_SOCK_PATH"]).unlink()
    for mode in ("clockd", "zeusd"):
        control = open_clock_control(mode, "GPU-0000", own_pids=(), environ=environ)
        assert control.name == "observe"
        assert f"{mode}: no socket at" in control.refusal
    control = open_clock_control("observe", "GPU-0000", own_pids=(), environ=environ)
    assert control.refusal == "asked to observe only"
    assert (control.fileno(), control.poll(0), control.clocks_mhz) == (-1, [], ())
