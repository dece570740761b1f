"""The whole loop: virtual time against the model's truth, and real processes with a planner that keeps dying."""

import json
import os
import random
import re
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from processes import agents_of

from perseus_dist.cli import main
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import format_schedule, interleaved, one_f_one_b
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.run import run_virtual
from perseus_dist.simulation.wall_run import SupervisedPlanner, run_wall
from perseus_dist.simulator.gpu_preset import Timing
from perseus_dist.simulator.presets import find_preset

NUM_RANKS = 2
SETTINGS = (
    *(
        f"PERSEUS_{name}"
        for name in ("CACHE", "CLOCKD_SOCKET", "LEASE_DIR", "NODE_RELAY", "PROFILE", "RECORDS", "REPORT")
    ),
    *(f"PERSEUS_{name}" for name in ("TARGET", "TLS_CA", "TOKEN_FILE", "CLIENT_TLS_CA", "CLIENT_TOKEN_FILE", "NODE")),
)
PROMPT_S = 60.0
MIN_KILLS, KILLING_S = 8, 70.0  # of 115 s; 15 to 45 kills, by the machine


def job(**other: object) -> SimulatedJob:
    fields = {
        "schedule": one_f_one_b(pp=4, microbatches=8),
        "num_pipelines": 2,
        "num_iterations": 80,
        "imbalance": 0.1,
    }
    return SimulatedJob(**{**fields, **other})  # type: ignore[arg-type]


