"""A straggler that is held to be one: when it is acted upon, flaps, is fresh and is over, by counts and instants."""

from dataclasses import replace

import numpy as np
import pytest

from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.open_verdict import FlapLimit, OpenVerdict
from perseus_dist.straggler.verdicts.verdict import Degree

POLICY = StragglerPolicy()


def opened(low: float = 1.2) -> OpenVerdict:
    return OpenVerdict(
        place=0, raised_at_s=100.0, since_s=99.0, series=None, degree=Degree(value=1.3, low=low, high=1.4)
    )


def test_it_is_acted_upon_from_a_degree_that_matters_and_stays_so() -> None:
    assert not opened(low=POLICY.min_degree).is_acted_upon(101.0, POLICY)
    verdict = opened(low=POLICY.min_degree + 1e-6)
    assert verdict.is_acted_upon(101.0, POLICY)
    verdict.degree = Degree(value=1.0, low=0.9, high=1.1)
    assert verdict.is_acted_upon(101.0, POLICY)
    assert not opened(low=0.9).is_acted_upon(1e6, POLICY)


def test_one_that_comes_and_goes_is_acted_upon_once_it_has_stayed() -> None:
    verdict = opened()
    assert not verdict.is_flapping(101.0, POLICY)
    verdict.came_too_often = True
    assert verdict.is_flapping(100.0 + POLICY.flap_window_s, POLICY)
    assert not verdict.is_acted_upon(100.0 + POLICY.flap_window_s, POLICY)
    assert not verdict.is_flapping(100.1 + POLICY.flap_window_s, POLICY)
    assert verdict.is_acted_upon(100.1 + POLICY.flap_window_s, POLICY)
    verdict.num_followed = POLICY.worth_iterations - 1
    assert verdict.is_flapping(101.0, POLICY)
    verdict.follow(POLICY, EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY))
    assert not verdict.is_flapping(101.0, POLICY)


def test_it_is_over_when_times_have_recovered_and_it_was_not_only_just_raised() -> None:
    verdict = opened()
    verdict.num_recovered = POLICY.num_passes - 1
    assert not verdict.is_over(1e6, POLICY)
    verdict.num_recovered = POLICY.num_passes
    assert verdict.is_over(100.0, POLICY), "no judgement has told of it yet"
    assert not verdict.is_over(100.1, POLICY)
    assert not verdict.is_over(99.9 + POLICY.min_hold_s, POLICY)
    assert verdict.is_over(100.0 + POLICY.min_hold_s, POLICY)
    verdict.num_followed = POLICY.min_hold_iterations - 1
    assert not verdict.is_over(100.1, POLICY)
    verdict.num_followed += 1
    assert verdict.is_over(100.1, POLICY)


def test_it_is_fresh_until_iterations_have_said_nothing_for_a_while() -> None:
    series = EvidenceSeries(np.zeros(1, dtype=np.intp), POLICY)
    verdict = replace(opened(), series=series)
    for number in range(1, POLICY.max_blind + 1):
        assert verdict.is_fresh(POLICY)
        series.take(np.array([np.nan]), np.array([True]))
        verdict.follow(POLICY, series)
        assert (verdict.num_blind, verdict.num_followed) == (number, number)
    assert not verdict.is_fresh(POLICY)
    for _ in range(3):
        series.take(np.array([np.log(1.3)]), np.array([True]))
        verdict.follow(POLICY, series)
    assert verdict.is_fresh(POLICY)
    assert verdict.num_recovered == 0
    for _ in range(4):
        series.take(np.array([0.0]), np.array([True]))
        verdict.follow(POLICY, series)
    assert verdict.num_recovered == 3, "the median of three has recovered since two iterations"


@pytest.mark.parametrize(("num_followed", "num_counted"), [(POLICY.worth_iterations - 1, 3), (16, 2)])
def test_a_place_that_is_raised_often_flaps_unless_it_was_worth_it(num_followed: int, num_counted: int) -> None:
    flaps = FlapLimit(POLICY)
    raised = [flaps.raised("cell", 0, 10.0 * number) for number in range(POLICY.max_raises)]
    assert raised == [False] * POLICY.max_raises
    verdict = opened()
    verdict.num_followed = num_followed
    flaps.ended("cell", verdict)
    assert flaps.raised("cell", 0, 50.0) == (num_counted == 3)
    assert not flaps.raised("pipeline", 0, 50.0)
    assert not flaps.raised("cell", 1, 50.0)
    assert not flaps.raised("cell", 0, 50.1 + POLICY.flap_window_s), "the ones before are long ago"
