"""A test run that is killed leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import leftovers
import pytest
from processes import agents_of, has_ended
from waiting import wait_until

TEST = """
import subprocess, sys, time
def test_starts_a_process_and_does_not_end():
    code = "import subprocess, time; subprocess.Popen(['sleep', '1000']); print(flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    open({started!r}, "w").write(str(process.pid))
    time.sleep(1000)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_run_had_started_ends(tmp_path: Path, sent: signal.Signals) -> None:
    started = tmp_path / "started"
    (tmp_path / "test_that_hangs.py").write_text(TEST.format(started=str(started)))
    environ = {**os.environ, "PYTHONPATH": str(Path(leftovers.__file__).parent)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "leftovers", "-p", "no:cacheprovider", "test_that_hangs.py"]
    run = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.DEVNULL)
    wait_until(lambda: started.exists() and bool(started.read_text()))
    left = [int(started.read_text()), *agents_of(int(started.read_text()))]
    assert len(left) == 2
    run.send_signal(sent)
    run.wait()
    wait_until(lambda: all(map(has_ended, left)))
