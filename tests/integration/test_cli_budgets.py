"""``perseus-dist policy set``, ``load-target``, ``price``, ``show`` and ``clear`` with a real planner, restarted."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from load_jobs import load_jobs
from planner_process import Planner, planner
from waiting import wait_until

from perseus_dist.cli import main


class Command:
    """The command at a planner, with the operator's token."""

    def __init__(self, served: Planner, capsys: pytest.CaptureFixture[str]) -> None:
        self._options = ("--planner", served.address, "--token-file", str(served.folder / "state" / "operator-token"))
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str]:
        code = main([*arguments, *self._options])
        said = self._capsys.readouterr()
        return code, said.out or said.err

    def budget(self, *arguments: str) -> dict[str, Any]:
        _, said = self("policy", *arguments, "--json")
        budgets = {budget["name"]: budget for budget in json.loads(said)["budgets"]}
        found: dict[str, Any] = budgets.get("hall", {})
        return found

    def price(self, *arguments: str) -> dict[str, Any]:
        _, said = self("policy", *arguments, "--json")
        found: dict[str, Any] = next(iter(json.loads(said)["prices"]), {"jobs": [{}]})
        return found

    def phases(self) -> list[str]:
        _, said = self("jobs", "--json")
        return [job["phase"] for job in json.loads(said)["jobs"]]


def test_a_budget_from_its_begin_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with planner(tmp_path) as served:
        token = (tmp_path / "state" / "operator-token").read_text().strip()
        with load_jobs(served.address, "llama-1", "llama-2", token=token):
            command = Command(served, capsys)
            wait_until(lambda: command.phases() == ["enforcing"] * 2)
            assert command("policy", "show") == (0, "no power budgets and no price policies\n")
            free = command.budget("set", "hall", "--watts", "1e6", "--job", "llama-*")
            assert [share["job"] for share in free["shares"]] == ["llama-1", "llama-2"]
            assert not any(share["is_paced"] for share in free["shares"])
            cap_w = f"{0.9 * free['planned_w']:.1f}"
            for twice in (("--job", "b*"), ("--weight", "*-2=3", "--weight", "*-2=4"), ("--max-slowdown", "a=2") * 2):
                code, said = command("policy", "set", "hall", "--watts", "1", "--job", "b*", *twice)
                assert (code, said.count("\n"), " twice' was seen, expected each once" in said) == (2, 1, True)
            tight = command.budget("set", "hall", "--watts", cap_w, "--job", "llama-*", "--weight", "*-2=3")
            assert tight["is_met"]
            assert tight["planned_w"] <= float(cap_w) < free["planned_w"]
            assert any(share["is_paced"] for share in tight["shares"])
            code, said = command("policy", "show")
            assert (code, said.startswith("hall (llama-*): ")) == (0, True)
            assert "  slowed by the budget" in said
            assert 0 < tight["weighted_slowdown_bound"] <= tight["weighted_slowdown"]
            assert "\nsum of weighted slowdowns " in said
            assert " %, at best " in said

            end = datetime.now(UTC) + timedelta(hours=1)
            span = ("--start", "2026-11-24T00:00:00+00:00", "--end", end.isoformat())
            code, said = command("policy", "load-target", "hall", "--name", "grid", "--watts", "1", *span)
            assert (code, "cannot be met" in said) == (2, True)
            file = tmp_path / "targets.csv"
            file.write_text(
                f"name,start,end,watts,best_effort\ngrid,2026-11-24T00:00:00+00:00,{end.isoformat()},1,yes\n"
            )
            good = file.read_text()
            for row in ("old,2020-11-24T00:00:00+00:00,2020-11-25T00:00:00+00:00,1,yes", good.splitlines()[1]):
                file.write_text(f"{good}{row}\n")
                assert command("policy", "load-target", "hall", "--file", str(file))[0] == 2
                assert not command.budget("show")["load_targets"], "all of a file or none of it"
            firm = good.splitlines()[1].replace("grid", "firm").replace("yes", "no")
            file.write_text(f"{good}{firm}\n")
            code, said = command("policy", "load-target", "hall", "--file", str(file))
            assert (code, "load target firm cannot be met" in said, said.count("\n")) == (2, True, 1)
            assert "; no load target of the file is set" in said
            assert not command.budget("show")["load_targets"], "all of a file or none of it"
            file.write_text(f"\ufeff{good}", encoding="utf-8")
            code, said = command("policy", "load-target", "hall", "--file", str(file))
            assert (code, "the cap of 1 W cannot be kept" in said) == (1, True)
            assert command.budget("show")["load_target"] == "grid"
            assert served.end() == 0

            with planner(tmp_path, "--bind", served.address) as again:
                command = Command(again, capsys)
                kept = command.budget("show")
                assert (kept["load_target"], kept["weights"]) == ("grid", {"*-2": 3.0})
                wait_until(lambda: command.budget("show")["shares"][0]["is_paced"])
                assert command.budget("clear", "hall", "--load-target", "grid")["cap_w"] == float(cap_w)
                assert command("policy", "clear", "hall") == (0, "no power budgets and no price policies\n")
                code, said = command("policy", "clear", "hall")
                assert (code, "there is no budget hall" in said) == (2, True)
                code, said = command("audit", "--json")
                records = [json.loads(line) for line in said.splitlines()]
                actions = [record["action"] for record in records if record["outcome"] == "done"]
                changes = [action for action in actions if "Budget" in action or "LoadTarget" in action]
                taken_back = ["SetLoadTarget", "ClearLoadTarget"]
                changed = ["SetBudget", "SetBudget", *taken_back, "SetLoadTarget", "ClearLoadTarget", "ClearBudget"]
                assert changes == changed
                of_job = {job: command("audit", "--json", "--job", job)[1] for job in ("llama-1", "other")}
                seen = [json.loads(line)["action"] for line in of_job["llama-1"].splitlines()]
                assert [action for action in seen if action != "StartJob"] == changed
                assert of_job["other"] == ""


