"""Prices and carbon intensities over time, in the forms of those who publish them.

| text | form |
|---|---|
| CSV | ``timestamp,duration,value`` and, if it is known, ``forecast`` or ``hist``: ISO 8601, minutes, per kWh |
| JSON: ``history``, ``forecast``, ``data`` | Electricity Maps: ``carbonIntensity`` and ``datetime`` of each hour |
| JSON: ``data`` | UK Carbon Intensity, national or of a region: ``from``, ``to``, ``intensity.forecast``, ``.actual`` |
| JSON: ``items`` | OpenEI's tariffs: rates of periods, and the period of each month's hours (``tariff.py``) |

Prices may be negative, carbon intensities not. A value of a provider's that is null takes the one before it, for three
hours at most; nulls at the begin and the end are left out.
"""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from perseus_dist.json_text import unique_keys
from perseus_dist.number_text import read_real
from perseus_dist.policies.tariff import Tariff, tariff_from_document

_MOST = 1e9  # per kWh
_LONGEST_NULLS_S = 3 * 3600.0
_MALFORMED = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError, OverflowError, csv.Error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of time with one value.

    Attributes:
        start: With its offset from UTC.
        duration_s: [s] positive.
        value: Per kWh: dollars, which may be negative, or grams of CO2.
        forecast: What was expected before; None if that is not known.
        is_actual: Whether the value is what came, and not the forecast itself.
    """

    start: datetime
    duration_s: float
    value: float
    forecast: float | None = None
    is_actual: bool = True


def signal_from_text(data: bytes) -> tuple[Piece, ...] | Tariff:
    """Pieces in the order of time, each beginning where the one before ends; or a tariff, which has no end.

    Raises:
        ValueError: The text is in none of the forms, or has a gap; in one line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("saw bytes that are no text, expected a signal in CSV or JSON") from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            return _from_json(json.loads(text, object_pairs_hook=unique_keys))
        return _from_csv(text)
    except _MALFORMED as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(" ".join(reason.split())[:200]) from None


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
            duration_s=60 * _number("duration", row["duration"], 0.0),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A stretch of time as a provider has it; what is null is None."""

    start: datetime
    duration_s: float
    actual: float | None
    forecast: float | None


def _from_json(document: Any) -> tuple[Piece, ...] | Tariff:
    if not isinstance(document, dict):
        raise ValueError("saw a list, expected an answer of a known provider: an object")
    if "items" in document:
        return tariff_from_document(document)
    if "history" in document or "forecast" in document:
        return _without_nulls(_hours(document.get("history", []), document.get("forecast", [])))
    if "data" in document:
        rows = _region(document["data"])
        if rows and "datetime" in rows[0]:
            return _without_nulls(_hours(rows, []))
        return _without_nulls([_uk_row(row) for row in rows])
    raise ValueError("saw none of items, data, history and forecast, expected an answer of a known provider")


def _hours(history: Any, forecast: Any) -> list[_Row]:
    """Rows of Electricity Maps: what was, and what is expected, each with its begin alone."""
    actual, expected = _by_start(history), _by_start(forecast)
    starts = sorted(actual.keys() | expected.keys())
    duration_s = min(((later - start).total_seconds() for start, later in pairwise(starts)), default=3600.0)
    return [
        _Row(start=start, duration_s=duration_s, actual=actual.get(start), forecast=expected.get(start))
        for start in starts
    ]


def _by_start(rows: Any) -> dict[datetime, float | None]:
    found: dict[datetime, float | None] = {}
    for row in rows:
        start = _time(row["datetime"])
        if start in found:
            raise ValueError(f"saw {start.isoformat()} twice, expected each hour once")
        found[start] = _number_or_null("carbonIntensity", row["carbonIntensity"])
    return found


def _region(data: Any) -> Any:
    """Rows of UK Carbon Intensity: the national ones, or those of its one region, which stand a level deeper."""
    if isinstance(data, list) and len(data) == 1 and "data" in data[0]:
        data = data[0]
    if isinstance(data, dict):
        data = data["data"]
    if not isinstance(data, list):
        raise ValueError("saw no list in data, expected one of values")
    if any("regions" in row for row in data):
        raise ValueError("saw all regions, expected one: ask for /regional/... with its regionid or postcode")
    return data


def _uk_row(row: Any) -> _Row:
    start, end = _time(row["from"]), _time(row["to"])
    known = row["intensity"]
    return _Row(
        start=start,
        duration_s=(end - start).total_seconds(),
        actual=_number_or_null("actual", known.get("actual")),
        forecast=_number_or_null("forecast", known["forecast"]),
    )


def _without_nulls(rows: Iterable[_Row]) -> tuple[Piece, ...]:
    """Pieces of rows, of which some have neither an actual value nor a forecast."""
    pieces: list[Piece] = []
    missing: list[Piece] = []
    for row in sorted(rows, key=lambda row: row.start):
        value = row.forecast if row.actual is None else row.actual
        if value is not None:
            seen_s = sum(piece.duration_s for piece in missing)
            if seen_s > _LONGEST_NULLS_S:
                raise ValueError(
                    f"saw null for {seen_s / 3600:g} hours from {missing[0].start.isoformat()} on, expected it for at "
                    f"most {_LONGEST_NULLS_S / 3600:g}"
                )
            pieces += missing
            missing = []
            pieces.append(
                Piece(
                    start=row.start,
                    duration_s=row.duration_s,
                    value=value,
                    forecast=row.forecast,
                    is_actual=row.actual is not None,
                )
            )
        elif pieces:
            missing.append(replace(pieces[-1], start=row.start, duration_s=row.duration_s, is_actual=False))
    return _in_order(pieces)


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


def _number_or_null(name: str, value: object) -> float | None:
    return None if value is None else _number(name, value, 0.0)


def _number(name: str, value: object, low: float = -_MOST) -> float:
    try:
        return read_real(str(value).strip(" \t\r"), low, _MOST)
    except ValueError:
        raise ValueError(f"{name}: saw {str(value)[:80]}, expected a number from {low:g} to {_MOST:g}") from None
