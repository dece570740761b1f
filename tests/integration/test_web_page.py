"""The planner's page over HTTP: who sees which job, what is refused, a target that gRPC shows, live events."""

import importlib.util
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import trustme
from commands import run_command
from load_jobs import FINDING, HOST, load_jobs
from node_relay import node_relay
from planner_process import Planner, planner
from waiting import PATIENCE_S, wait_for, wait_until

from perseus_dist.cli import main
from perseus_dist.planner.web.views.job import SECTIONS
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

OTHERS, OWN = "other-token-job", "llama"
TOKEN = "the other job's token"
SIGNALS = str(Path(__file__).parents[2] / "examples" / "signals")


def status_of(served: Planner, job: str) -> Any:
    with grpc.insecure_channel(served.address) as channel:
        stub = PlannerStub(channel)  # type: ignore[no-untyped-call]
        statuses = stub.ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S).jobs
    return next((status for status in statuses if status.job_id == job), None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    """A planner with a page, a planned job of this user, and a job that came with a token."""
    with ExitStack() as stack:
        running = stack.enter_context(
            planner(tmp_path_factory.mktemp("web"), "--web", "127.0.0.1:0", "--signals", SIGNALS)
        )
        stack.enter_context(load_jobs(running.address, OWN))
        stack.enter_context(load_jobs(running.address, OTHERS, token=TOKEN))
        wait_until(lambda: (status := status_of(running, OWN)) is not None and status.phase == "enforcing")
        yield running


@contextmanager
def browser(served: Planner, **options: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.told["web_url"], timeout=PATIENCE_S, **options) as client:
        client.headers["Accept"] = "text/html"
        yield client


def form_of(client: httpx.Client, path: str) -> dict[str, str]:
    """Hidden fields of a page."""
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', client.get(path).text))


def test_the_fleet_is_the_callers_and_gets_change_nothing(served: Planner) -> None:
    with browser(served) as client:
        fleet = client.get("/").text
        assert f'href="/jobs/{OWN}"' in fleet
        assert OTHERS not in fleet
        for path in (f"/jobs/{OWN}", f"/jobs/{OWN}/choices", "/login", "/static/style.css", "/static/fleet.js"):
            assert client.get(path).status_code == 200, path
        for path in (f"/jobs/{OWN}/target", "/logout"):
            assert client.get(path).status_code == 405
        assert client.get("/jobs/unknown").status_code == 404
        assert client.get("/static/../app.py").status_code == 404


@pytest.mark.parametrize("path", ["", "/choices", "/events"])
def test_anothers_job_is_refused_in_a_sentence(served: Planner, path: str) -> None:
    with browser(served) as client:
        answer = client.get(f"/jobs/{OTHERS}{path}")
        assert answer.status_code == 403
        assert "another token&#39;s" in answer.text


def test_a_target_is_set_and_in_force_for_grpc(served: Planner) -> None:
    with browser(served) as client:
        before = status_of(served, OWN)
        fields = form_of(client, f"/jobs/{OWN}")
        choices = client.get(f"/jobs/{OWN}/choices").json()["choices"]
        answer = client.post(f"/jobs/{OWN}/target", data={**fields, "position": str(len(choices) - 1)})
        assert answer.status_code == 303
        after = status_of(served, OWN)
        assert after.target.slowdown == pytest.approx(1 + choices[-1][2], abs=1e-5)
        assert after.switch_revision > before.switch_revision
        page = client.get(f"/jobs/{OWN}").text
        assert f"target: {after.target.slowdown:g} \N{MULTIPLICATION SIGN} baseline" in page
        answer = client.post(f"/jobs/{OWN}/target", data={**fields, "position": "0"}, headers={"Accept": "text/json"})
        assert answer.json()["accepted"]
        assert status_of(served, OWN).target.t_min


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"csrf": "guessed"}, 401),
        ({"position": "100000"}, 422),
        ({"position": "-1"}, 422),
        ({"position": ""}, 422),
        ({"revision": "77"}, 409),
        ({"revision": "9" * 30}, 422),
    ],
)
def test_a_form_that_is_wrong_sets_no_target(served: Planner, changed: dict[str, str], status: int) -> None:
    with browser(served) as client:
        before = status_of(served, OWN)
        fields = {**form_of(client, f"/jobs/{OWN}"), "position": "3", **changed}
        answer = client.post(f"/jobs/{OWN}/target", data=fields)
        assert (answer.status_code, status_of(served, OWN).target) == (status, before.target)


