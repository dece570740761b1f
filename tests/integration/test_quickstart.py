"""What the quickstart says before it trains, and where it does not train at all."""

import fcntl
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from perseus_dist.cli.simulated import quickstart
from perseus_dist.errors import OutputError
from perseus_dist.report.run_report import build_report
from perseus_dist.simulation.errors import SimulationError

CHECKOUT = Path(__file__).parents[2]
FIVE = ("PERSEUS_CLOCKD_SOCKET", "ZEUSD_SOCK_PATH", "PERSEUS_LEASE_DIR", "PERSEUS_SIM_STATE", "LD_LIBRARY_PATH")

pytestmark = pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")


def run(*argv: str, under: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    """Outside simulated GPUs, or under such."""
    perseus = (sys.executable, "-P", "-m", "perseus_dist")
    wrapped = (*perseus, "sim", "--count", "4", *under, "--") if under else ()
    return subprocess.run(
        [*wrapped, *perseus, "quickstart", "--examples", str(CHECKOUT / "examples"), *argv],
        env={name: value for name, value in os.environ.items() if name not in FIVE},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_real_gpus_where_there_are_none(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    ran = run("--gpu", "real", "--out", str(tmp_path / "out"))
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert "--gpu real: this machine has no NVIDIA GPU that can be used" in line
    assert line.endswith("give --gpu a100")


def test_real_gpus_whose_clocks_we_may_not_set(tmp_path: Path) -> None:
    """Minutes of training would show nothing."""
    ran = run("--gpu", "real", "--out", str(tmp_path / "out"), under=("--unprivileged",))
    assert ran.returncode == 2
    # The lease process says it to the log as well, before or after.
    (line,) = (line for line in ran.stderr.splitlines() if "perseus-dist lease: " not in line)
    assert "the clocks of this machine's GPUs cannot be set, and without that nothing is saved" in line
    assert "run 'perseus-dist clockd --group GROUP' as root" in line


@pytest.mark.parametrize(
    ("refusals", "num_gpus", "said"),
    [
        (["", "no rights"], 2, "cannot be set"),
        (["", ""], 1, "this machine has 1 NVIDIA GPUs and the job 2 ranks; so GPUs are simulated"),
    ],
)
def test_gpus_are_simulated_where_ours_would_show_nothing(
    refusals: list[str],
    num_gpus: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _own_gpus(monkeypatch, refusals, num_gpus)
    assert quickstart._preset("auto", 2) == "a100"
    assert said in capsys.readouterr().err
    with pytest.raises(SimulationError, match="--gpu real: "):
        quickstart._preset("real", 2)
    assert quickstart._preset("h100", 2) == "h100"


def test_own_gpus_are_taken_where_their_clocks_can_be_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _own_gpus(monkeypatch, ["", "", "of no concern"], 3)
    assert quickstart._preset("auto", 2) is None
    assert quickstart._preset("real", 2) is None
    assert capsys.readouterr().err == ""


def test_two_quickstarts_do_not_share_a_folder(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        ran = run("--gpu", "a100", "--out", str(tmp_path))
    finally:
        os.close(descriptor)
    assert ran.returncode == 2
    assert "another quickstart writes its report there; name another folder" in ran.stderr


def test_a_folder_that_may_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(OutputError, match="cannot be written to; name another folder"), quickstart._alone_in(tmp_path):
        pass


@pytest.mark.parametrize(
    ("phases", "helps"),
    [
        (["warming_up", "profiling", "done"], True),
        (["warming_up", "planning"], True),
        (["warming_up", "observing", "done"], False),
        (["registering", "stale"], False),
        ([], False),
    ],
)
def test_more_steps_are_advised_where_they_help(phases: list[str], helps: bool, tmp_path: Path) -> None:  # noqa: FBT001
    entered = [{"phase": phase, "reason": "", "at": ""} for phase in phases]
    job = {"job_id": "j", "phase": phases[-1] if phases else "done", "num_ranks": 1, "simulated": True}
    job |= {"phases": entered, "pipelines": [], "troubles": [], "baseline": {}, "enforced": {}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert quickstart._was_on_its_way(build_report(tmp_path)) is helps


def _own_gpus(monkeypatch: pytest.MonkeyPatch, refusals: list[str], num_gpus: int) -> None:
    uuids = [f"GPU-{index}" for index in range(num_gpus)]
    monkeypatch.setattr("perseus_dist.device.nvml.nvml.Nvml.uuids", lambda _self: uuids)
    answers = dict(zip((f"GPU-{index}" for index in range(len(refusals))), refusals, strict=True))
    monkeypatch.setattr("perseus_dist.device.trial.why_clocks_stay", lambda uuid, _environ: answers[uuid])
