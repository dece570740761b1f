"""Which iterations tell of noise, and of how many it is known."""

import math

import pytest

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.noise import Noise

USUAL = 0.0025
PLAN, OTHER = Followed(key="t_min"), Followed(key="other")
_Iteration = tuple[Followed | None, float, float]


def noted(*iterations: _Iteration) -> Noise:
    noise = Noise()
    for plan, time_s, energy_j in iterations:
        noise.note(plan, time_s, energy_j)
    return noise


def deviation(step: float) -> float:
    """Of iterations that differ by so much from one to the next, as a share."""
    return 1.4826 / math.sqrt(2) * math.log1p(step)


@pytest.mark.parametrize("plan", [None, PLAN])
@pytest.mark.parametrize(("num_pairs", "is_known"), [(7, False), (8, True)])
def test_noise_is_known_from_eight_pairs_on(plan: Followed | None, num_pairs: int, *, is_known: bool) -> None:
    pair: tuple[_Iteration, _Iteration] = (plan, 2.0, 0.5), (plan, 2.0 * 1.01, 0.5 * 1.02)
    noise = noted(*(pair * 5)[: num_pairs + 1])
    assert noise.time == pytest.approx(deviation(0.01) if is_known else USUAL)
    assert noise.energy == pytest.approx(deviation(0.02) if is_known else USUAL)


def test_noise_is_that_of_the_newest_64_pairs() -> None:
    noisy: tuple[_Iteration, _Iteration] = (PLAN, 2.0, 900.0), (PLAN, 2.1, 910.0)
    for num_steady, is_noisy in ((31, True), (33, False)):
        noise = noted(*noisy * 50, *[(PLAN, 2.1, 910.0)] * num_steady)
        assert (noise.time > 0) == is_noisy, "the median of 64"
        assert (noise.energy > 0) == is_noisy


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((PLAN, 2.0, 900.0), (OTHER, 2.05, 950.0), id="of two plans"),
        pytest.param((None, 2.0, 900.0), (PLAN, 2.05, 950.0), id="at full clocks and under a plan"),
        pytest.param((PLAN, 2.0, 900.0), (PLAN, 2.0 * 1.106, 950.0), id="where the machines have changed"),
        pytest.param((PLAN, 2.0 * 1.106, 900.0), (PLAN, 2.0, 950.0), id="where they have changed back"),
        pytest.param((PLAN, 2.0, 0.0), (PLAN, 2.05, 0.0), id="of which counters have not ticked"),
        pytest.param((PLAN, 2.0, 0.0), (PLAN, 2.05, 900.0), id="of which counters have ticked in one"),
    ],
)
def test_iterations_that_cannot_be_compared_tell_nothing_of_noise(first: _Iteration, second: _Iteration) -> None:
    noise = noted(*[first, second] * 20)
    assert (noise.time, noise.energy) == (USUAL, USUAL)


def test_iterations_that_differ_by_just_less_than_a_change_of_the_machines_are_noise() -> None:
    noise = noted(*[(PLAN, 2.0, 900.0), (PLAN, 2.0 * 1.104, 900.0)] * 20)
    assert noise.time == pytest.approx(deviation(0.104))
    assert noise.energy == 0.0


def test_a_counter_that_has_not_ticked_leaves_the_pairs_before_and_behind() -> None:
    pairs: list[_Iteration] = [(PLAN, 2.0, 900.0), (PLAN, 2.02, 900.0)]
    noise = noted(*pairs * 4, (PLAN, 2.02, 0.0), *pairs)
    assert noise.time == pytest.approx(deviation(0.01)), "seven before it, and one behind it"
