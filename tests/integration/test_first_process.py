"""Planner and lease daemon as first processes of a container: they end when asked to, and leave no zombies."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import agents_of
from waiting import PATIENCE_S, wait_for, wait_until

from perseus_dist.cli import main
from perseus_dist.simulator.machine import SimulatedMachine

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@contextmanager
def first_process(*words: str, environ: dict[str, str] | None = None) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """A command as PID 1 of a namespace: its id in ours, and the process that made the namespace."""
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], check=False).returncode != 0:
        pytest.skip("PID namespaces cannot be made here: needs root and unshare")
    command = [*UNSHARE, sys.executable, "-P", "-m", "perseus_dist", *words]
    with subprocess.Popen(command, env={**os.environ, **(environ or {})}, stderr=subprocess.PIPE, text=True) as unshare:
        try:
            yield wait_for(lambda: agents_of(unshare.pid))[0], unshare
        finally:
            unshare.kill()


def handles_sigterm(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def test_sigterm_while_it_starts_ends_it(tmp_path: Path) -> None:
    with first_process("planner", "--bind", "127.0.0.1:0", "--state-dir", str(tmp_path)) as (pid, unshare):
        wait_until(lambda: handles_sigterm(pid))
        os.kill(pid, signal.SIGTERM)
        assert unshare.wait(PATIENCE_S) in (0, 128 + signal.SIGTERM)  # the first where it served already


def test_a_planner_drains_and_reaps_its_worker(tmp_path: Path) -> None:
    address = tmp_path / "address.json"
    words = ["--bind", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"), "--address-file", str(address)]
    with first_process("planner", *words) as (pid, unshare):
        wait_until(address.exists)
        for worker in agents_of(pid):
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda worker=worker: not Path(f"/proc/{worker}").exists())  # type: ignore[misc]
        os.kill(pid, signal.SIGTERM)
        assert unshare.wait(PATIENCE_S) == 0
        assert "draining" in unshare.stderr.read() if unshare.stderr else ""


def test_a_lease_daemon_ends_in_good_order(tmp_path: Path) -> None:
    with SimulatedMachine("a100", count=1) as machine:
        words = ["--socket", str(tmp_path / "clockd.sock"), "--lease-dir", str(tmp_path / "leases")]
        with first_process("clockd", *words, environ=machine.environment()) as (pid, unshare):
            wait_until((tmp_path / "clockd.sock").exists)
            wait_until(lambda: main(["health", "--clockd", str(tmp_path / "clockd.sock")]) == 0)
            os.kill(pid, signal.SIGTERM)
            assert unshare.wait(PATIENCE_S) == 0
            assert not (tmp_path / "clockd.sock").exists()
