"""Commands that call a planner: what it answers, and one line with a remedy where it refuses or there is none."""

import io
import json
import os
import socket
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from commands import run_command
from served_planner import OPERATOR_TOKEN, served_planner

from perseus_dist.cli import main
from perseus_dist.cli.jobs import planner_client, replica_calls
from perseus_dist.cli.jobs.planner_client import PlannerCallError
from perseus_dist.cli.jobs.policies import budgets
from perseus_dist.cli.jobs.policies.load_target_file import LoadTargetFileError, LoadTargetRow, read_load_targets
from perseus_dist.cli.jobs.policies.load_target_setting import LoadTargetSetting
from perseus_dist.cli.jobs.replica_calls import ReplicaCalls
from perseus_dist.cli.node.doctor.planner import inspect_planner, inspect_relay
from perseus_dist.messages.finding import Level
from perseus_dist.planner.runtime import policy_calls
from perseus_dist.rpc.connection import OWNER_KEY
from perseus_dist.rpc.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

START, END = "2100-01-01T00:00:00+00:00", "2100-01-02T00:00:00+00:00"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_planner() as address:
        yield address


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "operator.token"
    path.write_text(f"{OPERATOR_TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def planner(address: str, token: Path) -> list[str]:
    return ["--planner", address, "--token-file", str(token)]


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens, and nothing else can meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def told(*arguments: str) -> str:
    """What a command says that succeeds."""
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def refusal(*arguments: str) -> str:
    """The one line of a command that is refused."""
    done = run_command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    line, end = done.stderr.split("\n")
    assert end == ""
    return line


class Refused(grpc.RpcError):
    """A call that ended with a status, and with the owner of its job if that is given."""

    def __init__(self, code: grpc.StatusCode, owner: str = "") -> None:
        self._code, self._owner = code, owner

    def code(self) -> grpc.StatusCode:
        return self._code

    def trailing_metadata(self) -> Any:
        return [SimpleNamespace(key=OWNER_KEY, value=self._owner)] if self._owner else []


@pytest.mark.parametrize("num_moves", [2, 9])
def test_a_watch_that_knows_one_replica_follows_its_job_through_handovers_and_a_death(
    monkeypatch: pytest.MonkeyPatch, num_moves: int
) -> None:
    monkeypatch.setattr(replica_calls, "_PAUSE_S", 0.0)
    owners = [f"replica-{number}" for number in range(num_moves)]
    asked: list[str] = []

    def watch(address: str) -> Iterator[str]:
        asked.append(address)
        if address == "first" and len(asked) > 1:  # it knows who has taken over from the dead one
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, "survivor")
        yield f"status of {address}"
        if address == owners[-1]:
            raise Refused(grpc.StatusCode.UNAVAILABLE)
        if address != "survivor":
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, owners[len(asked) - 1])

    calls = ReplicaCalls(["first"], pytest.fail)
    monkeypatch.setattr(
        calls, "_stub", lambda address: SimpleNamespace(WatchJob=lambda _request: watch(address)), raising=False
    )
    seen = ["first", *owners, "survivor"]
    assert list(calls.WatchJob(None)) == [f"status of {address}" for address in seen]
    assert asked == ["first", *owners, "first", "survivor"]


def test_a_token_is_printed_once_listed_without_it_and_revoked(planner: list[str]) -> None:
    made = json.loads(told("token", "create", "page", "--role", "view", "--json", *planner))
    assert made["token"]
    assert (made["name"], made["role"], made["expires_s"]) == ("page", "view", None)
    listed = told("token", "list", *planner)
    assert made["token"] not in listed
    assert "for all jobs" in listed
    assert json.loads(told("token", "revoke", "page", "--json", *planner))["revoked_by"] == "operator"
    (found,) = [one for one in json.loads(told("token", "list", "--json", *planner))["tokens"] if one["name"] == "page"]
    assert found["revoked_s"]
    assert "revoked" in told("token", "list", *planner)


def test_a_token_goes_into_a_new_file_for_its_owner_alone(planner: list[str], tmp_path: Path) -> None:
    out = tmp_path / "team.token"
    options = ("--role", "operate", "--job", "llama-*", "--expires", "90d", "--out", str(out))
    assert told("token", "create", "team", *options, *planner) == f"team: operate, llama-*; its token is in {out}\n"
    assert out.stat().st_mode & 0o777 == 0o600
    kept = out.read_text()
    said = refusal("token", "create", "team3", "--role", "view", "--out", str(out), *planner)
    assert said.endswith(f"--out {out}: saw a file, expected a new one; name another, or remove that one")
    assert out.read_text() == kept
    assert told("token", "revoke", "team", *planner).startswith("team: revoked ")


