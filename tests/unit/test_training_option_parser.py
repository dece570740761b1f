import argparse
import copy

import pytest

from perseus_dist.training.option_parser import OptionParser
from perseus_dist.training.options import is_asked_for


class EnableParser(OptionParser):
    perseus_flag = "--enable-perseus"


def filled(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--periods", type=int)
    parser.add_argument("script", nargs="?")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


@pytest.mark.parametrize(
    "argv",
    [
        *(["--per", "3"], ["--p=3"], ["train.py", "--perse"], ["--perseus-"], ["--", "--perseu"], ["--perseus job"]),
        *(["train.py", "--perseus-seed=1"], ["--periods"], ["--periods", "x", "-"], ["--persew"]),
    ],
)
def test_lists_without_our_options(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = []
    for parser in (argparse.ArgumentParser(prog="job"), OptionParser(prog="job")):
        found: object
        try:
            found = vars(filled(parser).parse_args(argv))
        except SystemExit as end:
            found = end.code
        outcomes.append((found, capsys.readouterr()))
    assert outcomes[0] == outcomes[1]


def test_one_of_ours_makes_all_known_and_a_second_parse_too() -> None:
    parser = filled(OptionParser(prog="job"))
    for copied in (parser, copy.deepcopy(parser), parser):
        assert is_asked_for(copied.parse_args(["--perseus_job=x"]))
        assert copied.parse_args(["--per", "3"]).periods == 3
        assert not is_asked_for(copied.parse_args([]))


def test_the_flag_is_the_frameworks() -> None:
    assert is_asked_for(filled(EnableParser()).parse_args(["--enable-perseus"]))
    for word in ("--perseus", "--enable-perse"):
        with pytest.raises(SystemExit):
            filled(EnableParser()).parse_args([word])


def test_help_shows_them() -> None:
    assert "--perseus-planner HOST:PORT" in filled(OptionParser()).format_help()
    assert "[--enable-perseus]" in filled(EnableParser()).format_help()
    assert "perseus" not in filled(OptionParser(prog="job")).format_usage()


def test_an_option_of_the_scripts_own_stays_its_own() -> None:
    parser = filled(OptionParser())
    parser.add_argument("--perseus-job", type=int)
    assert parser.parse_args(["--perseus-job", "3"]).perseus_job == 3
    assert "HOST:PORT" not in parser.format_help()
