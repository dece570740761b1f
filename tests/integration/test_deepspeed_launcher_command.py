"""The literal ``deepspeed --perseus``: an environment is enabled, DeepSpeed's own command runs in it, all is undone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from readme import readme_command
from waiting import wait_until

from perseus_dist.simulation.frameworks.training_run import free_port
from perseus_dist.training.options import PerseusOptions

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")

PROBE = Path(__file__).parent / "launcher_standins" / "probe.py"
SLEEPER = """\
import pathlib, os, signal, time
def interrupted(number, frame):  # by the terminal, or by DeepSpeed's launcher, which passes SIGINT on as SIGTERM
    pathlib.Path(f"interrupted-{os.environ['RANK']}").touch()
    os._exit(1)
signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, interrupted)
pathlib.Path(f"started-{os.environ['RANK']}").touch()
time.sleep(120)
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that sees what this one has installed, with DeepSpeed's command in it."""

    folder: Path
    work: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def site(self) -> Path:
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def variables(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERSEUS", "PYTEST"))}
        return {**kept, "DS_ACCELERATOR": "cpu", "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **(extra or {})}

    def run(self, *argv: str, **extra: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            argv,
            cwd=self.work,
            env=self.variables(extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )

    def perseus(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        return self.run(self.python, "-P", "-c", _ENABLE, *argv)

    def ranks(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted((self.work / "out").glob("*.json"))]


_ENABLE = """\
import argparse, sys
from perseus_dist.cli.node import enable
from perseus_dist.errors import PerseusError
parser = argparse.ArgumentParser()
enable.add_parser(parser.add_subparsers())
args = parser.parse_args()
try:
    sys.exit(args.run(args))
except PerseusError as error:
    print(error)
    sys.exit(2)
"""


@pytest.fixture
def environment(child_venv: Path, tmp_path: Path) -> Environment:
    made = Environment(child_venv, tmp_path / "work")
    command = (Path(sysconfig.get_path("scripts")) / "deepspeed").read_text().split("\n", 1)[1]
    (made.folder / "bin" / "deepspeed").write_text(f"#!{made.python}\n{command}")
    (made.folder / "bin" / "deepspeed").chmod(0o755)
    made.work.mkdir()
    shutil.copy(PROBE, made.work / "probe.py")
    return made


def on(*argv: str) -> Sequence[str]:
    return ("--num_gpus", "2", "--master_port", str(free_port()), *argv)


def test_an_enabled_environment(environment: Environment) -> None:
    before = environment.run("deepspeed", "--perseus", "probe.py")
    assert before.returncode == 2
    assert "unrecognized arguments: --perseus" in before.stdout

    enabled = environment.perseus("enable", "deepspeed")
    pth = environment.site / "perseus_dist_deepspeed.pth"
    assert enabled.stdout.splitlines() == [
        f"Wrote {pth}: `deepspeed --perseus` works in this environment.",
        "Undo it with: perseus-dist disable deepspeed",
    ]
    again = json.loads(environment.perseus("enable", "deepspeed", "--json").stdout)
    assert (again["written"], again["is_framework_installed"], again["is_first_on_path"]) == (str(pth), True, None)
    command = readme_command(
        "deepspeed --perseus ", script="train.py", own="probe.py", options=("--perseus-job", "enabled", *on())
    )
    ran = environment.run(*command, "--out", "out")
    assert ran.returncode == 0, ran.stdout
    assert [rank["options"] for rank in environment.ranks()] == [PerseusOptions(job="enabled").to_text()] * 2
    theirs = command[command.index("probe.py") + 1 :]
    assert theirs[0] == "--deepspeed"
    assert [rank["argv"][-len(theirs) - 2 : -2] for rank in environment.ranks()] == [theirs] * 2
    assert not any(rank["imported_torch"] for rank in environment.ranks())

    disabled = environment.perseus("disable", "deepspeed")
    assert disabled.stdout == f"Removed {pth}.\n"
    assert not pth.exists()
    assert json.loads(environment.perseus("disable", "deepspeed", "--json").stdout)["removed"] is None
    assert environment.perseus("disable", "deepspeed").stdout == f"Nothing to undo in {environment.site}.\n"


@pytest.mark.stress
def test_an_enabled_environment_is_silent_until_deepspeed_comes(environment: Environment) -> None:
    environment.perseus("enable", "deepspeed")
    look = (
        "import sys\n"
        "print([name for name in sys.modules if name.startswith('perseus')])\n"
        "import importlib.util\n"
        "importlib.util.find_spec('deepspeed')\n"
        "print([name for name in sys.modules if name.startswith('perseus')])\n"
        "import deepspeed\n"
        "from perseus_dist.deepspeed import activation\n"
        "from deepspeed.runtime.pipe.engine import PipelineEngine\n"
        "print(activation._is_active, activation._options(), hasattr(PipelineEngine.train_batch, '__wrapped__'))\n"
    )
    plain = environment.run(environment.python, "-c", look).stdout.splitlines()
    assert plain[0] == plain[1] == "[]"
    assert plain[-1] == "True None True"
    asked = environment.run(environment.python, "-c", look, PERSEUS_ENABLE="1").stdout.splitlines()
    assert asked[-1] == f"True {PerseusOptions()} True"
    off = environment.run(environment.python, "-c", look, PERSEUS_DISABLE="1", PERSEUS_ENABLE="1").stdout.splitlines()
    assert off[-1] == "False None False"


@pytest.mark.stress
def test_python_below_a_users_own_wrapper_is_activated(environment: Environment) -> None:
    """``--no_python`` in an environment that is not enabled: options come by the process environment."""
    (environment.work / "wrapper").write_text(f'#!/bin/sh\nexec {environment.python} -u probe.py "$@"\n')
    (environment.work / "wrapper").chmod(0o755)
    shim = environment.folder / "shim with a space"
    assert f"Wrote {shim / 'deepspeed'}" in environment.perseus("enable", "deepspeed", "--shim", str(shim)).stdout
    ran = environment.run(
        *(str(shim / "deepspeed"), "--perseus-job", "wrapped", "--no_local_rank", "--num_gpus", "1"),
        *("--master_port", str(free_port()), "--no_python", "./wrapper", "--out", "out", "--import-deepspeed"),
    )
    assert ran.returncode == 0, ran.stdout
    assert [rank["options"] for rank in environment.ranks()] == [PerseusOptions(job="wrapped").to_text()]
    assert environment.perseus("disable", "deepspeed", "--shim", str(shim)).stdout == f"Removed {shim / 'deepspeed'}.\n"
    assert not shim.exists()


@pytest.mark.stress
def test_what_is_left_behind_is_silent_once_the_package_is_gone(environment: Environment) -> None:
    """As after ``pip uninstall`` without ``disable``, also where that left folders."""
    others = environment.folder / "others"
    others.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if "perseus" not in installed.name and installed.suffix != ".pth":
            (others / installed.name).symlink_to(installed)
    shim = environment.folder / "shim"
    environment.perseus("enable", "deepspeed", "--shim", str(shim))
    left_behind = {}
    for framework in ("deepspeed", "megatron"):
        environment.perseus("enable", framework)
        pth = environment.site / f"perseus_dist_{framework}.pth"
        left_behind[pth] = pth.read_text()
        pth.unlink()
    (environment.site / "parent.pth").write_text(f"import sys; sys.path.append({str(others)!r})\n")
    assert environment.run(environment.python, "-c", "import perseus_dist").returncode == 1
    starts = [[environment.python, "-c", "pass"], ["deepspeed", "--perseus", "probe.py"]]
    pristine = [environment.run(*argv) for argv in starts]
    for pth, text in left_behind.items():
        pth.write_text(text)
    for leftover in (None, "perseus_dist/deepspeed/__pycache__"):
        if leftover is not None:
            (environment.site / leftover).mkdir(parents=True)
        for argv, plain in zip(starts, pristine, strict=True):
            left = environment.run(*argv)
            assert (left.returncode, left.stdout) == (plain.returncode, plain.stdout)
    assert [start.returncode for start in pristine] == [0, 2]
    assert environment.run(str(shim / "deepspeed"), *starts[1][1:]).stdout == pristine[1].stdout


def test_a_shim_never_takes_the_place_of_a_deepspeed(environment: Environment) -> None:
    for command in ("enable", "disable"):
        refused = environment.perseus(command, "deepspeed", "--shim", str(environment.folder / "bin"))
        assert refused.returncode == 2
        assert refused.stdout.startswith(f"{environment.folder / 'bin' / 'deepspeed'} is not ours: ")


def test_a_shims_folder_that_was_there_stays(environment: Environment) -> None:
    for _ in range(2):
        enabled = environment.perseus("enable", "deepspeed", "--shim", str(environment.work))
    assert f'Put it first on PATH: export PATH={environment.work}:"$PATH"' in enabled.stdout
    environment.perseus("disable", "deepspeed", "--shim", str(environment.work))
    assert sorted(path.name for path in environment.work.iterdir()) == ["probe.py"]


def test_where_nothing_may_be_written(environment: Environment) -> None:
    refused = environment.perseus("enable", "deepspeed", "--shim", "/proc/nowhere")
    assert refused.returncode == 2
    assert refused.stdout.startswith("/proc/nowhere/deepspeed cannot be written (")
    assert len(refused.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([signal.SIGINT], id="once"),
        pytest.param([signal.SIGINT, signal.SIGINT], id="twice", marks=pytest.mark.soak),
        pytest.param([signal.SIGTERM], id="terminated", marks=pytest.mark.stress),
    ],
)
def test_ctrl_c_reaches_the_ranks(environment: Environment, signals: list[signal.Signals]) -> None:
    """As a terminal sends it: to the whole process group. What is shown and how it ends is as without us."""
    environment.perseus("enable", "deepspeed")
    (environment.work / "sleeper.py").write_text(SLEEPER)
    with _launched(environment, "--perseus-report", "report", *on("sleeper.py")) as job:
        _wait_for(environment.work, "started-*")
        (environment.work / "report" / "job.json").write_text("{}")
        for number in signals:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, number)
        _wait_for(environment.work, "interrupted-*")
        output, _ = job.communicate(timeout=60)
    assert job.returncode == -signals[0]
    assert "runner_patch.py" not in output
    told = f"no report was made; to make it: perseus-dist report {environment.work / 'report'}"
    assert (told in output) == (signals[0] == signal.SIGINT)


@pytest.mark.stress
def test_ctrl_c_while_the_report_is_made(environment: Environment) -> None:
    environment.perseus("enable", "deepspeed")
    (environment.work / "short.py").write_text("import pathlib\npathlib.Path('report/job.json').write_text('{}')\n")
    with _launched(environment, "--perseus-report", "report", *on("short.py")) as job:
        wait_until(lambda: _runs("perseus_dist.training.report_launcher", str(environment.work / "report")))
        os.killpg(job.pid, signal.SIGINT)
        output, _ = job.communicate(timeout=60)
    assert job.returncode == -signal.SIGINT
    assert "Traceback" not in output
    assert f"no report was made; to make it: perseus-dist report {environment.work / 'report'}" in output


def test_a_launcher_that_fails_shows_its_own_traceback_alone(environment: Environment) -> None:
    environment.perseus("enable", "deepspeed")
    argv = ("deepspeed", "--include", "localhost:7", "--num_gpus", "2", "probe.py")
    failed = environment.run(*argv)
    assert "Traceback" in failed.stdout
    assert "perseus" not in failed.stdout.replace(str(environment.work), "")
    environment.perseus("disable", "deepspeed")
    assert environment.run(*argv).stdout.splitlines()[-1] == failed.stdout.splitlines()[-1]


@contextmanager
def _launched(environment: Environment, *argv: str) -> "Iterator[subprocess.Popen[str]]":
    job = subprocess.Popen(
        ["deepspeed", *argv],
        executable=environment.folder / "bin" / "deepspeed",
        cwd=environment.work,
        env=environment.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()


def _runs(*words: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if set(words) <= set(path.read_text(errors="replace").split("\0")):
                return True
    return False


def _wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 120
    while len(list(folder.glob(pattern))) < 2:
        assert time.monotonic() < deadline, f"no two {pattern} in {folder}"
        time.sleep(0.05)
