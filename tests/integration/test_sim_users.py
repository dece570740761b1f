"""Simulated GPUs for ordinary users, and on machines that have little to give."""

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from perseus_dist.device.inspection.node import inspect_device
from perseus_dist.device.trial import why_clocks_stay
from perseus_dist.simulator import machine as machine_module
from perseus_dist.simulator.errors import SimulatorError
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml
from perseus_dist.simulator.search_path import searchable_path

CHECKOUT = Path(__file__).parents[2]
NOBODY = "nobody"
SETS_A_CLOCK = """\
import json, os, pynvml
from perseus_dist.device.opening import open_clock_control
from perseus_dist.device.trial import why_clocks_stay
pynvml.nvmlInit()
uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
trouble = why_clocks_stay(uuid, os.environ)
control = open_clock_control("auto", uuid, own_pids=[os.getpid()])
name, refusal = control.name, control.refusal
control.close()
print(json.dumps({"user": os.geteuid(), "trouble": trouble, "control": name, "refusal": refusal}))
"""


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100") as made:
        yield made


def perseus(*argv: str, user: str | None = None, **extra: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "perseus_dist", *argv],
        env={**os.environ, **extra},
        cwd="/",
        user=user,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _may_run_python(user: str) -> bool:
    command = [sys.executable, "-P", "-c", "import perseus_dist"]
    try:
        return subprocess.run(command, user=user, cwd="/", capture_output=True, check=False).returncode == 0
    except PermissionError:
        return False


@pytest.mark.parametrize("user", [None, NOBODY])
def test_who_starts_simulated_gpus_sets_their_clocks(user: str | None) -> None:
    if user is not None and (os.geteuid() != 0 or not _may_run_python(user)):
        pytest.skip("needs root, and this checkout and its Python readable by everybody")
    ran = perseus("sim", "--json", "--", sys.executable, "-P", "-c", SETS_A_CLOCK, user=user, HOME="/nowhere")
    said, report = map(json.loads, ran.stdout.splitlines())
    assert said == {
        "user": os.geteuid() if user is None else pwd.getpwnam(user).pw_uid,
        "trouble": "",
        "control": "direct",
        "refusal": "",
    }
    assert report["clocks_left_locked"] == 0


def test_rights_that_only_a_trial_tells() -> None:
    ran = perseus("sim", "--json", "--unprivileged", "--", sys.executable, "-P", "-c", SETS_A_CLOCK)
    said = json.loads(ran.stdout.splitlines()[0])
    assert "setting clocks needs root" in said["trouble"]


def test_a_trial_finds_nobody(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with load_nvml(machine):
        environ = {name: str(tmp_path / "none") for name in ("PERSEUS_CLOCKD_SOCKET", "ZEUSD_SOCK_PATH")}
        trouble = why_clocks_stay(machine.gpu(0).uuid, environ)
    assert trouble.startswith("no clock control here: clockd: no socket at")
    assert "; start 'perseus-dist clockd' as root on this node" in trouble


def test_doctor_knows_whose_the_simulated_gpus_are(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = machine.state_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner or 12345)
    environ = {**os.environ, **machine.environment()}
    os.chown(machine.state_path, owner or 12345, -1)
    with load_nvml(machine):
        (rights,) = [finding for finding in inspect_device(environ) if finding.subject == "rights"]
    assert rights.what == "these simulated GPUs are yours: clocks can be set directly"


def test_daemons_of_the_real_machine_are_never_met(machine: SimulatedMachine) -> None:
    environment = machine.environment()
    for variable in ("PERSEUS_LEASE_DIR", "PERSEUS_CLOCKD_SOCKET", "ZEUSD_SOCK_PATH"):
        assert Path(environment[variable]).parent == machine.state_path.parent


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_pytorch_takes_no_simulated_gpu_for_a_cuda_device() -> None:
    """A CUDA build would initialise CUDA for it, and end without a driver."""
    asks = "import deepspeed, torch; print(torch.cuda._nvml_based_avail(), torch.cuda.is_available())"
    ran = perseus("sim", "--json", "--", sys.executable, "-P", "-c", asks, DS_ACCELERATOR="cpu")
    assert ran.stdout.splitlines()[-2] == "False False", ran.stderr


def test_without_shared_memory_the_state_is_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_module, "_SHARED_MEMORY", "/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with SimulatedMachine("a100") as made:
        assert made.state_path.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_with_room_nowhere_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "_SHARED_MEMORY", "/nowhere")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/either")
    with pytest.raises(SimulatorError, match=r"2 simulated GPUs \(/nowhere: No such file.*TMPDIR: .* set TMPDIR to a"):
        SimulatedMachine("a100", count=2)


def test_a_path_without_folders_that_may_not_be_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DeepSpeed on the CPU would end with PermissionError."""
    monkeypatch.setenv("PATH", f"/usr/bin:{tmp_path}:/bin")
    monkeypatch.setattr(os, "access", lambda folder, _mode: folder != str(tmp_path))
    assert searchable_path("/first") == "/first:/usr/bin:/bin"
