"""One rule for every command that writes: the folder of a file has to be there, a folder of results is made."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from perseus_dist.cli import main
from perseus_dist.cli.output_option import Output
from perseus_dist.cli.parser import build_parser

PROFILE = str(Path(__file__).parents[2] / "examples/profiles/gpu_model_pp4.csv")
NOWHERE = ("--planner", "127.0.0.1:1")
PLAN = ("plan", PROFILE, "--schedule", "1f1b", "--pp", "4", "--microbatches", "4", "--blocking-power-w", "80")
FILES = {
    ("profile show", "--out"): ("profile", "show", PROFILE, "--out", "FILE.svg"),
    ("lookup", "--out"): ("lookup", "PLANS/frontier.npz", "--slowdown", "1.1", "--out", "FILE"),
    ("planning-worker", "--alive-file"): (
        "planning-worker",
        "--store",
        "postgresql://x@127.0.0.1:1/x",
        "--alive-file",
        "FILE",
    ),
    ("fetch", "--profile"): ("fetch", "job", "--profile", "FILE", *NOWHERE),
    ("fetch", "--frontier"): ("fetch", "job", "--frontier", "FILE", *NOWHERE),
    ("token create", "--out"): ("token", "create", "name", "--role", "view", "--out", "FILE", *NOWHERE),
    ("doctor", "--metrics"): ("doctor", "--metrics", "FILE.prom"),
    ("planner", "--address-file"): (
        "planner",
        "--bind",
        "127.0.0.1:0",
        "--state-dir",
        "STATE",
        "--address-file",
        "FILE",
    ),
    ("state backup", ""): ("state", "backup", "FILE", "--state-dir", "STATE"),
}


def outputs(parser: argparse.ArgumentParser, command: str = "") -> Iterator[tuple[str, str, bool]]:
    """Command, option, and whether it names a folder."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from outputs(below, f"{command} {name}".strip())
        elif isinstance(action, Output):
            yield command, action.option_strings[-1], bool(action.names)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in a folder whose parents were missing."""
    folder = tmp_path_factory.mktemp("plans") / "not" / "there"
    assert main([*PLAN, "--out", str(folder)]) == 0
    return folder


def test_no_command_is_left_out() -> None:
    found = list(outputs(build_parser()))
    assert {(command, option) for command, option, is_folder in found if not is_folder} <= FILES.keys()
    assert {(command, option) for command, option, is_folder in found if is_folder} == {("plan", "--out")}


@pytest.mark.parametrize("command", FILES, ids=" ".join)
def test_the_folder_of_a_file_has_to_be_there(
    command: tuple[str, str], plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"FILE": str(tmp_path / "not" / "there"), "STATE": str(tmp_path / "state"), "PLANS": str(plans)}
    words = list(FILES[command])
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "not" / "there") in line
    assert "existing, writable folder" in line or "its folder is missing" in line
    assert list(tmp_path.iterdir()) == []
