"""Signals: prices and carbon intensities over time, from files and from providers that a file names.

Only a file that ends in ``.toml`` and names a provider's address (``provider.py``) leads to the network.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from perseus_dist.errors import PlanningError
from perseus_dist.policies.provider import MAX_BYTES, is_provider, read_provider
from perseus_dist.policies.signal_text import Piece, signal_from_text
from perseus_dist.policies.tariff import Tariff

JOULES_PER_KWH = 3.6e6


def read_signal(path: Path) -> tuple[Piece, ...] | Tariff:
    """Pieces in the order of time, each beginning where the one before ends; or a tariff, which has no end.

    Args:
        path: Of a signal, or of a provider's file: then its provider is asked.

    Raises:
        PlanningError: The file cannot be read, is in none of the forms, or has a gap; or the provider does not answer.
    """
    if is_provider(path):
        from perseus_dist.policies.provider_request import fetch  # takes 40 ms, which other commands need not wait

        return fetch(read_provider(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PlanningError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise PlanningError(f"{path}: saw more than {MAX_BYTES >> 20} MiB, expected a signal")
    try:
        return signal_from_text(data)
    except ValueError as error:
        raise PlanningError(f"{path}: {error}") from None


def pieces_from(signal: tuple[Piece, ...] | Tariff, start: datetime | None, duration_s: float) -> tuple[Piece, ...]:
    """The pieces of a stretch of time; the first and the last are cut off at its ends.

    Args:
        signal: From ``read_signal``.
        start: With its offset from UTC; None for the begin of the signal, which a tariff has none of.
        duration_s: [s] positive.

    Raises:
        PlanningError: The signal does not cover it, or it ends beyond the calendar.
    """
    try:
        return _pieces_from(signal, start, duration_s)
    except OverflowError:
        raise PlanningError(f"saw {duration_s:g} s from {start} on, expected an end within the calendar") from None


def _pieces_from(signal: tuple[Piece, ...] | Tariff, start: datetime | None, duration_s: float) -> tuple[Piece, ...]:
    if isinstance(signal, Tariff):
        if start is None:
            raise PlanningError(f"saw no start, expected the time from which tariff {signal.name!r} counts")
        return tuple(
            Piece(start=begin, duration_s=taken_s, value=rate)
            for begin, taken_s, rate in signal.hours(start, duration_s)
        )
    start = signal[0].start if start is None else start
    end = start + timedelta(seconds=duration_s)
    last = signal[-1].start + timedelta(seconds=signal[-1].duration_s)
    if start < signal[0].start or end > last:
        seen = f"{start.isoformat()} to {end.isoformat()}"
        raise PlanningError(f"saw {seen}, expected a part of {signal[0].start.isoformat()} to {last.isoformat()}")
    cut: list[Piece] = []
    for piece in signal:
        begin, stop = max(piece.start, start), min(piece.start + timedelta(seconds=piece.duration_s), end)
        if (taken_s := (stop - begin).total_seconds()) > 0:
            cut.append(replace(piece, start=begin, duration_s=taken_s))
    return tuple(cut)
