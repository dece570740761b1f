"""``perseus-dist planner`` as a process: how it begins, what it survives, how it leaves; and operators' commands."""

import http.client
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from builders import make_rank
from commands import run_command
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from planner_process import planner
from waiting import PATIENCE_S, wait_until

from perseus_dist.cli import main
from perseus_dist.messages.from_agent import Attach, IterationReport, ProfileSamples, Sample, ScheduleText, Telemetry
from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.store.state_dir import DATABASE
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b
from perseus_dist.rpc.codec import encode_agent_message
from perseus_dist.rpc.connection import ATTACH, SERVICE, authorization
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

SCHEDULE = one_f_one_b(pp=1, microbatches=2)
CLOCKS_MHZ = (1410, 1200, 990)


def perseus_dist(*arguments: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perseus_dist", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def attach_message() -> bytes:
    rank = make_rank(schedule_digest=SCHEDULE.digest())
    gpu = Gpu(uuid="GPU-1", name="A100", driver_version="570", clocks_mhz=CLOCKS_MHZ, control="clockd")
    return encode_agent_message(Attach(rank=rank, gpu=gpu, incarnation=5, has_profile=True))


def saved_profile() -> bytes:
    samples = tuple(
        Sample(
            chunk=0,
            kind=kind,
            clock_mhz=clock_mhz,
            time_s=seconds * CLOCKS_MHZ[0] / clock_mhz,
            energy_j=seconds * (100 + clock_mhz / 10) * CLOCKS_MHZ[0] / clock_mhz - 0.02 * (CLOCKS_MHZ[0] - clock_mhz),
            time_std_s=0.0,
            energy_std_j=0.0,
            num_runs=10,
            window_s=2.0,
            stage=0,
        )
        for kind, seconds in (("F", 0.1), ("B", 0.2))
        for clock_mhz in CLOCKS_MHZ
    )
    return encode_agent_message(ProfileSamples(sequence=1, sweep_id=0, step=0, samples=samples, last=True))


def blocking_power(sequence: int, sweep: pb.Sweep, step: int) -> bytes:
    message = ProfileSamples(
        sequence=sequence, sweep_id=sweep.sweep_id, step=step, samples=(), blocking_power_w=80.0, last=True
    )
    return encode_agent_message(message)


def attached(channel: grpc.Channel, outgoing: Iterator[bytes], token: str = "") -> Any:
    """An agent's stream: a call of gRPC that yields bytes."""
    call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(ATTACH)
    return call(outgoing, timeout=PATIENCE_S, metadata=authorization(token))


def planned(channel: grpc.Channel) -> Any:
    """An agent's stream of a job of one rank, once the job has a plan: it stays open."""
    inbox: list[bytes] = [attach_message(), saved_profile()]
    ended = False

    def outgoing() -> Iterator[bytes]:
        iteration, sequence = 0, 0
        while not ended:
            while inbox:
                yield inbox.pop(0)
            sequence += 1
            reports = tuple(
                IterationReport(iteration=iteration + index, time_s=0.7, pipeline_time_s=0.7, energy_j=200.0)
                for index in range(4)
            )
            iteration += 4
            yield encode_agent_message(Telemetry(sequence=sequence, iterations=reports, control="clockd"))
            time.sleep(0.05)

    call = attached(channel, outgoing())
    num_samples = 1
    for data in call:
        message = pb.PlannerMessage.FromString(data)
        match message.WhichOneof("message"):
            case "schedule_wanted":
                inbox.append(encode_agent_message(ScheduleText(text=format_schedule(SCHEDULE))))
            case "sweep":
                for step in range(len(message.sweep.clocks_mhz)):
                    num_samples += 1
                    inbox.append(blocking_power(num_samples, message.sweep, step))
            case "switch":
                ended = True
                return call
    raise AssertionError("the stream ended before there was a plan")


def test_operators_commands_on_a_planned_job_and_after_a_kill(tmp_path: Path) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(planner(tmp_path))
        channel = stack.enter_context(grpc.insecure_channel(running.address))
        call = planned(channel)
        there = ("--planner", running.address)
        (job,) = json.loads(run_command("jobs", "--json", *there).stdout)["jobs"]
        assert (job["job_id"], job["phase"], job["table_revision"]) == ("job", "enforcing", 1)
        assert "enforcing" in run_command("jobs", *there).stdout

        target = json.loads(run_command("target", "job", "--slowdown", "1.2", "--json", *there).stdout)
        assert target["target"] == {"slowdown": 1.2}
        assert target["switch_revision"] > job["switch_revision"]
        impossible = run_command("target", "job", "--slowdown", "0.5", *there)
        assert impossible.returncode == 2
        assert "target.slowdown: 0.5 was seen, expected a finite number from 1 to 1000" in impossible.stderr
        reported = run_command(
            "straggler", "report", "job", "--id", "rack7", "--pipeline", "0", "--degree", "1.3", *there
        )
        assert reported.returncode == 0, reported.stderr
        assert run_command("straggler", "clear", "job", "--id", "rack7", *there).returncode == 0
        assert run_command("straggler", "clear", "job", "--id", "rack7", *there).returncode == 2

        profile, frontier = tmp_path / "profile.csv", tmp_path / "frontier.csv"
        fetched = run_command("fetch", "job", "--profile", str(profile), "--frontier", str(frontier), "--json", *there)
        assert json.loads(fetched.stdout)["blocking_power_w"] == pytest.approx(80.0)
        assert len(frontier.read_text().splitlines()) > 2
        plan = run_command(
            "plan", str(profile), "--schedule", "1f1b", "--pp", "1", "--microbatches", "2", "--blocking-power-w", "80"
        )
        assert plan.returncode == 0, plan.stderr
        watch = subprocess.Popen(
            [sys.executable, "-m", "perseus_dist", "watch", "job", *there], stdout=subprocess.PIPE, text=True
        )
        with watch:
            assert watch.stdout is not None
            assert "enforcing" in watch.stdout.readline()
            watch.kill()
        call.cancel()
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        again = stack.enter_context(planner(tmp_path, "--bind", running.address))
        (restored,) = json.loads(run_command("jobs", "--json", "--planner", again.address).stdout)["jobs"]
        assert restored["table_revision"] == 1
        assert restored["switch_revision"] >= target["switch_revision"]
        assert restored["target"] == {"slowdown": 1.2}


def test_sigterm_drains(tmp_path: Path) -> None:
    with planner(tmp_path) as running, grpc.insecure_channel(running.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        status = health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=PATIENCE_S).status
        assert status == health_pb2.HealthCheckResponse.SERVING
        idle = attached(channel, never_ending([attach_message()]))
        next(idle)
        assert running.end() == 0
        with pytest.raises(grpc.RpcError) as ended:
            list(idle)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "attach again" in str(ended.value)
        assert running.process.stderr is not None
        assert "draining" in running.process.stderr.read()


def test_sigterm_before_it_tells_its_address(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "perseus_dist", "planner", "--bind", "127.0.0.1:0"]
    command += ["--state-dir", str(tmp_path), "--address-file", str(tmp_path / "address.json")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: (tmp_path / DATABASE).exists() or process.poll() is not None)
            process.terminate()
            _, log = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "draining" in log


def never_ending(messages: list[bytes]) -> Iterator[bytes]:
    yield from messages
    while True:
        time.sleep(0.05)
        yield encode_agent_message(Telemetry(sequence=1))


def test_health_reflection_and_metrics(tmp_path: Path) -> None:
    with planner(tmp_path, "--metrics-port", "0") as running, grpc.insecure_channel(running.address) as channel:
        reflected = ProtoReflectionDescriptorDatabase(channel).get_services()
        assert {SERVICE, "grpc.health.v1.Health"} <= set(reflected)
        PlannerStub(channel).ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S)  # type: ignore[no-untyped-call]
        host, port = running.told["metrics_address"].split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    assert host == "127.0.0.1"
    for line in (
        'perseus_operator_calls_total{method="ListJobs"} 1.0',
        'perseus_jobs{phase="enforcing"} 0.0',
        "perseus_open_streams 0.0",
        "perseus_store_in_trouble 0.0",
    ):
        assert line in text.splitlines()


