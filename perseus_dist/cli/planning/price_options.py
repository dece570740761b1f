"""Options of commands that play jobs with saved frontiers against a signal, and the prices that these name."""

import argparse
from collections.abc import Sequence

from perseus_dist.cli.number_options import real
from perseus_dist.errors import PlanningError
from perseus_dist.policies.pace import Slot
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH, pieces_from, read_signal

_MAX_HOURS = 24 * 366
_MAX_ITERATIONS = 1e12


def add_work_options(parser: argparse.ArgumentParser, iterations_help: str) -> None:
    """Add ``--iterations`` and ``--hours``, which are required."""
    parser.add_argument(
        "--iterations",
        type=real(1e-3, _MAX_ITERATIONS, f"a number of iterations from 0.001 to {_MAX_ITERATIONS:g}"),
        required=True,
        metavar="N",
        help=iterations_help,
    )
    parser.add_argument(
        "--hours",
        type=real(1e-3, _MAX_HOURS, f"hours from 0.001 to {_MAX_HOURS}"),
        required=True,
        metavar="H",
        help="in which",
    )


def pieces_of(args: argparse.Namespace) -> tuple[Piece, ...]:
    """The part of ``--signal`` that ``--start`` and ``--hours`` say.

    Raises:
        PlanningError: The file is no signal or does not cover it, or has no forecasts, which ``--forecast`` asks for.
    """
    signal = read_signal(args.signal)
    try:
        pieces = pieces_from(signal, args.start, 3600 * args.hours)
    except PlanningError as error:
        raise PlanningError(f"{args.signal}: {error}; --start and --hours say which part of it") from None
    if args.forecast and any(piece.forecast is None for piece in pieces):
        raise PlanningError(f"{args.signal}: has no forecasts; leave --forecast out")
    return pieces


def slots_of(pieces: Sequence[Piece]) -> list[Slot]:
    """Slots with the prices of one joule."""
    return [Slot(duration_s=piece.duration_s, price=piece.value / JOULES_PER_KWH) for piece in pieces]


def expected_prices(pieces: Sequence[Piece]) -> list[float]:
    """Prices of one joule as they are known at the first piece's begin: its own, and forecasts of the others."""
    later = [piece.forecast for piece in pieces[1:]]
    return [pieces[0].value / JOULES_PER_KWH, *(price / JOULES_PER_KWH for price in later if price is not None)]
