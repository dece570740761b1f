"""A small part of the kill matrix (tests/stress/kill_matrix.py): whatever dies at once, no clock stays locked."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MATRIX = Path(__file__).parents[1] / "stress" / "kill_matrix.py"
PRIVATE_MOUNTS = ["unshare", "--mount"]
# The result of each; swept where no process was left to restore the clock.
CASES = {
    "agent + lease holder by cgroup.kill under direct": "held",
    "trainer + agent by cgroup.kill under direct": "unlocked",
    "trainer + lease holder by SIGKILL in a loop under direct": "unlocked",
    "trainer + agent + lease holder by death of a PID namespace under direct": "swept",
    "trainer + agent + clockd by death of a PID namespace under clockd": "unlocked",
    "agent + clockd by SIGTERM, then SIGKILL under clockd": "held",
}


def _why_not(folder: Path) -> str:
    """Why processes cannot be killed by control groups and PID namespaces here; empty if they can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "needs root and unshare"
    trial = 'mount -t cgroup2 none "$0" && unshare --pid --fork --mount-proc true'  # gone with the mount namespace
    command = [*PRIVATE_MOUNTS, "sh", "-c", trial, str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"control groups or PID namespaces cannot be had: {tried.stderr.strip()}"


@pytest.mark.alone
@pytest.mark.stress
def test_whatever_dies_at_once_no_clock_stays_locked(tmp_path: Path) -> None:
    if reason := _why_not(tmp_path):
        pytest.skip(reason)
    only = [word for case in CASES for word in ("--only", case)]
    ran = subprocess.run(
        [*PRIVATE_MOUNTS, sys.executable, str(MATRIX), "--jobs", "2", "--json", *only],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outcomes = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {outcome["case"]: outcome["result"] for outcome in outcomes} == CASES
