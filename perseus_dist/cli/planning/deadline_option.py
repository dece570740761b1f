"""The options ``--slowdown`` and ``--deadline-s``: how long an iteration may take."""

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager

from perseus_dist.cli.number_options import real
from perseus_dist.errors import PlanningError
from perseus_dist.library.arguments import MAX_SECONDS
from perseus_dist.units import PS_PER_S, deadline_ps_from_s

positive_number = real(math.ulp(0), MAX_SECONDS, f"a number above 0 and up to {MAX_SECONDS:g}")
"""An argparse type: a time in seconds or a factor."""


def add_deadline_arguments(
    parser: argparse.ArgumentParser, *, required: bool = False
) -> "argparse._MutuallyExclusiveGroup":
    """Add the options that ``deadline_ps_from_args`` reads; only one of the group returned can be given."""
    group = parser.add_mutually_exclusive_group(required=required)
    group.add_argument(
        "--slowdown", type=positive_number, metavar="R", help="deadline of R times the time of all-max, such as 1.05"
    )
    group.add_argument("--deadline-s", type=positive_number, metavar="X", help="deadline in seconds")
    return group


def add_fastest_argument(group: "argparse._MutuallyExclusiveGroup") -> None:
    """Add ``--fastest`` to the group that ``add_deadline_arguments`` returned."""
    group.add_argument("--fastest", action="store_true", help="the fastest plan possible, at whatever energy")


def deadline_ps_from_args(args: argparse.Namespace, all_max_ps: int) -> int | None:
    """[ps] the deadline that parsed options ask for, or None.

    Args:
        args: Parsed options.
        all_max_ps: [ps] iteration time at maximum clocks.

    Raises:
        PlanningError: A slowdown beyond all measure.
    """
    slowdown: float | None = args.slowdown
    deadline_s: float | None = args.deadline_s
    if slowdown is None:
        return None if deadline_s is None else deadline_ps_from_s(deadline_s)
    deadline_ps = round(slowdown * all_max_ps)
    if deadline_ps > MAX_SECONDS * PS_PER_S:
        raise PlanningError(
            f"--slowdown {slowdown:g}: saw a deadline of {deadline_ps / PS_PER_S:g} s, expected at most "
            f"{MAX_SECONDS:g} s; give a smaller factor"
        )
    return deadline_ps


@contextmanager
def naming_deadline_option(args: argparse.Namespace) -> Iterator[None]:
    """Have a refusal begin with the option that asked for the impossible."""
    try:
        yield
    except PlanningError as error:
        given = {
            name: value for name in ("slowdown", "deadline_s", "straggler_s") if (value := getattr(args, name, None))
        }
        options = "".join(f"--{name.replace('_', '-')} {value:.12g}: " for name, value in given.items())
        raise PlanningError(f"{options}{error}") from None
