"""``perseus-dist doctor`` on healthy and sick simulated nodes."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import grpc
import pytest
import trustme
from commands import run_command
from planner_process import planner

from perseus_dist.cli import main
from perseus_dist.device.inspection.slurm import judge_slurm_settings
from perseus_dist.device.inspection.slurm_folders import folder_trouble, inspect_hook_folders
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.device.lease.file import LeaseFile
from perseus_dist.device.opening import open_clock_control
from perseus_dist.planner.access.access import Access
from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.simulator.fault import Fault
from perseus_dist.simulator.machine import SimulatedMachine


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=2) as machine:
        yield machine


def doctor(machine: SimulatedMachine | None, folder: Path, *arguments: str, **environ: str) -> tuple[int, list[str]]:
    """Exit code, and one line ``level subject: what`` a finding. Where there is no GPU it needs no process."""
    words = ["doctor", "--json", *arguments]
    env = {
        **{key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"},
        **(machine.environment() if machine else {}),
        "PERSEUS_LEASE_DIR": str(folder),
        "PERSEUS_CLOCKD_SOCKET": str(folder / "clockd.sock"),
        "ZEUSD_SOCK_PATH": str(folder / "zeusd.sock"),
        **environ,
    }
    if machine is None:
        with patch.dict(os.environ, env, clear=True):
            done = run_command(*words)
    else:
        command = [sys.executable, "-m", "perseus_dist", *words]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    findings = json.loads(done.stdout)["findings"]
    assert all(finding["remedy"] for finding in findings if finding["level"] != "ok")
    return done.returncode, [f"{each['level']} {each['subject']}: {each['what']}" for each in findings]


def has(lines: list[str], *parts: str) -> bool:
    return any(all(part in line for part in parts) for line in lines)


def test_healthy_node(machine: SimulatedMachine, tmp_path: Path) -> None:
    code, lines = doctor(machine, tmp_path)
    assert code == 0
    assert has(lines, "ok packages: perseus-dist", "nvidia-ml-py")
    assert has(lines, "ok driver:", "2 GPUs")
    assert has(lines, f"ok {machine.gpu(1).uuid}: ", "210 to 1410 MHz")
    assert has(lines, "ok clockd: not running")
    assert not has(lines, "fail")


def test_power_profiles_of_an_operators_tool_are_told_and_left(machine: SimulatedMachine, tmp_path: Path) -> None:
    machine.gpu(0).set_power_profiles(())
    machine.gpu(1).set_power_profiles((1, 20), enforced=(1,))
    _, lines = doctor(machine, tmp_path)
    assert has(lines, f"warn {machine.gpu(1).uuid}: workload power profile max-q, ", "not enforced: training")
    assert not has(lines, f"{machine.gpu(0).uuid}: workload power profile")


def test_no_driver(tmp_path: Path) -> None:
    code, lines = doctor(None, tmp_path)
    assert code == 1
    assert has(lines, "fail driver:", "no libnvidia-ml.so.1")


def test_sick_node(machine: SimulatedMachine, tmp_path: Path) -> None:
    machine.gpu(0).set_mig(True)
    machine.gpu(1).request_clock(900)
    machine.gpu(1).set_power_limit_w(250)
    machine.gpu(1).stream.kernel("forward", 60.0)
    machine.inject(Fault(function="nvmlDeviceGetTotalEnergyConsumption", result=3), gpu=1)
    lease_file = LeaseFile(tmp_path, machine.gpu(0).uuid)
    lease_file.take("a holder that dies")
    lease_file.touch()
    lease_file.give_back()
    (tmp_path / "clockd.sock").touch()
    code, lines = doctor(machine, tmp_path, CUDA_VISIBLE_DEVICES="7")
    assert code == 0
    first, second = (f"warn {gpu.uuid}: " for gpu in machine.gpus)
    assert has(lines, first, "MIG")
    assert has(lines, first, "may have left its clocks locked")
    assert has(lines, second, "clocks are locked")
    assert has(lines, second, "power cap 250 W")
    assert has(lines, second, f"in use by process {os.getpid()} (")
    assert has(lines, second, "no energy counter")
    assert has(lines, "warn clockd:", "does not answer")
    assert has(lines, "warn CUDA_VISIBLE_DEVICES: 7; no GPU for local rank 0")


def test_clockd_is_asked_for_leases_and_gets_them_back(machine: SimulatedMachine, tmp_path: Path) -> None:
    first, second = machine.gpus
    with ClockdProcess(tmp_path, {**os.environ, **machine.environment()}) as clockd:
        _, lines = doctor(machine, tmp_path, PERSEUS_LEASE_DIR=str(clockd.lease_folder))
        assert has(lines, "ok clockd: answers on", "of 2 GPUs 0 are leased, and it grants 2")
        held = open_clock_control("clockd", first.uuid, own_pids=(), environ=clockd.environ)
        assert held.refusal == ""  # what doctor had was given back
        second.add_process(1)  # a stranger
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(0.3):
                held.poll(time.monotonic_ns())

        beating = threading.Thread(target=beat)
        beating.start()
        _, lines = doctor(machine, tmp_path, PERSEUS_LEASE_DIR=str(clockd.lease_folder))
        stop.set()
        beating.join()
        held.close()
        assert has(lines, f"ok {first.uuid}: its clocks are leased")
        assert not has(lines, "clockd", first.uuid)
        assert has(lines, f"warn clockd: {second.uuid}: clockd refuses:", "also runs process 1 (")
        assert machine.calls() == []


def test_clockd_that_accepts_connections_and_says_nothing(machine: SimulatedMachine, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "clockd.sock"))
        silent.listen()
        _, lines = doctor(machine, tmp_path)
    assert has(lines, "warn clockd:", "the clockd lease daemon did not answer within 3 s")


def test_gpu_that_fails(machine: SimulatedMachine, tmp_path: Path) -> None:
    machine.inject(Fault(function="nvmlDeviceGetSupportedMemoryClocks", result=999), gpu=1)
    code, lines = doctor(machine, tmp_path)
    assert code == 1
    assert has(lines, "fail GPU 1: nvmlDeviceGetSupportedMemoryClocks")


def test_planner(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        _, lines = doctor(None, tmp_path, "--planner", running.address)
    assert has(lines, "ok planner:", "serves; jobs that the token opens: 0")


def test_service_that_is_another(tmp_path: Path) -> None:
    with futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        _, lines = doctor(None, tmp_path, "--planner", f"127.0.0.1:{port}")
        server.stop(None).wait()
    # Which of UNIMPLEMENTED and INTERNAL a message to an unknown method is answered with is a matter of chance.
    assert has(lines, f"fail planner: 127.0.0.1:{port}: ")
    assert not has(lines, "no planner answers")


def test_planner_that_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        _, lines = doctor(None, tmp_path, "--planner", f"127.0.0.1:{port}")
        assert has(lines, "fail planner:", "there is no answer")
    _, lines = doctor(None, tmp_path, "--planner", f"127.0.0.1:{port}")
    assert has(lines, "fail planner:", "no planner answers")


def test_tokens_that_expire_soon(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        token_file = str(running.folder / "state" / "operator-token")
        ask = ("--planner", running.address, "--token-file", token_file)
        for name, valid in (("soon", "3d"), ("later", "60d"), ("ever", "")):
            create = ["token", "create", name, "--role", "view", *(["--expires", valid] if valid else [])]
            assert main([*create, *ask]) == 0
        assert main(["token", "create", "revoked", "--role", "view", "--expires", "1d", *ask]) == 0
        assert main(["token", "revoke", "revoked", *ask]) == 0
        _, lines = doctor(None, tmp_path, *ask)
    (line,) = [line for line in lines if "tokens" in line.split(":")[0]]
    assert "warn tokens" in line
    assert "token 'soon' (view) expires on " in line


@pytest.mark.parametrize("role", ["view", "operate", "admin"])
def test_no_call_of_a_doctor_is_refused(role: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with planner(tmp_path) as running:
        ask = ("--planner", running.address, "--token-file")
        operator, own = str(running.folder / "state" / "operator-token"), str(tmp_path / "token")
        create = ("token", "create", "own", "--role", role, "--expires", "3d", "--out", own)
        assert main([*create, *ask, operator]) == 0
        capsys.readouterr()
        _, lines = doctor(None, tmp_path, *ask, own)
        assert has(lines, "ok planner: ")
        assert has(lines, "token 'own'") == (role == "admin")
        assert main(["audit", "--json", *ask, operator]) == 0
    told = capsys.readouterr().out
    assert "CreateToken" in told
    assert "ListTokens" not in told


def test_a_planner_whose_certificate_expires_soon(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost", not_after=datetime.now(UTC) + timedelta(days=5))
    issued.cert_chain_pems[0].write_to_path(tmp_path / "planner.pem")
    issued.private_key_pem.write_to_path(tmp_path / "planner.key")
    files = ("--tls-cert", str(tmp_path / "planner.pem"), "--tls-key", str(tmp_path / "planner.key"))
    with planner(tmp_path, "--bind", "localhost:0", *files) as running:
        _, lines = doctor(None, tmp_path, "--planner", running.address, "--tls-ca", str(tmp_path / "ca.pem"))
    assert has(lines, "ok planner: ")
    assert has(lines, "warn planner: ", "its certificate expires on ")


def test_bad_settings_and_certificates_and_a_relay_that_is_away(tmp_path: Path) -> None:
    authority, now = trustme.CA(), datetime.now(UTC)
    for name, days in (("old", -1), ("soon", 3), ("fresh", 90)):
        issued = authority.issue_cert(
            "localhost", not_before=now - timedelta(days=9), not_after=now + timedelta(days=days)
        )
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
    settings = tmp_path / "perseus.toml"
    settings.write_text('[planner]\ntls-cert = "soon.pem"\nmetrics-tls-cert = "missing.pem"\n')
    environ = {"PERSEUS_CONFIG": str(settings), "PERSEUS_NODE_RELAY": str(tmp_path / "relay.sock")}
    code, lines = doctor(None, tmp_path, "--tls-cert", str(tmp_path / "old.pem"), **environ)
    assert code == 1
    assert has(lines, f"ok settings: {settings}: 2 in force")
    assert has(lines, f"fail certificates: {tmp_path / 'old.pem'} has expired on ")
    assert has(lines, f"warn certificates: {tmp_path / 'soon.pem'} expires on ", "in 3 days")
    assert has(lines, "fail certificates: ", "missing.pem, that planner.metrics-tls-cert names, cannot be read")
    assert has(lines, "warn node relay: ", "does not answer")
    settings.write_text('[planner]\ntls-cret = "fresh.pem"\n')
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(environ["PERSEUS_NODE_RELAY"])
        relay.listen()
        _, lines = doctor(None, tmp_path, "--tls-ca", str(tmp_path / "fresh.pem"), **environ)
    assert has(lines, "fail settings: ", "perseus.toml:2: [planner] has no key 'tls-cret'")
    assert has(lines, f"ok certificates: {tmp_path / 'fresh.pem'} is valid until ")
    assert has(lines, "ok node relay: answers on ")


def test_settings_that_do_not_fit_together(tmp_path: Path) -> None:
    settings = tmp_path / "perseus.toml"
    settings.write_text('[planner]\ntls-cert = "a.pem"\n[clockd]\nmin-mhz = 900\n')
    environ = {"PERSEUS_CONFIG": str(settings), "PERSEUS_CLOCKD_MAX_MHZ": "500"}
    _, lines = doctor(None, tmp_path, **environ)
    assert has(lines, f"ok settings: {settings}: 2 in force")
    assert has(lines, "warn settings: [planner]: saw one of --tls-cert and --tls-key", f"is from {settings}:2)")
    assert has(lines, "warn settings: [clockd]: ", "min-mhz", "$PERSEUS_CLOCKD_MAX_MHZ")
    environ |= {"PERSEUS_CLOCKD_MAX_MHZ": "1500", "PERSEUS_PLANNER_TLS_KEY": str(tmp_path / "a.key")}
    _, lines = doctor(None, tmp_path, **environ)
    assert not [line for line in lines if "settings: [" in line]  # of several sources, and their files are not there
    assert has(lines, "fail certificates: ", "a.pem, that planner.tls-cert names, cannot be read")


def test_variables_that_are_no_settings(tmp_path: Path) -> None:
    environ = {"PERSEUS_PLANNER_METRIC_PORT": "1", "PERSEUS_CLOCKD_GRUOP": "gpu"}
    _, lines = doctor(None, tmp_path, **environ)
    assert has(lines, "warn settings: $PERSEUS_PLANNER_METRIC_PORT is no setting", "not read")
    assert has(lines, "warn settings: $PERSEUS_CLOCKD_GRUOP is no setting")


@pytest.mark.parametrize("how", ["whole", "in use", "cut", "overwritten", "another's"])
def test_a_database_of_tokens_that_is_damaged(how: str, tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir(mode=0o700)
    settings = tmp_path / "perseus.toml"
    settings.write_text('[planner]\nstate-dir = "state"\n')
    path = state / "access.sqlite"
    with closing(Access("operator", path)) as access:
        for number in range(300):
            access.audit.done("operator", "", "SetTarget", job=f"{number}")
        if how == "in use":
            before = sorted(state.iterdir())
            _, lines = doctor(None, tmp_path, PERSEUS_CONFIG=str(settings))
            assert sorted(state.iterdir()) == before
    if how == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "overwritten":
        path.write_bytes(b"x" * path.stat().st_size)
    elif how == "another's":
        path.unlink()
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE theirs (x)")
    if how != "in use":
        _, lines = doctor(None, tmp_path, PERSEUS_CONFIG=str(settings))
        assert sorted(state.iterdir()) == [path]
    if how in ("whole", "in use"):
        assert has(lines, f"ok tokens: {path} can be read")
    else:
        assert has(lines, f"fail tokens: {path}: ", "no database of rights" if how == "another's" else "damaged")


@pytest.mark.parametrize(
    ("options", "named", "reason"),
    [
        ({"ca": "missing"}, "missing", "No such file"),
        ({"ca": "folder"}, "folder", "Is a directory"),
        ({"ca": "text"}, "text", "no usable authority"),
        ({"cert": "missing", "key": "a.key"}, "missing", "No such file"),
        ({"cert": "text", "key": "a.key"}, "text", "no usable certificate"),
        ({"cert": "a.pem", "key": "folder"}, "folder", "Is a directory"),
        ({"cert": "a.pem", "key": "b.key"}, "b.key", "KEY_VALUES_MISMATCH"),
        ({"cert": "a.pem"}, "--tls-cert", "expected both or neither"),
    ],
)
@pytest.mark.parametrize("source", ["option", "environment", "file"])
def test_tls_files_that_cannot_be_used(
    options: dict[str, str], named: str, reason: str, source: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no certificate\n")
    for name in ("a", "b"):
        issued = trustme.CA().issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    words, environ = ["--planner", "127.0.0.1:1"], {}
    for option, name in options.items():
        if source == "option":
            words += [f"--tls-{option}", str(tmp_path / name)]
        elif source == "environment":
            environ[f"PERSEUS_CLIENT_TLS_{option.upper()}"] = str(tmp_path / name)
    settings = tmp_path / "perseus.toml"
    lines_of_file = [f'tls-{option} = "{name}"' for option, name in options.items()] if source == "file" else []
    settings.write_text("\n".join(["[client]", *lines_of_file, ""]))
    code, lines = doctor(None, tmp_path, *words, PERSEUS_CONFIG=str(settings), **environ)
    assert code == 1
    assert has(lines, "ok packages: ")
    (line,) = [line for line in lines if line.startswith("fail certificates: ")]
    assert named in line
    assert reason in line
    assert "_ssl.c" not in line


def test_authorities_of_the_system_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate\n")
    with planner(tmp_path) as running:
        options = ("--planner", running.address, "--tls")
        code, lines = doctor(None, tmp_path, *options, SSL_CERT_FILE=str(tmp_path / "text"))
    assert code == 1
    assert has(lines, "fail certificates: ", str(tmp_path / "text"), "no usable authority")


def test_a_token_file_that_is_missing(tmp_path: Path) -> None:
    settings = tmp_path / "perseus.toml"
    settings.write_text('[client]\ntoken-file = "nofile.tok"\n')
    with planner(tmp_path) as running:
        options = ("--planner", f"{running.address},127.0.0.1:1")
        code, lines = doctor(None, tmp_path, *options, PERSEUS_CONFIG=str(settings))
    assert code == 1
    assert has(lines, "ok packages: ")
    assert has(lines, "fail planner: 127.0.0.1:1: no planner answers")
    (line,) = [line for line in lines if "nofile.tok" in line]
    assert line == f"fail token: {tmp_path / 'nofile.tok'}: cannot be read (No such file or directory)"


def test_a_token_that_other_users_may_read(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        own = tmp_path / "own.token"
        own.write_bytes((running.folder / "state" / "operator-token").read_bytes())
        options = ("--planner", running.address, "--token-file", str(own))
        for mode, is_open in ((0o604, True), (0o640, False)):
            own.chmod(mode)
            _, lines = doctor(None, tmp_path, *options)
            assert has(lines, f"warn token: {own}: every user") == is_open


SLURM = """\
Epilog                  = /etc/slurm/perseus/epilog
ProctrackType           = proctrack/cgroup
Prolog                  = /etc/slurm/perseus/prolog
PrologFlags             = Alloc
TaskEpilog              = /etc/slurm/perseus/task-epilog
TaskProlog              = /etc/slurm/perseus/task-prolog
"""


@pytest.mark.parametrize(
    ("setting", "instead", "words"),
    [
        ("", "", "ok prolog, epilog and those of tasks are set"),
        ("= /etc/slurm/perseus/prolog", "= (null)", "warn no Prolog: nodes are not checked"),
        ("= /etc/slurm/perseus/task-prolog", "= (null)", "warn no TaskProlog: tasks are without PERSEUS=1"),
        ("= /etc/slurm/perseus/epilog", "= (null)", "warn no Epilog: clocks that a killed job leaves locked"),
        ("= /etc/slurm/perseus/task-epilog", "= (null)", "warn no TaskEpilog: "),
        ("= Alloc", "= (null)", "warn PrologFlags is without Alloc"),
        ("cgroup", "linuxproc", "warn ProctrackType is proctrack/linuxproc"),
    ],
)
def test_slurms_settings(setting: str, instead: str, words: str) -> None:
    found = [*judge_slurm_settings(SLURM.replace(setting, instead) if setting else SLURM)]
    assert any(f"{finding.level} {finding.what}".startswith(words) for finding in found)
    assert len([finding for finding in found if finding.level != "ok"]) == bool(setting)


def test_a_cluster_with_the_epilogs_alone_has_two_findings() -> None:
    found = [*judge_slurm_settings("Epilog = /a\nTaskEpilog = /b\nProctrackType = proctrack/cgroup\n")]
    assert [finding.what.partition(":")[0] for finding in found] == ["no Prolog", "no TaskProlog"]
    assert all("--comment=perseus has no effect" in finding.what and finding.remedy for finding in found)


def node_metrics(folder: Path, file: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    settings = {"PERSEUS_LEASE_DIR": str(folder), "PERSEUS_CLOCKD_SOCKET": str(folder / "clockd.sock")}
    return subprocess.run(
        [sys.executable, "-m", "perseus_dist", "doctor", "--metrics", str(file)],
        env={**{key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}, **environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_metrics_for_node_exporter(machine: SimulatedMachine, tmp_path: Path) -> None:
    first, second = machine.gpus
    file = tmp_path / "perseus.prom"
    first.set_event_reasons(0x20)
    second.set_power_limit_w(250)
    lease_file = LeaseFile(tmp_path, first.uuid)
    lease_file.take("a holder that dies")
    lease_file.touch()
    held = node_metrics(tmp_path, file, machine.environment())
    assert (held.returncode, held.stdout, held.stderr) == (0, "", "")
    leased = file.read_text().splitlines()
    lease_file.give_back()
    assert node_metrics(tmp_path, file, machine.environment()).returncode == 0
    left = file.read_text().splitlines()
    of_first, of_second = (f'gpu="{gpu.index}",uuid="{gpu.uuid}"' for gpu in machine.gpus)
    assert f"perseus_node_gpu_leased{{{of_first}}} 1" in leased
    assert f"perseus_node_gpu_clocks_left_locked{{{of_first}}} 0" in leased
    assert f"perseus_node_gpu_clocks_left_locked{{{of_first}}} 1" in left
    assert f"perseus_node_gpu_clocks_left_locked{{{of_second}}} 0" in left
    assert f'perseus_node_gpu_throttled{{{of_first},reason="thermal"}} 1' in left
    assert f'perseus_node_gpu_throttled{{{of_second},reason="thermal"}} 0' in left
    assert f"perseus_node_gpu_power_capped{{{of_second}}} 1" in left
    assert {"perseus_node_driver_up 1", "perseus_node_clockd_up 0"} <= {*left}
    assert file.stat().st_mode & 0o777 == 0o644
    assert machine.calls() == []  # nothing was set


def test_metrics_of_sick_nodes(machine: SimulatedMachine, tmp_path: Path) -> None:
    file = tmp_path / "perseus.prom"
    assert node_metrics(tmp_path, file, {}).returncode == 0
    assert "perseus_node_driver_up 0" in file.read_text().splitlines()
    machine.inject(Fault(function="nvmlDeviceGetCurrentClocks*", result=999), gpu=1)
    assert node_metrics(tmp_path, file, machine.environment()).returncode == 0
    text = file.read_text()
    assert f'perseus_node_gpu_up{{gpu="0",uuid="{machine.gpu(0).uuid}"}} 1' in text
    assert f'perseus_node_gpu_up{{gpu="1",uuid="{machine.gpu(1).uuid}"}} 0' in text


@pytest.mark.parametrize(
    ("name", "told"), [("perseus.txt", "end in .prom"), ("none/perseus.prom", "existing, writable folder")]
)
def test_metrics_that_cannot_be_written(tmp_path: Path, name: str, told: str) -> None:
    done = node_metrics(tmp_path, tmp_path / name, {})
    assert done.returncode == 2
    assert told in done.stderr.splitlines()[-1]


def test_a_clock_that_slurm_was_asked_for_is_named(machine: SimulatedMachine, tmp_path: Path) -> None:
    """By the job, and as slurmd passes it to the step."""
    for environ in ({"SLURM_GPU_FREQ": "low"}, {"SLURMD_TRES_FREQ": "gpu:low"}):
        code, lines = doctor(machine, tmp_path, **environ)
        assert code == 0
        assert has(lines, "warn Slurm: ", "GPU frequency 'low'")
    _, lines = doctor(machine, tmp_path, SLURM_JOB_ID="17")
    assert not has(lines, "Slurm")


@pytest.mark.parametrize(
    ("records", "jobs", "words"),
    [
        ("records", "", ["ok energy records: go to {}/records"]),
        ("missing", "", ["warn energy records: {}/missing, PERSEUS_RECORDS in perseus.conf, is not there"]),
        ("perseus.conf", "", ["warn energy records: {}/perseus.conf, PERSEUS_RECORDS in perseus.conf, is no folder"]),
        ("", "missing", ["warn DCGM-exporter's jobs: {}/missing, PERSEUS_DCGM_JOBS in perseus.conf, is not there"]),
        ("", "", []),
    ],
)
def test_folders_of_slurms_hooks(records: str, jobs: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    places = [f"{tmp_path}/{name}" if name else "" for name in (records, jobs)]
    text = f"# folders\nPERSEUS_RECORDS={places[0]} # of all jobs\nPERSEUS_DCGM_JOBS='{places[1]}'\n"
    (tmp_path / "perseus.conf").write_text(text)
    found = [*inspect_hook_folders(f"Epilog = {tmp_path}/epilog\nProlog = {tmp_path}/prolog\nTaskProlog = /a/b\n")]
    lines = [f"{finding.level} {finding.subject}: {finding.what}" for finding in found]
    assert len(lines) == len(words)
    assert all(line.startswith(word.format(tmp_path)) for line, word in zip(lines, words, strict=True))
    assert not list((tmp_path / "records").iterdir())


def test_folders_that_nothing_can_be_written_to() -> None:
    assert folder_trouble(Path("/proc/self"), is_writer=True).startswith("cannot be written to (")
    assert folder_trouble(Path("/proc/self"), is_writer=False) == ""
    assert [*inspect_hook_folders("Epilog = (null)\nProlog = /nowhere/prolog\n")] == []


def test_options_of_jobs_in_the_environment(machine: SimulatedMachine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = {"PERSEUS_CACHE": str(tmp_path / "file"), "PERSEUS_PROFILE": str(tmp_path / "none.csv")}
    code, lines = doctor(machine, tmp_path, **wrong)
    assert code == 0
    assert has(lines, f"warn job cache: {tmp_path}/file, where jobs keep", "is no folder")
    assert has(lines, f"warn options: PERSEUS_PROFILE: {tmp_path}/none.csv: cannot be read")
    _, lines = doctor(machine, tmp_path, PERSEUS_CACHE=str(tmp_path / "file" / "cache"))
    assert has(lines, "warn job cache: ", f"cannot be made: {tmp_path}/file is no folder")
    _, lines = doctor(machine, tmp_path, PERSEUS_CACHE=str(tmp_path / "to" / "come"))
    assert has(lines, f"ok job cache: {tmp_path}/to/come can be written to")
    assert not (tmp_path / "to").exists()
    _, lines = doctor(machine, tmp_path, PERSEUS_TARGET="slow")
    assert has(lines, "warn options: PERSEUS_TARGET is 'slow': expected t_min")


def test_page_and_metrics_of_a_planner_on_this_node(machine: SimulatedMachine, tmp_path: Path) -> None:
    page, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    settings = tmp_path / "perseus.toml"
    settings.write_text(f'[planner]\nstate-dir = "state"\nweb = "{page}"\nmetrics = "{metrics}"\n')
    config = {"PERSEUS_CONFIG": str(settings)}
    with planner(tmp_path, "--web", page, "--metrics", metrics):
        _, lines = doctor(machine, tmp_path, **config)
    assert has(lines, f"ok page: answers at {page}")
    assert has(lines, f"ok metrics: answers at {metrics}")
    code, lines = doctor(machine, tmp_path, **config)
    assert code == 0
    assert has(lines, f"warn page: nothing answers at {page}", "Connection refused")
    assert has(lines, f"warn metrics: nothing answers at {metrics}")
    settings.write_text(settings.read_text().replace('"state"', '"another node\'s"'))
    _, lines = doctor(machine, tmp_path, **config)
    assert not has(lines, "nothing answers")


def test_a_page_that_wants_a_certificate_of_who_asks_answers(machine: SimulatedMachine, tmp_path: Path) -> None:
    authority, page = trustme.CA(), f"127.0.0.1:{free_port()}"
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "planner.pem")
    issued.private_key_pem.write_to_path(tmp_path / "planner.key")
    files = {name: str(tmp_path / file) for name, file in (("cert", "planner.pem"), ("key", "planner.key"))}
    files["client-ca"] = str(tmp_path / "ca.pem")
    settings = tmp_path / "perseus.toml"
    lines = [f'state-dir = "state"\nweb = "{page}"', *(f'tls-{name} = "{file}"' for name, file in files.items())]
    settings.write_text("\n".join(["[planner]", *lines]))
    options = [word for name, file in files.items() for word in (f"--tls-{name}", file)]
    with planner(tmp_path, "--web", page, *options):
        _, said = doctor(machine, tmp_path, PERSEUS_CONFIG=str(settings))
    assert has(said, f"ok page: answers at {page}")