def test_another_site_sets_no_target(served: Planner) -> None:
    with browser(served) as client:
        fields = {**form_of(client, f"/jobs/{OWN}"), "position": "3"}
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert client.post(f"/jobs/{OWN}/target", data=fields, headers=headers).status_code == 403
        assert client.get("/", headers={"Host": "rebound.example"}).status_code == 421


def test_anothers_target_is_refused_and_its_token_opens_it(served: Planner) -> None:
    with browser(served) as client:
        fields = {**form_of(client, f"/jobs/{OWN}"), "position": "1"}
        answer = client.post(f"/jobs/{OTHERS}/target", data=fields)
        assert (answer.status_code, "another token&#39;s" in answer.text) == (403, True)
        header = {"Authorization": f"Bearer {TOKEN}"}
        assert client.get(f"/jobs/{OTHERS}", headers=header).status_code == 200
        wait_until(lambda: client.get(f"/jobs/{OTHERS}/choices", headers=header).json()["revision"])
        revision = client.get(f"/jobs/{OTHERS}/choices", headers=header).json()["revision"]
        target = {"position": "1", "revision": str(revision)}
        assert client.post(f"/jobs/{OTHERS}/target", data=target, headers=header).status_code == 303


def test_a_token_logs_in_until_it_logs_out(served: Planner) -> None:
    with browser(served) as client:
        fields = form_of(client, "/login")
        wrong = client.post("/login", data={**fields, "token": "guessed"})
        assert (wrong.status_code, "opens no job" in wrong.text) == (403, True)
        assert not client.cookies
        assert client.post("/login", data={**fields, "token": TOKEN}).status_code == 303
        assert TOKEN not in str(list(client.cookies.jar))
        fleet = client.get("/").text
        assert (f"/jobs/{OTHERS}" in fleet, f"/jobs/{OWN}" in fleet) == (True, True)  # the token's, and the user's
        assert client.post("/logout", data=form_of(client, "/")).status_code == 303
        assert OTHERS not in client.get("/").text


