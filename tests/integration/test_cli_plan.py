"""``perseus-dist plan``."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from perseus_dist.cli import main
from perseus_dist.errors import OutputError
from perseus_dist.planning.frontier.frontier_file import load_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.instruction import parse_instruction
from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule, one_f_one_b

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULE = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "6")
PLAN = ("plan", str(EXAMPLE), *SCHEDULE, "--blocking-power-w", "80")
FILES = {"frontier.csv", "frontier.npz", "plan.json", "trace.json", "frontier.svg", "timeline.svg"}


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The one object on standard output."""
    assert main([*PLAN, *options, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    document: dict[str, Any] = json.loads(out)
    return document


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def replayed(document: dict[str, Any], schedule: Schedule, *, switch_latency_ps: int = 0) -> Execution:
    """What the clocks of a plan.json really do."""
    problem = make_problem(
        schedule,
        read_profile(EXAMPLE),
        blocking_uw_of_rank=[80_000_000] * schedule.num_ranks,
        tensor_parallel=document["tensor_parallel"],
    )
    planned = list(chain.from_iterable(rank["instructions"] for rank in document["ranks"]))
    assert tuple(parse_instruction(item["id"]) for item in planned) == problem.dag.instructions
    indices = [
        problem.curves[curve].clocks_mhz.tolist().index(item["clock_mhz"])
        for curve, item in zip(problem.curve_of.tolist(), planned, strict=True)
    ]
    return replay(problem, np.array(indices), switch_latency_ps=switch_latency_ps)


def test_writes_everything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = shown(capsys, "--out", str(tmp_path / "deep" / "plans"))
    folder = tmp_path / "deep" / "plans"
    assert set(contents(folder)) == FILES
    assert {Path(file) for file in document["files"]} == {folder / name for name in FILES}
    for name in ("frontier.svg", "timeline.svg"):
        assert ET.parse(folder / name).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        "all-max",
        "plan at T_min",
    ]


def test_the_frontier_file_says_the_same_as_the_csv(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = shown(capsys, "--out", str(tmp_path))
    header, *lines = (tmp_path / "frontier.csv").read_text().splitlines()
    assert header == "time_s,energy_j,lower_bound_j"
    rows = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    frontier = load_frontier(tmp_path / "frontier.npz")
    np.testing.assert_array_equal(np.rint(rows[:, 0] * 1e12), frontier.time_ps[frontier.deadline_points])
    np.testing.assert_array_equal(np.rint(rows[:, 1] * 1e6), frontier.total_uj[frontier.deadline_points])
    assert (np.diff(rows[:, 0]) > 0).all()
    assert (np.diff(rows[:, 1]) < 0).all()
    gaps_percent = 100 * (rows[:, 1] / rows[:, 2] - 1)
    assert document["points"] == len(rows)
    assert document["max_gap_percent"] == pytest.approx(gaps_percent.max())
    assert document["mean_gap_percent"] == pytest.approx(gaps_percent.mean())
    assert (document["fastest_s"], document["t_star_s"]) == (rows[0, 0], rows[-1, 0])


def test_json_has_what_other_programs_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    document = shown(capsys)
    assert set(document) == {
        "source",
        "num_gpus",
        "num_instructions",
        "bound_tolerance_percent",
        "granularity",
        "switch_latency_ms",
        "baseline_time_s",
        "baseline_energy_j",
        "fastest_s",
        "t_star_s",
        "saving_at_fastest_percent",
        "saving_at_all_max_time_percent",
        "saving_at_t_star_percent",
        "points",
        "max_gap_percent",
        "mean_gap_percent",
        "solve_seconds",
        "realise_seconds",
        "plan",
        "files",
    }
    assert set(document["plan"]) == {
        "deadline_s",
        "time_s",
        "until_s",
        "energy_j",
        "lower_bound_j",
        "gap_percent",
        "saving_percent",
        "saving_interval_percent",
        "saving_interval_from",
        "slowdown_percent",
        "clock_changes_per_rank",
    }
    assert (document["num_gpus"], document["num_instructions"], document["files"]) == (4, 48, [])
    assert document["plan"]["deadline_s"] == document["baseline_time_s"] >= document["plan"]["time_s"]
    savings = [document[f"saving_at_{time}_percent"] for time in ("fastest", "all_max_time", "t_star")]
    assert 0 < savings[0] <= savings[1] < savings[2]
    assert document["plan"]["saving_percent"] == pytest.approx(savings[1])


def test_the_fastest_plan_has_a_name_of_its_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = shown(capsys, "--fastest", "--out", str(tmp_path))
    assert document["plan"]["deadline_s"] == document["plan"]["time_s"] == document["fastest_s"]
    assert document["plan"]["saving_percent"] == pytest.approx(document["saving_at_fastest_percent"])
    assert main(["lookup", str(tmp_path / "frontier.npz"), "--fastest", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.items() >= document["plan"].items()
    assert main([*PLAN, "--fastest"]) == 0
    assert "fastest, chosen" in capsys.readouterr().out


def test_the_plan_does_what_it_claims(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    summary = shown(capsys, "--out", str(tmp_path), "--slowdown", "1.04")
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document.items() >= summary["plan"].items()
    execution = replayed(document, one_f_one_b(pp=4, microbatches=6))
    assert document["time_s"] == execution.time_ps / 1e12 <= document["deadline_s"]
    assert document["energy_j"] == execution.total_uj / 1e6
    assert document["clock_changes_per_rank"] == execution.changes.tolist()
    assert document["deadline_s"] == pytest.approx(1.04 * document["baseline_time_s"])
    assert 3 < document["slowdown_percent"] <= 4
    assert document["saving_percent"] > summary["saving_at_all_max_time_percent"]


def test_a_plan_keeps_its_deadline_with_clock_changes_that_take_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = ("--switch-latency-ms", "12", "--slowdown", "1", "--tensor-parallel", "2")
    shown(capsys, "--out", str(tmp_path), *options)
    document = json.loads((tmp_path / "plan.json").read_text())
    assert (document["switch_latency_ms"], document["tensor_parallel"]) == (12, 2)
    execution = replayed(document, one_f_one_b(pp=4, microbatches=6), switch_latency_ps=12 * 10**9)
    assert document["time_s"] == execution.time_ps / 1e12 <= document["baseline_time_s"]
    assert document["energy_j"] == execution.total_uj / 1e6


@pytest.mark.stress
def test_a_deadline_names_a_nanosecond(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    baseline_s = shown(capsys)["baseline_time_s"]
    for factor in (1.0, 1.01, 1.05):
        deadline_s = f"{factor * baseline_s:.9f}"
        plan = shown(capsys, "--out", str(tmp_path), "--deadline-s", deadline_s)["plan"]
        assert plan["deadline_s"] == pytest.approx(float(deadline_s), abs=0.501e-9)
        assert plan["time_s"] <= float(deadline_s) + 0.501e-9


def test_interleaved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--schedule", "interleaved", "--pp", "2", "--chunks", "2", "--microbatches", "5"]
    options += ["--microbatch-group-size", "3", "--blocking-power-w", "80", "--out", str(tmp_path)]
    assert main(["plan", str(EXAMPLE), *options]) == 0
    assert "interleaved, 2 pp_ranks with 2 chunks, 5 microbatches\n" in capsys.readouterr().out
    document = json.loads((tmp_path / "plan.json").read_text())
    schedule = make_schedule("interleaved", pp=2, chunks=2, microbatches=5, microbatch_group_size=3)
    assert document["energy_j"] == replayed(document, schedule).total_uj / 1e6


def test_the_summary_is_plain_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*PLAN, "--slowdown", "1.05", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert out.startswith("gpu_model_pp4.csv: 1f1b, 4 pp_ranks, 6 microbatches\n\n")
    assert "slowdown" in out.splitlines()[2]
    assert "saving" in out.splitlines()[2]
    names = [line.split("  ")[0] for line in out.splitlines()[4:9]]
    assert [name.partition(" 1.")[0] for name in names] == [
        "all-max",
        "fastest",
        "at T_min",
        "within",
        "at T*",
    ]
    assert names[3].endswith(" s, chosen")
    assert "above the exact lower bound and at worst" in out
    assert out.splitlines()[-1].startswith(f"Written to {tmp_path}: frontier.csv, ")


def test_without_out_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PLAN]) == 0
    assert "at T_min, chosen" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_pictures_are_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*PLAN, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main([*PLAN, "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["files"]) == 4
    assert err == (
        "perseus-dist: frontier.svg and timeline.svg are left out, because matplotlib is not installed; pip install "
        "'perseus-dist[report]'\n"
    )
    assert set(contents(tmp_path)) == FILES - {
        "frontier.svg",
        "timeline.svg",
    }  # older pictures would be of another plan


def test_a_failure_half_way_leaves_the_old_results(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OutputError("no space")

    assert main([*PLAN, "--out", str(tmp_path)]) == 0
    before = contents(tmp_path)
    monkeypatch.setattr("perseus_dist.report.trace.trace.write_trace", fail)
    assert main([*PLAN, "--slowdown", "1.1", "--out", str(tmp_path)]) == 2
    assert main([*PLAN, "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == "perseus-dist: no space\n" * 2
    assert contents(tmp_path) == before


def test_matplotlib_is_imported_to_draw_only() -> None:
    code = f"import sys; from perseus_dist.cli import main; main({PLAN!r}); sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal on POSIX systems only")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_says_so_in_a_line_and_leaves_nothing(tmp_path: Path, sent: signal.Signals) -> None:
    """So does an end by a signal: SIGTERM left a hidden folder in the results'."""
    folder = tmp_path / "plans"
    options = [*PLAN, "--microbatches", "3000", "--switch-latency-ms", "12", "--out", str(folder)]  # takes many seconds
    process = subprocess.Popen(
        [sys.executable, "-m", "perseus_dist", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    gives_up = time.monotonic() + 120
    while not folder.exists() and time.monotonic() < gives_up:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + sent, "", "perseus-dist: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "perseus_dist", *PLAN]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 0
    process.stderr.close()


@pytest.mark.stress
def test_both_shared_models_at_m12(capsys: pytest.CaptureFixture[str], tmp_path: Path, shared_data: Path) -> None:
    for name, power_w, least_percent in (("gpt3-175b+a100_sxm", "83.64", 15.5), ("bloom+a40", "70.38", 8.0)):
        profile = shared_data / "sosp24" / "stage_profile" / f"{name}_bf16.csv"
        options = ["--schedule", "1f1b", "--pp", "8", "--microbatches", "12", "--blocking-power-w", power_w]
        assert main(["plan", str(profile), *options, "--out", str(tmp_path / name), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["fastest_s"] <= document["baseline_time_s"]
        assert document["saving_at_fastest_percent"] > least_percent
        assert document["points"] >= 200
        assert document["mean_gap_percent"] <= 0.15
        assert document["max_gap_percent"] <= 0.5
        assert set(contents(tmp_path / name)) == FILES