def test_a_certificates_role_has_no_token(planner: list[str]) -> None:
    said = told("token", "create", "login", "--role", "operate", "--certificate", "login.example", *planner)
    assert said == "login: operate, all jobs\n"
    assert "of clients whose certificate bears login.example" in told("token", "list", *planner)


def test_a_token_that_cannot_be_handed_over_is_revoked(planner: list[str]) -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as disk,
        io.TextIOWrapper(disk, write_through=True) as full,
        redirect_stdout(full),
        redirect_stderr(io.StringIO()) as error,
    ):
        code = main(["token", "create", "lost", "--role", "view", *planner])
    assert code == 2
    assert "lost: its token could not be handed over (No space left on device), and is revoked" in error.getvalue()
    (found,) = [one for one in json.loads(told("token", "list", "--json", *planner))["tokens"] if one["name"] == "lost"]
    assert found["revoked_s"]


def test_what_was_done_and_refused_is_in_the_audit_record(planner: list[str]) -> None:
    told("token", "create", "audited", "--role", "view", *planner)
    assert "name" in refusal("token", "create", "audited", "--role", "view", *planner)
    records = [json.loads(line) for line in told("audit", "--json", *planner).splitlines()]
    assert next(one["outcome"] for one in records if "audited" in json.dumps(one)) == "done"
    table = told("audit", "--since", "1h", *planner)
    assert "CreateToken" in table
    assert "127.0.0.1:" in table
    assert told("audit", "--job", "no-such", *planner) == "no records\n"


def test_a_budget_is_set_shown_and_cleared(planner: list[str]) -> None:
    assert told("policy", "show", *planner) == "no power budgets and no price policies\n"
    told("policy", "set", "hall", "--watts", "60000", "--job", "llama-*", "--weight", "llama-*=2", *planner)
    (shown,) = json.loads(told("policy", "show", "--json", *planner))["budgets"]
    assert (shown["name"], shown["watts"], shown["jobs"]) == ("hall", 60000.0, ["llama-*"])
    one = ("--name", "peak", "--start", START, "--end", END, "--watts", "40000", "--best-effort")
    assert "peak" in told("policy", "load-target", "hall", *one, *planner)
    told("policy", "clear", "hall", "--load-target", "peak", *planner)
    assert "peak" not in told("policy", "show", *planner)
    assert told("policy", "clear", "hall", *planner) == "no power budgets and no price policies\n"
    assert "hall" in refusal("policy", "clear", "hall", *planner)
    assert "night" in refusal("policy", "clear", "night", "--price", *planner)


def test_load_targets_of_a_file_are_set_together_or_not_at_all(
    planner: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told("policy", "set", "row", "--watts", "60000", "--job", "row-*", *planner)
    head = "name,start,end,watts,best_effort\n"
    path = tmp_path / "targets.csv"
    path.write_text(f"{head}one,{START},{END},40000,yes\npast,2001-01-01T00:00:00Z,2001-01-02T00:00:00Z,1,no\n")
    said = refusal("policy", "load-target", "row", "--file", str(path), *planner)
    assert said.endswith("load target past is over already; give those that are not, and none is set")
    assert "one" not in json.dumps(json.loads(told("policy", "show", "--json", *planner))["budgets"][0]["load_targets"])
    path.write_text(f"{head}one,{START},{END},40000,yes\n")
    assert "one" in told("policy", "load-target", "row", "--file", str(path), *planner)
    known = json.loads(told("policy", "show", "--json", *planner))["budgets"][0]["load_targets"]
    monkeypatch.setattr(policy_calls, "MAX_LOAD_TARGETS", 3)
    rows = [f"{name},{START},{END},50000,yes\n" for name in ("one", *(f"n{n}" for n in range(3)))]
    path.write_text("".join([head, *rows]))
    said = refusal("policy", "load-target", "row", "--file", str(path), *planner)
    assert "3 load targets of budget row are set, no more can be; no load target of the" in said
    assert json.loads(told("policy", "show", "--json", *planner))["budgets"][0]["load_targets"] == known
    told("policy", "clear", "row", *planner)


class Refusal(grpc.RpcError):
    """As gRPC raises it."""

    def details(self) -> str:
        return "the disk is full"


class FailingPlanner:
    """Takes two load targets, then nothing; ``shows`` says how often it can say what is in force."""

    def __init__(self, *, shows: int) -> None:
        self._shows = shows
        self._targets: list[pb.LoadTarget] = []

    def GetPolicy(self, _request: object, **_: object) -> pb.PolicyStatus:  # noqa: N802 - a method of the service
        self._shows -= 1
        if self._shows < 0:
            raise Refusal
        return pb.PolicyStatus(budgets=[pb.BudgetStatus(budget=pb.Budget(name="hall"), load_targets=self._targets)])

    def SetLoadTarget(self, request: pb.SetLoadTargetRequest, **_: object) -> pb.PolicyStatus:  # noqa: N802
        if len(self._targets) == 2:
            raise Refusal
        self._targets.append(request.load_target)
        return pb.PolicyStatus()

    def ClearLoadTarget(self, _request: object, **_: object) -> pb.PolicyStatus:  # noqa: N802
        raise Refusal


@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        (2, "no; of the file b, a stay set, as they could not be taken back (the disk is full): clear them"),
        (1, "no; which load targets of the file are set is not known: see 'perseus-dist policy show'"),
        (0, "no"),
    ],
)
def test_load_targets_that_cannot_be_taken_back_are_named(shows: int, expected: str) -> None:
    rows = [LoadTargetRow(name=name, start_s=0.0, end_s=1.0, watts=1.0, best_effort=True) for name in "abc"]
    setting = LoadTargetSetting("hall", rows)
    with pytest.raises(grpc.RpcError):
        setting.set_all(cast("PlannerStub", FailingPlanner(shows=shows)), ())
    assert str(setting.with_outcome(PlannerCallError("no"))) == expected