def test_a_named_token_that_may_look_sets_no_target_and_ends_when_it_is_revoked(served: Planner) -> None:
    operators = ("--planner", served.address, "--token-file", str(served.folder / "state" / "operator-token"))
    made = run_command("token", "create", "looker", "--role", "view", "--json", *operators)
    assert made.returncode == 0, made.stderr
    with browser(served) as client:
        fields = {**form_of(client, "/login"), "token": json.loads(made.stdout)["token"]}
        assert client.post("/login", data=fields).status_code == 303
        page = client.get(f"/jobs/{OTHERS}")
        assert (page.status_code, 'id="target"' in page.text) == (200, False)
        wait_until(lambda: client.get(f"/jobs/{OTHERS}/choices").json()["revision"])
        revision = client.get(f"/jobs/{OTHERS}/choices").json()["revision"]
        for known in (revision, revision + 1):  # whether that is the frontier in force is not told, either
            target = {**form_of(client, "/"), "position": "0", "revision": str(known)}
            refused = client.post(f"/jobs/{OTHERS}/target", data=target)
            assert (refused.status_code, "token looker may not do this" in refused.text) == (403, True)
        with client.stream("GET", "/events") as stream:
            assert run_command("token", "revoke", "looker", *operators).returncode == 0
            assert list(events(stream.iter_lines()))[-1] == ("end", {"why": "login"})
        assert client.get("/").headers["location"] == "/login"
        again = {**form_of(client, "/login"), "token": fields["token"]}
        assert client.post("/login", data=again).status_code == 401
    audit = run_command("audit", "--json", *operators).stdout
    assert "token looker may not do this" in audit
    assert [json.loads(line)["action"] for line in audit.splitlines()][-2:].count("Login") == 1


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Those of a stream, for as long as a test is patient: others come for ever."""
    name, until_s = "", time.monotonic() + PATIENCE_S
    for line in lines:
        assert time.monotonic() < until_s
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def test_events_bring_a_target_that_is_set_over_grpc(served: Planner) -> None:
    with (
        browser(served) as client,
        client.stream("GET", "/events") as fleet,
        client.stream("GET", f"/jobs/{OWN}/events") as job,
    ):
        assert fleet.headers["content-type"].startswith("text/event-stream")
        rows, sections = events(fleet.iter_lines()), events(job.iter_lines())
        name, first = next(rows)
        assert (name, list(first["rows"]), first["num_jobs"]) == ("rows", [OWN], 1)
        name, first = next(sections)
        assert (name, first["sections"].keys()) == ("sections", {*SECTIONS})
        assert run_command("target", OWN, "--slowdown", "1.07", "--planner", served.address).returncode == 0
        assert "1.07" in next(event["rows"][OWN] for _, event in rows if "1.07" in event["rows"].get(OWN, ""))
        found = next(event["sections"] for _, event in sections if "1.07" in event["sections"].get("figures", ""))
        assert "1.07" in found["figures"]
        report = ("straggler", "report", OWN, "--id", "rack7", "--pipeline", "0", "--degree", "1.25")
        assert run_command(*report, "--planner", served.address).returncode == 0
        shown = (event["sections"].get("events", "") for _, event in sections)
        who = f"user {os.getuid()}"  # set the target, which the page looks for once a second, and reported
        wanted = ("target: 1.07 ", "straggler rack7: ")
        assert next(text for text in shown if all(who in said_by(text, sentence) for sentence in wanted))


def said_by(text: str, sentence: str) -> list[str]:
    """Whose the events are that begin so."""
    return re.findall(rf'class="by">([^<]*)</span> <span class="what">{re.escape(sentence)}', text)


def test_streams_are_bounded_and_those_that_are_left_make_room(served: Planner) -> None:
    with browser(served) as client:
        with ExitStack() as stack:
            codes = [stack.enter_context(client.stream("GET", "/events")).status_code for _ in range(25)]
        assert codes == [200] * 24 + [429]

        def is_open() -> bool:
            with client.stream("GET", "/events") as again:
                return again.status_code == 200

        wait_until(is_open)


# Loads what it needs before it becomes the user, who may have no access to the interpreter's folders.
ASK_AS = """\
import http.client, os, sys
"localhost".encode("idna")
os.setuid(int(sys.argv[1]))
connection = http.client.HTTPConnection(sys.argv[2], timeout=60)
for path in sys.argv[3:]:
    connection.request("GET", path, headers={"Accept": "text/html"})
    answer = connection.getresponse()
    print(answer.status, path, "llama" in answer.read().decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_of_the_machine_sees_nothing_of_it(served: Planner) -> None:
    host = served.told["web_url"].split("/")[2]
    command = [sys.executable, "-P", "-c", ASK_AS, "65534", host, "/", f"/jobs/{OWN}", f"/jobs/{OWN}/events"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines() == ["200 / False", f"403 /jobs/{OWN} True", f"403 /jobs/{OWN}/events True"]


def test_tls_and_tokens_and_an_end_with_streams_open(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    tls = ("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    with planner(tmp_path, "--web", "0.0.0.0:0", *tls) as running:
        trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        port = running.told["web_url"].rsplit(":", 1)[1].strip("/")
        operator = (tmp_path / "state" / "operator-token").read_text().strip()
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust) as client:
            client.headers["Accept"] = "text/html"
            away = client.get("/")
            assert (away.status_code, away.headers["location"]) == (303, "/login")
            assert client.get("/events", headers={"Accept": "text/event-stream"}).status_code == 401
            assert client.post("/login", data={**form_of(client, "/login"), "token": operator}).status_code == 303
            assert next(iter(client.cookies.jar)).secure
            with client.stream("GET", "/events") as stream:
                assert stream.status_code == 200
                assert running.end() == 0
                wait_for(lambda: list(stream.iter_lines()))


def test_a_certificates_role_opens_the_page_until_it_is_revoked(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    for name, leaf in (
        ("planner", authority.issue_cert("127.0.0.1")),
        ("login1", authority.issue_cert("login1.example")),
        ("shared", authority.issue_cert("other.example", common_name="shared.example")),
        ("stranger", authority.issue_cert("stranger.example")),
    ):
        leaf.private_key_pem.write_to_path(tmp_path / f"{name}.key")
        leaf.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")

    def certificate(name: str) -> tuple[str, ...]:
        return ("--tls-cert", str(tmp_path / f"{name}.pem"), "--tls-key", str(tmp_path / f"{name}.key"))

    client_ca = ("--tls-client-ca", str(tmp_path / "ca.pem"))
    with planner(tmp_path, "--web", "0.0.0.0:0", *certificate("planner"), *client_ca) as running:
        token_file = str(tmp_path / "state" / "operator-token")
        reach = ["--planner", running.address, "--token-file", token_file, "--tls-ca", str(tmp_path / "ca.pem")]
        reach += certificate("login1")
        port = running.told["web_url"].rsplit(":", 1)[1].strip("/")

        def visit(name: str) -> httpx.Client:
            trust = ssl.create_default_context(cafile=tmp_path / "ca.pem")
            trust.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
            client = httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust, timeout=PATIENCE_S)
            client.headers["Accept"] = "text/html"
            return client

        assert main(["token", "create", "first", "--role", "operate", "--certificate", "login1.example", *reach]) == 0
        assert main(["token", "create", "second", "--role", "view", "--certificate", "shared.example", *reach]) == 0
        with visit("login1") as client, visit("shared") as by_common_name, visit("stranger") as stranger:
            assert "certificate login1.example" in client.get("/").text
            assert "certificate shared.example" in by_common_name.get("/").text
            assert stranger.get("/").headers["location"] == "/login"
            form = {**form_of(stranger, "/login"), "token": "guessed"}
            assert stranger.post("/login", data=form).status_code == 403
            form = {**form_of(client, "/login"), "token": "guessed"}  # a certificate makes no token out of a guess
            assert client.post("/login", data=form).status_code == 403
            for site in ({}, {"Origin": "https://evil.example"}):
                assert client.post("/jobs/llama/target", data={"position": "0"}, headers=site).status_code in (401, 403)
            with client.stream("GET", "/events", headers={"Accept": "text/event-stream"}) as stream:
                assert stream.status_code == 200
                assert main(["token", "revoke", "first", *reach]) == 0
                wait_for(lambda: list(stream.iter_lines()))
            assert client.get("/").headers["location"] == "/login"


@pytest.mark.parametrize(
    ("options", "told", "code"),
    [
        (["--web", "0.0.0.0:0"], "--web 0.0.0.0:0 is no loopback address", 2),
        (["--web", "192.0.2.1:0", "--insecure", "--bind", "127.0.0.1:0"], "the page cannot be served there", 1),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_one_line(
    options: list[str],
    told: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["planner", *options]) == code
    assert told in capsys.readouterr().err.splitlines()[-1]


def test_a_planner_without_a_page_imports_none_of_it(tmp_path: Path) -> None:
    script = "import sys, perseus_dist.planner.service.server; print({'starlette', 'uvicorn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "set()"


def test_a_library_that_is_not_installed_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert main(["planner", "--web", "127.0.0.1:0"]) == 2
    assert "--web needs uvicorn, not installed here: run \"pip install 'perseus-dist" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_budgets_have_the_callers_jobs_alone(served: Planner) -> None:
    options = ("--planner", served.address, "--token-file", str(served.folder / "state" / "operator-token"))
    assert run_command("policy", "set", "hall", "--watts", "1e6", *options).returncode == 0
    deadline = (datetime.now(UTC) + timedelta(hours=9)).isoformat()
    price = ("policy", "price", "cheap", "--signal", "day_ahead.csv", "--deadline", deadline, "--iterations", "12345")
    assert run_command(*price, "--job", OWN, "--job", OTHERS, *options).returncode == 0
    hours = [(datetime.now(UTC) + timedelta(hours=hour)).isoformat(timespec="minutes") for hour in (5, 6)]
    target = ("--name", "peak", "--watts", "900000", "--start", hours[0], "--end", hours[1], "--best-effort")
    assert run_command("policy", "load-target", "hall", *target, *options).returncode == 0
    try:
        with browser(served) as client:
            wait_until(lambda: "<polyline" in client.get("/budgets").text)
            slowdowns = re.compile(r"Sum of weighted slowdowns (\d+\.\d{3}) %, at best \1 %")
            wait_until(lambda: slowdowns.search(client.get("/budgets").text))  # once its jobs' plans are shared
            page = client.get("/budgets").text
            assert f'<a href="/jobs/{OWN}">{OWN}</a>' in page
            assert "1,000,000 W" in page
            assert "Load target peak: 900,000 W from " in page
            assert " UTC, best effort" in page
            assert "Signal: forecasts off by 0.0" in page
            assert "1 more jobs are not yours to see" in page
            assert "Price policies" in page
            assert "12,345 iterations a job by " in page
            assert "at its own target: the signal says nothing of this time" in page
            assert OTHERS not in page
            with client.stream("GET", "/budgets/events") as stream:
                seen = events(stream.iter_lines())
                name, first = next(seen)
                assert (name, "1,000,000 W" in first["sections"]["budgets"]) == ("sections", True)
                assert run_command("policy", "set", "hall", "--watts", "2e6", *options).returncode == 0
                found = next(html for _, event in seen if "2,000,000 W" in (html := event["sections"]["budgets"]))
                assert OTHERS not in found
    finally:
        assert run_command("policy", "clear", "cheap", "--price", *options).returncode == 0
        assert run_command("policy", "clear", "hall", *options).returncode == 0
    with browser(served) as client:
        assert "No power budget covers a job that you may open" in client.get("/budgets").text


@pytest.fixture
def rack(served: Planner) -> Iterator[tuple[str, ...]]:
    """A budget of every job, and the operator's options."""
    options = ("--planner", served.address, "--token-file", str(served.folder / "state" / "operator-token"))
    assert run_command("policy", "set", "rack", "--watts", "1e6", *options).returncode == 0
    yield options
    assert run_command("policy", "clear", "rack", *options).returncode == 0


def load_targets(options: tuple[str, ...]) -> list[dict[str, Any]]:
    shown = json.loads(run_command("policy", "show", "--json", *options).stdout)
    (budget,) = (one for one in shown["budgets"] if one["name"] == "rack")
    found: list[dict[str, Any]] = budget["load_targets"]
    return found


def audit(options: tuple[str, ...]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_command("audit", "--json", *options).stdout.splitlines()]


def operator_header(served: Planner) -> dict[str, str]:
    return {"Authorization": f"Bearer {(served.folder / 'state' / 'operator-token').read_text().strip()}"}


def in_an_hour(minutes: int) -> datetime:
    return (datetime.now(UTC) + timedelta(minutes=60 + minutes)).replace(second=0, microsecond=0)


def form_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def test_a_load_target_is_set_and_cancelled_by_forms_and_recorded(served: Planner, rack: tuple[str, ...]) -> None:
    start, end = in_an_hour(0), in_an_hour(60)
    with browser(served, cookies=None) as client:
        login = form_of(client, "/login") | {"token": operator_header(served)["Authorization"].split()[1]}
        assert client.post("/login", data=login).status_code == 303
        page = client.get("/budgets").text
        assert 'action="/budgets/set-load-target"' in page
        fields = form_of(client, "/budgets") | {"budget": "rack"}
        target = {"name": "peak", "watts": "654321", "start": form_time(start), "end": form_time(end)}
        answer = client.post("/budgets/set-load-target", data={**fields, **target, "best_effort": "yes"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/budgets")
        (found,) = load_targets(rack)
        assert (found["name"], found["watts"], found["best_effort"]) == ("peak", 654321.0, True)
        assert [found["start_s"], found["end_s"]] == [start.timestamp(), end.timestamp()]
        page = client.get("/budgets").text
        assert "Load target peak: 654,321 W from " in page
        assert 'aria-label="Cancel load target peak of rack"' in page
        now = client.post("/budgets/set-load-target", data={**fields, **target, "name": "now", "start": ""})
        assert now.status_code == 303, "an empty begin is now"
        wait_until(lambda: "by load target now" in client.get("/budgets").text)
        for name in ("peak", "now"):
            answer = client.post("/budgets/clear-load-target", data={**fields, "name": name})
            assert answer.status_code == 303
        assert load_targets(rack) == []
        assert client.post("/budgets/clear-load-target", data={**fields, "name": "now"}).status_code == 404
    records = audit(rack)
    done = [record for record in records if record["outcome"] == "done" and "LoadTarget" in record["action"]][-4:]
    assert [record["action"] for record in done] == ["SetLoadTarget"] * 2 + ["ClearLoadTarget"] * 2
    assert done[0]["after"].startswith("load target peak of budget rack: 654321 W from ")
    assert (done[2]["before"], done[2]["after"]) == (done[0]["after"], "none")
    assert {(record["identity"], record["job"]) for record in done} == {("operator", "*")}
    refused = [record for record in records if record["action"] == "ClearLoadTarget" and record["outcome"] != "done"]
    assert "has no load target now" in refused[-1]["outcome"]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"csrf": "guessed"}, 401),
        ({"budget": "another"}, 404),
        ({"budget": "<b>"}, 422),
        ({"name": "not a name"}, 422),
        ({"name": ""}, 422),
        ({"watts": "many"}, 422),
        ({"watts": "nan"}, 422),
        ({"watts": "-1"}, 422),
        ({"watts": "0"}, 422),
        ({"start": "tomorrow"}, 422),
        ({"start": "2026-13-41T00:00"}, 422),
        ({"end": ""}, 422),
        ({"end": "0001-01-01T00:00"}, 422),
        ({"end": "9999-12-31T23:59", "start": "9999-12-31T23:59"}, 422),
        ({"start": "2020-01-01T00:00", "end": "2020-01-02T00:00"}, 409),
        ({"watts": "0.001", "best_effort": "no"}, 409),
    ],
)
def test_a_form_that_is_wrong_sets_no_load_target(
    served: Planner, rack: tuple[str, ...], changed: dict[str, str], status: int
) -> None:
    with browser(served) as client:
        login = form_of(client, "/login") | {"token": operator_header(served)["Authorization"].split()[1]}
        assert client.post("/login", data=login).status_code == 303
        end = form_time(in_an_hour(60))
        fields = form_of(client, "/budgets") | {"budget": "rack", "name": "peak", "watts": "9e5", "end": end}
        answer = client.post("/budgets/set-load-target", data={**fields, "best_effort": "yes", **changed})
        assert (answer.status_code, load_targets(rack)) == (status, [])


def test_who_may_not_change_a_budget_has_no_forms_and_is_refused(served: Planner, rack: tuple[str, ...]) -> None:
    end = form_time(in_an_hour(60))
    target = {"budget": "rack", "name": "peak", "watts": "9e5", "end": end, "best_effort": "yes"}
    with browser(served) as client:
        page = client.get("/budgets").text
        assert "rack" in page
        assert "<form method" not in page.split("<main")[1]
        csrf = form_of(client, f"/jobs/{OWN}")["csrf"]
        for path in ("set-load-target", "clear-load-target"):
            assert client.get(f"/budgets/{path}").status_code == 405
            assert client.post(f"/budgets/{path}", data={**target, "csrf": csrf}).status_code == 403
        header = operator_header(served)
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = client.post("/budgets/set-load-target", data=target, headers={**header, **headers})
            assert answer.status_code == 403
        assert load_targets(rack) == []
        accepts = {**header, "Accept": "application/json"}
        assert client.post("/budgets/set-load-target", data=target, headers=accepts).json() == {"accepted": True}
        assert client.post("/budgets/clear-load-target", data=target, headers=accepts).json() == {"accepted": True}
    records = audit(rack)
    assert any(one["action"] == "SetLoadTarget" and "may not" in one["outcome"] for one in records)


def test_nodes_have_the_gpus_of_the_callers_jobs_alone(served: Planner) -> None:
    with browser(served) as client:
        page = client.get("/nodes")
        assert page.status_code == 200
        assert f'<a href="/jobs/{OWN}">{OWN}</a>' in page.text
        assert "GPUs in use have their clocks set by an agent" in page.text
        assert OTHERS not in page.text
        with client.stream("GET", "/nodes/events") as stream:
            seen = (event["sections"]["nodes"] for _, event in events(stream.iter_lines()))
            assert "later" not in next(seen)
            with load_jobs(served.address, "later"):
                assert OTHERS not in next(html for html in seen if 'href="/jobs/later"' in html)
    with browser(served, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert OTHERS in client.get("/nodes").text


def test_a_node_that_never_had_a_rank_is_there_while_its_relay_is(
    served: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERSEUS_NODE", "spare-node")
    monkeypatch.setenv("PERSEUS_CLOCKD_SOCKET", str(tmp_path / "clockd.sock"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "clockd.sock"))  # nobody listens
    with browser(served) as client, client.stream("GET", "/nodes/events") as stream:
        seen = (event["sections"]["nodes"] for _, event in events(stream.iter_lines()))
        assert "spare-node" not in next(seen)
        with node_relay(tmp_path, served.address):
            shown = next(html for html in seen if "spare-node" in html)
            assert "Its node relay is connected." in shown
            page = client.get("/node", params={"host": "spare-node"}).text
            assert "restart clockd" in page
            with browser(served, headers={"Authorization": f"Bearer {TOKEN}"}) as another:
                assert "spare-node" in another.get("/nodes").text  # of the same user
        next(html for html in seen if "spare-node" not in html)


def test_a_nodes_page_is_live_and_has_what_agents_found(served: Planner) -> None:
    with browser(served) as client:
        (link,) = re.findall(r'href="(/node[?]host=[^"]+)"', client.get("/nodes").text)
        page = client.get(link).text
        assert f"<h1>{HOST}</h1>" in page
        assert FINDING.what in page
        assert FINDING.remedy in page
        assert f'<a href="/jobs/{OWN}">{OWN}</a>' in page
        assert OTHERS not in page
        with client.stream("GET", link.replace("/node", "/node/events")) as stream:
            name, first = next(events(stream.iter_lines()))
            assert name == "sections"
            assert FINDING.what in first["sections"]["node"]
            assert OTHERS not in first["sections"]["node"]
        elsewhere = client.get("/node", params={"host": "<script>"}).text
        assert "No rank of a job that you may open is attached there" in elsewhere
        assert "<h1>&lt;script&gt;</h1>" in elsewhere
    with browser(served, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert OTHERS in client.get(link).text
