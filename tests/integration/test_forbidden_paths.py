"""Every path that a command line or the environment can name, where this user may not read, write or enter."""

import argparse
import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import BinaryIO
from unittest.mock import patch

import pytest
from malformed.base_lines import BASE
from malformed.commands import leaves
from malformed.judge import contents, run, workplace
from malformed.rows import PROFILE

from perseus_dist.cli.output_option import Output
from perseus_dist.cli.parser import COMMANDS, HIDDEN, build_parser
from perseus_dist.cli.settings.keys import is_path

ANOTHER = 65_534
OVERRIDES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: by these root is refused no file
CAPABILITY_VERSION = 0x20080522
ENDINGS = {("profile show", "out"): ".svg", ("doctor", "metrics"): ".prom"}
FORBIDDEN = ("locked", "locked/x", "locked/deep/x", "others/x", "secret")
SERVICES = {"node-relay", "planning-worker"}  # which would serve
VARIABLES = (
    *("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "HOME", "TMPDIR"),
    *("PERSEUS_RECORDS", "PERSEUS_CONFIG", "PERSEUS_TOKEN_FILE", "PERSEUS_LEASE_DIR", "PERSEUS_CLOCKD_SOCKET"),
)


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Files of others are refused to this process, also where root runs the tests."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] = effective & ~OVERRIDES
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0


def draw_nothing(_figure: object, file: BinaryIO, **_options: object) -> None:
    """Pictures are made and written as always; drawing them would take half of all the time."""
    file.write(b'<svg viewBox="0 0 1 1"></svg>')


@contextmanager
def forbidding(folder: Path) -> Iterator[None]:
    """A workplace with a folder that nothing may enter, one that nothing may write to, and a file that may not be read.

    They belong to another user where root runs the tests, else this user has taken rights from itself.
    """
    with patch("perseus_dist.report.plots.theme.Figure.savefig", draw_nothing), workplace(folder):
        (folder / "others").mkdir()
        (folder / "locked" / "deep").mkdir(parents=True)
        (folder / "secret").write_text(PROFILE)
        modes = {"others": 0o555, "locked": 0, "secret": 0}
        for name, mode in modes.items():
            if os.geteuid() == 0:
                os.chown(folder / name, ANOTHER, ANOTHER)
            (folder / name).chmod(mode)
        try:
            with as_an_ordinary_user():
                yield
        finally:
            for name in modes:
                (folder / name).chmod(0o700)
                if os.geteuid() == 0:
                    shutil.chown(folder / name, os.geteuid(), os.getegid())
            for path in folder.iterdir():  # pytest could not remove what is another user's, without root's capabilities
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


LEAVES = dict(leaves(build_parser([command for command in COMMANDS if command not in HIDDEN])))
SIGNAL = next(action for action in LEAVES["policy price"]._actions if action.dest == "signal")  # a name at the planner
PATHS = [(command, action) for command, parser in LEAVES.items() for action in parser._actions if is_path(action)]
PATHS.remove(("policy price", SIGNAL))


def line(command: str, action: argparse.Action, path: str) -> list[str]:
    """The command with this path, and else as it would be taken."""
    words = list(BASE[command])
    if not action.option_strings:
        at = next((number for number, word in enumerate(words) if not word.startswith("-")), len(words))
        words[at : at + 1] = [path]
        return [*command.split(), *words]
    option = action.option_strings[-1]
    if option in words:
        del words[words.index(option) : words.index(option) + 2]
    if option in ("--schedule-file", "--scenario") and "--schedule" in words:
        del words[words.index("--schedule") : words.index("--schedule") + 6]
    beside = {
        "--tls-cert": ("--tls-key", "profile.csv"),
        "--tls-key": ("--tls-cert", "profile.csv"),
        "--tls-client-ca": ("--tls-cert", "profile.csv", "--tls-key", "profile.csv"),
        "--metrics-tls-cert": ("--metrics-tls-key", "profile.csv", "--metrics", "127.0.0.1:0"),
        "--metrics-tls-key": ("--metrics-tls-cert", "profile.csv", "--metrics", "127.0.0.1:0"),
        "--metrics-password-file": ("--metrics", "127.0.0.1:0"),
        "--store-password-file": ("--store", "postgresql://u@127.0.0.1:1/d"),
        "--address-file": ("--embedded",),
        "--cache": ("--embedded", "--address-file", "address.json", "--job", "gpt"),
        "--losses": ("--reference-losses", "losses.jsonl"),
        "--reference-losses": ("--losses", "losses.jsonl"),
        "--known-failures": ("--chaos", "0-1"),
    }
    return [*command.split(), option, path, *beside.get(option, ()), *words]


def fault(words: list[str], path: str, folder: Path) -> tuple[bool, str]:
    """Whether the path is refused by name, and whatever is wrong: a traceback, several lines, something written."""
    before = contents(folder)
    try:
        code, out, error = run(words)
    except Exception as escaped:
        return False, f"{words}: {type(escaped).__name__}: {escaped}"
    wrong, is_named = "", False
    if code == 2:
        is_line = error.startswith("perseus-dist") and error.count("\n") == 1 and not out
        is_named = path.split("/", 1)[0] in error
        is_left = contents(folder) == before
        wrong = "" if is_line and is_left else f"{is_line=} {is_left=}"
    elif code not in (0, 1):
        wrong = "exit code"
    return is_named, f"{words}: {code}: {wrong}: {out!r:.200} {error!r:.300}" if wrong else ""


def test_paths_in_arguments_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.cli.jobs.accounting.records._LAST_WORD_S", 0.0)
    assert {command for command, _ in PATHS} <= BASE.keys(), "give each command a line that it would take"
    found = []
    with forbidding(tmp_path):
        for command, action in PATHS:
            for path in FORBIDDEN:
                if path != "secret" or not isinstance(action, Output):  # which may be replaced in a folder of our own
                    named = path + ENDINGS.get((command, action.dest), "")
                    found.append(fault(line(command, action, named), path, tmp_path))
    if wrong := [wrong for _, wrong in found if wrong]:
        pytest.fail("\n".join(wrong))
    assert sum(is_named for is_named, _ in found) > 0.85 * len(found), (
        "of the others, another argument is refused first"
    )


def test_a_folder_that_has_no_name_is_taken_or_refused_in_one_line(tmp_path: Path) -> None:
    """As ``.`` has none, of which files beside cannot be named; where a folder is wanted, it is one."""
    found = []
    with forbidding(tmp_path):
        for command, action in PATHS:
            if command not in SERVICES:
                before = contents(tmp_path)
                found.append(fault(line(command, action, "."), ".", tmp_path)[1])
                for new in contents(tmp_path).keys() - before.keys():
                    path = tmp_path / new
                    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if wrong := "\n".join(filter(None, found)):
        pytest.fail(wrong)


@pytest.mark.parametrize(
    "share", [pytest.param(0.2, marks=pytest.mark.stress), pytest.param(1.0, marks=pytest.mark.soak)]
)
def test_paths_in_the_environment_are_refused_in_one_line(share: float, tmp_path: Path) -> None:
    """Every command, with every variable or with some of them, drawn anew for each command."""
    draw, found = Random(5), []
    named = [(variable, path) for variable in VARIABLES for path in ("locked/x", "secret")]
    with forbidding(tmp_path):
        for command in sorted((LEAVES.keys() & BASE.keys()) - SERVICES):
            words = list(BASE[command])
            for option in {"--state-dir", "--records"} & set(words):  # the variable names it then
                del words[words.index(option) : words.index(option) + 2]
            for variable, path in draw.sample(named, round(share * len(named))):
                with pytest.MonkeyPatch.context() as names:
                    names.setenv(variable, str(tmp_path / path))
                    _, wrong = fault([*command.split(), *words], path, tmp_path)
                found.append(wrong and f"{variable}={path} {wrong}")
    if wrong := "\n".join(filter(None, found)):
        pytest.fail(wrong)
