"""Commands that read a saved frontier or make a schedule: what they print, and what they refuse by their options."""

import json
from pathlib import Path

import pytest
from commands import run_command

from perseus_dist.planning.frontier.frontier import plan_frontier
from perseus_dist.planning.frontier.frontier_file import save_frontier
from perseus_dist.planning.frontier.problem import make_problem
from perseus_dist.planning.profile.profile import read_profile
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.units import UW_PER_W

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "examples" / "profiles" / "gpu_model_pp4.csv"
SIGNAL = str(ROOT / "examples" / "signals" / "day_ahead.csv")
WORK = ("--hours", "24")


@pytest.fixture(scope="module")
def frontier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of four stages."""
    path = tmp_path_factory.mktemp("plans") / "frontier.npz"
    problem = make_problem(
        one_f_one_b(pp=4, microbatches=4), read_profile(PROFILE), blocking_uw_of_rank=[80 * UW_PER_W] * 4
    )
    save_frontier(plan_frontier(problem, num_points=20), path)
    return str(path)


def told(*arguments: str, code: int = 0) -> str:
    done = run_command(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stderr == ""
    return done.stdout


def figures(*arguments: str, code: int = 0) -> dict[str, object]:
    found: dict[str, object] = json.loads(told(*arguments, "--json", code=code))
    return found


def refusal(*arguments: str) -> str:
    done = run_command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()[-1]


def test_a_plan_is_looked_up_for_a_deadline_a_straggler_or_at_its_fastest(frontier: str, tmp_path: Path) -> None:
    fastest = figures("lookup", frontier, "--fastest")
    slower = figures("lookup", frontier, "--slowdown", "1.05")
    assert isinstance(fastest["time_s"], float)
    assert isinstance(slower["time_s"], float)
    assert isinstance(slower["deadline_s"], float)
    assert fastest["time_s"] < slower["time_s"] <= slower["deadline_s"]
    out = tmp_path / "plan.json"
    until = 2 * fastest["time_s"]
    said = told("lookup", frontier, "--straggler-s", str(until), "--out", str(out))
    assert f"Energies count until the straggler's iteration ends at {until:.6f} s." in said
    assert json.loads(out.read_text())["until_s"] == pytest.approx(until)
    assert figures("lookup", frontier, "--deadline-s", str(until))["deadline_s"] == pytest.approx(until)


def test_a_deadline_that_no_plan_keeps_is_refused_by_its_option(frontier: str) -> None:
    assert "--slowdown 0.5: " in refusal("lookup", frontier, "--slowdown", "0.5")
    assert "--deadline-s 1e-06: " in refusal("lookup", frontier, "--deadline-s", "1e-6")


def test_a_budget_is_shared_and_one_that_cannot_be_kept_is_said(frontier: str) -> None:
    jobs = [f"{frontier},pipelines=8,name=big", f"{frontier},weight=2,slowdown=1.1,name=small"]
    share = ("policy", "share", *jobs, "--watts")
    kept = figures(*share, "1000000")
    assert kept["is_met"] is True
    said = told(*share, "10", "--objective", "max-min", "--guard-band", "0.1", code=1)
    assert "largest weighted slowdowns" in said
    assert "the cap cannot be kept with a guard band of 10 %: at their slowest these jobs draw " in said
    assert "sum of weighted slowdowns" in told(*share, "1000000")
    assert figures(*share, "10", code=1)["is_met"] is False


def test_the_objective_is_what_is_least(frontier: str) -> None:
    jobs = {"big": 1.0, "small": 5.0}
    command = ["policy", "share", *(f"{frontier},weight={weight},name={name}" for name, weight in jobs.items())]
    command += ["--watts", "1547", "--objective"]

    def weighted(objective: str) -> list[float]:
        rows = figures(*command, objective)["jobs"]
        assert isinstance(rows, list)
        return [jobs[row["job"]] * row["slowdown_percent"] for row in rows]

    assert max(weighted("max-min")) < max(weighted("total"))
    assert sum(weighted("total")) < sum(weighted("max-min"))
    assert figures(*command, "max-min")["weighted_slowdown"] == pytest.approx(max(weighted("max-min")) / 100)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (",weight=2", "saw ',weight=2', expected a frontier's file first"),
        ("f.npz,weight", "saw 'weight', expected pipelines=D, weight=W, slowdown=R or name=NAME, each at most once"),
        ("f.npz,weight=1,weight=2", "saw 'weight=2', expected pipelines=D"),
        ("f.npz,pipelines=0", "pipelines: saw '0', expected a whole number from 1 to "),
        ("f.npz,slowdown=0.9", "slowdown: saw '0.9', expected a number from 1 to "),
    ],
)
def test_a_job_that_is_written_wrong_is_refused(job: str, expected: str) -> None:
    assert expected in refusal("policy", "share", job, "--watts", "1")


def test_two_jobs_of_one_name_are_refused_with_the_remedy(frontier: str) -> None:
    said = refusal("policy", "share", frontier, frontier, "--watts", "1")
    assert said.endswith(f"expected each name once: give names, as in {frontier},name=llama")
    assert "none.npz" in refusal("policy", "share", "none.npz", "--watts", "1")


def test_a_pace_follows_the_price_and_says_what_cannot_be_done(frontier: str) -> None:
    command = ("policy", "pace", f"{frontier},slowdown=1.5", "--signal", SIGNAL, *WORK, "--iterations")
    found = figures(*command, "1000", "--forecast")
    assert found["is_done"] is True
    paces = found["paces"]
    assert isinstance(paces, list)
    costs = {one["pace"]: one["cost"] for one in paces}
    assert costs.keys() == {"full speed", "constant", "cheapest", "by forecasts"}
    assert costs["cheapest"] <= costs["constant"]
    assert "against constant" in told(*command, "1000")
    assert "of 1,000,000,000 iterations can be done in 24 hours" in told(*command, "1e9", code=1)


def test_policies_are_played_against_prices_and_caps(frontier: str, tmp_path: Path) -> None:
    targets = tmp_path / "targets.csv"
    begin, end = "2026-11-23T05:00:00-05:00", "2026-11-23T07:00:00-05:00"
    targets.write_text(f"name,start,end,watts,best_effort\npeak,{begin},{end},1,no\n")
    command = ("policy", "simulate", frontier, *WORK, "--iterations", "1000")
    found = figures(*command, "--signal", SIGNAL, "--forecast")
    assert found["is_kept"] is True
    assert found["start"] == "2026-11-23T00:00:00-05:00"
    assert "peak [W]" in told(*command, "--signal", SIGNAL)
    said = told(*command, "--load-targets", str(targets), "--guard-band", "0.2", code=1)
    assert "the caps cannot be kept with a guard band of 20 % for " in said
    late = told("policy", "simulate", frontier, *WORK, "--iterations", "1e9", "--watts", "1e6", code=1)
    assert "of 1,000,000,000 iterations are done in 24 hours" in late
    assert "late" in late


def test_policies_that_are_none_are_refused(frontier: str, tmp_path: Path) -> None:
    command = ("policy", "simulate", frontier, *WORK, "--iterations", "1000")
    assert refusal(*command).endswith("saw no policy, expected --signal, --watts or --load-targets")
    assert "--forecast: saw no --signal, expected one with forecasts" in refusal(*command, "--watts", "1", "--forecast")
    signal = tmp_path / "signal.csv"
    signal.write_text("timestamp,duration,value\n2026-11-23T00:00:00Z,2880,0.1\n")
    assert "has no forecasts; leave --forecast out" in refusal(*command, "--signal", str(signal), "--forecast")
    assert "say which part of it" in refusal(*command, "--signal", str(signal), "--start", "2001-01-01T00:00:00Z")


def test_a_schedule_is_printed_as_orders_as_json_and_as_a_grid(tmp_path: Path) -> None:
    command = ("schedule", "--schedule", "interleaved", "--pp", "2", "--microbatches", "4", "--chunks", "2")
    orders = tmp_path / "orders.txt"
    orders.write_text(told(*command))
    found = figures(*command)
    assert (found["num_stages"], found["num_microbatches"]) == (4, 4)
    of_file = ("schedule", "--schedule-file", str(orders))
    assert figures(*of_file)["digest"] == found["digest"]
    head, first, *_ = told(*of_file, "--grid").splitlines()
    assert head.split() == ["step", "pp_rank", "0", "pp_rank", "1"]
    assert first.split() == ["0", "0F0"]
    fitting = ("--pp", "2", "--microbatches", "4", "--chunks", "2")
    assert told(*of_file, *fitting) == orders.read_text()


@pytest.mark.parametrize(("option", "value"), [("--pp", "4"), ("--microbatches", "8"), ("--chunks", "2")])
def test_an_option_that_contradicts_the_schedules_file_is_refused(tmp_path: Path, option: str, value: str) -> None:
    orders = tmp_path / "orders.txt"
    orders.write_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")
    said = refusal("schedule", "--schedule-file", str(orders), option, value)
    assert f"{option} {value} does not fit {orders}" in said


def test_a_schedule_without_its_size_is_refused() -> None:
    assert "--schedule 1f1b without its size: add --pp P" in refusal("schedule", "--schedule", "1f1b")
    said = refusal("schedule", "--schedule", "1f1b", "--pp", "2")
    assert "--schedule 1f1b without its size: add --microbatches M" in said
