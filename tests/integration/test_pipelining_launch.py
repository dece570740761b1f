"""How Perseus comes into a process that may train with torch's pipelining: runner, and enabled environment."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from perseus_dist.training.opt_in import _without_docs

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

START = Path(__file__).parents[2] / "perseus_dist" / "training" / "environment_start.py"
NO_PIPELINE = "perseus: this job has no pipeline of torch.distributed.pipelining"
ALONE = """\
import sys
early = [name for name in sys.modules if name.startswith(("torch", "perseus_dist.hooks"))]
import torch
weight = torch.nn.Parameter(torch.ones(1))
for optimizer in (torch.optim.SGD([weight]), torch.optim.Adam([weight])):
    weight.square().backward()
    for _ in range(3):
        optimizer.step()
print(early, sys.argv[1:], "perseus_dist.pipelining.by_itself" in sys.modules)
"""


def python(folder: Path, *argv: str, **extra: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "RANK"))}
    return subprocess.run(
        [sys.executable, *argv],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", **extra},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@needs_torch
def test_a_job_without_a_pipeline_is_warned_once_and_trains_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ALONE)
    runner = ("-m", "perseus_dist.pipelining", "--perseus-target", "slowdown=1.1", "--perseus")
    ran = python(tmp_path, *runner, "train.py", "--perseus-report", "of the script")
    assert ran.stdout == "[] ['--perseus-report', 'of the script'] True\n"
    assert ran.stderr.count(NO_PIPELINE) == 1
    assert ran.returncode == 0


@needs_torch
@pytest.mark.parametrize(
    ("environment", "asks"),
    [
        pytest.param({"PERSEUS_ENABLE": "1"}, True, marks=pytest.mark.stress),
        ({"PERSEUS_REPORT": "report"}, False),
        pytest.param({"PERSEUS_ENABLE": "1", "PERSEUS_DISABLE": "1"}, False, marks=pytest.mark.stress),
    ],
)
def test_in_an_enabled_environment_a_job_asks_by_a_variable(
    environment: dict[str, str], *, asks: bool, tmp_path: Path
) -> None:
    start = f"{_without_docs(START.read_text())}\nwait_for('pipelining')\n"
    (tmp_path / "train.py").write_text(f"exec({start!r}, {{}})\n{ALONE}")
    ran = python(tmp_path, "train.py", **environment)
    assert (ran.stdout, ran.stderr.count(NO_PIPELINE)) == (f"[] [] {asks}\n", int(asks))
    assert ran.returncode == 0
    assert asks or not ran.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--perseus-target", "fast", "train.py"), "--perseus-target is 'fast': expected t_min"),
        (("--perseus-colour=red", "train.py"), "--perseus-colour=red is no option of Perseus"),
        (("--perseus-report",), "expected one argument; options stand before the script"),
        (("--perseus-profile", "nowhere.csv", "train.py"), "nowhere.csv: no file that can be read"),
        (("--perseus",), "usage: python -m perseus_dist.pipelining"),
        (("--perseus", "nowhere.py"), "no script at nowhere.py"),
    ],
)
def test_what_cannot_be_served_ends_the_start_in_one_line(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('ran')")
    ran = python(tmp_path, "-m", "perseus_dist.pipelining", *options)
    (line,) = ran.stderr.splitlines()
    assert sentence in line
    assert (ran.returncode, ran.stdout) == (2, "")
