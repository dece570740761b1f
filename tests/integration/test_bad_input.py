"""Bad input of every kind: exit 2, one line that helps, no file touched. One of each command through a real process."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from perseus_dist.cli import main

HEADER = "stage,instruction,frequency,time,energy"
ROWS = (
    "0,forward,1410,0.050,20",
    "0,forward,900,0.070,15",
    "0,backward,1410,0.090,37",
    "0,backward,900,0.120,28",
    "1,forward,1410,0.055,22",
    "1,forward,900,0.075,17",
    "1,backward,1410,0.095,39",
    "1,backward,900,0.130,30",
)
GOOD = "\n".join([HEADER, *ROWS])
OPTIONS = {"--schedule": "1f1b", "--pp": "2", "--microbatches": "4", "--blocking-power-w": "80"}


def with_row(line: int, row: str) -> str:
    """The good profile with another row on a line; the header is line 1."""
    lines = [HEADER, *ROWS]
    lines[line - 1] = row
    return "\n".join(lines)


PROFILES = {
    "empty file": ("", "profile.csv:1:", "an empty file", "add stage, instruction, frequency, time, energy"),
    "header alone": (HEADER, "profile.csv:1:", "no rows"),
    "missing column": (GOOD.replace("energy", "power"), "profile.csv:1:", "expected a header", "add energy"),
    "missing cell": (with_row(3, "0,forward,900,0.070"), "profile.csv:3:", "saw 4 cells, expected 5"),
    "NaN": (with_row(3, "0,forward,900,nan,15"), "profile.csv:3:", "column 'time'", "saw 'nan', expected seconds"),
    "infinite": (with_row(3, "0,forward,900,0.07,inf"), "profile.csv:3:", "column 'energy'", "saw 'inf'"),
    "negative": (with_row(4, "0,backward,1410,0.09,-37"), "profile.csv:4:", "column 'energy'", "saw '-37'"),
    "zero": (with_row(5, "0,backward,900,0,28"), "profile.csv:5:", "column 'time'", "saw '0'"),
    "text": (with_row(6, "1,forward,fast,0.055,22"), "profile.csv:6:", "column 'frequency'", "saw 'fast'"),
    "half a stage": (with_row(6, "0.5,forward,1410,0.05,22"), "profile.csv:6:", "column 'stage'", "a whole number"),
    "unknown instruction": (with_row(2, "0,Forward!,1410,0.05,20"), "profile.csv:2:", "column 'instruction'"),
    "one clock only": (with_row(3, ROWS[0]), "profile.csv:2:", "saw one clock (1410 MHz), expected at least 2"),
    "stage without backward": ("\n".join([HEADER, *ROWS[:6]]), "profile.csv:6:", "stage 1 has forward and no backward"),
    "stage left out": (GOOD.replace("\n1,", "\n2,"), "profile.csv:6:", "no stage 1"),
    "stage too many": (
        "\n".join([GOOD, *(row.replace("1,", "2,", 1) for row in ROWS[4:])]),
        "profile.csv: saw 3 stages, expected the schedule's 2",
    ),
    "not text": ("\udc80\udcff", "profile.csv:1:", "not UTF-8"),
}

PLAN_OPTIONS: dict[str, tuple[dict[str, str | None], tuple[str, ...]]] = {
    "no schedule": ({"--schedule": None}, ("--schedule --schedule-file is required",)),
    "no size": ({"--pp": None}, ("add --pp P",)),
    "no blocking power": ({"--blocking-power-w": None}, ("are required: --blocking-power-w",)),
    "blocking power of nobody": (
        {"--blocking-power-w": "1,2,3"},
        ("--blocking-power-w: saw 3 values, expected 1 or 2",),
    ),
    "negative blocking power": ({"--blocking-power-w": "-5"}, ("--blocking-power-w", "expected watts from 0")),
    "more chunks than the model has": (
        {"--schedule": "interleaved", "--chunks": "2"},
        ("profile.csv: saw 2 stages, expected the schedule's 4", "lower --pp or --chunks"),
    ),
    "chunks without interleaving": ({"--chunks": "2"}, ("--chunks 2 with --schedule 1f1b", "leave --chunks out")),
    "indivisible microbatches": (
        {"--schedule": "interleaved", "--chunks": "2", "--pp": "4", "--microbatches": "6"},
        ("--microbatches 6 leaves a last group of 2", "give --microbatches 4 or 8"),
    ),
    "no microbatches": ({"--microbatches": "0"}, ("--microbatches", "'0' is not a positive integer")),
    "missing schedule file": (
        {"--schedule": None, "--schedule-file": "no-orders.txt"},
        ("no-orders.txt: cannot be read (No such file or directory)",),
    ),
    "impossible deadline": ({"--deadline-s": "0.1"}, ("--deadline-s 0.1: ", "the fastest plan takes", "at least that")),
    "impossible slowdown": ({"--slowdown": "0.5"}, ("--slowdown 0.5: ", "the fastest plan takes", "at least that")),
    "slowdown 0": ({"--slowdown": "0"}, ("--slowdown: saw '0', expected a number above 0",)),
    "slowdown NaN": ({"--slowdown": "nan"}, ("--slowdown: saw 'nan', expected a number above 0",)),
    "endless slowdown": (
        {"--slowdown": "99999", "--microbatches": "99"},
        ("--slowdown 99999: saw a deadline of ", "expected at most 100000 s"),
    ),
    "deadline in words": ({"--deadline-s": "soon"}, ("--deadline-s: saw 'soon', expected a number above 0",)),
    "two deadlines": (
        {"--deadline-s": "3", "--slowdown": "2"},
        ("--slowdown: not allowed with argument --deadline-s",),
    ),
    "negative latency": ({"--switch-latency-ms": "-1"}, ("--switch-latency-ms", "expected milliseconds from 0")),
    "no tensor parallelism": ({"--tensor-parallel": "0"}, ("--tensor-parallel", "saw '0', expected 1 to 4096")),
    "abbreviated option": ({"--slow": "1.1"}, ("unrecognized arguments: --slow",)),
    "folder below a file": ({"--out": "taken/plans"}, ("--out taken/plans: cannot be written to (Not a directory)",)),
    "file for a folder": ({"--out": "taken"}, ("--out taken: cannot be written to", "name a folder that can be made")),
    "folder for a file": ({"--out": "mixed"}, ("--out mixed: plan.json is a folder there", "move it away")),
}

LOOKUP_OPTIONS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "missing frontier": (
        ["no.npz", "--slowdown", "2"],
        ("no.npz: cannot be read (No such file", "name a frontier.npz"),
    ),
    "truncated frontier": (["truncated.npz", "--slowdown", "2"], ("truncated.npz: saw a damaged archive", "copy it")),
    "profile as frontier": (["profile.csv", "--slowdown", "2"], ("profile.csv: saw something else than a saved",)),
    "newer frontier": (["newer.npz", "--slowdown", "2"], ("newer.npz: saw schema version 9, expected 8; upgrade",)),
    "no deadline": (["good.npz"], ("--slowdown --deadline-s --fastest --straggler-s is required",)),
    "impossible straggler": (["good.npz", "--straggler-s", "0.1"], ("--straggler-s 0.1: ", "the fastest plan takes")),
    "straggler and slowdown": (["good.npz", "--straggler-s", "3", "--slowdown", "2"], ("not allowed with argument",)),
    "plan below a file": (
        ["good.npz", "--slowdown", "2", "--out", "taken/p.json"],
        ("taken/p.json: cannot be written",),
    ),
}


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """Good and bad files to run in."""
    (tmp_path / "profile.csv").write_text(GOOD)
    (tmp_path / "taken").write_text("a file, not a folder")
    (tmp_path / "mixed" / "plan.json").mkdir(parents=True)
    return tmp_path


@dataclass(frozen=True)
class CommandLine:
    """``perseus-dist``, called by its entry point in the folder ``workplace``."""

    workplace: Path
    capture: pytest.CaptureFixture[str]

    def check_refused(self, arguments: list[str], *expected: str) -> None:
        """The command exits with 2 and one line, and leaves the folder as it was."""
        before = contents(self.workplace)
        self.capture.readouterr()
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        check_said(code, *self.capture.readouterr(), *expected)
        assert contents(self.workplace) == before


@pytest.fixture
def command_line(workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(workplace)
    return CommandLine(workplace, capsys)


def check_refused_in_a_process(workplace: Path, arguments: list[str], *expected: str) -> None:
    """The same of ``python -m perseus_dist``."""
    before = contents(workplace)
    done = subprocess.run(
        [sys.executable, "-m", "perseus_dist", *arguments], check=False, cwd=workplace, capture_output=True, text=True
    )
    check_said(done.returncode, done.stdout, done.stderr, *expected)
    assert contents(workplace) == before


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check_said(code: int, output: str, error: str, *expected: str) -> None:
    assert (code, output) == (2, "")
    assert error.startswith("perseus-dist")
    assert error.endswith("\n")
    assert error.count("\n") == 1
    for fragment in expected:
        assert fragment in error


@pytest.mark.parametrize("name", PROFILES)
def test_profiles(workplace: Path, command_line: CommandLine, name: str) -> None:
    text, *expected = PROFILES[name]
    (workplace / "profile.csv").write_text(text, errors="surrogateescape")
    options = [word for option in OPTIONS.items() for word in option]
    command_line.check_refused(["plan", "profile.csv", *options, "--out", "plans"], *expected)


@pytest.mark.parametrize("name", PLAN_OPTIONS)
def test_plan_options(command_line: CommandLine, name: str) -> None:
    changes, expected = PLAN_OPTIONS[name]
    options = {"--out": "plans", **OPTIONS, **changes}
    words = [word for option, value in options.items() if value is not None for word in (option, value)]
    command_line.check_refused(["plan", "profile.csv", *words], *expected)


def test_missing_profile(command_line: CommandLine) -> None:
    options = [word for option in OPTIONS.items() for word in option]
    command_line.check_refused(["plan", "no.csv", *options], "no.csv: cannot be read (No such file or directory)")


@pytest.mark.skipif(
    not Path("/proc").is_dir(), reason="this system has no /proc, a folder that not even root writes to"
)
def test_a_folder_that_nobody_can_write_to(command_line: CommandLine) -> None:
    options = [word for option in OPTIONS.items() for word in option]
    command_line.check_refused(["plan", "profile.csv", *options, "--out", "/proc"], "--out /proc: cannot be written to")


@pytest.fixture(scope="module")
def frontier_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    (folder / "profile.csv").write_text(GOOD)
    options = [word for option in OPTIONS.items() for word in option]
    assert main(["plan", str(folder / "profile.csv"), *options, "--out", str(folder / "plans")]) == 0
    return folder / "plans" / "frontier.npz"


@pytest.mark.parametrize("name", LOOKUP_OPTIONS)
def test_lookup_options(workplace: Path, command_line: CommandLine, frontier_npz: Path, name: str) -> None:
    data = frontier_npz.read_bytes()
    (workplace / "good.npz").write_bytes(data)
    (workplace / "truncated.npz").write_bytes(data[: len(data) // 2])
    with np.load(frontier_npz) as archive:
        header = json.loads(archive["header"].tobytes()) | {"schema_version": 9}
    np.savez(workplace / "newer.npz", header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    arguments, expected = LOOKUP_OPTIONS[name]
    command_line.check_refused(["lookup", *arguments], *expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "the following arguments are required: COMMAND. Try 'perseus-dist --help'."),
        (["nonsense"], "invalid choice: 'nonsense' (choose from "),
        (["--nonsense"], "the following arguments are required: COMMAND"),
        (["profile"], "the following arguments are required: ACTION"),
        (["plan", "two\nlines.csv", "--nonsense", "on\ntwo"], "are required: --blocking-power-w"),
        (["lookup", "two\nlines.npz", "--slowdown", "2"], "two lines.npz: cannot be read"),
        (["plan", "taken", *[word for option in OPTIONS.items() for word in option]], "taken:1: "),
    ],
)
def test_commands(workplace: Path, arguments: list[str], expected: str) -> None:
    check_refused_in_a_process(workplace, arguments, expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("planner --state-dir new --job gpt", "--job needs --cache"),
        ("disable deepspeed --shim profile.csv/x", "profile.csv is no folder"),
        ("disable deepspeed --shim profile.csv", "profile.csv is no folder"),
        ("enable deepspeed --shim profile.csv/x", "profile.csv is no folder"),
        ("clockd --lease-dir profile.csv/x", "profile.csv is no folder"),
        ("doctor --token-file none", "--token-file none: cannot be read (No such file or directory)"),
        ("doctor --tls-ca none", "--tls-ca none: cannot be read (No such file or directory)"),
        ("doctor --tls-cert none --tls-key profile.csv", "--tls-cert none: cannot be read"),
        (
            "compare profile.csv --schedule 1f1b --pp 2 --microbatches 2 --blocking-power-w 80 --tensor-parallel 4097",
            "saw '4097', expected 1 to 4096 GPUs",
        ),
        ("accounting --line none", "none: no folder that can be read"),
        ("measure --seconds 1_00", "saw '1_00', expected seconds from 5 to 3600"),
        ("planner --embedded --address-file x.json --state-dir . --share a,b", "'a,b' is no host"),
        ("planner --store postgresql://u@127.0.0.1:1/d --advertise [0::0]:50151", "nothing can be reached there"),
        (
            "policy price a --job b --signal ../c --deadline 2126-11-24T17:00+01:00 --iterations 9",
            "saw '../c', expected",
        ),
        ("policy price a --job b --signal \udcff --deadline 2126-11-24T17:00+01:00 --iterations 9", "saw '\\udcff'"),
        ("token create ci --role view --certificate \udcff", "saw '\\udcff', expected 1 to 128 characters"),
        ("jobs --planner node-0:50151,", "'node-0:50151,': '' is no address"),
        ("simulate --planner 127.0.0.1:1 --jobs 999999999", "expected 1 to 64 jobs"),
        ("simulate --planner 127.0.0.1:1 --granularity phase", "--granularity does not go with --planner"),
        ("simulate --planner 127.0.0.1:1 --known-failures profile.csv", "--known-failures does not go with --planner"),
        ("simulate --virtual-time --chaos 3 --granularity rank", "--granularity beside --chaos"),
        ("simulate --virtual-time --scenario profile.csv --dp 4", "--dp beside --scenario"),
    ],
)
def test_what_can_never_work_is_refused_before_anything_is_done(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERSEUS_CONFIG", "off")
    began_s = time.monotonic()
    assert exit_code(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["profile.csv"]
    assert "--line" not in words or time.monotonic() - began_s < 3.0, "nobody's last word was to be waited for"


def exit_code(words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)
