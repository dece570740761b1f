import argparse
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from perseus_dist.agent.process.startup import parse_target
from perseus_dist.messages import target_text
from perseus_dist.rpc import limits
from perseus_dist.training import option_values
from perseus_dist.training.options import (
    OptionError,
    PerseusOptions,
    add_options,
    check_profile,
    is_asked_for,
    is_option,
    options_from_block,
    options_from_namespace,
)

NAMES = [field.name for field in fields(PerseusOptions)]
HEADER = b"stage,instruction,frequency,time,energy\n"
FILES = ("profile", "token_file", "tls_ca", "tls_cert", "tls_key")


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(argv)


def values(folder: Path) -> dict[str, str]:
    """A value for every option, as it comes out."""
    for name in FILES:
        (folder / name).touch()
    files = {name: str(folder / name) for name in FILES}
    return {
        "planner": "planner.example:50151",
        "target": "slowdown=1.05",
        "report": str(folder / "report"),
        "cache": str(folder / "cache"),
        "share": "node-0.example:50152",
        "job": "gpt-3_a.b",
        "control": "observe",
        "stragglers": "show",
        "granularity": "rank",
        **files,
    }


def test_every_option_is_taken_from_the_command_line_in_either_spelling(tmp_path: Path) -> None:
    wanted = values(tmp_path)
    assert set(wanted) == set(NAMES)
    hyphens = [word for name, value in wanted.items() for word in (f"--perseus-{name.replace('_', '-')}", value)]
    underscores = [f"--perseus_{name}={value}" for name, value in wanted.items()]
    for argv in (hyphens, underscores):
        namespace = parse(*argv)
        assert is_asked_for(namespace)
        assert options_from_namespace(namespace) == PerseusOptions(**wanted)
        assert all(is_option(word) for word in argv if word.startswith("--"))


def test_every_option_is_taken_from_the_configuration(tmp_path: Path) -> None:
    wanted = values(tmp_path)
    assert options_from_block({"enabled": True, **wanted}) == PerseusOptions(**wanted)
    assert options_from_block({}) == PerseusOptions()
    assert options_from_block({"planner": None}) == PerseusOptions()
    assert options_from_block({"enabled": False, "planner": "a:1"}) is None


def test_nothing_said_is_nothing_asked_for() -> None:
    assert vars(parse()) == {}
    assert not is_asked_for(parse())
    assert is_asked_for(parse("--perseus"))
    assert options_from_namespace(parse("--perseus")) == PerseusOptions()
    assert not is_option("--perseus-unknown")
    assert not is_option("--lr=1")


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("t_min", "t_min"),
        ("slowdown=1", "slowdown=1.0"),
        ("slowdown=1.05", "slowdown=1.05"),
        ("deadline=2.5", "deadline_s=2.5"),
        ("deadline_s=1e-3", "deadline_s=0.001"),
        ("deadline=1e-7", "deadline_s=1e-07"),
    ],
)
def test_targets_are_what_the_agent_reads(text: str, normalised: str) -> None:
    assert options_from_namespace(parse("--perseus-target", text)).target == normalised
    parse_target(normalised)


@pytest.mark.parametrize("text", [".", "..", "a b"])
def test_names_that_a_browser_would_take_for_folders_are_no_jobs(text: str) -> None:
    for name in ("...", ".a"):
        assert options_from_namespace(parse("--perseus-job", name)).job == name
    with pytest.raises(OptionError, match=r"--perseus-job is .* not \. or \.\.$"):
        options_from_namespace(parse("--perseus-job", text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "T_MIN", "slowdown", "slowdown=", "slowdown=0.99", "slowdown=1e4", "slowdown=1e999", "deadline=0"),
        *("deadline=-1", "deadline=nan", "deadline=inf", "deadline=1e8", "deadline=1..2", "deadline=2s"),
    ],
)
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match=r"--perseus-target is .* expected t_min, slowdown=1\.05"):
        options_from_namespace(parse("--perseus-target", text))


@pytest.mark.parametrize("text", ["host:1", "10.0.0.1:65535", "[::1]:50151", "node_1.local:8080"])
def test_addresses(text: str) -> None:
    assert options_from_namespace(parse("--perseus-planner", text)).planner == text


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "http://host:1", "::1:5", "a b:1"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="expected HOST:PORT"):
        options_from_namespace(parse("--perseus-planner", text))


@pytest.mark.parametrize("text", ["", "a b", "job/1", "ü", "x" * 129])
def test_job_names_that_the_planner_would_refuse(text: str) -> None:
    with pytest.raises(OptionError, match="expected 1 to 128 characters"):
        options_from_namespace(parse("--perseus-job", text))


