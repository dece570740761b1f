"""Outlooks of months in steps of minutes: the prices of the days that come again, and how often they are cut."""

from datetime import UTC, datetime, timedelta

import pytest

from perseus_dist.policies import outlook as outlook_module
from perseus_dist.policies.outlook import MAX_SLOTS, outlook
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH

BEGIN = datetime(2026, 11, 24, tzinfo=UTC)
DAY_S = 86_400.0


def signal(days: float, minutes: int, *, forecasts: bool = False) -> tuple[Piece, ...]:
    return tuple(
        Piece(
            start=BEGIN + timedelta(minutes=minutes * number),
            duration_s=60.0 * minutes,
            value=1.0 + number % 7 + number % 11,
            forecast=0.5 + number % 5 if forecasts else None,
        )
        for number in range(round(days * 1440 / minutes))
    )


def expected(pieces: tuple[Piece, ...], now: datetime, end: datetime) -> list[tuple[float, float]]:
    """Duration and price of each piece from now on, and of the last day's as often as they come again."""
    rows = [(one.start, one.duration_s, one.value if one.forecast is None else one.forecast) for one in pieces]
    over = pieces[-1].start + timedelta(seconds=pieces[-1].duration_s)
    num_days = 1 + max(0, (end - over).days + 1)
    last = [one for one in pieces if one.start >= over - timedelta(days=1)]
    rows += [(one.start + timedelta(days=day), one.duration_s, one.value) for day in range(1, num_days) for one in last]
    found: list[tuple[float, float]] = []
    for start, duration_s, price in rows:
        begin, stop = max(start, now), min(start + timedelta(seconds=duration_s), end)
        if stop > begin:
            is_now = not found
            found.append(((stop - begin).total_seconds(), price if not is_now else pieces[_at(pieces, now)].value))
    return found


def _at(pieces: tuple[Piece, ...], now: datetime) -> int:
    return max(index for index, one in enumerate(pieces) if one.start <= now)


@pytest.mark.parametrize("forecasts", [False, True])
@pytest.mark.parametrize("ahead_s", [60.0, 3600.0, 40 * 3600.0, 3.3 * DAY_S, 4 * DAY_S])
@pytest.mark.parametrize("from_s", [0.0, 1800.0, 30_000.5])
def test_an_outlook_is_what_the_signal_says_and_then_its_last_day_again(
    from_s: float, ahead_s: float, *, forecasts: bool
) -> None:
    pieces, now = signal(1.5, 60, forecasts=forecasts), BEGIN + timedelta(seconds=from_s)
    found = [(slot.duration_s, slot.price * JOULES_PER_KWH) for slot in outlook(pieces, now, ahead_s)]
    wanted = expected(pieces, now, now + timedelta(seconds=ahead_s))
    assert len(found) == len(wanted) < MAX_SLOTS
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other)


def test_days_that_come_again_for_a_year_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner waits for it: of a hundred thousand pieces none but those of the signal is made."""
    cut: list[Piece] = []
    real = outlook_module._cut

    def count(piece: Piece, start: datetime, end: datetime) -> Piece:
        cut.append(piece)
        return real(piece, start, end)

    monkeypatch.setattr(outlook_module, "_cut", count)
    pieces, now = signal(2, 5), BEGIN + timedelta(hours=3)
    slots = outlook(pieces, now, 365 * DAY_S)
    assert len(cut) <= len(pieces)
    assert len(slots) <= MAX_SLOTS
    wanted = expected(pieces, now, now + timedelta(days=365))
    assert sum(slot.duration_s for slot in slots) == pytest.approx(365 * DAY_S)
    cost = sum(duration_s * price for duration_s, price in wanted)
    assert sum(slot.duration_s * slot.price for slot in slots) * JOULES_PER_KWH == pytest.approx(cost)
