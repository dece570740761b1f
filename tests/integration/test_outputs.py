"""Outputs of all commands: none may be an input or another output of the same command, and devices stay devices."""

import argparse
import itertools
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from malformed.commands import leaves
from malformed.rows import OPTIONS, PROFILE

from perseus_dist.cli import main
from perseus_dist.cli.output_option import Output
from perseus_dist.cli.parser import build_parser
from perseus_dist.cli.settings.keys import is_path

PLANNER = ("--planner", "127.0.0.1:1")  # no command gets as far as that
BASES = {
    "profile show": ("profile.csv",),
    "plan": ("profile.csv", *OPTIONS),
    "lookup": ("good.npz", "--slowdown", "1.05"),
    "fetch": ("gpt", *PLANNER),
    "token create": ("ci", "--role", "view", *PLANNER),
    "planning-worker": ("--store", "postgresql://u@127.0.0.1:1/d"),
    "doctor": PLANNER,
}
ENDINGS = {"profile show": ".svg", "fetch": ".csv", "doctor": ".prom"}


LEAVES = dict(leaves(build_parser()))
OUTPUTS = {
    command: [action for action in parser._actions if isinstance(action, Output)] for command, parser in LEAVES.items()
}
OUTPUTS = {command: actions for command, actions in OUTPUTS.items() if actions}


def pairs() -> Iterator[tuple[str, Output, argparse.Action]]:
    for command, outputs in OUTPUTS.items():
        for output, other in itertools.product(outputs, LEAVES[command]._actions):
            if other is not output and is_path(other):
                yield command, output, other


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "profile.csv").write_text(PROFILE)
    return tmp_path


def test_every_command_with_an_output_is_looked_at() -> None:
    assert OUTPUTS.keys() == BASES.keys()
    assert len(list(pairs())) > 20


@pytest.mark.parametrize("way", ["the same name", "a symbolic link", "a link to a folder", "a hard link"])
@pytest.mark.parametrize(("command", "output", "other"), list(pairs()), ids=lambda one: getattr(one, "dest", str(one)))
def test_an_output_is_no_other_file_of_the_command(
    command: str, output: Output, other: argparse.Action, way: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = ENDINGS.get(command, "")
    place = folder / "here" / (output.names[0] if output.names else f"same{ending}")
    place.parent.mkdir()
    place.write_text("content that stays")
    named = place
    if way == "a link to a folder":
        (folder / "there").symlink_to("here")
        named = folder / "there" / place.name
    elif way != "the same name":
        named = folder / f"linked{ending}"
        named.symlink_to(place) if way == "a symbolic link" else named.hardlink_to(place)
    argument = str(place.parent if output.names else place)
    words = [*command.split(), *BASES[command], output.option_strings[-1], argument]
    if other.option_strings:
        words += [other.option_strings[-1], str(named)]
    else:
        words[len(command.split())] = str(named)
    for certificate, key in (("--tls-cert", "--tls-key"), ("--tls-key", "--tls-cert")):
        words += [key, "profile.csv"] if certificate in other.option_strings else []
    if "--schedule-file" in other.option_strings:
        words = [word for word in words if word not in OPTIONS[:6]]
    before = sorted(folder.rglob("*"))
    assert main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "which would be lost; name another one" in said.err
    for label in (output.option_strings[-1], other.option_strings[-1] if other.option_strings else str(other.metavar)):
        assert label in said.err
    assert sorted(folder.rglob("*")) == before
    assert place.read_text() == "content that stays"


def test_two_outputs_to_come_may_not_be_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link.csv").symlink_to("s.csv")
    for other in ("s.csv", "./s.csv", "link.csv", str(folder / "s.csv")):
        assert main(["fetch", "gpt", *PLANNER, "--profile", "s.csv", "--frontier", other]) == 2
        assert f"--frontier {Path(other)}: saw the file of --profile s.csv" in capsys.readouterr().err
    assert main(["fetch", "gpt", *PLANNER, "--profile", "/dev/null", "--frontier", "/dev/null"]) == 2
    assert "no planner answers" in capsys.readouterr().err


@pytest.mark.parametrize("variable", ["PERSEUS_TOKEN_FILE", "XDG_STATE_HOME"])
def test_the_token_in_use_is_an_input_too(
    variable: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = folder / "state" / "perseus-dist" / "operator-token"
    token.parent.mkdir(parents=True)
    token.write_text("secret\n")
    if variable == "PERSEUS_TOKEN_FILE":
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "elsewhere"))
        monkeypatch.setenv(variable, str(token))
    for words in (["token", "create", "ci", "--role", "view", "--out"], ["fetch", "gpt", "--frontier"]):
        assert main([*words, str(token), *PLANNER]) == 2
        named = "--token-file" if variable == "PERSEUS_TOKEN_FILE" else "the token in use"
        assert f"saw the file of {named} {token}" in capsys.readouterr().err
    assert token.read_text() == "secret\n"


@pytest.fixture(scope="module")
def frontier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("frontier")
    (made / "profile.csv").write_text(PROFILE)
    assert main(["plan", str(made / "profile.csv"), *OPTIONS, "--out", str(made)]) == 0
    return made


def test_devices_and_pipes_get_what_is_written(
    frontier: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "pipe.svg").symlink_to("pipe")
    (folder / "null.prom").symlink_to("/dev/null")
    lookup = ["lookup", str(frontier / "frontier.npz"), "--fastest", "--out"]
    for words in (lookup, [*lookup[:-1], "--json", "--out"], ["profile", "show", "profile.csv", "--out"]):
        name = "pipe.svg" if words[0] == "profile" else "pipe"
        seen: list[bytes] = []
        reader = threading.Thread(target=lambda seen=seen: seen.append((folder / "pipe").read_bytes()), daemon=True)
        reader.start()
        assert main([*words, name]) == 0
        reader.join(30)
        assert len(seen[0]) > 100
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert main([*lookup, "/dev/null"]) == 0
    assert main(["doctor", "--metrics", "null.prom"]) == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == 0o666
    capsys.readouterr()
    assert main([*lookup, "/dev/full"]) == 2
    assert capsys.readouterr().err.startswith("perseus-dist: /dev/full: cannot be written (No space left on device)")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_a_folder_of_results_keeps_its_links_and_devices(frontier: Path, folder: Path) -> None:
    results = folder / "results"
    results.mkdir()
    (folder / "kept.json").write_text("old")
    (results / "plan.json").symlink_to("../kept.json")
    (results / "trace.json").symlink_to("/dev/null")
    assert main(["plan", "profile.csv", *OPTIONS, "--out", str(results)]) == 0
    assert (results / "plan.json").is_symlink()
    assert (folder / "kept.json").read_bytes() == (frontier / "plan.json").read_bytes()
    assert (results / "trace.json").readlink() == Path("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
