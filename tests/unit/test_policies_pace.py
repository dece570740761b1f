"""A job's pace by prices: against linear programmes, and what it keeps whatever forecasts say."""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perseus_dist.errors import PlanningError
from perseus_dist.policies import pace as pace_module
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Pace, Slot, constant_pace, pace
from perseus_dist.policies.rolling import rolling_pace
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import pieces_from, read_signal
from perseus_dist.policies.tariff import Tariff

POINTS = OperatingPoints(
    times_s=(1.0, 1.1, 1.25, 1.5, 2.0),
    powers_w=(1000.0, 850.0, 720.0, 600.0, 520.0),
    full_time_s=1.0,
    full_power_w=1100.0,
)


def random_slots(rng: random.Random, num_slots: int) -> list[Slot]:
    return [Slot(duration_s=rng.choice((900.0, 1800.0)), price=rng.uniform(0.2, 2)) for _ in range(num_slots)]


def least_cost(slots: list[Slot], iterations: float) -> float:
    """Of any mix of points in each slot, and nothing behind the end in the last, by an independent linear programme."""
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    width = len(POINTS.times_s)
    cost = [*(power_w * slot.price for slot in slots for power_w in POINTS.powers_w), 0.0]
    done = [*(-1 / time_s for _ in slots for time_s in POINTS.times_s), 0.0]
    rows, last = range(len(slots)), len(slots) - 1
    whole = [[float(min(column // width, last) == row) for column in range(len(cost))] for row in rows]
    durations = [slot.duration_s for slot in slots]
    return float(linprog(cost, A_ub=[done], b_ub=[-iterations], A_eq=whole, b_eq=durations).fun)


@pytest.mark.parametrize("seed", range(20))
def test_no_mix_of_points_is_cheaper(seed: int) -> None:
    rng = random.Random(seed)
    slots = random_slots(rng, rng.randint(1, 12))
    iterations = rng.uniform(0.55, 0.99) * sum(slot.duration_s for slot in slots)
    found = pace(POINTS, slots, iterations)
    assert found.iterations == pytest.approx(iterations)
    ends = [least_cost(slots[:end], iterations) for end in range(1, len(slots) + 1) if can(slots[:end], iterations)]
    assert found.cost == pytest.approx(min(ends), rel=1e-9)
    assert found.finish_s <= sum(slot.duration_s for slot in slots) * (1 + 1e-12)


def can(slots: list[Slot], iterations: float) -> bool:
    return sum(slot.duration_s for slot in slots) / POINTS.times_s[0] >= iterations


def test_dear_slots_are_slow_and_equal_prices_make_a_constant_pace() -> None:
    slots = [Slot(duration_s=3600, price=price) for price in (1.0, 3.0, 1.0, 3.0)]
    found = pace(POINTS, slots, 4 * 3600 / 1.2)
    rates = [sum(one.duration_s / POINTS.times_s[one.point] for one in slot) for slot in found.stretches]
    assert rates[0] == rates[2] > rates[1]
    assert rates[1] + rates[3] == pytest.approx(4 * 3600 / 1.2 - rates[0] - rates[2])
    flat = [Slot(duration_s=3600, price=2.0)] * 4
    assert pace(POINTS, flat, 12000).cost == pytest.approx(constant_pace(POINTS, flat, 12000, 4 * 3600).cost)


def test_a_job_with_time_to_spare_stops_before_it_wastes_energy() -> None:
    slots = [Slot(duration_s=3600, price=1.0)] * 10
    found = pace(POINTS, slots, 3600)
    assert 4500 <= found.finish_s <= 5400  # at the points of least energy
    assert found.cost == pytest.approx(900 * 3600)
    assert found.stretches[2:] == ((),) * 8


@pytest.mark.parametrize("seed", range(40))
def test_slots_behind_the_end_of_the_slowest_way_make_no_difference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not tried, since a job far ahead of its deadline has many of them."""
    rng = random.Random(seed)
    slots = [
        Slot(duration_s=rng.choice((100.0, 900.0)), price=rng.choice((rng.uniform(-1, 2), 0.0))) for _ in range(20)
    ]
    iterations = rng.uniform(0.03, 1.1) ** 2 * sum(slot.duration_s for slot in slots)
    tried: list[int] = []
    within = pace_module._pace_within

    def count(points: OperatingPoints, some: Sequence[Slot], *others: Any) -> Pace:
        tried.append(len(some))
        return within(points, some, *others)

    monkeypatch.setattr(pace_module, "_pace_within", count)
    found = pace(POINTS, slots, iterations)
    ahead = [end for end in range(1, len(slots)) if sum(s.duration_s for s in slots[:end]) / 2 > iterations * 1.001]
    assert max(tried) == (ahead[0] + 1 if ahead else len(slots))
    monkeypatch.setattr(pace_module, "_last_end", lambda curves, _: len(curves))
    assert pace(POINTS, slots, iterations) == found


def test_what_cannot_be_done_is_done_as_fast_as_possible() -> None:
    slots = [Slot(duration_s=100, price=1.0)] * 2
    found = pace(POINTS, slots, 1000)
    assert found.iterations == pytest.approx(200)
    assert [one.point for slot in found.stretches for one in slot] == [0, 0]


@pytest.mark.parametrize("seed", range(8))
def test_no_forecast_makes_a_job_late(seed: int) -> None:
    rng = random.Random(seed)
    slots = random_slots(rng, 16)
    iterations = rng.uniform(0.75, 0.99) * sum(slot.duration_s for slot in slots)
    wrong = [[rng.uniform(0, 3) for _ in slots[first:]] for first in range(len(slots))]
    found = rolling_pace(POINTS, slots, iterations, wrong.__getitem__)
    assert found.iterations == pytest.approx(iterations)
    best = pace(POINTS, slots, iterations)
    assert found.cost >= best.cost * (1 - 1e-9)
    known = rolling_pace(POINTS, slots, iterations, lambda first: [slot.price for slot in slots[first:]])
    assert known.cost == pytest.approx(best.cost, rel=1e-6)


def test_numbers_out_of_range_are_refused() -> None:
    for slots, iterations in (
        ([], 1.0),
        ([Slot(duration_s=1, price=1)], 0.0),
        ([Slot(duration_s=1, price=float("nan"))], 1.0),
    ):
        with pytest.raises(PlanningError, match="expected"):
            pace(POINTS, slots, iterations)


def read(folder: Path, text: str) -> tuple[Piece, ...] | Tariff:
    file = folder / "signal"
    file.write_text(text)
    return read_signal(file)


START = datetime(2026, 11, 23, tzinfo=UTC)


def test_signals_are_read_in_every_form(tmp_path: Path) -> None:
    rows = "timestamp,duration,value,hist\n2026-11-23T00:30:00+00:00,30,5,6\n2026-11-23T00:00:00+00:00,30,3,4\n"
    assert read(tmp_path, rows) == (
        Piece(start=START, duration_s=1800, value=3, forecast=4),
        Piece(start=START + timedelta(minutes=30), duration_s=1800, value=5, forecast=6),
    )
    maps = {
        "zone": "X",
        "history": [{"carbonIntensity": 400 + hour, "datetime": f"2026-11-23T0{hour}:00:00.000Z"} for hour in range(3)],
    }
    hours = read(tmp_path, json.dumps(maps))
    assert isinstance(hours, tuple)
    assert [(piece.duration_s, piece.value, piece.forecast) for piece in hours] == [
        (3600, 400 + hour, None) for hour in range(3)
    ]
    uk = {
        "data": [
            {
                "from": "2026-11-23T00:00Z",
                "to": "2026-11-23T00:30Z",
                "intensity": {"forecast": 263, "actual": None, "index": "moderate"},
            }
        ]
    }
    expected = Piece(start=START, duration_s=1800, value=263, forecast=263, is_actual=False)
    assert read(tmp_path, json.dumps(uk)) == (expected,)
    one = {"regionid": 13, "shortname": "London"}
    regional = ({"data": {**one, **uk}}, {"data": [{**one, **uk}]})  # with a time, and without one
    assert [read(tmp_path, json.dumps(document)) for document in regional] == [(expected,)] * 2


def test_what_was_and_what_is_expected_are_one_signal(tmp_path: Path) -> None:
    """As Electricity Maps gives both: where they overlap, the forecast stands beside the actual value."""

    def hours(first: int, *values: int | None) -> list[dict[str, object]]:
        return [
            {"zone": "X", "carbonIntensity": value, "datetime": f"2026-11-23T0{first + number}:00:00.000Z"}
            for number, value in enumerate(values)
        ]

    def values(document: object) -> list[tuple[float, float | None, bool]]:
        pieces = read(tmp_path, json.dumps(document))
        assert isinstance(pieces, tuple)
        assert all(piece.duration_s == 3600 for piece in pieces)
        return [(piece.value, piece.forecast, piece.is_actual) for piece in pieces]

    both = {"zone": "X", "history": hours(0, 400, 410), "forecast": hours(1, 405, 420)}
    assert values(both) == [(400, None, True), (410, 405, True), (420, 420, False)]
    assert values({"zone": "X", "forecast": hours(0, 400, 410)}) == [(400, 400, False), (410, 410, False)]
    assert values({"zone": "X", "data": hours(0, 400, 410)}) == [(400, None, True), (410, None, True)]
    nulls = hours(0, None, 400, None, None, 410, None)
    assert values({"history": nulls}) == [(400, None, True), (400, None, False), (400, None, False), (410, None, True)]


def test_tariffs_know_months_hours_and_weekends(tmp_path: Path) -> None:
    night = [0 if hour < 6 else 1 for hour in range(24)]
    item = {
        "name": "two rates",
        "energyratestructure": [[{"rate": 0.05, "adj": 0.01}], [{"rate": 0.3}, {"rate": 0.2}]],
        "energyweekdayschedule": [night] * 12,
        "energyweekendschedule": json.dumps([[0] * 24] * 12),
    }
    tariff = read(tmp_path, json.dumps({"items": [item]}))
    assert isinstance(tariff, Tariff)
    pieces = pieces_from(tariff, START + timedelta(hours=4, minutes=30), 2 * 3600)  # a Monday
    assert [(piece.duration_s, round(piece.value, 9)) for piece in pieces] == [(1800, 0.06), (3600, 0.06), (1800, 0.2)]
    assert pieces_from(tariff, START - timedelta(days=1, hours=-12), 3600)[0].value == pytest.approx(0.06)
    with pytest.raises(PlanningError, match="saw no start, expected the time from which"):
        pieces_from(tariff, None, 3600)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected timestamp, duration and value"),
        ("timestamp,duration,value\n", "saw no value"),
        ("timestamp,duration,value\n2026-11-23T00:00:00,30,5\n", "offset from UTC"),
        ("timestamp,duration,value\n2026-11-23T00:00:00+00:00,0,5\n", "duration"),
        ("timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,nan\n", "value: saw nan"),
        ("timestamp,duration,value\n2026-11-23T00:00:00+00:00,30\n", "saw a row of 2 cells, expected 3"),
        ("timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,5,6\n", "saw a row of 4 cells, expected 3"),
        ("timestamp,duration,value\n2026-11-23T00:00:00+00:00,3_0,5\n", "duration: saw 3_0"),
        ("timestamp,duration,value,value\n2026-11-23T00:00:00+00:00,30,5,6\n", "expected each once"),
        ('{"history": [{"carbonIntensity": true, "datetime": "2026-11-23T00:00Z"}]}', "carbonIntensity: saw True"),
        ('{"history": [{"carbonIntensity": 1, "carbonIntensity": 2}]}', "'carbonIntensity' stands there twice"),
        (
            "timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,5\n2026-11-23T01:00:00+00:00,30,5\n",
            "expected the next value at 2026-11-23T00:30:00",
        ),
        ("{}", "saw none of items"),
        ("[]", "saw a list, expected an answer"),
        ('{"items": []}', "saw no tariff in items"),
        ('{"data": [{"from": 3}]}', "fromisoformat"),
        (
            '{"data": [{"from": "2026-11-23T00:00Z", "to": "2026-11-23T01:00Z", "intensity": {"forecast": null}}]}',
            "saw no value",
        ),
        ('{"data": [{"from": "2026-11-23T00:00Z", "to": "2026-11-23T01:00Z", "intensity": [5]}]}', "list"),
        ('{"items": [{"energyratestructure": [["free"]]}]}', "string indices|str"),
        ('{"items": [{"energyratestructure": [[{"rate": "nan"}]]}]}', "saw nan, expected a rate"),
        (
            json.dumps(
                {
                    "history": [
                        {"carbonIntensity": None if 0 < hour < 5 else 7, "datetime": f"2026-11-23T0{hour}:00Z"}
                        for hour in range(6)
                    ]
                }
            ),
            "saw null for 4 hours from 2026-11-23T01:00:00",
        ),
        ('{"history": [{"carbonIntensity": null, "datetime": "2026-11-23T00:00Z"}]}', "saw no value"),
        ('{"history": [{"carbonIntensity": -1, "datetime": "2026-11-23T00:00Z"}]}', "carbonIntensity: saw -1"),
        ('{"forecast": {"zone": "X"}}', "string indices"),
        ('{"data": [{"from": "2026-11-23T00:00Z", "to": "2026-11-23T00:30Z", "regions": []}]}', "saw all regions"),
        ('{"data": {"regionid": 1}}', "no 'data'"),
        ('{"data": null}', "saw no list"),
        ('{"data": []}', "saw no value"),
        ('{"items": null}', "saw no tariff"),
        ('{"items": [{"energyratestructure": [[{"unit": "kWh"}]]}]}', "no 'rate'"),
        ('{"error": "Request unauthorized"}', "saw none of items"),
        ("<html>\n<body>busy</body></html>", "saw columns <html>, expected timestamp"),
        ("{", "Expecting"),
    ],
)
def test_what_is_no_signal_is_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PlanningError, match=said) as refusal:
        read(tmp_path, text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("seed", range(12))
def test_no_mix_is_cheaper_where_prices_are_negative(seed: int) -> None:
    """Against a linear programme in which a job goes on in all slots, or ends within the last one that it needs."""
    from scipy.optimize import linprog

    rng = random.Random(seed)
    slots = [Slot(duration_s=900.0, price=rng.uniform(-1, 1)) for _ in range(rng.randint(1, 10))]
    iterations = rng.uniform(0.55, 0.99) * 900.0 * len(slots)
    ends = []
    for end in range(1, len(slots) + 1):
        used, width = slots[:end], len(POINTS.times_s)
        cost = [*(power_w * slot.price for slot in used for power_w in POINTS.powers_w), 0.0]
        done = [*(1 / time_s for _ in used for time_s in POINTS.times_s), 0.0]
        whole = [[float(min(at // width, end - 1) == row) for at in range(len(cost))] for row in range(end)]
        solved = linprog(cost, A_eq=[done, *whole], b_eq=[iterations, *(slot.duration_s for slot in used)])
        ends += [solved.fun] if solved.success else []
    found = pace(POINTS, slots, iterations)
    assert found.iterations == pytest.approx(iterations)
    assert found.cost == pytest.approx(min(ends), rel=1e-9, abs=1e-6)
    points = [one.point for slot, gone in zip(slots, found.stretches, strict=True) for one in gone if slot.price < 0]
    assert set(points) <= {0, len(POINTS.times_s) - 1}


def test_rates_below_nothing_are_read(tmp_path: Path) -> None:
    rows = "timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,-5.5\n"
    assert read(tmp_path, rows) == (Piece(start=START, duration_s=1800, value=-5.5),)
    item = {"name": "n", "energyratestructure": [[{"rate": 0.01, "adj": -0.03}]]}
    schedules = {"energyweekdayschedule": [[0] * 24] * 12, "energyweekendschedule": [[0] * 24] * 12}
    tariff = read(tmp_path, json.dumps({"items": [{**item, **schedules}]}))
    assert isinstance(tariff, Tariff)
    assert tariff.rate(START) == pytest.approx(-0.02)


def test_a_stretch_of_a_signal_is_cut_at_its_ends() -> None:
    signal = tuple(Piece(start=START + timedelta(hours=k), duration_s=3600, value=k) for k in range(4))
    cut = pieces_from(signal, START + timedelta(minutes=30), 5400)
    assert [(piece.duration_s, piece.value) for piece in cut] == [(1800, 0), (3600, 1)]
    with pytest.raises(PlanningError, match="expected a part of"):
        pieces_from(signal, None, 5 * 3600)
    with pytest.raises(PlanningError, match="within the calendar"):
        pieces_from(signal, datetime(9999, 12, 31, tzinfo=UTC), 2 * 86400)


def total(way: Pace) -> float:
    return sum(one.duration_s for slot in way.stretches for one in slot)


def test_the_constant_pace_finishes_when_it_is_told_to() -> None:
    slots = [Slot(duration_s=1000, price=1.0)] * 4
    way = constant_pace(POINTS, slots, 3000, 3500)
    assert way.finish_s == pytest.approx(3500)
    assert total(way) == pytest.approx(3500)
    assert way.iterations == pytest.approx(3000)
