"""The start of every process in an enabled environment: whatever goes wrong, the framework's import goes on."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from perseus_dist.training.environment_start import PerseusStart


class FullDisk:
    """A stream to a disk without room."""

    def write(self, line: str) -> None:
        raise OSError(28, "No space left on device", line)


@pytest.mark.parametrize("stderr", [None, FullDisk()], ids=["closed", "full disk"])
def test_an_error_that_cannot_be_said_reaches_no_import(
    stderr: FullDisk | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("no start")

    activation = ModuleType("perseus_dist.deepspeed.activation")
    activation.__dict__["start"] = fail
    monkeypatch.setitem(sys.modules, activation.__name__, activation)
    monkeypatch.setattr(sys, "stderr", stderr)
    PerseusStart("deepspeed").find_spec("deepspeed.runtime")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_an_error_that_cannot_be_said_keeps_no_script_from_running(redirection: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('trained')")
    program = """
from perseus_dist.training.runner import run_program
run_program(["script.py"], runner="", usage="", activate=lambda: 1 / 0)
"""
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, program]
    ended = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False)
    assert ended.stdout == "trained\n"
