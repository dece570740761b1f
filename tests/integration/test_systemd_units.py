"""The units: what systemd says of them; the services under their filters, speaking to a socket like systemd's."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from systemd_manager import SystemdManager, find_obstacle, systemd_manager, write_unit
from waiting import wait_for, wait_until

from perseus_dist.simulator.machine import SimulatedMachine

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "launch/systemd"
SANDBOX = ROOT / "tests/support/unit_sandbox.py"
MAX_EXPOSURE = {"clockd": 4.0, "planner": 2.5, "planning-worker": 2.5, "release": 4.0, "node-metrics": 4.0}
PROGRAM = [sys.executable, "-m", "perseus_dist"]
PATIENCE_S = 120.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs the package systemd")


@pytest.mark.stress
@needs_systemd
@pytest.mark.parametrize("name", MAX_EXPOSURE)
def test_a_unit_is_hardened(name: str) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / f"perseus-{name}.service")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert float(exposure) <= MAX_EXPOSURE[name], told


def test_the_planners_metrics_of_its_process_see_when_the_machine_has_begun() -> None:
    """Prometheus's client reads that in ``/proc/stat``, and shows none of them without."""
    assert "ProcSubset=" not in re.sub("#.*", "", (UNITS / "perseus-planner.service").read_text())


@pytest.mark.stress
@needs_systemd
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    programs = tmp_path / "usr/bin"
    programs.mkdir(parents=True)
    (programs / "perseus-dist").symlink_to("/bin/true")
    for unit in UNITS.glob("*.service"):
        text = unit.read_text().replace("=perseus-dist ", "=/bin/true ").replace("=-perseus-dist ", "=-/bin/true ")
        (tmp_path / unit.name).write_text(text)
    units = sorted(map(str, tmp_path.glob("*.service")))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr


@pytest.mark.stress
@needs_systemd
def test_users_and_folders_are_made_and_made_again(tmp_path: Path) -> None:
    for tool, kind in (("systemd-sysusers", "sysusers"), ("systemd-tmpfiles", "tmpfiles")):
        folder = tmp_path / f"usr/lib/{kind}.d"
        folder.mkdir(parents=True)
        shutil.copy(UNITS / f"perseus-dist.{kind}", folder / "perseus-dist.conf")
        (tmp_path / "etc").mkdir(exist_ok=True)
        create = ["--create"] if kind == "tmpfiles" else []
        for _ in range(2):
            command = [tool, f"--root={tmp_path}", *create, "perseus-dist.conf"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ran.returncode == 0, ran.stderr
    (user,) = (line for line in (tmp_path / "etc/passwd").read_text().splitlines() if line.startswith("perseus-dist:"))
    found = (tmp_path / "var/lib/perseus-dist").stat()
    assert (found.st_mode & 0o777, found.st_uid) == (
        0o711,  # others may pass through, to the folders below that are theirs
        int(user.split(":")[2]) if os.geteuid() == 0 else found.st_uid,
    )
    assert (tmp_path / "run/perseus-dist").stat().st_mode & 0o777 == 0o755


@contextmanager
def service(
    tmp_path: Path, command: list[str], environ: dict[str, str]
) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    """A service of systemd's type ``notify`` with a watchdog, and the socket that it speaks to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(PATIENCE_S)
        told = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2400000"}
        process = subprocess.Popen(command, env={**os.environ, **environ, **told})
        try:
            yield process, receiver
        finally:
            process.kill()
            process.wait()


def commands(tmp_path: Path) -> dict[str, list[str]]:
    return {
        "planner": [*PROGRAM, "planner", "--bind", "127.0.0.1:0", "--state-dir", str(tmp_path / "state")],
        "clockd": [*PROGRAM, "clockd"],
    }


def check_what_it_says(tmp_path: Path, command: list[str]) -> None:
    with (
        SimulatedMachine("a100", count=1) as machine,
        service(tmp_path, command, machine.environment()) as (process, receiver),
    ):
        ready, first, second = (receiver.recv(1000).decode() for _ in range(3))
        if ready == "WATCHDOG=1":  # before the loop came to say it
            ready, first = first, ready
        assert re.fullmatch(r"READY=1(\nSTATUS=listening on \S+)?", ready)
        assert first == second == "WATCHDOG=1"
        process.send_signal(signal.SIGTERM)
        while (last := receiver.recv(1000).decode()) == "WATCHDOG=1":
            pass
        assert last.startswith("STOPPING=1")
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("name", ["planner", "clockd"])
def test_a_service_says_that_it_is_ready_alive_and_stopping(name: str, tmp_path: Path) -> None:
    check_what_it_says(tmp_path, commands(tmp_path)[name])


@pytest.mark.stress
@needs_systemd
@pytest.mark.skipif(os.geteuid() != 0, reason="gives capabilities up")
@pytest.mark.parametrize("name", ["planner", "clockd"])
def test_a_service_works_under_its_units_filter(name: str, tmp_path: Path) -> None:
    unit = str(UNITS / f"perseus-{name}.service")
    options = ["--group", "daemon"] if name == "clockd" else []
    check_what_it_says(tmp_path, [sys.executable, str(SANDBOX), unit, *commands(tmp_path)[name], *options])


def test_a_planning_worker_says_that_it_is_ready_and_stopping(tmp_path: Path) -> None:
    """Also where its database is away: it is waited for."""
    pytest.importorskip("psycopg")
    command = [*PROGRAM, "planning-worker", "--store", "postgresql://u@127.0.0.1:1/d"]
    with service(tmp_path, command, {}) as (process, receiver):
        assert receiver.recv(1000) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert receiver.recv(1000) == b"STOPPING=1"
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.stress
@needs_systemd
@pytest.mark.skipif(os.geteuid() != 0, reason="gives capabilities up")
@pytest.mark.parametrize(
    ("name", "file", "tests"),
    [
        ("planner", "test_planning_worker.py", "takes_turns or replaced_once"),
        ("planning-worker", "test_planning_worker.py", "takes_turns or replaced_once"),
        ("clockd", "test_clockd.py", "set_change_and_release or group_that_may_connect or first_process_of_its"),
    ],
)
def test_what_a_service_does_is_not_filtered(name: str, file: str, tests: str, tmp_path: Path) -> None:
    """Its processes that plan, at a low priority; its leases, of several users."""
    unit = UNITS / f"perseus-{name}.service"
    options = ["-q", "-k", tests, "-p", "no:cacheprovider", str(ROOT / "tests/integration" / file)]
    options += ["--basetemp", str(tmp_path / "tests")]  # it may not remove what earlier tests of other users have left
    command = [sys.executable, str(SANDBOX), str(unit), sys.executable, "-m", "pytest", *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.fixture(scope="module")
def no_systemd() -> None:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)


def settled(manager: SystemdManager, unit: str) -> dict[str, str]:
    """How a unit is once it is not being started any more."""

    def look() -> dict[str, str] | None:
        found = manager.show(unit)
        return None if found["ActiveState"] == "activating" else found

    found = wait_for(look)
    assert found is not None
    return found


@pytest.mark.stress
@pytest.mark.usefixtures("no_systemd")
def test_systemd_starts_no_service_again_whose_settings_are_of_no_use(tmp_path: Path) -> None:
    """The files as they are packaged, which name no database; and options that are none."""
    wrong = tmp_path / "wrong.env"
    wrong.write_text("PLANNER_OPTIONS=--bind nowhere\nCLOCKD_OPTIONS=--min-mhz 900 --max-mhz 100\n")
    files = {
        "planning-worker": ROOT / "launch/debian/planning-worker.env",
        "planner": wrong,
        "clockd": wrong,
    }
    for name, file in files.items():
        write_unit(UNITS / f"perseus-{name}.service", tmp_path, PROGRAM, EnvironmentFile=str(file))
    with systemd_manager(tmp_path) as manager:
        for name in files:
            told = manager.run(f"systemctl --user start perseus-{name}")
            assert "failed" in told, told
            found = settled(manager, f"perseus-{name}")
            expected = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
            assert found == {**expected, "NRestarts": "0", "ExecMainStatus": "2"}, name
        worker = wrong.with_name("worker.env")
        worker.write_text(
            "PLANNING_WORKER_OPTIONS=--store postgresql://u@127.0.0.1:1/d\n"
        )  # mended: it waits for the database
        unit = "perseus-planning-worker"
        write_unit(UNITS / f"{unit}.service", tmp_path, PROGRAM, EnvironmentFile=str(worker))
        manager.run(f"systemctl --user daemon-reload; systemctl --user start {unit}")
        assert settled(manager, unit)["ActiveState"] == "active"


@pytest.mark.stress
@pytest.mark.usefixtures("no_systemd")
def test_systemd_starts_a_planner_again_until_its_port_is_free(tmp_path: Path) -> None:
    options = tmp_path / "planner.env"
    unit = "perseus-planner"
    with socket.create_server(("127.0.0.1", 0)) as holder, systemd_manager(tmp_path) as manager:
        options.write_text(f"PLANNER_OPTIONS=--bind 127.0.0.1:{holder.getsockname()[1]}\n")
        write_unit(UNITS / f"{unit}.service", tmp_path, PROGRAM, EnvironmentFile=str(options))
        manager.run(f"systemctl --user daemon-reload; systemctl --user start --no-block {unit}")
        wait_until(lambda: int(manager.show(unit)["NRestarts"]) >= 6)  # more than systemd's own limit
        assert manager.show(unit)["ExecMainStatus"] in ("0", "1")  # 0: starts at the moment
        holder.close()
        wait_until(lambda: manager.show(unit)["ActiveState"] == "active")
