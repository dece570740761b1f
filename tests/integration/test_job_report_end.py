"""The report of a job delays no exit that must not be delayed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import PATIENCE_S

MAKING = """
import logging, subprocess, sys, time
from perseus_dist.training.report_launcher import LONGEST_AFTER_FAILURE_S, ReportLauncher
logging.basicConfig(format="%(message)s")
report = ReportLauncher(sys.argv[1])
open(sys.argv[1] + "/job.json", "w").write(sys.argv[2])
Popen = subprocess.Popen
def start(*arguments, **options):
    print("ends", flush=True)
    time.sleep(60 if sys.argv[3] == "starting" else 0)
    return Popen(*arguments, **options)
subprocess.Popen = start
report.make(longest_s=LONGEST_AFTER_FAILURE_S if sys.argv[3] == "failed" else None)
"""
RUNNING = json.dumps({"phase": "enforcing", "ended_at": None})
DONE = json.dumps({"phase": "done", "ended_at": None})


def start(folder: Path, job: str, how: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-c", MAKING, str(folder), job, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_that_failed_ends_soon_and_its_report_comes_later(tmp_path: Path) -> None:
    with start(tmp_path, RUNNING, "failed") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ends\n"
        said = process.stderr.readline()
        assert process.wait(PATIENCE_S) == 0
        assert said == f"the report is made in the background; if it does not come: perseus-dist report {tmp_path}\n"
        (tmp_path / "job.json").write_text(DONE)  # the last word of rank 0's agent
        assert str(tmp_path) in process.stderr.read()  # what perseus-dist report says of such a folder


@pytest.mark.parametrize("how", ["well", "starting"])
def test_ctrl_c_ends_the_waiting_and_names_the_command(how: str, tmp_path: Path) -> None:
    """Also while the process that makes the report is being started."""
    with start(tmp_path, RUNNING, how) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ends\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert f"no report was made; to make it: perseus-dist report {tmp_path}" in said