def prices(now: datetime, *values: float) -> str:
    """Half-hours, the first of them under way."""
    rows = [f"{(now + timedelta(minutes=30 * at - 5)).isoformat()},30,{value}" for at, value in enumerate(values)]
    return "\n".join(["timestamp,duration,value", *rows, ""])


@pytest.mark.stress
def test_a_price_policy_from_its_begin_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime.now(UTC)
    signals = tmp_path / "signals"
    signals.mkdir()
    (signals / "day.csv").write_text(prices(now, 0.5, 0.01, 0.01, 0.01))
    deadline = (now + timedelta(minutes=80)).isoformat()
    setting = ("policy", "price", "cheap", "--job", "llama-1", "--signal", "day.csv", "--deadline", deadline)
    with planner(tmp_path, "--signals", str(signals)) as served:
        token = (tmp_path / "state" / "operator-token").read_text().strip()
        with load_jobs(served.address, "llama-1", token=token):
            command = Command(served, capsys)
            wait_until(lambda: command.phases() == ["enforcing"])
            code, said = command(*setting, "--iterations", "1000")
            assert (code, "cheap: 1,000 iterations by " in said) == (0, True)
            wait_until(lambda: command.price("show")["jobs"][0]["is_paced"])
            shown = command.price("show")["jobs"][0]
            assert (shown["price_kwh"], shown["is_on_time"], shown["budget"]) == (0.5, True, None)
            assert "slower than its target" in command("policy", "show")[1]
            (signals / "day.csv").write_text("timestamp,duration,value\nnow,30,1\n")
            wait_until(lambda: not command.price("show")["jobs"][0]["is_paced"])
            assert "signal day.csv cannot be read: " in command("policy", "show")[1]
            (signals / "day.csv").write_text(prices(now, 0.5, 0.01, 0.01, 0.01))
            wait_until(lambda: command.price("show")["jobs"][0]["is_paced"])
            done = command.price("show")["jobs"][0]["iterations_done"]
            assert served.end() == 0

            with planner(tmp_path, "--bind", served.address, "--signals", str(signals)) as again:
                command = Command(again, capsys)
                wait_until(lambda: command.price("show")["jobs"][0]["iterations_done"] > done)
                wait_until(lambda: command.price("show")["jobs"][0]["is_paced"])
                code, said = command(*setting, "--iterations", "1000000000")
                assert (code, "the deadline cannot be kept" in said) == (1, True)
                code, said = command("policy", "clear", "cheap", "--price")
                assert (code, "cheap" in command("policy", "show")[1]) == (0, False)
                code, said = command("policy", "clear", "cheap", "--price")
                assert (code, "there is no price policy cheap" in said) == (2, True)


