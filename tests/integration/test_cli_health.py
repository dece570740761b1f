"""``perseus-dist health``: what a probe learns of a planner and of a lease daemon, by its exit code."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import planner_process
import pytest
import trustme
import yaml
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from waiting import PATIENCE_S, wait_for

from perseus_dist.cli import main
from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.simulator.machine import SimulatedMachine

SERVES = {"serves": True, "fault": ""}


@pytest.fixture(autouse=True)
def no_named_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERSEUS_PLANNER", raising=False)


@pytest.fixture
def clockd(tmp_path: Path) -> Iterator[ClockdProcess]:
    with SimulatedMachine("a100", count=1) as machine:
        environ = {**os.environ, **machine.environment()}
        with ClockdProcess(tmp_path, environ) as daemon:
            yield daemon


def test_envoy_in_the_documentation_asks_for_what_a_planner_answers(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    block = page.split("#### Behind Envoy")[1].split("```yaml\n")[1].split("```")[0]
    (cluster,) = yaml.safe_load(block)["static_resources"]["clusters"]
    (check,) = cluster["health_checks"]
    with planner_process.planner(tmp_path) as planner, grpc.insecure_channel(planner.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=check["grpc_health_check"]["service_name"])
        answer = stub.Check(request, timeout=PATIENCE_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_planner_that_serves_and_one_that_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with planner_process.planner(tmp_path) as planner:
        assert main(["health", "--planner", planner.address]) == 0
        assert capsys.readouterr().out == f"planner at {planner.address} serves\n"
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # as clusters give it to all pods
        monkeypatch.setenv("PERSEUS_PLANNER", planner.address)
        assert main(["health"]) == 0
        assert main(["health", "--tls"]) == 1  # it speaks none
        capsys.readouterr()
        assert main(["health", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"subject": f"planner at {planner.address}", **SERVES}
        planner.end()
        assert main(["health", "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["fault"].startswith("no planner answers")
        assert main(["health", "--planner", planner.address]) == 1
    assert "does not serve: no planner answers (Connection refused)" in capsys.readouterr().err


def test_of_replicas_one_that_serves_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with planner_process.planner(tmp_path) as planner, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        other = f"127.0.0.1:{silent.getsockname()[1]}"
        both = f"{other}, {planner.address}"
        assert main(["health", "--planner", both]) == 0
        told = capsys.readouterr()
        assert told.out == f"planner at {planner.address} serves\n"
        assert told.err.startswith(f"planner at {other} does not serve: no planner answers")
        assert main(["health", "--json", "--planner", both]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["serves"], document["fault"]) == (True, "")
        assert [one["serves"] for one in document["replicas"]] == [False, True]
        planner.end()
        assert main(["health", "--json", "--planner", both]) == 1
        assert json.loads(capsys.readouterr().out)["fault"] == "no replica serves"
    assert main(["health", "--planner", f"{both},"]) == 2


def test_tls_with_the_authority_and_the_name_of_the_certificate(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "stranger.pem")
    leaf = ca.issue_cert("perseus-planner.perseus-dist.svc")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    words = ["--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")]
    with planner_process.planner(tmp_path, *words) as planner:
        ask = ["health", "--planner", planner.address]
        named = ["--tls-server-name", "perseus-planner.perseus-dist.svc"]
        assert main([*ask, "--tls-ca", str(tmp_path / "ca.pem"), *named]) == 0
        assert main([*ask, "--tls-ca", str(tmp_path / "ca.pem")]) == 1  # 127.0.0.1 is not in the certificate
        assert main([*ask, "--tls-ca", str(tmp_path / "stranger.pem"), *named]) == 1
        assert main([*ask, "--tls", *named]) == 1  # nor is the system's authority its own
        assert main(ask) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [(health_pb2.HealthCheckResponse.SERVING, 0), (health_pb2.HealthCheckResponse.NOT_SERVING, 1), (None, 1)],
)
def test_what_the_health_service_says(status: int | None, code: int) -> None:
    servicer = health.HealthServicer()
    if status is not None:
        servicer.set("perseus.v1.Planner", status)
    server = grpc.server(ThreadPoolExecutor(1))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert main(["health", "--planner", f"127.0.0.1:{port}"]) == code
    finally:
        server.stop(None)


def test_something_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert main(["health", "--planner", f"127.0.0.1:{port}", "--timeout-s", "0.1"]) == 1


def test_a_lease_daemon_that_serves_hangs_and_is_gone(
    clockd: ClockdProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["health", "--clockd", str(clockd.socket_path)]
    assert main(ask) == 0
    clockd.process.send_signal(signal.SIGSTOP)
    assert main([*ask, "--timeout-s", "0.1"]) == 1
    clockd.process.send_signal(signal.SIGCONT)
    assert main(ask) == 0
    clockd.kill()
    assert main(ask) == 1
    err = capsys.readouterr().err
    assert "has not answered within 0.1 s" in err
    assert "no daemon answers there (Connection refused)" in err


@pytest.mark.parametrize(
    "words",
    [
        ["--clockd", "x", "--tls"],
        ["--tls-cert", "x"],
        ["--tls-server-name", "x"],
        ["--planner", "no-port"],
        ["--tls-ca", "missing.pem"],
    ],
)
def test_options_that_cannot_be_used(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", *words]) == 2
    assert capsys.readouterr().err.startswith("perseus-dist: ")


def test_a_planning_worker_serves_while_it_touches_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("PERSEUS_CLIENT_TLS", "1")  # towards planners, which is no matter here
    alive = tmp_path / "alive"
    words = ["health", "--planning-worker", str(alive)]
    assert main(words) == 1
    assert "does not serve: it has not begun (No such file or directory)" in capsys.readouterr().err
    command = [sys.executable, "-m", "perseus_dist", "planning-worker", "--store", "postgresql://u@127.0.0.1:1/d"]
    worker = subprocess.Popen([*command, "--alive-file", str(alive)], stderr=subprocess.DEVNULL)
    try:
        wait_for(alive.exists)  # its database is away, and waited for
        assert main(words) == 0
        assert capsys.readouterr().out == f"planning worker of {alive} serves\n"
        os.utime(alive, (0, 0))
        wait_for(lambda: alive.stat().st_mtime > 0)
    finally:
        worker.terminate()
    assert worker.wait(PATIENCE_S) == 0
    os.utime(alive, (alive.stat().st_mtime - 60,) * 2)
    assert main([*words, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fault"].startswith("it has been silent for 6")
    assert main(["health", "--planning-worker", str(tmp_path)]) == 1
    assert main([*words, "--tls"]) == 2
    assert "expected no TLS options" in capsys.readouterr().err


def test_the_file_of_a_planning_worker_is_none_that_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    secret = tmp_path / "password"
    secret.write_text("x\n")
    secret.chmod(0o600)
    command = ["planning-worker", "--store", "postgresql://u@127.0.0.1:1/d", "--store-password-file", str(secret)]
    assert main([*command, "--alive-file", str(secret)]) == 2
    assert secret.read_text() == "x\n"
    assert main([*command, "--alive-file", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 2
