"""Policies played over a horizon, held against the functions for one job and against what they promise."""

import random
from dataclasses import replace

import pytest

from perseus_dist.errors import PlanningError
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Slot, constant_pace, pace
from perseus_dist.policies.power_budget import Member
from perseus_dist.policies.rolling import rolling_pace
from perseus_dist.policies.what_if import Cap, Work, always_fastest, constant_paces, follow_policies

TIMES_S = tuple(2.0 * (1 + 0.02 * step) for step in range(30))
POINTS = OperatingPoints(
    times_s=TIMES_S,
    powers_w=tuple(700 + 2300 / (time_s / 2.0) ** 2.5 for time_s in TIMES_S),
    full_time_s=2.0,
    full_power_w=3100.0,
)
HOUR_S = 3600.0


def work(iterations: float, name: str = "a", max_slowdown: float | None = None, weight: float = 1.0) -> Work:
    member = Member(name=name, points=POINTS, weight=weight, max_slowdown=max_slowdown)
    return Work(member=member, iterations=iterations)


def drawn_slots(rng: random.Random, hours: int) -> list[Slot]:
    return [Slot(duration_s=HOUR_S, price=rng.uniform(0.02, 0.3)) for _ in range(hours)]


@pytest.mark.parametrize("seed", range(8))
def test_without_caps_each_job_goes_the_ways_that_are_known_for_one(seed: int) -> None:
    rng = random.Random(seed)
    slots = drawn_slots(rng, 10)
    iterations = rng.uniform(0.6, 0.99) * 10 * HOUR_S / TIMES_S[0]
    best = pace(POINTS, slots, iterations)
    found = follow_policies([work(iterations), work(iterations, "b")], slots)
    for job in found.jobs:
        assert job.cost == pytest.approx(best.cost, rel=1e-6)
        assert job.done == pytest.approx(iterations)
        assert job.finish_s == pytest.approx(best.finish_s, rel=1e-6)
    expected = [slot.price * rng.uniform(0.8, 1.2) for slot in slots]

    def forecast(first: int) -> list[float]:
        return [slots[first].price, *expected[first + 1 :]]

    rolled = rolling_pace(POINTS, slots, iterations, forecast)
    assert follow_policies([work(iterations)], slots, forecast=forecast).cost == pytest.approx(rolled.cost, rel=1e-6)
    constant = constant_paces([work(iterations)], slots, [best.finish_s])
    assert constant.cost == pytest.approx(constant_pace(POINTS, slots, iterations, best.finish_s).cost, rel=1e-6)
    fastest = always_fastest([work(iterations)], slots)
    assert fastest.finish_s == pytest.approx(iterations * TIMES_S[0])
    assert fastest.peak_w == POINTS.powers_w[0]
    assert fastest.energy_j == pytest.approx(iterations * TIMES_S[0] * POINTS.powers_w[0])


@pytest.mark.parametrize("seed", range(12))
def test_caps_are_kept_and_no_iteration_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    slots = drawn_slots(rng, 8)
    works = [work(rng.uniform(0.3, 0.95) * 8 * HOUR_S / TIMES_S[0], name, weight=rng.uniform(1, 3)) for name in "abc"]
    least_w = 3 * POINTS.powers_w[-1]
    caps = [
        Cap(start_s=start_s, end_s=start_s + rng.uniform(60, 3 * HOUR_S), watts=least_w * rng.uniform(1.2, 2))
        for start_s in (rng.uniform(-HOUR_S, 8 * HOUR_S) for _ in range(4))
    ]
    found = follow_policies(works, slots, caps, guard_band=0.1, follows_prices=seed % 3 > 0)
    assert found.over_s == 0
    for one, job in zip(works, found.jobs, strict=True):
        assert job.done <= one.iterations * (1 + 1e-9)
        assert job.finish_s is not None or job.done < one.iterations
        assert one.iterations * min(p * t for p, t in zip(POINTS.powers_w, TIMES_S, strict=True)) * (
            job.done / one.iterations
        ) <= job.energy_j * (1 + 1e-9)
    everywhere = Cap(start_s=0.0, end_s=8 * HOUR_S, watts=1.5 * least_w)
    tight = follow_policies(works, slots, [everywhere], follows_prices=False)
    assert tight.peak_w <= everywhere.watts * (1 + 1e-9)
    free = follow_policies(works, slots, follows_prices=False)
    assert all(slow.done <= fast.done * (1 + 1e-9) for slow, fast in zip(tight.jobs, free.jobs, strict=True))


def test_what_cannot_be_kept_is_counted() -> None:
    slots = [Slot(duration_s=HOUR_S, price=0.1)] * 4
    half = Cap(start_s=HOUR_S, end_s=2.5 * HOUR_S, watts=0.5 * POINTS.powers_w[-1])
    found = follow_policies([work(6000)], slots, [half], follows_prices=False)
    assert found.over_s == pytest.approx(1.5 * HOUR_S)
    assert found.jobs[0].done == pytest.approx(6000)
    just = replace(half, watts=1.01 * POINTS.powers_w[-1])
    assert follow_policies([work(6000)], slots, [just], follows_prices=False).over_s == 0
    for way in (
        follow_policies([work(6000)], slots, [just], follows_prices=False, guard_band=0.1),
        constant_paces([work(6000)], slots, [4 * HOUR_S], [just], guard_band=0.1),
        always_fastest([work(6000)], slots, [just], guard_band=0.1),
    ):
        assert way.over_s == pytest.approx(1.5 * HOUR_S)
    late = follow_policies([work(1e5)], slots)
    assert late.finish_s is None
    assert late.jobs[0].done == pytest.approx(4 * HOUR_S / TIMES_S[0])
    limited = follow_policies([work(6000, max_slowdown=0.1)], slots, [half], follows_prices=False)
    assert limited.energy_j > found.energy_j
    assert always_fastest([work(6000)], slots, [half]).over_s == pytest.approx(1.5 * HOUR_S)


def test_numbers_out_of_their_ranges_are_refused() -> None:
    slots = [Slot(duration_s=HOUR_S, price=0.1)]
    for works, some_slots, caps in (
        ([], slots, []),
        ([work(1)], [], []),
        ([work(0)], slots, []),
        ([work(1)], slots, [Cap(start_s=5, end_s=5, watts=1)]),
        ([work(1)], slots, [Cap(start_s=0, end_s=5, watts=0)]),
    ):
        with pytest.raises(PlanningError):
            always_fastest(works, some_slots, caps)
