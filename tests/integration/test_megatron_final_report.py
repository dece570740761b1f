"""The report that rank 0 makes as it ends, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

REPORTING = """
import sys
from pathlib import Path
from perseus_dist.megatron.loops.training_loop import MegatronLoop
from perseus_dist.training.final_report import make_report_at_exit

def leave():
    print("left")
    Path(sys.argv[1], "job.json").write_text('{"phase": "done"}')

make_report_at_exit(sys.argv[1], leave, was_asked_to_end=MegatronLoop().was_asked_to_end)
print("training", flush=True)
if sys.argv[2:] == ["fork"]:
    import os
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
if sys.argv[2:] == ["signal"]:
    from types import ModuleType, SimpleNamespace
    handlers = ModuleType("megatron.training.global_vars")
    handlers._GLOBAL_SIGNAL_HANDLER = SimpleNamespace(_signal_received=True)
    sys.modules[handlers.__name__] = handlers
    sys.exit(0)
if sys.argv[2:] == ["fail"]:
    raise ArithmeticError("the layer has failed")
"""


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [("", "job.json"), ("fork", "job.json"), ("fail", "perseus-dist report"), ("signal", "perseus-dist report")],
)
def test_the_report_is_made_once_training_has_ended(tmp_path: Path, argument: str, sentence: str) -> None:
    """Here ``perseus-dist report`` finds nothing to report, and says so."""
    run = subprocess.run(
        [sys.executable, "-c", REPORTING, str(tmp_path), argument], capture_output=True, text=True, check=False
    )
    assert run.returncode == (argument == "fail")
    assert run.stdout.splitlines()[:2] == ["training", "left"]
    assert run.stdout.count("left") == 1
    assert sentence in run.stderr


def test_a_report_that_cannot_be_written_is_said_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = subprocess.run(
        [sys.executable, "-c", REPORTING, str(tmp_path / "file"), ""], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0
    assert run.stdout.splitlines() == ["training"]
    assert "perseus: there will be no report: --perseus-report" in run.stderr