def test_a_relative_path_in_a_folder_that_is_gone_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(OptionError, match="--perseus-report is 'report': expected a folder's path"):
        options_from_namespace(parse("--perseus-report", "report"))
    assert options_from_namespace(parse("--perseus-report", "/report")).report == "/report"


@pytest.mark.parametrize("name", FILES)
def test_files_must_be_there_when_the_job_starts(tmp_path: Path, name: str) -> None:
    flag = f"--perseus-{name.replace('_', '-')}"
    with pytest.raises(OptionError, match=f"^{flag} .*nowhere: no file that can be read is there$"):
        options_from_namespace(parse(flag, str(tmp_path / "nowhere")))
    with pytest.raises(OptionError, match="expected a file's path"):
        options_from_namespace(parse(flag, ""))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "profile.csv:1: saw an empty file, expected a header with the columns stage,instruction,frequency"),
        (b"\x00\xff\xfe", "profile.csv:1: saw bytes that are not UTF-8"),
        (b"PK\x03\x04\x00\x00", "profile.csv:1: "),
        (b"time,energy\n1,2\n", "expected a header with the columns .*; add stage, instruction, frequency"),
        (HEADER, "saw a header and no rows"),
        (HEADER + b"0,forward,fast,0.1,20\n", "profile.csv:2: column 'frequency': saw 'fast', expected a whole number"),
        (HEADER + b"0,forward,1410,nan,20\n", "profile.csv:2: column 'time': saw 'nan'"),
        (HEADER + b"0,forward,1410,0.1\n", "profile.csv:2: saw 4 cells, expected 5"),
        (HEADER + b'0,"forward,1410,0.1,20\n', "profile.csv:.: not a CSV row"),
    ],
)
def test_a_profile_is_read_when_the_job_starts(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "profile.csv"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=f"^--perseus-profile {tmp_path}/.*{message}"):
        check_profile(options_from_namespace(parse("--perseus-profile", str(path))))
    path.write_bytes(HEADER + b"0,forward,1410,0.1,20\n0,backward,1410,0.2,40\n")
    check_profile(options_from_namespace(parse("--perseus-profile", str(path))))
    check_profile(PerseusOptions())


def test_checking_a_profile_imports_no_numpy(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    path.write_bytes(HEADER + b"0,forward,1410,0.1,20\n")
    code = (
        "import sys; from perseus_dist.training.options import PerseusOptions, check_profile\n"
        f"check_profile(PerseusOptions(profile={str(path)!r})); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/user")
    assert options_from_namespace(parse("--perseus-report", "runs/../report")).report == str(tmp_path / "report")
    assert options_from_block({"report": "~/report"}) == PerseusOptions(report="/home/user/report")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"planer": "a:1"}, "perseus.planer in the configuration is no option; there are enabled, planner, profile"),
        ({"target": 1.05}, "perseus.target in the configuration is 1.05: expected t_min.*, in quotes"),
        ({"enabled": "yes"}, "perseus.enabled in the configuration is 'yes': expected true or false"),
        ({"control": "manual"}, "perseus.control .* 'manual': expected one of auto, clockd, zeusd, direct, observe"),
        (True, '"perseus": True in the configuration: expected a block'),
    ],
)
def test_blocks_that_cannot_be_served(block: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options_from_block(block)


def test_what_is_said_wins_over_what_was_said_before() -> None:
    flags = PerseusOptions(planner="flag:1", job="flag")
    block = PerseusOptions(planner="block:1", target="t_min")
    assert flags.over(block) == PerseusOptions(planner="flag:1", job="flag", target="t_min")
    assert PerseusOptions().over(block) == block


def test_text_travels_as_one_plain_word() -> None:
    options = PerseusOptions(report="/a folder/with 'quotes' and ü$%", job="x")
    text = options.to_text()
    assert PerseusOptions.from_text(text) == options
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=")
    assert PerseusOptions.from_text(PerseusOptions().to_text()) == PerseusOptions()


@pytest.mark.parametrize("text", ["", "x", "e30", "é", "W10=", "eyJuZXdlciI6IDF9"])
def test_text_of_another_version(text: str) -> None:
    with pytest.raises(OptionError, match="install the same perseus-dist on every node"):
        PerseusOptions.from_text(text)


def test_limits_are_the_planners() -> None:
    assert option_values.MAX_JOB_NAME_LENGTH == limits.MAX_JOB_ID_LENGTH
    assert target_text.MAX_SLOWDOWN == limits.MAX_SLOWDOWN
    assert target_text.MAX_DEADLINE_S == limits.MAX_SECONDS
