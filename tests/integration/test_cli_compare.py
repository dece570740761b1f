"""``perseus-dist compare``."""

import json
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"
SCHEDULE = ("--schedule", "1f1b", "--pp", "4", "--microbatches", "8")
COMPARE = ("compare", str(EXAMPLE), *SCHEDULE, "--blocking-power-w", "80")


def shown(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main([*COMPARE, *options, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def by_key(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {plan["plan"]: plan for plan in document["plans"]}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that bad options get."""
    try:
        code = main(["compare", *arguments])
    except SystemExit as stop:  # argparse's own refusals
        code = stop.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def test_the_table_has_time_and_slowdown_beside_every_saving(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMPARE, "--slowdown", "1.05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["time", "slowdown", "energy", "saving", "power", "clock", "changes"]
    names = [line[: lines[1].index("[s]")].rstrip(" 0123456789.") for line in lines[2:16]]
    assert [name.strip() for name in names] == [
        "all-max",
        "Zeus-global",
        "Zeus-global, least energy",
        "Zeus-per-stage",
        "Zeus-per-stage, least energy",
        "EnvPipe",
        "perseus-dist by rank at the deadline",
        "perseus-dist by rank at T*",
        "perseus-dist by phase at the deadline",
        "perseus-dist by phase at T*",
        "perseus-dist, fastest",
        "perseus-dist at T_min",
        "perseus-dist at the deadline",
        "perseus-dist at T*",
    ]
    assert lines[2].split()[2:] == ["+0.000", lines[2].split()[3], "0.00", lines[2].split()[5], "0"]
    assert lines[-1].startswith("One iteration of one pipeline of 4 GPUs")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = shown(capsys)
    assert (document["num_gpus"], document["deadline_s"], document["switch_latency_ms"]) == (4, None, 0)
    plans = by_key(document)
    assert list(plans) == [
        "all_max",
        "zeus_global",
        "zeus_global_least_energy",
        "zeus_per_stage",
        "zeus_per_stage_least_energy",
        "envpipe",
        "perseus_rank_deadline",
        "perseus_rank_t_star",
        "perseus_phase_deadline",
        "perseus_phase_t_star",
        "perseus_fastest",
        "perseus_all_max_time",
        "perseus_t_star",
    ]
    reference = plans["all_max"]
    for plan in document["plans"]:
        assert plan["slowdown_percent"] == pytest.approx(100 * (plan["time_s"] / reference["time_s"] - 1))
        assert plan["saving_percent"] == pytest.approx(100 * (1 - plan["energy_j"] / reference["energy_j"]))
        assert plan["power_w"] == pytest.approx(plan["energy_j"] / plan["time_s"])
    assert plans["perseus_all_max_time"]["slowdown_percent"] <= 0
    assert plans["perseus_all_max_time"]["saving_percent"] > plans["envpipe"]["saving_percent"] > 0
    assert plans["perseus_t_star"]["saving_percent"] > plans["zeus_per_stage_least_energy"]["saving_percent"]
    by_rank, by_phase = (plans[f"perseus_{name}_deadline"]["saving_percent"] for name in ("rank", "phase"))
    assert 0 <= by_rank < by_phase < plans["perseus_all_max_time"]["saving_percent"]
    assert len(document["sweeps"]["zeus_global"]) == len(document["sweeps"]["zeus_per_stage"]) == 38


def test_a_deadline_is_a_factor_or_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    all_max_s = by_key(shown(capsys))["all_max"]["time_s"]
    factor = shown(capsys, "--slowdown", "1.08")
    seconds = shown(capsys, "--deadline-s", f"{1.08 * all_max_s:.9f}")
    assert factor["deadline_s"] == pytest.approx(seconds["deadline_s"], rel=1e-9) == pytest.approx(1.08 * all_max_s)
    for document in (factor, seconds):
        plans = by_key(document)
        for key in ("zeus_global", "zeus_per_stage", "perseus_deadline"):
            assert 0 < plans[key]["slowdown_percent"] <= 8
        assert plans["perseus_deadline"]["saving_percent"] > plans["perseus_all_max_time"]["saving_percent"]
        assert plans["perseus_deadline"]["saving_percent"] > plans["zeus_per_stage"]["saving_percent"]


def test_clock_changes_that_take_time_make_envpipe_late(capsys: pytest.CaptureFixture[str]) -> None:
    plans = by_key(shown(capsys, "--switch-latency-ms", "12"))
    assert plans["envpipe"]["slowdown_percent"] > 0.1
    assert plans["envpipe"]["max_changes_per_rank"] > 0
    assert plans["perseus_all_max_time"]["slowdown_percent"] <= 0
    assert plans["all_max"]["max_changes_per_rank"] == plans["zeus_global"]["max_changes_per_rank"] == 0


def test_a_tensor_parallel_group_takes_as_long_and_draws_as_often(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = shown(capsys), shown(capsys, "--tensor-parallel", "4")
    assert four["num_gpus"] == 16
    for plan, of_group in zip(one["plans"], four["plans"], strict=True):
        if plan["plan"] != "perseus_t_star":  # energy is flat there
            assert of_group["time_s"] == pytest.approx(plan["time_s"], rel=1e-3)
        assert of_group["energy_j"] == pytest.approx(4 * plan["energy_j"], rel=1e-3)


def test_a_split_backward_with_constants_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    orders, profile = tmp_path / "orders.txt", tmp_path / "profile.csv"
    orders.write_text("0LOAD0 0F0 0F1 0I0 0I1 0W0 0W1 0STEP\n1F0 1B0 1F1 1B1\n")
    rows = ["stage,instruction,frequency,time,energy", "0,load,1000,0.01,1", "0,step,1000,0.02,1"]
    for stage, names in enumerate((("forward", "backward_input", "backward_weight"), ("forward", "backward"))):
        for name in names:
            rows += [f"{stage},{name},1000,0.1,30", f"{stage},{name},{700 + 100 * stage},0.12,24"]
    profile.write_text("\n".join(rows))
    options = ("--schedule-file", str(orders), "--blocking-power-w", "60,80")
    assert main(["compare", str(profile), *options, "--json"]) == 0
    plans = by_key(json.loads(capsys.readouterr().out))
    # 0LOAD0 0F0 1F0 1B0 1F1 1B1 0I1 0W0 0W1 0STEP; energy of work, then of 0.31 s and of 0.43 s of waiting
    assert plans["all_max"]["time_s"] == pytest.approx(0.83)
    assert plans["all_max"]["energy_j"] == pytest.approx(302 + 60 * 0.2 + 80 * 0.43)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "the following arguments are required: --blocking-power-w"),
        (["--blocking-power-w", "80,80"], "--blocking-power-w: saw 2 values, expected 1 or 4"),
        (["--blocking-power-w", "80", "--slowdown", "0.5"], "cannot be met"),
        (["--blocking-power-w", "80", "--slowdown", "nan"], "--slowdown: saw 'nan', expected a number above 0"),
        (["--blocking-power-w", "80", "--deadline-s", "-1"], "--deadline-s: saw '-1', expected a number above 0"),
        (["--blocking-power-w", "80", "--deadline-s", "1", "--slowdown", "2"], "not allowed with argument"),
        (["--blocking-power-w", "80", "--switch-latency-ms", "-1"], "expected milliseconds from 0 to"),
        (["--blocking-power-w", "80", "--switch-latency-ms", "soon"], "expected milliseconds from 0 to"),
        (["--blocking-power-w", "80", "--tensor-parallel", "0"], "saw '0', expected 1 to 4096 GPUs"),
        (["--blocking-power-w", "80", "--pp", "8"], "saw 4 stages, expected the schedule's 8"),
    ],
)
def test_refuses_bad_options_in_one_line(capsys: pytest.CaptureFixture[str], options: list[str], expected: str) -> None:
    assert expected in refusal(capsys, str(EXAMPLE), *SCHEDULE, *options)


def test_refuses_a_missing_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no-such.csv" in refusal(capsys, "no-such.csv", *SCHEDULE, "--blocking-power-w", "80")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["compare", "--help"])
    assert "perseus-dist compare profile.csv --schedule" in capsys.readouterr().out
