"""A signal to a process id that no process has told ends nothing."""

import os
import signal
import subprocess

import pytest


@pytest.mark.parametrize("target", [0, -1, 1])
def test_a_signal_to_all_is_refused(target: int) -> None:
    for send in (os.kill, os.killpg):
        with pytest.raises(ValueError, match="expected a process that the test has started"):
            send(target, signal.SIGURG)  # which nobody minds


def test_a_signal_to_the_runs_own_group_is_refused_and_one_to_another_is_sent() -> None:
    with pytest.raises(ValueError, match="expected a process"):
        os.killpg(os.getpgrp(), signal.SIGURG)
    for send in (os.kill, os.killpg):
        with subprocess.Popen(["sleep", "60"], process_group=0) as other:
            send(other.pid, signal.SIGTERM)
        assert other.returncode == -signal.SIGTERM