class InterruptedPlanner(FailingPlanner):
    """Has the load target ``a``, which it does not set again once it was replaced; the user interrupts at ``c``."""

    def __init__(self) -> None:
        super().__init__(shows=2)
        self._targets.append(pb.LoadTarget(name="a", watts=50000.0, start_s=0.0, end_s=3600.0))

    def SetLoadTarget(self, request: pb.SetLoadTargetRequest, **_: object) -> pb.PolicyStatus:  # noqa: N802
        if request.load_target.name == "c":
            raise KeyboardInterrupt
        if request.load_target.watts > 1.0:
            raise Refusal
        self._targets = [one for one in self._targets if one.name != request.load_target.name]
        self._targets.append(request.load_target)
        return pb.PolicyStatus()


def test_an_interrupted_command_says_which_load_targets_are_set(
    planner: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told("policy", "set", "row", "--watts", "60000", "--job", "row-*", *planner)
    path = tmp_path / "targets.csv"
    rows = [f"{name},{START},{END},50000,yes\n" for name in ("one", "two")]
    path.write_text("".join(["name,start,end,watts,best_effort\n", *rows]))

    class Interrupted(LoadTargetSetting):
        def set_all(self, planner: Any, metadata: Any) -> pb.PolicyStatus:
            super().set_all(planner, metadata)
            self.outcome = "; no load target of the file is set"
            raise KeyboardInterrupt

    monkeypatch.setattr(budgets, "LoadTargetSetting", Interrupted)
    ended = run_command("policy", "load-target", "row", "--file", str(path), *planner)
    assert ended.returncode == 130
    assert ended.stderr == "perseus-dist: no load target of the file is set\nperseus-dist: interrupted\n"
    told("policy", "clear", "row", *planner)


def test_a_replaced_load_target_that_is_not_restored_is_told_with_its_watts() -> None:
    """Also where the user has interrupted the command: cleared instead, it would leave no cap at all."""
    start, end = (datetime.fromtimestamp(at_s).astimezone().isoformat() for at_s in (0, 3600))
    rows = [LoadTargetRow(name=name, start_s=0.0, end_s=1.0, watts=1.0, best_effort=True) for name in "abc"]
    setting = LoadTargetSetting("hall", rows)
    with pytest.raises(KeyboardInterrupt):
        setting.set_all(cast("PlannerStub", InterruptedPlanner()), ())
    assert setting.outcome == (
        "; of the file b, a stay set, as they could not be taken back (the disk is full): clear b; "
        f"a was 50,000 W from {start} to {end}: "
        "set that again, with --best-effort if need be"
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("name,start\n", ": saw another first line, expected name,start,end,watts,best_effort"),
        ("HEAD", ": saw no load target, expected one or more"),
        (f"HEADa,{START},{END},1,no\na,{START},{END},2,no\n", ": saw load target a twice, expected each name once"),
        (f"HEADa,{END},{START},1,no\n", f":2: saw a,{END},{START},1,no, expected a name, two times"),
        (f"HEADa,{START},{END},0,no\n", ":2: saw a,"),
        (f"HEADa,{START},{END},1,maybe\n", ":2: saw a,"),
        (f"HEADa,{START},{END},1,no,more\n", ":2: saw a,"),
        (f"HEADa,{START}\n", ":2: saw a,"),
        (f"HEADa,{START},{END},1,no\n\n\nb,{START},{END},0,no\n", ":5: saw b,"),
        ("HEAD" + f"a,{START},{END},1,no\n" * 1025, ": saw more than 1024 load targets, expected up to that many"),
        ("HEAD\xff", ": cannot be read ("),
    ],
)
def test_a_file_that_holds_no_load_targets_is_refused_with_its_line(tmp_path: Path, rows: str, expected: str) -> None:
    path = tmp_path / "targets.csv"
    path.write_bytes(rows.replace("HEAD", "name,start,end,watts,best_effort\n").encode("latin-1"))
    with pytest.raises(LoadTargetFileError) as refused:
        read_load_targets(path)
    assert str(refused.value).startswith(f"{path}{expected}")


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("--weight", "4", "saw '4', expected PATTERN=VALUE, a weight from 1e-06 to 1e+06"),
        ("--weight", "*=none", "saw '*=none', expected PATTERN=VALUE, a weight from 1e-06 to 1e+06"),
        ("--max-slowdown", "a b=2", "saw 'a b=2', expected PATTERN=VALUE, a slowdown from 1 to 1e+06"),
    ],
)
def test_a_pattern_without_a_value_is_told_what_is_expected(option: str, given: str, expected: str) -> None:
    assert expected in refusal("policy", "set", "hall", option, given)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--name", "peak"], "saw too few options, expected --name, --watts, --start and --end, or --file"),
        (["--file", "x.csv", "--best-effort"], "saw --file and options of one load target, expected either"),
        (["--file", "/nowhere/x.csv"], "/nowhere/x.csv: cannot be read ("),
    ],
)
def test_options_of_a_load_target_go_together(planner: list[str], options: list[str], expected: str) -> None:
    assert expected in refusal("policy", "load-target", "hall", *options, *planner)