def hour(now: datetime, minutes: float, forecast: float, actual: float | None) -> dict[str, Any]:
    """An hour of UK Carbon Intensity's."""
    start = now + timedelta(minutes=minutes)
    span = {"from": start.isoformat(), "to": (start + timedelta(hours=1)).isoformat()}
    return {**span, "intensity": {"forecast": forecast, "actual": actual}}


@contextmanager
def serving(answers: dict[str, str]) -> Iterator[str]:
    """A provider that answers by path; 503 where it has nothing. Yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path, "").encode()
            self.send_response(200 if body else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.stress
def test_a_price_policy_by_a_provider_that_fails_and_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prices are negative later on, when the job is to draw most; a stale answer brings it to its own target."""
    now = datetime.now(UTC)
    signals = tmp_path / "signals"
    signals.mkdir()
    answers: dict[str, str] = {}
    deadline = (now + timedelta(minutes=80)).isoformat()
    setting = ("policy", "price", "cheap", "--job", "llama-1", "--deadline", deadline, "--iterations", "1000")
    with serving(answers) as url, planner(tmp_path, "--signals", str(signals)) as served:
        (signals / "grid.toml").write_text(f'url = "{url}/prices"\nevery_s = 1\nstale_s = 3\n')
        token = (tmp_path / "state" / "operator-token").read_text().strip()
        with load_jobs(served.address, "llama-1", token=token):
            command = Command(served, capsys)
            wait_until(lambda: command.phases() == ["enforcing"])
            code, said = command(*setting, "--signal", "grid.toml")
            assert (code, said.count("\n")) == (2, 1)
            assert "signal grid.toml: 127.0.0.1: answers 503 Service Unavailable" in said
            answers["/prices"] = json.dumps({"data": [hour(now, -65, 110, 100), hour(now, -5, 90, None)]})
            wait_until(lambda: command(*setting, "--signal", "grid.toml")[0] == 0)
            error = {"mean_kwh": 10.0, "percent": 10.0, "hours": 1.0}
            assert command.price("show")["forecast_error"] == pytest.approx(error)
            assert "forecasts off by 10 per kWh on average (10.0 %) in 1 hours" in command("policy", "show")[1]
            answers["/prices"] = prices(now, 0.5, -0.1, -0.1, -0.1)
            wait_until(lambda: command.price("show")["jobs"][0]["is_paced"])
            assert command.price("show")["trouble"] is None
            answers.clear()
            wait_until(lambda: not command.price("show")["jobs"][0]["is_paced"])
            assert "is stale: 127.0.0.1: answers 503" in command("policy", "show")[1]
            answers["/prices"] = prices(now, -0.1, 0.5, 0.5, 0.5)
            wait_until(lambda: command.price("show")["jobs"][0]["price_kwh"] == -0.1)
            wait_until(lambda: not command.price("show")["trouble"])
            assert not command.price("show")["jobs"][0]["is_paced"]


def test_a_folder_of_signals_has_to_be_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state"
    assert main(["planner", "--state-dir", str(state), "--signals", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not state.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("set", "a/b"),
        ("price", "a", "--job", "j", "--signal", "s", "--deadline", "2026-11-24T00:00:00", "--iterations", "9"),
        ("price", "a", "--job", "j*", "--signal", "s", "--deadline", "2026-11-24T00:00:00+00:00", "--iterations", "9"),
        ("price", "a", "--signal", "s", "--deadline", "2026-11-24T00:00:00+00:00", "--iterations", "9"),
        ("clear", "a", "--price", "--load-target", "b"),
        ("set", "hall", "--watts", "0"),
        ("set", "hall", "--weight", "2"),
        ("set", "hall", "--max-slowdown", "*=0.5"),
        ("load-target", "hall", "--name", "a"),
        ("load-target", "hall", "--file", "x.csv", "--best-effort"),
        ("load-target", "hall", "--file", "there-is-none.csv"),
    ],
)
def test_what_makes_no_budget_is_refused_in_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["policy", *arguments, "--planner", "127.0.0.1:1"])
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    assert capsys.readouterr().err.count("\n") == 1