def test_an_embedded_planner_wants_its_token_and_ends_with_its_parent(tmp_path: Path) -> None:
    address_file = tmp_path / "address.json"
    script = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'perseus_dist', 'planner', '--embedded',\n"
        f"    '--bind', '127.0.0.1:0', '--address-file', {str(address_file)!r}])\n"
        "print(p.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            wait_until(address_file.exists)
            assert stat.S_IMODE(address_file.stat().st_mode) == 0o600
            told = json.loads(address_file.read_text())
            with grpc.insecure_channel(told["address"]) as channel:
                stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError) as refused:
                    stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
                stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S, metadata=authorization(told["token"]))
        finally:
            parent.kill()
        wait_until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def test_an_embedded_planner_whose_parent_has_ended_before_it_began_does_not_serve(tmp_path: Path) -> None:
    state = tmp_path / "job" / "state"
    state.mkdir(parents=True, mode=0o700)
    command = [sys.executable, "-m", "perseus_dist", "planner", "--embedded", "--parent", "1", "--bind", "127.0.0.1:0"]
    command += ["--state-dir", str(state), "--address-file", str(tmp_path / "job" / "address.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.rglob("*")) == [tmp_path / "job"]  # which a later start of a job sweeps


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--bind", "0.0.0.0:0"], "is no loopback address"),
        (["--bind", "example.org:1"], "is no loopback address"),
        (["--bind", "nonsense"], "expected HOST:PORT"),
        (["--bind", "127.0.0.1:70000"], "expected HOST:PORT"),
        (["--tls-cert", "x.pem"], "expected both or neither"),
        (["--tls-cert", "x.pem", "--tls-key", "x.key", "--bind", "127.0.0.1:0"], "x.pem: cannot be read"),
        (["--embedded"], "--embedded needs --address-file"),
        (["--parent", "1"], "--parent needs --embedded"),
        (["--metrics-port", "70000"], "expected a port"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(
    options: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    try:
        code = main(["planner", *options])
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "told", "code"),
    [
        (["--bind", "192.0.2.1:0", "--insecure"], "cannot be listened on (Cannot assign requested address)", 1),
        (["--state-dir", "/proc/nowhere"], "name a folder with --state-dir", 2),
        (["--store", "postgresql://u@nosuch.invalid/d"], "check the host, nosuch.invalid", 2),
    ],
)
def test_what_the_system_refuses_is_told_in_one_line_and_leaves_nothing(
    tmp_path: Path, options: list[str], told: str, code: int
) -> None:
    done = perseus_dist("planner", *options, environment={"XDG_STATE_HOME": str(tmp_path / "new" / "state")})
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    assert told in line
    assert not list(tmp_path.iterdir())


def test_a_second_planner_takes_neither_the_port_nor_the_state(tmp_path: Path) -> None:
    with planner(tmp_path) as running:
        other = tmp_path / "other"
        other.mkdir()
        for folder in (other, tmp_path / "new"):
            taken = perseus_dist("planner", "--bind", running.address, "--state-dir", str(folder))
            (line,) = taken.stderr.splitlines()
            assert (taken.returncode, "(Address already in use); another planner may hold it" in line) == (1, True)
        assert not (tmp_path / "new").exists()
        assert (other / "operator-token").exists()
        held = perseus_dist("planner", "--bind", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
        assert (held.returncode, "another planner holds it" in held.stderr) == (1, True)
        assert (tmp_path / "state" / "planner.sqlite").exists()


def test_the_operators_token_is_private_and_used_by_default(tmp_path: Path) -> None:
    token_file = tmp_path / "state" / "operator-token"
    with planner(tmp_path) as running:
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(token_file.parent.stat().st_mode) == 0o700
        first = token_file.read_text()
        with grpc.insecure_channel(running.address) as channel:
            stream = attached(channel, never_ending([attach_message()]), "its own")
            next(stream)
            there = ("jobs", "--json", "--planner", running.address)
            nowhere = {"XDG_STATE_HOME": str(tmp_path / "nowhere")}
            assert json.loads(perseus_dist(*there, environment=nowhere).stdout) == {"jobs": []}
            named = {**nowhere, "PERSEUS_TOKEN_FILE": str(token_file)}
            assert len(json.loads(perseus_dist(*there, environment=named).stdout)["jobs"]) == 1
            by_default = {"XDG_STATE_HOME": str(tmp_path / "xdg")}
            (tmp_path / "xdg").mkdir()
            (tmp_path / "xdg" / "perseus-dist").symlink_to(tmp_path / "state")
            assert len(json.loads(perseus_dist(*there, environment=by_default).stdout)["jobs"]) == 1
            stream.cancel()
    with planner(tmp_path):
        assert token_file.read_text() == first
    token_file.chmod(0o640)
    refused = perseus_dist("planner", "--bind", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"))
    assert (refused.returncode, "chmod 600" in refused.stderr) == (2, True)


def test_a_planner_that_is_not_there_is_told_in_one_line() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = perseus_dist("jobs", "--planner", f"127.0.0.1:{closed.getsockname()[1]}")
    assert done.returncode == 2
    assert "no planner answers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_idle_and_hostile_connections_do_not_keep_agents_out(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with ExitStack() as stack:
        running = stack.enter_context(planner(tmp_path))
        host, port = running.address.split(":")
        hostile = (
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x00\xff" * 50,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            os.urandom(999),
        )
        for number in range(400):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
            connection.send(hostile[number % len(hostile)])
        channel = stack.enter_context(grpc.insecure_channel(running.address))
        stream = attached(channel, never_ending([attach_message()]))
        assert pb.PlannerMessage.FromString(next(stream)).WhichOneof("message") == "attached"
        stream.cancel()
        resident_kib = next(
            int(line.split()[1])
            for line in Path(f"/proc/{running.process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )
        assert resident_kib < 400_000
        assert running.end() == 0