def test_a_job_that_there_is_not_is_refused_with_those_that_there_are(
    planner: list[str], address: str, tmp_path: Path
) -> None:
    assert told("jobs", *planner) == "no jobs that this token opens\n"
    assert json.loads(told("jobs", "--json", *planner)) == {"jobs": []}
    profile = tmp_path / "profile.csv"
    for command in (["watch", "llama"], ["fetch", "llama", "--profile", str(profile)]):
        assert refusal(*command, *planner).endswith(f"{address}: there is no job llama; jobs there are: none")
    assert not profile.exists()


def test_a_fetch_names_what_it_is_to_write(planner: list[str], tmp_path: Path) -> None:
    assert "nothing to fetch: name --profile FILE.csv" in refusal("fetch", "llama", *planner)
    other = str(tmp_path / "frontier.npz")
    assert "saw .npz, but what is written is CSV" in refusal("fetch", "llama", "--frontier", other, *planner)


def test_a_planner_that_wants_a_token_says_so(address: str, tmp_path: Path) -> None:
    wanted = f"{address}: the planner wants a token; name its file with --token-file"
    assert refusal("token", "list", "--planner", address).endswith(wanted)
    wrong = tmp_path / "wrong.token"
    wrong.write_text("wrong")
    wrong.chmod(0o600)
    assert address in refusal("token", "list", "--planner", address, "--token-file", str(wrong))
    assert "cannot be read" in refusal("jobs", "--planner", address, "--token-file", str(tmp_path / "none"))


def test_where_no_planner_answers_the_reason_and_what_to_do_are_said(nobody: str) -> None:
    said = refusal("jobs", "--planner", nobody)
    assert said.endswith(
        "no planner answers (Connection refused); start 'perseus-dist planner' there, or correct the address"
    )
    assert "no planner answers" in refusal("watch", "llama", "--planner", nobody)


def test_without_a_name_the_planner_of_the_node_is_looked_for(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_client, "DEFAULT_PLANNER", nobody)
    monkeypatch.setattr(planner_client, "_names_of_running_jobs", str)  # none, whatever runs beside
    assert "there is no job llama of yours with a planner of its own on this node" in refusal("watch", "llama")
    assert "no job of yours on this node has one of its own; start 'perseus-dist planner'" in refusal("jobs")


def test_of_replicas_the_one_that_answers_is_asked(nobody: str, address: str, token: Path) -> None:
    replicas = ["--planner", f"{nobody}, {address}", "--token-file", str(token)]
    assert told("jobs", *replicas) == "no jobs that this token opens\n"
    said = refusal("watch", "llama", *replicas)
    assert "there is no job llama" in said
    assert "or several with commas between" in refusal("jobs", "--planner", f"{address},nonsense")