def test_virtual_time_saves_what_was_predicted_and_loses_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate --schedule 1f1b --pp 4 --dp 2 --microbatches 8 --imbalance 0.1 --gpu a100 --virtual-time --json"
    assert main(command.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["saving_percent"] >= 8
    assert abs(document["slowdown_percent"]) <= 0.5
    assert document["predicted_saving_percent"] == pytest.approx(document["saving_percent"], abs=0.5)
    assert document["clocks_left_locked"] == document["planner_restarts"] == 0
    assert document["baseline"]["num_iterations"] >= 5
    assert document["enforced"]["num_iterations"] >= 20


def test_the_calls_of_deepspeeds_dualpipev_are_refused_and_its_order_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, text = tmp_path / "dualpipev.txt", format_schedule(dualpipev(pp=2, microbatches=4))
    arguments = ["simulate", "--virtual-time", "--schedule-file", str(path), "--iterations", "50"]
    path.write_text(text)
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "# exchange: dualpipev: stand-in trainers make none of DeepSpeed's calls" in said.err
    assert len(said.err.splitlines()) == 1
    path.write_text(text.replace("# exchange: dualpipev\n", ""))
    assert main(arguments) == 0
    played = capsys.readouterr().out
    arguments[2:4] = ["--schedule", "dualpipev", "--pp", "2", "--microbatches", "4"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == played


def test_a_clock_for_each_rank_and_for_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate --schedule 1f1b --pp 2 --microbatches 4 --iterations 40 --json --granularity"
    savings = {}
    for granularity in ("rank", "phase"):
        assert main([*command.split(), granularity, "--target", "slowdown=1.1", "--virtual-time"]) == 0
        document = json.loads(capsys.readouterr().out)
        savings[granularity] = document["saving_percent"]
        assert document["slowdown_percent"] < 10.2
        assert main([*command.split(), granularity]) == 2
        assert "add --profile" in capsys.readouterr().err
    assert savings["phase"] > savings["rank"] > 10


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--virtual-time", "--log-dir", "logs"], "leave --log-dir out"),
        (["--virtual-time", "--processes", "2"], "--processes goes with --chaos FIRST-LAST alone"),
        (["--known-failures", "known.json"], "--known-failures goes with --chaos FIRST-LAST alone"),
    ],
)
def test_options_that_a_simulation_would_ignore_are_refused(
    options: list[str],
    remedy: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["simulate", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--iterations", "1", *options]
    assert main(line) == 2
    assert remedy in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_virtual", [True, False])
def test_settings_of_real_jobs_are_not_read(
    is_virtual: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a cluster's users export them: a simulation neither trains at their planner nor writes among their records."""
    profile_csv = tmp_path / "profile.csv"
    small = job(schedule=one_f_one_b(pp=2, microbatches=2), num_pipelines=1, num_iterations=40)
    run_virtual(small, "a100", profile_csv=profile_csv)
    for name in SETTINGS:
        monkeypatch.setenv(name, str(tmp_path / "of-real-jobs"))
    monkeypatch.setenv("PERSEUS_PLANNER", "127.0.0.1:1")
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS_PORT", "broken")
    command = f"simulate --schedule 1f1b --pp 2 --microbatches 2 --profile {profile_csv} --json"
    how = ["--iterations", "40", "--virtual-time"] if is_virtual else ["--iterations", "20"]
    how += [] if is_virtual else ["--log-dir", str(tmp_path / "log")]
    code = main([*command.split(), *how])
    document = json.loads(capsys.readouterr().out)
    assert document["baseline"]["num_iterations"] > 0, "its own planner has heard of it"
    assert code == 0 or not is_virtual  # on a busy machine real planning may last longer than so short a job
    assert not (tmp_path / "of-real-jobs").exists()


@pytest.mark.soak
def test_a_clock_for_each_phase_in_real_processes(tmp_path: Path) -> None:
    profile_csv = tmp_path / "profile.csv"
    seen = job(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=1, num_iterations=40, imbalance=0.3)
    run_virtual(seen, "a100", profile_csv=profile_csv)
    unseen = replace(seen, num_iterations=40, granularity=Granularity.PHASE, profile=str(profile_csv))
    reasons: list[str] = []
    outcome = run_wall(unseen, "a100", folder=tmp_path, watch=lambda status, _: reasons.append(status.reason))
    assert outcome.enforced.num_iterations > 8
    assert outcome.predicted_saving_percent > 5
    assert any("each rank and phase has one clock" in reason for reason in reasons)
    assert outcome.clocks_left_locked == 0


def test_virtual_time_is_deterministic() -> None:
    small = job(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=1, num_iterations=70)
    assert run_virtual(small, "a100").document() == run_virtual(small, "a100").document()


def test_latencies_by_target_are_measured_and_planned_with(tmp_path: Path) -> None:
    """Low clocks take 40 ms more than high ones; the plan knows, so that its saving and its time come true."""
    profile_csv, small = tmp_path / "profile.csv", job(num_pipelines=1, time_scale=3.0)
    timing = Timing(settle_by_clock_s=((210, 0.045), (1050, 0.045), (1140, 0.005), (1410, 0.005)))
    outcome = run_virtual(small, "a100", profile_csv=profile_csv, timing=timing)
    changes = read_profile(profile_csv).clock_changes
    assert changes.keys() == {0, 1, 2, 3}
    for of_stage in changes.values():
        assert len(of_stage.clocks_mhz) >= 5
        for clock_mhz, time_s in zip(of_stage.clocks_mhz.tolist(), of_stage.times_s.tolist(), strict=True):
            least_s = timing.call_latency_s + timing.settle_to_s(clock_mhz)
            assert least_s <= time_s <= least_s + timing.call_jitter_s + 0.003  # and until it is read back
    document = outcome.document()
    assert document["saving_percent"] >= 5
    assert abs(document["slowdown_percent"]) <= 0.5
    assert document["predicted_saving_percent"] == pytest.approx(document["saving_percent"], abs=0.5)


def test_the_measured_profile_is_the_models_truth(tmp_path: Path) -> None:
    preset, profile_csv = find_preset("a100"), tmp_path / "profile.csv"
    small = job(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=1, num_iterations=70)
    run_virtual(small, "a100", profile_csv=profile_csv)
    seconds = {(time.stage, time.kind): time for config in small.trainers(("", "")) for time in config.times}
    measurements = read_profile(profile_csv).measurements
    assert len(measurements) == len(seconds) == 4
    for key, measured in measurements.items():
        kernel_class, at_maximum_s = seconds[key].kernel_class, seconds[key].seconds
        assert kernel_class is not None
        assert len(measured.clocks_mhz) >= 8
        for clock_mhz, time_s, energy_j in zip(
            measured.clocks_mhz.tolist(), measured.times_s[0], measured.energies_j[0], strict=True
        ):
            true_s = preset.kernel_time_s(kernel_class, at_maximum_s, clock_mhz)
            assert time_s == pytest.approx(true_s, rel=0.02)
            assert energy_j == pytest.approx(true_s * preset.kernel_power_w(kernel_class, clock_mhz), rel=0.03)


def test_a_saved_profile_spares_the_sweep(tmp_path: Path) -> None:
    profile_csv = tmp_path / "profile.csv"
    small = job(schedule=one_f_one_b(pp=2, microbatches=4), num_pipelines=1, num_iterations=70)
    swept = run_virtual(small, "a100", profile_csv=profile_csv)
    spared = run_virtual(
        job(schedule=small.schedule, num_pipelines=1, num_iterations=45, profile=str(profile_csv)), "a100"
    )
    assert spared.enforced.num_iterations > 20  # of 45: no time for a sweep
    assert spared.saving_percent == pytest.approx(swept.saving_percent, abs=0.5)


def test_interleaved_with_a_slowdown_target() -> None:
    outcome = run_virtual(
        job(
            schedule=interleaved(pp=2, microbatches=4, chunks=2),
            num_pipelines=1,
            num_iterations=90,
            target="slowdown=1.05",
        ),
        "a40",
    )
    assert 2 <= outcome.slowdown_percent <= 5.5
    assert outcome.saving_percent == pytest.approx(outcome.predicted_saving_percent, abs=1)


def test_a_trainer_that_is_killed_fails_the_run_by_its_rank(tmp_path: Path) -> None:
    """The others wait for it, and would fail minutes later."""
    killed_s = float("inf")

    def kill(status: pb.JobStatus, _planner: SupervisedPlanner) -> None:
        nonlocal killed_s
        assert time.monotonic() < killed_s + PROMPT_S, "the run goes on without a trainer"
        if killed_s == float("inf") and status.phase != "done":
            module = b"perseus_dist.simulation.trainers.trainer"
            children = sorted(agents_of(os.getpid()))
            trainers = [pid for pid in children if module in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(trainers[1], signal.SIGKILL)
            killed_s = time.monotonic()

    with pytest.raises(SimulationError, match=r"^trainers of ranks \[1\] failed; read .*trainers\.log$"):
        run_wall(
            job(schedule=one_f_one_b(pp=NUM_RANKS, microbatches=4), num_pipelines=1, num_iterations=100_000),
            "a100",
            folder=tmp_path,
            watch=kill,
        )


@pytest.mark.soak
def test_a_planner_that_keeps_dying_loses_nothing_and_stops_nobody(tmp_path: Path) -> None:
    rng = random.Random(7)
    seen: list[pb.JobStatus] = []
    kills: list[float] = []
    began_s = time.monotonic()
    due_s = began_s + 2

    def kill(status: pb.JobStatus, planner: SupervisedPlanner) -> None:
        nonlocal due_s
        seen.append(status)
        if due_s <= time.monotonic() < began_s + KILLING_S:
            time.sleep(rng.uniform(0, 0.4))  # any moment between two looks
            os.kill(planner.pid, signal.SIGKILL)
            kills.append(time.monotonic())
            due_s = time.monotonic() + rng.choice((0, 0, 0, 3.0))  # some live long enough to plan

    outcome = run_wall(
        job(schedule=one_f_one_b(pp=NUM_RANKS, microbatches=4), num_pipelines=1, num_iterations=150),
        "a100",
        folder=tmp_path,
        watch=kill,
    )
    assert len(kills) == outcome.planner_restarts >= MIN_KILLS
    assert outcome.clocks_left_locked == 0
    assert outcome.enforced.num_iterations > 0
    assert outcome.saving_percent > 5
    for figure in ("table_revision", "switch_revision"):
        values = [getattr(status, figure) for status in seen]
        assert values == sorted(values), figure
    # A clock is shown as soon as it is measured, and acknowledged once it is durable: its agents say it again.
    profiled = [status.profiled_clocks for status in seen]
    assert all(later >= before - NUM_RANKS for before, later in pairwise(profiled)), profiled
    assert profiled[-1] == max(profiled)
    for log in tmp_path.glob("*.log"):
        assert not re.search(r'File ".*perseus_dist', log.read_text()), log  # gRPC may log a call that it cancelled
