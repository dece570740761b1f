import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from perseus_dist.cli import main
from perseus_dist.planning.schedule.schedule import Exchange, interleaved, one_f_one_b
from perseus_dist.planning.schedule.schedule_text import parse_schedule

INTERLEAVED = ["--schedule", "interleaved", "--pp", "4", "--microbatches", "8", "--chunks", "2"]


def refusal(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line that bad options get."""
    try:
        code = main(["schedule", *options])
    except SystemExit as stop:  # argparse's own refusals
        code = stop.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    return err


def test_prints_a_line_per_rank_that_reads_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["schedule", *INTERLEAVED]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[3] == (
        "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 7F6 7B6 7F7 "
        "7B7 3B4 3B5 3B6 3B7"
    )
    ours = interleaved(pp=4, microbatches=8, chunks=2)
    assert parse_schedule(text) == replace(ours, exchange=Exchange.OVERLAPPED)

    orders = tmp_path / "orders.txt"
    orders.write_text(text)
    sizes = ["--pp", "4", "--microbatches", "8", "--chunks", "2", "--microbatch-group-size", "4"]
    assert main(["schedule", "--schedule-file", str(orders), *sizes]) == 0
    assert capsys.readouterr().out == text


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *INTERLEAVED]) == 0
    text = capsys.readouterr().out
    assert main(["schedule", *INTERLEAVED, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [" ".join(order) for order in document["ranks"]] == text.splitlines()[:4]
    assert (document["num_stages"], document["num_microbatches"]) == (8, 8)
    assert text.splitlines()[4:] == [f"# exchange: {document['exchange']}"]
    assert document["digest"] == sha256(text.partition("#")[0].encode()).hexdigest()


def test_grid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--grid"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["step", "pp_rank", "0", "pp_rank", "1"],
        ["0", "0F0"],
        ["1", "0F1", "1F0"],
        ["2", "1B0"],
        ["3", "0B0", "1F1"],
        ["4", "1B1"],
        ["5", "0B1"],
    ]


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["schedule", "--help"])
    assert "perseus-dist schedule --schedule interleaved" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["0", "-4", "four", "1.5", "1_0", "+4", "", "9" * 5000])
@pytest.mark.parametrize("option", ["--pp", "--microbatches", "--chunks", "--microbatch-group-size"])
def test_refuses_sizes_that_are_not_positive_integers(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    line = refusal(capsys, *INTERLEAVED, f"{option}={value}")
    assert f"argument {option}: '{value}' is not a positive integer" in line


def test_a_size_beyond_all_measure_is_told_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    line = refusal(capsys, *INTERLEAVED, "--microbatches=1000000000")
    assert "'1000000000' is not a positive integer of at most 999999999" in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "--schedule --schedule-file is required"),
        (["--schedule", "zb"], "choose from"),
        (["--schedule", "1f1b", "--schedule-file", "x"], "not allowed with"),
        (["--schedule", "1f1b", "--pp", "4"], "--schedule 1f1b without its size: add --microbatches M"),
        (["--schedule", "1f1b", "--microbatches", "4"], "--schedule 1f1b without its size: add --pp P"),
        (["--schedule", "gpipe", "--pp", "4", "--microbatches", "8", "--chunks", "2"], "leave --chunks out"),
        (["--schedule", "1f1b", "--pp", "4", "--microbatches", "8", "--no-overlap-p2p"], "leave --no-overlap-p2p out"),
        ([*INTERLEAVED, "--microbatches", "10"], "give --microbatches 8 or 12, or --microbatch-group-size 5"),
        (["--schedule-file", "no-such-file"], "no-such-file: cannot be read (No such file or directory)"),
    ],
)
def test_refuses_options_that_make_no_schedule(
    capsys: pytest.CaptureFixture[str], options: list[str], expected: str
) -> None:
    assert expected in refusal(capsys, *options)


def test_joint_exchanges_from_options_and_from_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["schedule", *INTERLEAVED, "--no-overlap-p2p"]) == 0
    text = capsys.readouterr().out
    assert " 0F6+ 4B0 " in text
    orders = tmp_path / "orders.txt"
    orders.write_text(text)
    assert main(["schedule", "--schedule-file", str(orders), "--microbatch-group-size", "4", "--no-overlap-p2p"]) == 0
    assert capsys.readouterr().out == text
    orders.write_text(text.replace("+", ""))
    assert f"--no-overlap-p2p does not fit {orders}" in refusal(
        capsys, "--schedule-file", str(orders), "--no-overlap-p2p"
    )


@pytest.mark.parametrize(
    "option", [["--pp", "3"], ["--microbatches", "5"], ["--chunks", "2"], ["--microbatch-group-size", "2"]]
)
def test_refuses_options_that_contradict_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: list[str]
) -> None:
    orders = tmp_path / "orders.txt"
    orders.write_text("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")
    assert parse_schedule(orders.read_text()) == one_f_one_b(pp=2, microbatches=2)
    line = refusal(capsys, "--schedule-file", str(orders), *option)
    assert f"{' '.join(option)} does not fit {orders}" in line
    assert "2 stages on 2 pp_ranks run 2 microbatches" in line


def test_refuses_a_deadlock(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    orders = tmp_path / "orders.txt"
    orders.write_text("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0\n")
    line = refusal(capsys, "--schedule-file", str(orders))
    assert line.startswith(f"perseus-dist: {orders}: deadlock: pp_rank 0 (line 1) waits at 0B0 for 1B0")
