"""The small linear programme, on programmes of one or two groups whose solutions can be worked out by hand."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from perseus_dist.planning.coarse import linear_program
from perseus_dist.units import FloatArray


class Programme(NamedTuple):
    """Arguments of ``solve``, what comes of them, and how many steps that may take."""

    cost: FloatArray
    durations: FloatArray
    counts: FloatArray
    limits: FloatArray
    shares: FloatArray
    prices: FloatArray
    steps: int


def array(*values: object) -> FloatArray:
    return np.array(values, dtype=np.float64)


# durations: groups, classes, choices; counts: paths, groups, classes.
PROGRAMMES = {
    "half of each of two choices": Programme(
        array([1, 0]), array([[1, 2]]), array([[1]]), array(1.5), array([0.5, 0.5]), array(1.0), 6
    ),
    "twice as many on the path": Programme(
        array([1, 0]), array([[1, 2]]), array([[2]]), array(3.5), array([0.25, 0.75]), array(0.5), 6
    ),
    "all the time that is wanted": Programme(
        array([1, 0]), array([[1, 2]]), array([[1]]), array(3.0), array([0, 1]), array(0.0), 5
    ),
    "the group that saves more for its time": Programme(
        array([1, 0], [1, 0]),
        array([[1, 2]], [[1, 3]]),
        array([[1], [1]]),
        array(3.5),
        array([0, 1], [0.75, 0.25]),
        array(0.5),
        6,
    ),
    "between the choices beside each other": Programme(
        array([1, 0.4, 0]), array([[1, 1.2, 2]]), array([[1]]), array(1.4), array([0, 0.75, 0.25]), array(0.5), 8
    ),
    "not the choice above the line": Programme(
        array([1, 0.8, 0]), array([[1, 1.5, 2]]), array([[1]]), array(1.5), array([0.5, 0, 0.5]), array(1.0), 8
    ),
    "two classes on two paths, of which one is in time": Programme(
        array([1, 0.4, 0], [1, 0.4, 0]),
        array([[1, 1.2, 2], [1, 1.5, 3]], [[1, 1.2, 2], [1, 1.1, 1.5]]) / 2,
        array([[1, 1], [1, 0]], [[2, 0], [0, 1]]),
        array(1.7, 1.6),
        array([0.75, 0.25, 0], [0, 1, 0]),
        array(0, 3),
        9,
    ),
    "a path of its own for each group": Programme(
        array([1, 0], [1, 0]),
        array([[1, 2]], [[1, 2]]),
        array([[1], [0]], [[0], [1]]),
        array(1.25, 1.75),
        array([0.75, 0.25], [0.25, 0.75]),
        array(1, 1),
        6,
    ),
}


@pytest.mark.parametrize("name", PROGRAMMES)
def test_it_finds_shares_and_prices_in_few_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = PROGRAMMES[name]
    monkeypatch.setattr(linear_program, "_MAX_STEPS", one.steps)
    found = linear_program.solve(one.cost, one.durations, one.counts, one.limits, tolerance=1e-7)
    assert found.shares == pytest.approx(one.shares, abs=1e-6)
    assert found.prices == pytest.approx(one.prices, abs=1e-5)
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(len(one.cost)), abs=1e-12)
    assert (found.shares >= 0).all()
    assert (found.prices >= 0).all()


@pytest.mark.parametrize("name", PROGRAMMES)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_it_ends_no_further_from_the_least_cost_than_was_asked_for(name: str, tolerance: float) -> None:
    one = PROGRAMMES[name]
    found = linear_program.solve(one.cost, one.durations, one.counts, one.limits, tolerance=tolerance)
    least = float((one.cost * one.shares).sum())
    assert float((one.cost * found.shares).sum()) == pytest.approx(least, abs=4 * tolerance)
    times = np.einsum("pgk,gkc,gc->p", one.counts, one.durations, found.shares)
    assert (times <= one.limits + 4 * tolerance).all()


@pytest.mark.parametrize("name", PROGRAMMES)
def test_prices_make_a_bound_after_any_number_of_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By weak duality, and with each step it comes no further from the least cost than a little."""
    one = PROGRAMMES[name]
    least = float((one.cost * one.shares).sum())
    gaps = []
    for steps in range(one.steps + 1):
        monkeypatch.setattr(linear_program, "_MAX_STEPS", steps)
        found = linear_program.solve(one.cost, one.durations, one.counts, one.limits, tolerance=1e-7)
        priced = one.cost + np.einsum("p,pgk,gkc->gc", found.prices, one.counts, one.durations)
        gaps.append(least - float(priced.min(axis=1).sum() - found.prices @ one.limits))
    assert min(gaps) > -1e-9
    assert gaps[-1] < 1e-6
    assert gaps[-1] <= 1e-3 * max(gaps[0], 1e-3)


def test_each_step_towards_a_solution_takes_most_of_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the third on a twentieth of what was wrong is left at most."""
    one = PROGRAMMES["two classes on two paths, of which one is in time"]
    wrong = []
    for steps in range(4, 10):
        monkeypatch.setattr(linear_program, "_MAX_STEPS", steps)
        found = linear_program.solve(one.cost, one.durations, one.counts, one.limits, tolerance=1e-12)
        wrong.append(float(np.abs(found.shares - one.shares).max()))
    assert wrong[-1] < 1e-6
    assert all(after < 0.6 * before for before, after in pairwise(wrong))


def test_limits_that_nothing_meets_end_too() -> None:
    found = linear_program.solve(array([1, 0]), array([[1, 2]]), array([[1]]), array(0.5), tolerance=1e-7)
    assert found.shares == pytest.approx(array([1, 0]), abs=1e-3)
    assert np.isfinite(found.prices).all()
    assert found.prices[0] > 1


def test_costs_are_counted_in_the_same_unit_as_prices() -> None:
    one = PROGRAMMES["half of each of two choices"]
    twice = linear_program.solve(2 * one.cost, one.durations, one.counts, one.limits, tolerance=1e-8)
    assert twice.prices == pytest.approx(2 * one.prices, abs=1e-5)
    assert twice.shares == pytest.approx(one.shares, abs=1e-6)
    more = linear_program.solve(one.cost + 5, one.durations, one.counts, one.limits, tolerance=1e-8)
    assert more.prices == pytest.approx(one.prices, abs=1e-5)


@pytest.mark.parametrize(
    ("steps", "length"),
    [((1, 1), 1.0), ((0, 0), 1.0), ((-1, 1), 0.995 * 2), ((-2, -3), 0.995), ((-4, -3), 0.4975), ((-1, -30), 0.0995)],
)
def test_a_step_goes_no_further_than_all_of_it_and_keeps_every_value_positive(
    steps: tuple[float, float], length: float
) -> None:
    """From 2 and 3."""
    assert linear_program._length((array(2), array(steps[0])), (array(3), array(steps[1]))) == min(1.0, length)
