"""Prices that are expected from a moment until a deadline, by what a signal says at that moment and no more.

Behind the end of a signal its last day is taken to come again; of less than a day the mean counts.
"""

from bisect import bisect_right
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


def price_at(signal: tuple[Piece, ...] | Tariff, now: datetime) -> Piece | None:
    """The piece of a signal that holds at a moment; None where it says nothing of that, as one that is stale.

    Args:
        signal: From ``read_signal``.
        now: With its offset from UTC, which for a tariff is the tariff's.
    """
    if isinstance(signal, Tariff):
        start, duration_s, rate = signal.hours(now, 3600.0)[0]
        return Piece(start=start, duration_s=duration_s, value=rate)
    piece = signal[max(0, bisect_right(signal, now, key=lambda piece: piece.start) - 1)]
    return piece if piece.start <= now < _end(piece) else None


def outlook(signal: tuple[Piece, ...] | Tariff, now: datetime, duration_s: float) -> tuple[Slot, ...]:
    """Slots from a moment on, with what is expected of each; the first one's price is what is paid now.

    Args:
        signal: That says something of this moment.
        now: As of ``price_at``.
        duration_s: [s] positive.

    Returns:
        At most ``MAX_SLOTS`` slots, of prices per joule.
    """
    if isinstance(signal, Tariff):
        pieces = list(pieces_from(signal, now, duration_s))
    else:
        pieces = _continued(signal, now, now + timedelta(seconds=duration_s))
    slots = [
        Slot(
            duration_s=piece.duration_s,
            price=(piece.value if number == 0 or piece.forecast is None else piece.forecast) / JOULES_PER_KWH,
        )
        for number, piece in enumerate(pieces)
        if piece.duration_s > _LEAST_S or len(pieces) == 1
    ]
    return _joined(slots)


def _continued(signal: tuple[Piece, ...], now: datetime, end: datetime) -> list[Piece]:
    """Pieces of a stretch of time that begins within the signal."""
    known = [piece for piece in signal if _end(piece) > now and piece.start < end]
    found = [_cut(piece, now, end) for piece in known]
    at = _end(signal[-1])
    if at >= end:
        return found
    day = [_cut(piece, at - timedelta(seconds=_DAY_S), at) for piece in signal]
    day = [replace(piece, forecast=None) for piece in day if piece.duration_s > _LEAST_S]
    known_s = sum(piece.duration_s for piece in day)
    if known_s < _DAY_S - 1.0:
        mean = sum(piece.value * piece.duration_s for piece in day) / known_s
        return [*found, Piece(start=at, duration_s=(end - at).total_seconds(), value=mean)]
    while at < end:
        for piece in day:
            found.append(_cut(replace(piece, start=at), at, end))
            at += timedelta(seconds=piece.duration_s)
            if at >= end:
                break
    return found


def _cut(piece: Piece, start: datetime, end: datetime) -> Piece:
    """The part of a piece between two times; without a duration where there is none."""
    begin, stop = max(piece.start, start), min(_end(piece), end)
    return replace(piece, start=begin, duration_s=max(0.0, (stop - begin).total_seconds()))


def _end(piece: Piece) -> datetime:
    return piece.start + timedelta(seconds=piece.duration_s)


def _joined(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The first half as they are, neighbours among the others joined at their mean price."""
    if len(slots) <= MAX_SLOTS:
        return tuple(slots)
    near = MAX_SLOTS // 2
    size = -(-(len(slots) - near) // (MAX_SLOTS - near))
    joined = list(slots[:near])
    for first in range(near, len(slots), size):
        group = slots[first : first + size]
        duration_s = sum(slot.duration_s for slot in group)
        joined.append(
            Slot(duration_s=duration_s, price=sum(slot.price * slot.duration_s for slot in group) / duration_s)
        )
    return tuple(joined)
