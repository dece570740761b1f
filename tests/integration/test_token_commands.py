"""``perseus-dist token`` and ``audit`` with a real planner."""

import json
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from planner_process import Planner, planner

from perseus_dist.cli import main


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planner]:
    with planner(tmp_path_factory.mktemp("planner")) as running:
        yield running


@pytest.fixture
def command(served: Planner, capsys: pytest.CaptureFixture[str]) -> "Command":
    return Command(served, capsys)


class Command:
    def __init__(self, served: Planner, capsys: pytest.CaptureFixture[str]) -> None:
        self.operator = served.folder / "state" / "operator-token"
        self._served = served
        self._capsys = capsys

    def __call__(self, *arguments: str, token: Path | None = None) -> tuple[int, str]:
        """Exit code, and the output or the one line of a refusal."""
        options = ("--planner", self._served.address, "--token-file", str(token or self.operator))
        code = main([*arguments, *options])
        said = self._capsys.readouterr()
        assert not (said.out and said.err)
        return code, said.out or said.err


def test_a_token_from_its_creation_to_its_end(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "ci.token"
    code, said = command("token", "create", "ci", "--role", "view", "--job", "llama-*", "--out", str(file))
    assert (code, said) == (0, f"ci: view, llama-*; its token is in {file}\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert command("jobs", token=file) == (0, "no jobs that this token opens\n")
    code, said = command("token", "list", token=file)
    assert code == 2
    assert "token ci may not do this: it takes the role admin; ask an administrator" in said

    code, said = command("token", "list", "--json")
    (listed,) = (token for token in json.loads(said)["tokens"] if token["name"] == "ci")
    assert (listed["role"], listed["jobs"], listed["expires_s"], listed["created_by"]) == (
        "view",
        ["llama-*"],
        None,
        "operator",
    )
    code, said = command("token", "revoke", "ci")
    assert (code, said.startswith("ci: revoked ")) == (0, True)
    code, said = command("jobs", token=file)
    assert code == 2
    assert said.endswith("token ci was revoked; ask an administrator of the planner for another\n")

    code, said = command("audit", "--json")
    records = [json.loads(line) for line in said.splitlines()]
    actions = [(record["action"], record["identity"]) for record in records]
    assert actions[:3] == [("CreateToken", "operator"), ("ListTokens", "token ci"), ("RevokeToken", "operator")]
    assert [record["action"] for record in records if record["outcome"] != "done"] == ["ListTokens", "ListJobs"]


def test_a_certificate_without_a_name_is_refused_before_a_planner_is_looked_for(command: Command) -> None:
    with pytest.raises(SystemExit, match="2"):
        command("token", "create", "ci", "--role", "view", "--certificate", "")


def test_an_administrator_makes_administrators(command: Command, tmp_path: Path) -> None:
    code, secret = command("token", "create", "chief", "--role", "admin", "--expires", "1d")
    assert (code, len(secret.split())) == (0, 1)
    file = tmp_path / "chief.token"
    file.write_text(secret)
    code, said = command("token", "create", "second", "--role", "admin", "--json", token=file)
    made = json.loads(said)
    assert (code, made["created_by"], len(made["token"]) > 40) == (0, "token chief", True)
    long = "x" * 128
    jobs = [word for number in range(4) for word in ("--job", f"{number}{'y' * 126}*")]
    assert command("token", "create", long, "--role", "operate", *jobs, "--certificate", "z" * 128)[0] == 0
    code, said = command("token", "list")
    lines = said.splitlines()
    assert [line.split()[0] for line in lines].count("chief") == 1
    assert max(map(len, lines)) <= 100
    assert long in "".join(line.strip() for line in lines)
    assert all(f"{number}{'y' * 126}*" in "".join(line.strip() for line in lines) for number in range(4))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["token", "create", "x", "--role", "admin", "--job", "a"], "an administrator's role is for all jobs"),
        (["token", "create", "operator", "--role", "view"], "expected another name"),
        (["token", "create", "x", "--role", "view", "--out", "/nowhere/x"], "expected a file name"),
        (["token", "revoke", "never-made"], "there is no token never-made"),
    ],
)
def test_a_refusal_is_one_line_and_makes_nothing(command: Command, arguments: list[str], reason: str) -> None:
    before = command("token", "list", "--json")
    code, said = command(*arguments)
    assert (code, said.count("\n")) == (2, 1)
    assert reason in said
    assert command("token", "list", "--json") == before


def test_a_token_is_written_into_a_new_file_alone(command: Command, tmp_path: Path) -> None:
    other = tmp_path / "other.token"
    assert command("token", "create", "other", "--role", "view", "--out", str(other))[0] == 0
    kept = other.read_text()
    (tmp_path / "link").symlink_to(other)
    before = command("token", "list", "--json")
    for place in (other, tmp_path / "link", command.operator):
        code, said = command("token", "create", "over", "--role", "view", "--out", str(place))
        assert (code, said.count("\n")) == (2, 1)
        assert f"--out {place}: saw " in said
    assert command("token", "list", "--json") == before
    assert other.read_text() == kept


@pytest.mark.parametrize("options", ["", "--json", "--out /dev/full", "--out /dev/stdout"])
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", "> >(exec 0<&-; sleep 1)"])
def test_a_token_that_is_not_handed_over_is_revoked(served: Planner, options: str, redirection: str) -> None:
    name = "lost-" + sha256(f"{options}{redirection}".encode()).hexdigest()[:12]
    reach = f"--planner {served.address} --token-file {shlex.quote(str(served.folder / 'state' / 'operator-token'))}"
    program = f"{shlex.quote(sys.executable)} -m perseus_dist token"
    line = f"{program} create {name} --role view {reach} {options} {redirection}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{name}: its token could not be handed over (" in done.stderr
    assert "and is revoked; make one of another name" in done.stderr
    listed = subprocess.run(["bash", "-c", f"{program} list {reach}"], capture_output=True, text=True, check=True)
    (row,) = (row for row in listed.stdout.splitlines() if row.startswith(name))
    assert " revoked " in row
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_token_in_a_file_counts_whoever_reads_that_it_does(served: Planner, tmp_path: Path) -> None:
    reach = f"--planner {served.address} --token-file {shlex.quote(str(served.folder / 'state' / 'operator-token'))}"
    program, file = f"{shlex.quote(sys.executable)} -m perseus_dist", shlex.quote(str(tmp_path / "file.token"))
    line = f"{program} token create in-a-file --role view {reach} --out {file} >/dev/full"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "standard output cannot be written" in done.stderr) == (2, True)
    line = f"{program} jobs --planner {served.address} --token-file {file}"
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=False).returncode == 0


def test_what_happened_can_be_narrowed(command: Command) -> None:
    assert command("audit", "--job", "never-started") == (0, "no records\n")
    command("token", "create", "one-more", "--role", "view")
    code, said = command("audit", "--since", "1h")
    assert code == 0
    assert "token one-more: view, all jobs" in said
    assert " 127.0.0.1:" in said  # and not what gRPC writes before it


def test_rights_outlive_the_planner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with planner(tmp_path) as served:
        command = Command(served, capsys)
        command("token", "create", "kept", "--role", "view", "--out", str(tmp_path / "kept.token"))
    with planner(tmp_path) as served:  # the first one was killed
        assert Command(served, capsys)("jobs", token=tmp_path / "kept.token") == (0, "no jobs that this token opens\n")
