"""``perseus-dist policy`` on saved frontiers."""

import json
from pathlib import Path

import pytest

from perseus_dist.cli import main

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "profiles" / "gpu_model_pp4.csv"


@pytest.fixture(scope="module")
def frontier(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plans")
    options = ["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--blocking-power-w", "80"]
    assert main(["plan", str(EXAMPLE), *options, "--out", str(folder), "--json"]) == 0
    return str(folder / "frontier.npz")


@pytest.fixture(scope="module")
def signal(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("signal") / "carbon.csv"
    rows = [f"2026-11-23T{hour:02}:00:00+00:00,60,{300 + 200 * (hour % 2)},{400}" for hour in range(12)]
    file.write_text("\n".join(["timestamp,duration,value,forecast", *rows]) + "\n")
    return str(file)


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    capsys.readouterr()
    main([*argv, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_budget_is_shared(frontier: str, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = (f"{frontier},pipelines=8,name=a", f"{frontier},pipelines=8,weight=3,slowdown=1.02,name=b")
    free = shown(capsys, "policy", "share", *jobs, "--watts", "1e6")
    assert free["weighted_slowdown"] == 0
    tight = shown(capsys, "policy", "share", *jobs, "--watts", "14500")
    assert tight["is_met"] is True
    assert 14000 < float(str(tight["power_w"])) <= 14500
    slowdowns = [job["slowdown_percent"] for job in tight["jobs"]]  # type: ignore[attr-defined]
    assert slowdowns[1] <= 2.0 < slowdowns[0]
    assert main(["policy", "share", *jobs, "--watts", "100"]) == 1
    out = capsys.readouterr().out
    assert "the cap cannot be kept: at their slowest these jobs draw" in out
    assert "a " in out
    least_w = float(str(shown(capsys, "policy", "share", *jobs, "--watts", "100")["least_power_w"]))
    banded = (*jobs, "--watts", str(1.05 * least_w), "--guard-band", "0.3")
    assert main(["policy", "share", *banded]) == 1
    assert "the cap cannot be kept with a guard band of 30 %" in capsys.readouterr().out
    assert shown(capsys, "policy", "share", *banded)["is_met"] is False
    assert main(["policy", "simulate", *banded, "--iterations", "100", "--hours", "1"]) == 1
    assert "the caps cannot be kept with a guard band of 30 % for" in capsys.readouterr().out


def test_a_job_follows_a_price(frontier: str, signal: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("policy", "pace", f"{frontier},pipelines=8", "--signal", signal, "--iterations", "27000", "--hours", "12")
    found = shown(capsys, *argv, "--forecast")
    costs = {row["pace"]: row["cost"] for row in found["paces"]}  # type: ignore[attr-defined]
    assert costs["cheapest"] <= costs["by forecasts"] <= 1.002 * costs["constant"]
    assert costs["constant"] < costs["full speed"]
    assert main([*argv]) == 0
    assert "against constant" in capsys.readouterr().out
    assert main([*argv[:-1], "1"]) == 1
    assert "27,000 iterations can be done in 1 hours" in capsys.readouterr().out


def test_policies_are_simulated(frontier: str, signal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = tmp_path / "targets.csv"
    moments = "2026-11-23T03:00:00+00:00,2026-11-23T05:00:00+00:00"
    targets.write_text(f"name,start,end,watts,best_effort\npeak,{moments},14000,no\n")
    jobs = (f"{frontier},pipelines=8,name=a", f"{frontier},pipelines=8,name=b")
    argv = ("policy", "simulate", *jobs, "--iterations", "25000", "--hours", "12", "--signal", signal)
    free = shown(capsys, *argv)
    capped = shown(capsys, *argv, "--load-targets", str(targets), "--watts", "15600", "--forecast")
    paced = shown(capsys, "policy", "pace", jobs[0], *argv[4:])
    ways = {row["way"]: row for row in free["ways"]}  # type: ignore[attr-defined]
    alone = {row["pace"]: row["cost"] for row in paced["paces"]}  # type: ignore[attr-defined]
    assert ways["policies"]["cost"] == pytest.approx(2 * alone["cheapest"], rel=1e-6)
    assert free["forecast_error"] == pytest.approx({"mean_kwh": 100, "percent": 25, "hours": 12})
    assert main([*argv]) == 0
    assert "forecasts off by 100 per kWh on average (25.0 %) in 12 hours\n" in capsys.readouterr().out
    assert ways["constant"]["cost"] == pytest.approx(2 * alone["constant"], rel=1e-6)
    assert ways["policies"]["cost"] < ways["constant"]["cost"] < ways["always T_min"]["cost"]
    limited = {row["way"]: row for row in capped["ways"]}  # type: ignore[attr-defined]
    assert capped["is_kept"] is True
    assert limited["always T_min"]["hours_over_cap"] > 0 == limited["policies"]["hours_over_cap"]
    assert main([*argv, "--watts", "100"]) == 1
    said = capsys.readouterr().out
    assert "the caps cannot be kept for 12.00 hours: jobs are at their slowest then" in said
    assert "iterations are done in 12 hours" in said
    plain = shown(capsys, *argv[:-2], "--load-targets", str(targets))
    assert all(row["cost"] is None for row in plain["ways"])  # type: ignore[attr-defined]
    assert main([*argv[:-2], "--watts", "1000000"]) == 0
    assert "-0.00" not in capsys.readouterr().out, "a cap that holds nothing back"
    beyond = "0001-01-01T00:00:00+14:00,9999-12-31T23:59:59-14:00"
    backward = "2026-11-23T05:00:00+00:00,2026-11-23T03:00:00+00:00"
    for row in (f"peak,{beyond},14000,no", f"peak,{backward},14000,no", f"peak,{moments},14000,no,more"):
        targets.write_text(f"name,start,end,watts,best_effort\n{row}\n")
        assert main([*argv[:-2], "--load-targets", str(targets)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "load-targets" in said or "targets.csv:2" in said
    for wrong in (
        argv[:-2],
        (*argv[:-2], "--watts", "1", "--forecast"),
        (*argv, "--start", "2026-11-24T00:00:00+00:00"),
    ):
        assert main([*wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_jobs_of_one_name_are_refused(frontier: str, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("share", "simulate"):
        work = ("--iterations", "9", "--hours", "1") if action == "simulate" else ()
        for jobs in ((frontier, frontier), (f"{frontier},name=a", f"{frontier},pipelines=2,name=a")):
            assert main(["policy", action, *jobs, "--watts", "5000", *work]) == 2
            said = capsys.readouterr()
            assert (said.out, said.err.count("\n"), "expected each name once" in said.err) == ("", 1, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--watts", "0", "--iterations", "9", "--hours", "1"), "expected a power from 0.001 to 1e+12 watts"),
        (("--watts", "9", "--iterations", "0", "--hours", "1"), "expected a number of iterations from 0.001 to 1e+12"),
        (("--watts", "9", "--iterations", "9", "--hours", "-1"), "expected hours from 0.001 to 8784"),
    ],
)
def test_a_number_that_is_refused_has_its_limits_told(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["policy", "simulate", "x.npz", *options])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad",
    ["x.npz,pipelines=0", "x.npz,weight=-1", "x.npz,slowdown=0.9", "x.npz,weight=1,weight=2", "x.npz,hue=3", ",name=a"],
)
def test_what_is_no_job_is_refused_in_one_line(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["policy", "share", bad, "--watts", "5"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_signals_without_forecasts_and_of_other_times_are_refused(
    frontier: str, signal: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text("timestamp,duration,value\n2026-11-23T00:00:00+00:00,60,5\n")
    common = ["policy", "pace", frontier, "--iterations", "5"]
    for rest in (
        ["--signal", str(plain), "--hours", "1", "--forecast"],
        ["--signal", signal, "--hours", "13"],
        ["--signal", str(tmp_path / "none"), "--hours", "1"],
    ):
        assert main([*common, *rest]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for action in ("pace", "simulate"):
        assert main(["policy", action, *common[2:], "--signal", frontier, "--hours", "1"]) == 2
        said = capsys.readouterr().err
        assert said == f"perseus-dist: {frontier}: saw bytes that are no text, expected a signal in CSV or JSON\n"


def test_negative_prices_are_followed(frontier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Energy that somebody pays for is used, and what is earned more is a negative percentage."""
    file = tmp_path / "prices.csv"
    rows = (f"2026-11-23T{hour:02}:00:00+00:00,60,{-0.2 if hour % 2 else 0.02}" for hour in range(4))
    file.write_text("\n".join(["timestamp,duration,value", *rows, ""]))
    argv = (f"{frontier},pipelines=8", "--signal", str(file), "--iterations", "8000", "--hours", "4", "--json")
    assert main(["policy", "pace", *argv]) == 0
    paces = {row["pace"]: row for row in json.loads(capsys.readouterr().out)["paces"]}
    assert paces["cheapest"]["cost"] < paces["constant"]["cost"] < 0
    assert paces["cheapest"]["cost_percent"] < 0
    assert main(["policy", "simulate", *argv]) == 0
    ways = {row["way"]: row for row in json.loads(capsys.readouterr().out)["ways"]}
    assert ways["policies"]["cost"] == pytest.approx(paces["cheapest"]["cost"], rel=1e-3)
    assert ways["policies"]["cost_percent"] < 0
