"""Prices and carbon intensities over time, read from files in the forms of those who publish them.

| file | form |
|---|---|
| CSV | ``timestamp,duration,value`` and, if it is known, ``forecast`` or ``hist``: ISO 8601, minutes, per kWh |
| JSON with ``history`` or ``forecast`` | Electricity Maps: ``carbonIntensity`` and ``datetime`` of each hour |
| JSON with ``data`` | UK Carbon Intensity: ``from``, ``to``, ``intensity.forecast``, ``intensity.actual`` |
| JSON with ``items`` | OpenEI's tariffs: rates of periods, and the period of each month's hours (``tariff.py``) |

Nothing here talks to the network.
"""

import csv
import io
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from perseus_dist.errors import PlanningError
from perseus_dist.json_text import unique_keys
from perseus_dist.number_text import read_real
from perseus_dist.policies.tariff import Tariff, tariff_from_document

JOULES_PER_KWH = 3.6e6
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of time with one value.

    Attributes:
        start: With its offset from UTC.
        duration_s: [s] positive.
        value: Per kWh: dollars, grams of CO2.
        forecast: What was expected before; None if that is not known.
    """

    start: datetime
    duration_s: float
    value: float
    forecast: float | None = None


def read_signal(path: Path) -> tuple[Piece, ...] | Tariff:
    """Pieces in the order of time, each beginning where the one before ends; or a tariff, which has no end.

    Raises:
        PlanningError: The file cannot be read, is in none of the forms, or has a gap.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PlanningError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _MAX_BYTES:
        raise PlanningError(f"{path}: saw more than {_MAX_BYTES >> 20} MiB, expected a signal")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PlanningError(f"{path}: saw bytes that are no text, expected a signal in CSV or JSON") from None
    try:
        read = (
            _from_json(json.loads(text, object_pairs_hook=unique_keys))
            if text.lstrip()[:1] in ("{", "[")
            else _from_csv(text)
        )
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        IndexError,
        RecursionError,
        OverflowError,
        csv.Error,
    ) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise PlanningError(f"{path}: {' '.join(reason.split())[:200]}") from None
    return read


def _from_csv(text: str) -> tuple[Piece, ...]:
    rows = csv.DictReader(io.StringIO(text), strict=True)
    names = rows.fieldnames or []
    if len(set(names)) < len(names):
        raise ValueError(f"saw columns {', '.join(names)}, expected each once")
    expected = next((name for name in ("forecast", "hist") if name in names), None)
    for name in ("timestamp", "duration", "value"):
        if name not in names:
            raise ValueError(f"saw columns {', '.join(names) or 'none'}, expected timestamp, duration and value")
    return _in_order(
        Piece(
            start=_time(_whole_row(row)["timestamp"]),
            duration_s=60 * _number("duration", row["duration"]),
            value=_number("value", row["value"]),
            forecast=None if expected is None else _number(expected, row[expected]),
        )
        for row in rows
    )


def _whole_row(row: dict[Any, Any]) -> dict[Any, Any]:
    """A row that has as many cells as there are columns; a missing one is None, and more are under None."""
    if None in row or None in row.values():
        cells = [cell for cell in row.values() if isinstance(cell, str)]
        raise ValueError(
            f"saw a row of {len(cells) + len(row.get(None, ()))} cells, expected {len(row.keys() - {None})}"
        )
    return row


def _from_json(document: Any) -> tuple[Piece, ...] | Tariff:
    if "items" in document:
        return tariff_from_document(document)
    if "data" in document:
        return _in_order(_uk_piece(row) for row in document["data"])
    if "history" in document or "forecast" in document:
        rows = document["history" if "history" in document else "forecast"]
        starts = sorted(_time(row["datetime"]) for row in rows)
        hours = {(later - start).total_seconds() for start, later in pairwise(starts)} or {3600.0}
        return _in_order(
            Piece(
                start=_time(row["datetime"]),
                duration_s=min(hours),
                value=_number("carbonIntensity", row["carbonIntensity"]),
            )
            for row in rows
        )
    raise ValueError("saw none of items, data, history and forecast, expected an answer of a known provider")


def _uk_piece(row: Any) -> Piece:
    start, end = _time(row["from"]), _time(row["to"])
    known = row["intensity"]
    forecast = _number("forecast", known["forecast"])
    actual = known.get("actual")
    return Piece(
        start=start,
        duration_s=(end - start).total_seconds(),
        value=forecast if actual is None else _number("actual", actual),
        forecast=forecast,
    )


def _in_order(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    ordered = sorted(pieces, key=lambda piece: piece.start)
    if not ordered:
        raise ValueError("saw no value, expected one or more")
    for piece in ordered:
        if piece.duration_s <= 0:
            raise ValueError(
                f"{piece.start.isoformat()}: saw a duration of {piece.duration_s:g} s, expected more than 0"
            )
    for piece, later in pairwise(ordered):
        if piece.start + timedelta(seconds=piece.duration_s) != later.start:
            expected = (piece.start + timedelta(seconds=piece.duration_s)).isoformat()
            raise ValueError(f"saw {later.start.isoformat()}, expected the next value at {expected}")
    return tuple(ordered)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"saw {text}, expected a time with its offset from UTC, such as 2026-11-24T12:00:00+00:00")
    return time


def _number(name: str, value: object) -> float:
    try:
        return read_real(str(value).strip(" \t\r"), 0.0, sys.float_info.max)
    except ValueError:
        raise ValueError(f"{name}: saw {value}, expected a number that is not negative") from None


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
