"""Every command under arguments that make no sense: exit 2, one line that is not Python's, nothing written.

The words come from the real parser. What a command would do to this machine with good arguments is replaced (a daemon
that serves, a training that takes minutes, a file in site-packages); everything before that is the real thing, and a
real planner answers.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from malformed.judge import EFFECTS, EffectReachedError, reach

from perseus_dist.cli.main import main
from perseus_dist.cli.parser import build_parser

NUM_EXAMPLES = int(os.environ.get("PERSEUS_NUM_EXAMPLES", "30"))
PROFILE = """\
stage,instruction,frequency,time,energy
0,forward,1410,0.050,20
0,forward,900,0.070,15
0,backward,1410,0.090,37
0,backward,900,0.120,28
1,forward,1410,0.055,22
1,forward,900,0.075,17
1,backward,1410,0.095,39
1,backward,900,0.130,30
"""
FILES: dict[str, bytes] = {
    "profile.csv": PROFILE.encode(),
    "schedule.txt": b"0F0 0B0\n1F0 1B0\n",
    "zeros": bytes(100),
    "latin": b"\xff\xfe\xe4",
    "empty": b"",
    "null.json": b"null",
    "list.json": b"[[[]]]",
    "deep.json": b"[" * 100_000,
    "scenario.json": b'{"schedule": "1f1b", "pp": 2, "microbatches": 2, "iterations": 1e400}',
    "job.json": b'{"phase": 3}',
}
NUMBERS = (
    *("0", "1", "2", "-1", "1.05", "00", "+1", "1_0", "\u0663", " 1", "1e3", "1e309", "-1e309", "nan", "inf", "-0.0"),
    *("2147483647", "2147483648", "4294967296", "9223372036854775808", "99999999999", "9" * 400, "9" * 5000, "0x10"),
)
WORDS = (
    *(
        "",
        " ",
        "-",
        "--",
        "a",
        "a b",
        "\n",
        "a\nb",
        "\t",
        "%s",
        "%(prog)s",
        "{}",
        "\udcff",
        "\u2028",
        "\U0001f525",
    ),
    *("x" * 300, "x" * 5000, "../..", ".", "/", "/dev/null", "/dev/full", "/proc/self/mem", "/nonexistent/x"),
    *("1f1b", "gpipe", "interleaved", "a100", "act", "direct", "t_min", "slowdown=1.05", "deadline=nan", "0-9", "5-1"),
    *("1:2", "3:1005@75", "0:none@1e999", "127.0.0.1:1", "127.0.0.1:99999", "[::1]:0", "localhost:", ":1", "[::1"),
    *("folder", *FILES, "folder/new", "profile.csv/x", "new", "new.svg", "new.json"),
)
SIZES = frozenset(
    {"pp", "microbatches", "chunks", "microbatch_group_size", "iterations", "dp", "pipelines", "processes"}
)


def commands(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield path, parser
    for action in nested:
        for name, subparser in action.choices.items():
            yield from commands(subparser, (*path, name))


COMMANDS = dict(commands(build_parser()))
del COMMANDS["agent",]  # has no arguments, and reads what only the hook writes


def values(action: argparse.Action) -> st.SearchStrategy[str]:
    """Mostly nonsense; sizes stay so small that what is accepted by chance costs nothing."""
    chosen = [str(choice) for choice in action.choices or ()]
    usual = [str(action.default)] if isinstance(action.default, str | int | float | Path) else []
    numbers = [number for number in NUMBERS if not (action.dest in SIZES and len(number) > 2 and number.isdecimal())]
    return st.sampled_from([*(chosen * 8), *usual, *numbers, *WORDS])


@st.composite
def arguments(draw: st.DrawFn, path: tuple[str, ...]) -> list[str]:
    """Some of a command's words, in any order."""
    words: list[list[str]] = []
    for action in COMMANDS[path]._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        is_wanted = action.required or not action.option_strings
        if draw(st.integers(0, 11)) >= (9 if is_wanted else 4):
            continue
        value: list[str] = [] if action.nargs == 0 else [draw(values(action))]
        if not action.option_strings:
            words.append(value)
        elif value and draw(st.integers(0, 1)) == 1:
            words.append([f"{action.option_strings[-1]}={value[0]}"])
        else:
            words.append([action.option_strings[-1], *value])
    if draw(st.integers(0, 9)) == 0:
        words.append([draw(st.sampled_from([*WORDS, *NUMBERS, "--no-such-option"]))])
    return [*path, *(word for part in draw(st.permutations(words)) for word in part)]


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("planner")
    command = [sys.executable, "-P", "-m", "perseus_dist", "planner", "--bind", "127.0.0.1:0"]
    command += ["--state-dir", str(folder / "state"), "--address-file", str(folder / "address")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        until_s = time.monotonic() + 60.0
        while not (folder / "address").exists():
            assert time.monotonic() < until_s
            time.sleep(0.02)
        yield str(json.loads((folder / "address").read_text())["address"])
        process.send_signal(signal.SIGTERM)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planner: str) -> Path:
    """Files to name, an environment without surprises, and no effects beyond this folder."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_PLANNER", planner)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "folder"))
    monkeypatch.setenv("PERSEUS_LEASE_DIR", str(tmp_path / "folder" / "leases"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "folder"))
    # The launcher's first: it binds the one of opt_in, which is replaced after it.
    for effect in ("perseus_dist.deepspeed.launcher.shim.write", *EFFECTS):
        monkeypatch.setattr(effect, reach)
    monkeypatch.setattr("perseus_dist.cli.node.doctor.command.inspect_device", lambda _environ: ())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def outcome(argv: list[str]) -> tuple[int, str]:
    """Exit code and standard error of a command line."""
    # Both have escapes for what they cannot spell, as the streams of a process have: see cli.streams.
    out, error = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(error):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except EffectReachedError:
            code = 0
    error.seek(0)
    return code, error.read()


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_what_makes_no_sense_is_refused_in_one_line(path: tuple[str, ...], workplace: Path) -> None:
    before = contents(workplace)

    @settings(
        max_examples=NUM_EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(arguments(path))
    def check(argv: list[str]) -> None:
        code, error = outcome(argv)
        assert code in (0, 1, 2)
        if code == 2:
            assert error.count("\n") == 1, error
            assert error.startswith("perseus-dist")
            assert contents(workplace) == before, "something was written"
        else:
            restore(workplace, before)

    check()


def restore(folder: Path, before: dict[str, bytes | None]) -> None:
    """Remove what good arguments have written."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if str(path) not in before:
            path.rmdir() if path.is_dir() else path.unlink()
    for name, content in before.items():
        if content is not None and Path(name).read_bytes() != content:
            Path(name).write_bytes(content)


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        ("straggler report gpt --id a --degree 1.2 --pipeline 99999999999", "expected a data-parallel rank"),
        ("straggler report gpt --id a --degree nan --pipeline 1", "expected a number such as 1.25"),
        ("straggler report g/t --id a --degree 1 --pipeline 1", "expected a name of 1 to 128 characters"),
        ("doctor --planner 127.0.0.1:99999", ""),
        ("schedule --schedule 1f1b --pp 999999999 --microbatches 999999999", "instructions"),
    ],
)
def test_known_nonsense(line: str, fragment: str, workplace: Path) -> None:
    before = contents(workplace)
    code, error = outcome(line.split())
    assert (code, error.count("\n")) == ((1, 0) if line.startswith("doctor") else (2, 1))
    assert fragment in error
    assert contents(workplace) == before


WITHOUT = """\
import sys
sys.modules[sys.argv[1]] = None
from perseus_dist.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("google", "simulate --virtual-time --schedule 1f1b --pp 2 --microbatches 2 --iterations 1"),
        ("grpc", "jobs"),
        ("prometheus_client", "planner --bind 127.0.0.1:0"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it(package: str, line: str) -> None:
    command = [sys.executable, "-P", "-c", WITHOUT, package, *line.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"perseus-dist: {package} is not installed")
    assert "pip install 'perseus-dist[planner]'" in done.stderr
    assert done.stderr.count("\n") == 1
