"""Prices that are expected from a moment until a deadline, by what a signal says at that moment and no more.

Behind the end of a signal its last day is taken to come again; of less than a day the mean counts.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from perseus_dist.policies.pace import Slot
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH, pieces_from
from perseus_dist.policies.tariff import Tariff

MAX_SLOTS = 192
"""Of an outlook: more are joined, those that are far away."""
_DAY_S = 86_400.0
_LEAST_S = 1e-3

_Stretch = tuple[float, float]
"""Duration [s] and what is expected of it, per kWh."""


def price_at(signal: tuple[Piece, ...] | Tariff, now: datetime) -> Piece | None:
    """The piece of a signal that holds at a moment; None where it says nothing of that, as one that is stale.

    Args:
        signal: From ``read_signal``.
        now: With its offset from UTC, which for a tariff is the tariff's.
    """
    if isinstance(signal, Tariff):
        start, duration_s, rate = signal.hours(now, 3600.0)[0]
        return Piece(start=start, duration_s=duration_s, value=rate)
    piece = signal[_index_at(signal, now)]
    return piece if piece.start <= now < _end(piece) else None


def outlook(signal: tuple[Piece, ...] | Tariff, now: datetime, duration_s: float) -> tuple[Slot, ...]:
    """Slots from a moment on, with what is expected of each; the first one's price is what is paid now.

    Args:
        signal: From ``read_signal``; ``price_at`` finds a piece of it at ``now``.
        now: As in ``price_at``.
        duration_s: [s] positive.

    Returns:
        At most ``MAX_SLOTS`` slots, of prices per joule.
    """
    if isinstance(signal, Tariff):
        found = [(piece.duration_s, piece.value) for piece in pieces_from(signal, now, duration_s)]
    else:
        found = _continued(signal, now, now + timedelta(seconds=duration_s))
    return tuple(
        Slot(duration_s=taken_s, price=price_kwh / JOULES_PER_KWH)
        for taken_s, price_kwh in _joined([one for one in found if one[0] > _LEAST_S] or found[:1])
    )


def _continued(signal: Sequence[Piece], now: datetime, end: datetime) -> list[_Stretch]:
    """Prices that are expected of a stretch of time, which begins within the signal.

    The stretch may be a year in steps of minutes, and the planner waits for the result: so a day that is repeated
    behind the signal's end is computed once.
    """
    first = _index_at(signal, now)
    known = signal[first : max(first + 1, bisect_left(signal, end, key=_start))]
    found = [(piece.duration_s, piece.value if piece.forecast is None else piece.forecast) for piece in known]
    found[-1] = _cut(known[-1], now, end).duration_s, found[-1][1]
    found[0] = _cut(known[0], now, end).duration_s, known[0].value
    at = _end(signal[-1])
    left_s = (end - at).total_seconds()
    if left_s <= 0:
        return found
    begin = at - timedelta(seconds=_DAY_S)
    last = [(_cut(piece, begin, at).duration_s, piece.value) for piece in signal[_index_at(signal, begin) :]]
    day = [one for one in last if one[0] > _LEAST_S]
    day_s = sum(taken_s for taken_s, _ in day)
    if day_s < _DAY_S - 1.0:
        return [*found, (left_s, sum(taken_s * price_kwh for taken_s, price_kwh in day) / day_s)]
    num_days = int(left_s // day_s)
    found += num_days * day
    left_s -= num_days * day_s
    for taken_s, price_kwh in day:
        if left_s <= 0:
            break
        found.append((min(taken_s, left_s), price_kwh))
        left_s -= taken_s
    return found


def _index_at(signal: Sequence[Piece], at: datetime) -> int:
    """Of the piece that holds at a time, or of the first one."""
    return max(0, bisect_right(signal, at, key=_start) - 1)


def _cut(piece: Piece, start: datetime, end: datetime) -> Piece:
    """The part of a piece between two times; without a duration where there is none."""
    begin, stop = max(piece.start, start), min(_end(piece), end)
    return replace(piece, start=begin, duration_s=max(0.0, (stop - begin).total_seconds()))


def _end(piece: Piece) -> datetime:
    return piece.start + timedelta(seconds=piece.duration_s)


def _start(piece: Piece) -> datetime:
    return piece.start


def _joined(stretches: list[_Stretch]) -> list[_Stretch]:
    """The first half as they are, neighbours among the others joined at their mean price."""
    if len(stretches) <= MAX_SLOTS:
        return stretches
    near = MAX_SLOTS // 2
    size = -(-(len(stretches) - near) // (MAX_SLOTS - near))
    joined = stretches[:near]
    for first in range(near, len(stretches), size):
        group = stretches[first : first + size]
        duration_s = sum(taken_s for taken_s, _ in group)
        joined.append((duration_s, sum(taken_s * price_kwh for taken_s, price_kwh in group) / duration_s))
    return joined
