"""``--json`` of services: one line on standard output of what they serve, nothing else there, and none without it."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from waiting import PATIENCE_S, wait_until

from perseus_dist.simulator.machine import SimulatedMachine


def served(*words: str, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """What a service says before it is asked to end."""
    command = [sys.executable, "-m", "perseus_dist", *words, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environ or {})}
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            rest, log = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, rest) == (0, ""), log
    told: dict[str, Any] = json.loads(line)
    assert (told.pop("command"), told.pop("pid"), told.pop("version")) == (
        words[0],
        process.pid,
        version("perseus-dist"),
    )
    return told


def test_a_planner(tmp_path: Path) -> None:
    options = ("--bind", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"), "--web", "127.0.0.1:0")
    told = served("planner", *options, "--address-file", str(tmp_path / "address.json"))
    assert told["address"].startswith("127.0.0.1:")
    assert told["web_url"].startswith("http://127.0.0.1:")
    assert (told["metrics_address"], told["store"]) == ("", str(tmp_path / "state" / "planner.sqlite"))
    assert told.keys() == {"address", "metrics_address", "web_url", "store"}


def test_a_node_relay(tmp_path: Path) -> None:
    path = str(tmp_path / "relay" / "relay.sock")
    told = served("node-relay", "--planner", "a.example:1,b.example:2", "--socket", path)
    assert told == {"socket": path, "planners": ["a.example:1", "b.example:2"]}


def test_a_clockd(tmp_path: Path) -> None:
    with SimulatedMachine("a100") as machine:
        path, folder = str(tmp_path / "clockd.sock"), str(tmp_path / "leases")
        told = served("clockd", "--socket", path, "--lease-dir", folder, environ=machine.environment())
    assert told == {"socket": path, "lease_dir": folder}


def test_a_planning_worker(postgres: PostgresServer) -> None:
    url = postgres.url(postgres.fresh_database())
    told = served("planning-worker", "--store", url, "--workers", "1")
    assert told["workers"] == 1
    assert told["store"].startswith("postgresql://postgres@")


@pytest.mark.parametrize("is_read", [True, False])
def test_a_planner_whose_reader_has_left_serves(tmp_path: Path, *, is_read: bool) -> None:
    reading, writing = os.pipe()
    if not is_read:
        os.close(reading)
    address_file = tmp_path / "address.json"
    command = [sys.executable, "-m", "perseus_dist", "planner", "--bind", "127.0.0.1:0", "--json"]
    command += ["--state-dir", str(tmp_path / "state"), "--address-file", str(address_file)]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        try:
            wait_until(lambda: address_file.exists() or process.poll() is not None)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert ("standard output cannot be written" in log) is not is_read
    if is_read:
        os.close(reading)
