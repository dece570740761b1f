"""``perseus-dist measure`` on a simulated GPU, whose truth is known: what it finds, and what it leaves behind.

What must be exact is: kernel times are the device's own. Powers are asserted to 2 %, or four of the standard errors
that are reported, which a busy machine makes larger; the counter's period to 10 %; latencies from below only, since a
busy machine adds to them (their estimation is held against the truth in virtual time by ``test_measure_estimates``).
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from perseus_dist.cli import main
from perseus_dist.device.nvml.nvml import REASON_IDLE
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.simulator.machine import SimulatedMachine

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

FORWARD_S, BACKWARD_S = 0.035, 0.065
CLASSES = {"F": ("forward", FORWARD_S), "B": ("backward", BACKWARD_S)}
HARMLESS = {"nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"}


@pytest.fixture
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100") as machine:
        yield machine


def start(machine: SimulatedMachine, *arguments: str, cuda: bool = False) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "perseus_dist", "measure", "--seconds", "5", *arguments]
    environ = {**os.environ, **machine.environment(cuda=cuda)}
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def measure(machine: SimulatedMachine, *arguments: str, cuda: bool = False) -> dict[str, Any]:
    with start(machine, "--json", *arguments, cuda=cuda) as process:
        out, error = process.communicate(timeout=500)
    assert process.returncode == 0, error
    document: dict[str, Any] = json.loads(out)
    return document


def assert_power(found: dict[str, Any], power_w: float) -> None:
    assert found["power_w"] == pytest.approx(power_w, rel=0.02, abs=4.0 * found["power_se_w"])
    assert found["power_se_w"] < 0.05 * power_w


def assert_changes_are_kept(path: Path, latencies: list[dict[str, Any]]) -> None:
    """The profile has each target's latency, of every stage."""
    kept = read_profile(path).clock_changes
    assert kept.keys() == {0, 1}
    for changes in kept.values():
        assert changes.clocks_mhz.tolist() == [latency["clock_mhz"] for latency in latencies]
        assert changes.times_s.tolist() == [latency["kernels_s"]["median"] for latency in latencies]
        assert changes.p90_s.tolist() == [latency["kernels_s"]["p90"] for latency in latencies]