def test_tls_and_plain_text_are_told_apart(planner: list[str]) -> None:
    assert refusal("jobs", "--tls", *planner).endswith(
        "the planner speaks plain text, not TLS; leave out --tls and the other options of TLS"
    )
    assert "saw one of --tls-cert and --tls-key, expected both or neither" in refusal(
        "jobs", "--tls-cert", "cert.pem", *planner
    )


def test_health_says_whether_a_planner_serves(address: str, nobody: str) -> None:
    assert told("health", "--planner", address) == f"planner at {address} serves\n"
    away = run_command("health", "--planner", nobody)
    assert away.returncode == 1
    assert away.stderr.startswith(f"planner at {nobody} does not serve: no planner answers (Connection refused)")
    found = json.loads(run_command("health", "--planner", nobody, "--json").stdout)
    assert found["serves"] is False


def test_health_of_replicas_is_that_of_any_of_them(address: str, nobody: str) -> None:
    some = run_command("health", "--planner", f"{address}, {nobody}")
    assert (some.returncode, some.stdout) == (0, f"planner at {address} serves\n")
    assert some.stderr.startswith(f"planner at {nobody} does not serve: ")
    none = run_command("health", "--json", "--planner", f"{nobody},{nobody}")
    assert none.returncode == 1
    assert json.loads(none.stdout)["fault"] == "no replica serves"
    found = json.loads(told("health", "--json", "--planner", f"{address},{nobody}"))
    assert [one["serves"] for one in found["replicas"]] == [True, False]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--planner", "nonsense"], "--planner nonsense: expected HOST:PORT"),
        (["--planner", "host:0,host:1"], "--planner host:0: expected HOST:PORT"),
        (["--tls-cert", "a.pem"], "saw one of --tls-cert and --tls-key"),
        (["--tls-server-name", "name"], "--tls-server-name needs --tls or --tls-ca"),
        (["--planning-worker", "alive", "--tls"], "--planning-worker looks at a file"),
        (["--clockd", "/run/clockd", "--tls"], "--clockd asks at a UNIX socket"),
    ],
)
def test_options_of_health_that_do_not_fit_are_refused(options: list[str], expected: str) -> None:
    assert expected in refusal("health", *options)


def test_health_of_a_planning_worker_is_the_age_of_its_file(tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    command = ("health", "--planning-worker", str(alive))
    assert "it has not begun (No such file or directory)" in run_command(*command).stderr
    alive.touch()
    assert told(*command) == f"planning worker of {alive} serves\n"
    os.utime(alive, (0, 0))
    assert "it has been silent for " in run_command(*command).stderr
    assert (
        "this is no regular file; name the worker's --alive-file"
        in run_command("health", "--planning-worker", str(tmp_path)).stderr
    )
    said = run_command("health", "--planning-worker", str(alive / "below a file")).stderr
    assert "its file cannot be looked at (Not a directory)" in said


def test_the_doctor_finds_a_planner_and_a_token_that_ends_soon(address: str, planner: list[str], nobody: str) -> None:
    told("token", "create", "ending", "--role", "view", "--expires", "2d", *planner)
    args = Namespace(tls=False, tls_ca=None, tls_cert=None, tls_key=None, token_file=Path(planner[-1]))
    serves, ends = inspect_planner(args, address)
    assert serves.level is Level.OK
    assert serves.what == f"{address} serves; jobs that the token opens: 0"
    assert ends.level is Level.WARN
    assert ends.what.startswith(f"{address}: token 'ending' (view) expires on ")
    (away,) = inspect_planner(args, nobody)
    assert (away.level, away.what) == (Level.FAIL, f"{nobody}: no planner answers (Connection refused)")
    (wrong,) = inspect_planner(args, "nonsense")
    assert wrong.remedy == "correct the address"
    args.token_file = Path("/nowhere/token")
    assert list(inspect_planner(args, address)) == []
    args.tls = True
    (plain,) = inspect_planner(args, address)
    assert plain.what == f"{address}: the planner speaks plain text, not TLS"


def test_the_doctor_says_whether_the_node_relay_answers(tmp_path: Path) -> None:
    assert list(inspect_relay({})) == []
    path = str(tmp_path / "relay")
    (away,) = inspect_relay({"PERSEUS_NODE_RELAY": path})
    assert away.level is Level.WARN
    assert away.what == f"{path} does not answer (No such file or directory): agents go to the planner themselves"
    with socket.socket(socket.AF_UNIX) as relay:
        relay.bind(path)
        relay.listen()
        (there,) = inspect_relay({"PERSEUS_NODE_RELAY": path})
    assert (there.level, there.what) == (Level.OK, f"answers on {path}")
