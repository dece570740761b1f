"""The option --blocking-power-w."""

import argparse

import pytest

from perseus_dist.cli.planning.blocking_option import add_blocking_argument, blocking_uw_from_args
from perseus_dist.errors import PlanningError


def parse(*argv: str, default_w: float | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_blocking_argument(parser, default_w=default_w)
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    ("text", "expected_uw"),
    [
        ("83.64", (83_640_000,) * 3),
        ("0", (0, 0, 0)),
        ("83.64,70,80.5", (83_640_000, 70_000_000, 80_500_000)),
    ],
)
def test_one_for_all_or_one_each(text: str, expected_uw: tuple[int, ...]) -> None:
    assert blocking_uw_from_args(parse("--blocking-power-w", text), 3) == expected_uw


def test_a_default() -> None:
    assert blocking_uw_from_args(parse(default_w=0.0), 2) == (0, 0)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "", "83,", "eighty", "83640", "83.6;80"])
def test_no_power(text: str) -> None:
    with pytest.raises(argparse.ArgumentError, match="expected watts from 0 to 10000"):
        parse(f"--blocking-power-w={text}")


def test_wrong_count() -> None:
    with pytest.raises(PlanningError, match=r"--blocking-power-w: saw 2 values, expected 1 or 3; .* each pp_rank"):
        blocking_uw_from_args(parse("--blocking-power-w", "80,81"), 3)
