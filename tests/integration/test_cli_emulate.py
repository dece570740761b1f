"""``perseus-dist emulate``."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
PLANNED = (str(EXAMPLE), "--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--blocking-power-w", "80")


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["emulate", *PLANNED, *options, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_by_hand(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A light and a heavy stage, two clocks: all-max takes 15 s and 4200 J, the plan 15 s and 3990 J.

    Each second more lets something on the critical path save 70 J of effective energy, whatever it is.
    """
    profile = tmp_path / "profile.csv"
    rows = ["stage,instruction,frequency,time,energy"]
    for stage, name, time_s in ((0, "forward", 1), (0, "backward", 2), (1, "forward", 2), (1, "backward", 4)):
        rows += [f"{stage},{name},1000,{time_s},{200 * time_s}", f"{stage},{name},500,{2 * time_s},{180 * time_s}"]
    profile.write_text("\n".join(rows))
    options = ("--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--blocking-power-w", "50")
    arguments = ("emulate", str(profile), *options, "--pipelines", "4", "--straggler", "1,1.2", "--json")
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["pipelines"], document["num_gpus"]) == (4, 8)
    assert [(plan["plan"], plan["time_s"], plan["job_energy_j"]) for plan in document["plans"]] == [
        ("all_max", 15, 4 * 4200),
        ("fastest", 15, 4 * 3990),
        ("all_max_time", 15, 4 * 3990),
    ]
    none, one = document["stragglers"]
    assert (none["time_s"], none["all_max_energy_j"], none["job_energy_j"]) == (15, 16800, 15960)
    assert (none["intrinsic_saving_percent"], none["extrinsic_saving_percent"]) == (pytest.approx(5), 0)

    all_max_j = 1.2 * 4200 + 3 * (4200 + 100 * 3)
    intrinsic_j = 1.2 * 3990 + 3 * (3990 + 100 * 3)
    planned_j = intrinsic_j - 3 * 70 * 3
    assert (one["straggler"], one["time_s"], one["others_time_s"], one["slowdown_percent"]) == (1.2, 18, 18, 0)
    assert one["all_max_energy_j"] == pytest.approx(all_max_j)
    assert one["job_energy_j"] == pytest.approx(planned_j)
    assert one["intrinsic_saving_percent"] == pytest.approx(100 * (1 - intrinsic_j / all_max_j))
    assert one["extrinsic_saving_percent"] == pytest.approx(100 * 3 * 70 * 3 / all_max_j)
    assert one["saving_percent"] == pytest.approx(100 * (1 - planned_j / all_max_j))


def test_several_stragglers(capsys: pytest.CaptureFixture[str]) -> None:
    document = shown(capsys, "--pipelines", "128", "--tensor-parallel", "2", "--straggler", "1,1.05,1.2,1.5")
    assert document["num_gpus"] == 128 * 4 * 2
    assert len(document["differences_from_published"]) == 3
    jobs = document["stragglers"]
    assert [job["straggler"] for job in jobs] == [1, 1.05, 1.2, 1.5]
    for job in jobs:
        parts = job["intrinsic_saving_percent"] + job["extrinsic_saving_percent"]
        assert parts == pytest.approx(job["saving_percent"])
        assert parts == pytest.approx(100 * (1 - job["job_energy_j"] / job["all_max_energy_j"]))
        assert job["others_time_s"] <= job["time_s"]
    assert jobs[0]["extrinsic_saving_percent"] == 0 < jobs[1]["extrinsic_saving_percent"]
    assert jobs[0]["saving_percent"] < jobs[1]["saving_percent"] < jobs[2]["saving_percent"]


def test_the_tables_have_the_slowdown_beside_every_saving(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *PLANNED, "--pipelines", "16", "--straggler", "1.05,1.2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("16 pipelines, 64 GPUs; a clock change takes 0 ms\n")
    rows = {line.strip().split("  ")[0]: line.split() for line in out.splitlines()}
    time_s, slowdown, energy_j, saving = rows["all-max"][1:]
    assert (slowdown, saving) == ("+0.000", "0.00")
    assert rows["at T_min"][-4:-2] == [time_s, "+0.000"]
    assert float(rows["at T_min"][-2]) < float(energy_j)
    for straggler in ("1.05", "1.2"):
        slowdown, intrinsic, extrinsic, together = rows[straggler][-4:]
        assert slowdown == "+0.000"
        assert float(intrinsic) + float(extrinsic) == pytest.approx(float(together), abs=0.011)
    assert "fitted and planned" in out


def test_without_a_straggler_there_is_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *PLANNED, "--pipelines", "16"]) == 0
    out = capsys.readouterr().out
    assert "no straggler" in out
    assert "straggler R" not in out


def refusal(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line that bad options get."""
    try:
        code = main(["emulate", *PLANNED, *options])
    except SystemExit as stop:  # argparse's own refusals
        code = stop.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.mark.parametrize("value", ["0.9", "0", "-1", "nan", "inf", "1.1,", "slow", "", "1.2;1.5", "1001"])
def test_refuses_what_is_no_straggler(capsys: pytest.CaptureFixture[str], value: str) -> None:
    assert "expected how many times slower the straggler is, from 1 to 1000" in refusal(
        capsys, "--pipelines", "4", f"--straggler={value}"
    )


def test_refuses_jobs_without_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    assert "required: --pipelines" in refusal(capsys, "--straggler", "1.2")
    assert "'0' is not a positive integer" in refusal(capsys, "--pipelines", "0")


def test_one_pipeline_is_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", *PLANNED, "--pipelines", "1"]) == 0
    assert capsys.readouterr().out.startswith("1 pipeline, 4 GPUs; ")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["emulate", "--help"])
    assert "--pipelines 128 --straggler 1.05,1.1,1.2,1.5" in capsys.readouterr().out