def test_it_finds_the_simulators_truth_and_leaves_a_profile(machine: SimulatedMachine, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = measure(machine, "--out", str(out), "--pp", "2", "--microbatches", "4", cuda=True)
    preset, gpu = machine.preset, machine.gpu(0)
    clocks = {point["clock_mhz"] for point in found["points"]}
    assert (len(clocks), max(clocks), found["gpu"]["control"]) == (4, 1410, "direct")
    for point in found["points"]:
        name, time_s = CLASSES[point["kind"]]
        assert point["observed_mhz"] == point["clock_mhz"]
        assert point["time_s"] == pytest.approx(preset.kernel_time_s(name, time_s, point["clock_mhz"]), rel=1e-4)
        assert_power(point, preset.kernel_power_w(name, point["clock_mhz"]))
        # The host may be late with the first kernel: then the GPU was seen idle, too.
        assert point["event_reasons"] & ~REASON_IDLE == (0 if point["clock_mhz"] == 1410 else 2)
    for block in found["blocked"]:
        assert_power(block, preset.blocking_power_at_w(block["clock_mhz"]))
    assert found["energy_period_s"] == pytest.approx(preset.timing.energy_period_s, rel=0.1)
    least_s = preset.timing.call_latency_s + preset.timing.settle_s
    assert {latency["clock_mhz"] for latency in found["latencies"]} == clocks
    for latency in found["latencies"]:
        assert latency["num_trials"] >= 3
        assert latency["call_s"]["median"] > preset.timing.call_latency_s
        assert latency["read_back_s"]["median"] > least_s
        assert latency["kernels_s"]["num"] >= 1
        assert latency["kernels_s"]["median"] > least_s - 0.0005
    # A busy host may spoil trials at one clock, and no more.
    assert sorted(latency["kernels_s"]["num"] for latency in found["latencies"])[1] >= 2
    assert_changes_are_kept(out / "profile.csv", found["latencies"])
    assert found["presets"][0]["preset"] == "a100"
    assert found["presets"][0]["energy_worst_percent"] < 3.0
    assert found["saving"]["saving_percent"] > 0.0
    assert found["saving"]["slowdown_percent"] <= 0.0
    # The proof kit.
    assert all(call["cost_us"]["num"] for call in found["nvml"])
    assert {(cost["order"], cost["call"]) for cost in found["hook"]} >= {("host", "begin"), ("device", "end")}
    assert found["boundaries"]["num_instructions"] == 48
    assert (found["boundaries"]["num_early"], found["boundaries"]["num_lost"]) == (0, 0)
    assert found["boundaries"]["difference_us"]["median"] < 50.0
    assert {case["setting"] for case in found["visible"]} == {None, "0", gpu.uuid, gpu.uuid[:12]}
    assert all(case["by_cuda"] == case["by_nvml"] == gpu.uuid for case in found["visible"])
    assert found["left_out"] == []
    # What it leaves.
    assert gpu.state().is_unlocked
    assert {call.function for call in machine.calls()} <= HARMLESS
    assert sorted(path.name for path in out.iterdir()) == ["measure.html", "measure.json", "profile.csv"]
    assert json.loads((out / "measure.json").read_text()) == found
    assert (out / "measure.html").read_text().count("<svg") == 3
    plan = [sys.executable, "-P", "-m", "perseus_dist", "plan", str(out / "profile.csv"), "--json"]
    plan += ["--schedule", "1f1b", "--pp", "2", "--microbatches", "4", "--blocking-power-w", "83.6"]
    assert json.loads(subprocess.run(plan, check=True, capture_output=True).stdout)["saving_at_t_star_percent"] > 5.0


@pytest.mark.stress
def test_observing_changes_nothing_at_all(machine: SimulatedMachine, tmp_path: Path) -> None:
    found = measure(machine, "--observe", "--out", str(tmp_path / "out"))
    assert machine.calls() == []
    assert not list(machine.state_path.parent.glob("leases/*"))
    assert found["gpu"]["observed_because"] == "asked to observe only"
    assert {point["clock_mhz"] for point in found["points"]} == {1410}
    for point in found["points"]:
        name, time_s = CLASSES[point["kind"]]
        assert point["time_s"] == pytest.approx(time_s, rel=1e-4)
        assert_power(point, machine.preset.kernel_power_w(name, 1410))
    assert (found["saving"], found["latencies"], found["boundaries"]) == (None, [], None)
    told = " ".join(found["left_out"])
    assert "no clock was set" in told
    assert "which need CUDA" in told
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measure.html", "measure.json"]


@pytest.mark.stress
def test_without_rights_it_observes_and_says_why(tmp_path: Path) -> None:
    with SimulatedMachine("a100", unprivileged=True) as machine:
        found = measure(machine, "--out", str(tmp_path / "out"))
        assert machine.gpu(0).state().num_sets == 0
    assert found["gpu"]["control"] == "observe"
    assert "Insufficient Permissions" in found["gpu"]["observed_because"]
    assert len(found["points"]) == 4


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.soak),
        pytest.param(signal.SIGKILL, marks=pytest.mark.stress),
    ],
)
def test_clocks_are_free_however_it_ends(number: signal.Signals, machine: SimulatedMachine, tmp_path: Path) -> None:
    gpu = machine.gpu(0)
    with start(machine, "--out", str(tmp_path / "out")) as process:
        wait_until(lambda: (gpu.state().locked_mhz or (1410, 1410))[1] < 1410)
        process.send_signal(number)
        _, error = process.communicate(timeout=120)
    wait_until(lambda: gpu.state().is_unlocked)
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        return
    assert process.returncode == 128 + number
    assert error.splitlines()[-1] == "perseus-dist: interrupted"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("--pp 4096 --microbatches 512", "expected at most 4096"),
        ("--pp 1", "expected 2 or more pp_ranks"),
        ("--heads 7", "does not divide --hidden 4096"),
        ("--layers 99999", "expected 1 to 1024"),
        ("--seconds 0.1", "expected seconds from 5 to 3600"),
        ("--observe --control direct", "not allowed with argument"),
        ("--out /proc/nowhere", "cannot be written to"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    line: str, fragment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["measure", *line.split()])
    except SystemExit as stop:
        code = int(stop.code or 0)
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert fragment in error


def test_without_a_gpu_one_line_says_what_to_do(tmp_path: Path) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-P", "-m", "perseus_dist", "measure", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "PyTorch sees no CUDA GPU" in done.stderr
    assert not (tmp_path / "out").exists()
