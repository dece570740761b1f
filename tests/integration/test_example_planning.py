"""The examples that plan: the notebook runs from top to bottom, and the script compares three schedules."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from perseus_dist import Schedule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPT = EXAMPLES / "compare_schedules.py"
NOTEBOOK = EXAMPLES / "plan_a_pipeline.ipynb"
PROFILE = EXAMPLES / "profiles" / "gpu_model_pp4.csv"


def compare_schedules(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Jupyter's own client warns of what other versions of it will do.
@pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning", "default::UserWarning")
def test_the_notebook_runs_and_is_committed_without_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shutil.copytree(EXAMPLES / "profiles", tmp_path / "profiles")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in codes), "clear the outputs before you commit"
    NotebookClient(
        notebook, timeout=300, startup_timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = {}
    for cell in codes:
        for output in cell.outputs:
            assert output.output_type in ("stream", "execute_result"), output
            assert output.get("name") != "stderr", output
            shown[cell.source.splitlines()[-1]] = output.get("data", {"text/plain": output.get("text")})
    assert len(shown) == len(codes)
    for displayed in ("profile", "frontier", "plan"):
        assert "<table>" in shown[displayed]["text/html"]
    picture = next(data for source, data in shown.items() if source.startswith("frontier.plot"))
    assert "<svg" in picture["image/svg+xml"]
    assert json.loads((tmp_path / "plan.json").read_text())["slowdown_percent"] <= 0


def test_the_script_compares_three_schedules_on_one_profile(tmp_path: Path) -> None:
    picture = tmp_path / "schedules.svg"
    done = compare_schedules(PROFILE, "--blocking-power-w", 80, "--microbatches", 8, "--plot", picture)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [re.split(r"  +", line) for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["1F1B", "interleaved", "zero bubble"]
    times_s, energies_j, plans_j, planned_s, planned_j, savings = zip(
        *(map(float, row[1:]) for row in rows), strict=True
    )
    assert times_s[2] < times_s[1] < times_s[0]  # the fewer bubbles, the faster
    assert all(planned < full for planned, full in zip(plans_j, energies_j, strict=True))
    assert all(time_s <= times_s[0] for time_s in planned_s)  # no later than 1F1B at maximum clocks
    for energy_j, saving in zip(planned_j, savings, strict=True):
        assert saving == pytest.approx(100 * (1 - energy_j / energies_j[0]), abs=0.01)
    assert 10 < savings[0] < savings[1] < savings[2]  # bubbles that are gone are time to save energy in
    assert picture.read_text().startswith("<?xml")


def test_the_script_takes_the_profile_of_a_job(tmp_path: Path) -> None:
    """With transfers and time between iterations, which belong to one schedule alone, saved by a spreadsheet."""
    own = tmp_path / "profile.csv"
    rows = "0,send_f,,0.002,\n0,between_iterations,,0.01,\n0,clock_change,1200,0.01,\n"
    own.write_text(PROFILE.read_text() + rows, encoding="utf-8-sig")
    options = ("--blocking-power-w", 80, "--microbatches", 4)
    done, plain = compare_schedules(own, *options), compare_schedules(PROFILE, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")


def test_the_script_cuts_what_is_known_of_a_rows_errors_too(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole.csv", tmp_path / "halves.csv"
    whole.write_text("stage,instruction,frequency,time,energy,samples,time_std,energy_std,gpu\n")
    with whole.open("a") as file:
        file.write("0,forward,1410,0.02,8,30,0.001,,A100\n1,backward,1410,0.04,16,20,,0.5,A100\n")
    runpy.run_path(str(SCRIPT))["cut"](whole, lambda stage, name: [(stage, name, 0.5)], halves)
    assert halves.read_text().split() == [
        "stage,instruction,frequency,time,energy,samples,time_std,energy_std,gpu",
        "0,forward,1410,0.01,4.0,30,0.0005,,A100",
        "1,backward,1410,0.02,8.0,20,,0.25,A100",
    ]


def test_the_script_reads_cells_as_read_profile_does(tmp_path: Path) -> None:
    """Spaces after commas, whole numbers that pandas wrote as others, and blank lines."""
    whole, chunks = tmp_path / "whole.csv", tmp_path / "chunks.csv"
    whole.write_text("stage, instruction, frequency, time, energy\n\n0.0, forward, 1410.0, 0.02, 8\n")
    runpy.run_path(str(SCRIPT))["cut"](whole, lambda stage, name: [(stage + 2, name, 0.5)], chunks)
    assert chunks.read_text().split() == ["stage,instruction,frequency,time,energy", "2,forward,1410.0,0.01,4.0"]


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 1), (2, 1), (4, 3), (4, 4), (4, 16)])
def test_the_zero_bubble_schedule_holds_no_more_activations_than_1f1b(pp: int, microbatches: int) -> None:
    text = runpy.run_path(str(SCRIPT))["zero_bubble"](pp=pp, microbatches=microbatches)
    schedule = Schedule.from_text(text)
    assert (schedule.num_ranks, schedule.num_microbatches) == (pp, microbatches)
    for order in schedule.ranks:
        held = most = 0
        for instruction in order:
            held += {"F": 1, "I": 0, "W": -1}[instruction.kind]
            most = max(most, held)
        assert most <= min(pp, microbatches)  # as on the first pp_rank of 1F1B
        assert held == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.csv", "--blocking-power-w", 80), "nowhere.csv: cannot be read"),
        ((PROFILE, "--blocking-power-w", -1), "blocking_power_w: saw -1.0, expected watts"),
        ((PROFILE, "--blocking-power-w", 80, "--microbatches", 3), "microbatches=3 with pp=4"),
        ((PROFILE, "--blocking-power-w", 80, "--weight-share", 1), "--weight-share: saw 1, expected a number between"),
        ((PROFILE,), "the following arguments are required: --blocking-power-w"),
    ],
)
def test_the_script_refuses_in_a_line_what_cannot_be_planned(arguments: tuple[object, ...], message: str) -> None:
    done = compare_schedules(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]
