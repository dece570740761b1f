"""``perseus-dist lookup``."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
PLAN = ("plan", str(EXAMPLE), "--schedule", "1f1b", "--pp", "4", "--microbatches", "6", "--blocking-power-w", "80")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan 3 % slower than all-max, and its frontier."""
    folder = tmp_path_factory.mktemp("plans")
    assert main([*PLAN, "--slowdown", "1.03", "--out", str(folder)]) == 0
    return folder


def shown(capsys: pytest.CaptureFixture[str], planned: Path, *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["lookup", str(planned / "frontier.npz"), *options, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    document: dict[str, Any] = json.loads(out)
    return document


def test_finds_the_plan_that_was_chosen(capsys: pytest.CaptureFixture[str], planned: Path, tmp_path: Path) -> None:
    found = shown(capsys, planned, "--slowdown", "1.03", "--out", str(tmp_path / "plan.json"))
    assert (tmp_path / "plan.json").read_bytes() == (planned / "plan.json").read_bytes()
    document = json.loads((planned / "plan.json").read_text())
    assert found.pop("source") == str(planned / "frontier.npz")
    assert document.items() >= found.items()


def test_every_row_of_the_csv_finds_itself(capsys: pytest.CaptureFixture[str], planned: Path) -> None:
    rows = (planned / "frontier.csv").read_text().splitlines()[1:]
    for row in rows[:: len(rows) // 10]:
        time_s, energy_j, lower_bound_j = row.split(",")
        found = shown(capsys, planned, "--deadline-s", time_s)
        assert [found[key] for key in ("time_s", "energy_j")] == [float(time_s), float(energy_j)]
        assert found["lower_bound_j"] == pytest.approx(float(lower_bound_j), rel=1e-12)


def test_a_straggler(capsys: pytest.CaptureFixture[str], planned: Path) -> None:
    baseline_s = json.loads((planned / "plan.json").read_text())["baseline_time_s"]
    found = shown(capsys, planned, "--straggler-s", f"{1.5 * baseline_s:.9f}")
    assert found["until_s"] == found["deadline_s"] == pytest.approx(1.5 * baseline_s, abs=1e-9)
    alone = shown(capsys, planned, "--slowdown", "1.5")
    assert alone["time_s"] < found["time_s"] < found["until_s"]  # beyond T*, where waiting costs anyway
    waited_j = alone["energy_j"] + 4 * 80 * (found["until_s"] - alone["until_s"])
    assert found["energy_j"] < waited_j


def test_the_table(capsys: pytest.CaptureFixture[str], planned: Path) -> None:
    capsys.readouterr()
    assert main(["lookup", str(planned / "frontier.npz"), "--slowdown", "1.03"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["time", "plan", "all-max", "plan"]
    assert lines[0].split()[4] == "interval"
    assert lines[3].split()[6] == "to"
    assert lines[4:] == [
        "",
        "Intervals are by the scatter of times and energies over clocks: the profile has no repeated measurements.",
    ]
    assert main(["lookup", str(planned / "frontier.npz"), "--straggler-s", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "Energies count until the straggler's iteration ends at 3.000000 s."
