"""Settings files and real processes: a planner, a clockd and an operator's command that take them; jobs that do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S, wait_until

COMMAND = (sys.executable, "-P", "-m", "perseus_dist")


def run(*words: str, environ: dict[str, str], user: int | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        env={**os.environ, **environ},
        user=user,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def settings(folder: Path, text: str) -> dict[str, str]:
    path = folder / "perseus.toml"
    path.write_text(text)
    path.chmod(0o644)
    return {"PERSEUS_CONFIG": str(path)}


def test_a_planner_and_who_asks_it_find_each_other_by_one_file(tmp_path: Path) -> None:
    serves = '[planner]\nbind = "127.0.0.1:0"\nstate-dir = "state"\naddress-file = "address.json"\n'
    environ = settings(tmp_path, serves)
    address_file = tmp_path / "address.json"
    with subprocess.Popen([*COMMAND, "planner"], env={**os.environ, **environ}, cwd="/") as planner:
        try:
            wait_until(lambda: address_file.exists() or planner.poll() is not None)
            address = json.loads(address_file.read_text())["address"]
            asks = f'{serves}[client]\nplanner = "{address}"\ntoken-file = "state/operator-token"\n'
            settings(tmp_path, asks)
            asked = run("jobs", "--json", environ=environ)
            assert (asked.returncode, json.loads(asked.stdout)) == (0, {"jobs": []})
            assert (tmp_path / "state/operator-token").exists()
        finally:
            planner.terminate()
    assert planner.returncode == 0


def test_a_broken_file_stops_operators_commands_and_nothing_of_a_job(tmp_path: Path) -> None:
    environ = settings(tmp_path, "[planner\n")
    for command in ("planner", "clockd", "jobs"):
        refused = run(command, environ=environ)
        assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert f"{tmp_path / 'perseus.toml'} is no TOML" in refused.stderr
    mine = run("planner", "--embedded", environ=environ)
    assert "--embedded needs --address-file" in mine.stderr
    released = run("release", "--json", "--lease-dir", str(tmp_path), environ=environ)
    assert "TOML" not in released.stderr
    assert run("planner", "--help", environ=environ).returncode == 0


def test_clockd_takes_its_bounds_from_a_file(tmp_path: Path) -> None:
    environ = settings(tmp_path, '[clockd]\nmin-mhz = 900\nlease-dir = "leases"\nsocket = "clockd.sock"\n')
    ended = run("clockd", environ={**environ, "LD_LIBRARY_PATH": ""})  # which has no GPU here, or no right
    assert (
        f"settings: --socket from {tmp_path}/perseus.toml:4, --min-mhz from {tmp_path}/perseus.toml:2" in ended.stderr
    )
    assert "bounds_mhz=(900, " in ended.stderr
    assert str(tmp_path / "leases") in ended.stderr
    assert str(tmp_path / "clockd.sock") in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_files_of_other_users_are_refused(tmp_path: Path) -> None:
    environ = settings(tmp_path, "[client]\nplanner = '127.0.0.1:1'\n")
    os.chown(tmp_path / "perseus.toml", 65_534, -1)
    refused = run("jobs", environ=environ)
    assert "belongs to user 65534, expected root; chown it" in refused.stderr
