"""Evidence of places over iterations: medians, what makes them wrong, from when on they count, what is forgotten."""

import math

import numpy as np
import pytest

from perseus_dist.straggler.evidence.noise import Noise
from perseus_dist.straggler.evidence.series import EvidenceSeries
from perseus_dist.straggler.policy import StragglerPolicy

POLICY = StragglerPolicy()
NOBODY = np.zeros(2, dtype=bool)
SLOW = math.log(1.5)


def series() -> EvidenceSeries:
    return EvidenceSeries(np.zeros(2, dtype=np.intp), POLICY)


def taken(*values: float, doubts: float = 0.0) -> EvidenceSeries:
    """Of one place; the other takes what is usual."""
    made = series()
    for value in values:
        made.take(np.array([value, 0.0]), NOBODY, np.array([doubts, 0.0]))
    return made


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ((0.1, 0.2, 0.4), 0.2),
        ((9.0, 0.1, 0.2, 0.4), 0.2),
        ((0.1, math.nan, 0.4), 0.25),
        ((0.4, math.nan, math.nan), math.nan),
        ((0.4, 0.1), 0.25),
    ],
)
def test_the_median_of_the_latest_is_known_where_more_than_half_of_them_are(
    values: tuple[float, ...], median: float
) -> None:
    estimate = taken(*values).estimate(3)
    np.testing.assert_allclose(estimate.median[0], median)
    np.testing.assert_allclose(estimate.median[1], 0.0 if len(values) > 1 else math.nan)


def test_an_interval_is_wide_by_noise_and_by_what_no_iteration_mends() -> None:
    made = taken(0.3, 0.3, 0.3, doubts=0.06)
    estimate = made.estimate(3)
    error = math.sqrt(math.pi / 2 * made.noise.variance_of_mean[0] / 3)
    assert estimate.error[0] == pytest.approx(error)
    assert estimate.doubt.tolist() == pytest.approx([0.06, 0.0])
    assert estimate.lower(2.0)[0] == pytest.approx(0.3 - 2 * error - 0.06)
    assert estimate.upper(2.0)[0] == pytest.approx(0.3 + 2 * error + 0.06)
    assert made.estimate(6).doubt[0] == pytest.approx(0.03), "iterations without a value have none"
    assert made.estimate(3, np.array([1])).median.tolist() == [0.0]
    assert np.isnan(made.estimate(6).median).all(), "half of them are not enough"


def test_a_place_counts_from_as_many_values_as_are_a_history() -> None:
    made = series()
    for number in range(1, POLICY.min_history + POLICY.num_passes):
        assert not made.is_raised(~NOBODY).any(), number
        made.take(np.array([SLOW, 0.0]), NOBODY)
    assert made.is_raised(~NOBODY).tolist() == [True, False]
    made.take(np.array([0.0, 0.0]), NOBODY)
    made.take(np.array([0.0, 0.0]), NOBODY)
    assert not made.is_raised(~NOBODY).any(), "what is over is evidence no more"


def test_iterations_in_which_a_place_could_be_compared_are_a_history_too() -> None:
    made = series()
    for _ in range(POLICY.latest_window):
        made.take(np.array([SLOW, 0.0]), NOBODY, num_compared=np.array([POLICY.min_history, 0], dtype=np.intp))
    assert made.is_suspect.tolist() == [True, False]


def test_what_is_forgotten_is_no_evidence_and_the_noise_stays() -> None:
    made = taken(*[SLOW] * 12)
    sigma = made.noise.sigma.copy()
    assert (made.num_known(0), made.since(0, 0.1)) == (12, 12)
    made.forget(0)
    assert (made.num_known(0), made.num_known(1), made.since(0, 0.1)) == (0, 12, 0)
    assert not made.is_raised(~NOBODY).any()
    assert not made.is_suspect.any()
    assert np.isnan(made.estimate(3).median[0])
    np.testing.assert_array_equal(made.noise.sigma, sigma)
    assert taken(*[SLOW] * 40).num_known(0) == POLICY.windows[-1]


def test_iterations_above_a_value_are_counted_back_over_missing_ones() -> None:
    assert taken(0.0, 0.2, 0.2).since(0, 0.1) == 2
    assert taken(0.2, math.nan, 0.2).since(0, 0.1) == 3
    assert taken(0.0, math.nan, 0.2).since(0, 0.1) == 1
    assert taken(0.2, 0.1).since(0, 0.1) == 0
    assert taken(math.nan, math.nan).since(0, 0.1) == 0


def test_what_is_unusual_is_worth_acting_upon_and_more_than_noise() -> None:
    quiet, loud = taken(*[0.0] * 60), taken(*[0.2, -0.2] * 30)
    assert quiet.unusual[0] == pytest.approx(math.log(POLICY.min_degree))
    assert loud.unusual[0] == pytest.approx(3 * loud.noise.sigma[0])
    quiet.take(np.array([0.04, 0.02]), NOBODY)
    assert quiet.is_suspect.tolist() == [True, False]


def noise_of(values: np.ndarray, *, is_straggler: bool = False) -> Noise:
    noise = Noise(np.zeros(values.shape[1], dtype=np.intp))
    for row in values:
        noise.take(row, math.log(POLICY.min_degree), np.full(values.shape[1], is_straggler))
    return noise


@pytest.mark.parametrize("sigma", [0.004, 0.01, 0.03])
def test_noise_is_the_standard_deviation_of_values_that_have_nothing_in_common(sigma: float) -> None:
    noise = noise_of(np.random.default_rng(1).normal(0, sigma, (400, 16)))
    assert noise.sigma.mean() == pytest.approx(sigma, rel=0.15)
    assert noise.variance_of_mean.mean() == pytest.approx(sigma**2, rel=0.35)
    assert noise.num_taken.tolist() == [400] * 16


def test_values_that_resemble_the_ones_before_have_noisier_means() -> None:
    random, share = np.random.default_rng(2), 0.6
    values = np.zeros((600, 8))
    for row in range(1, len(values)):
        values[row] = share * values[row - 1] + 0.005 * random.standard_normal(8)
    noise = noise_of(values)
    true = 0.005**2 / (1 - share**2)
    assert (noise.sigma**2).mean() == pytest.approx(true, rel=0.25)
    assert noise.variance_of_mean.mean() == pytest.approx(true * (1 + share) / (1 - share), rel=0.35)


def test_a_straggler_that_stays_is_no_noise_and_one_outlier_makes_no_place_deaf() -> None:
    values = np.random.default_rng(3).normal(0, 0.01, (200, 4))
    usual = noise_of(values).sigma
    values[100:, 0] += SLOW
    assert noise_of(values, is_straggler=True).sigma[0] < 1.3 * usual[0]
    values[150, 1] += 5.0
    assert noise_of(values).sigma[1] < 1.3 * usual[1]
    assert noise_of(np.zeros((300, 2))).sigma.min() > 0, "what hardly varied may vary yet"


def test_missing_values_are_no_noise() -> None:
    values = np.random.default_rng(4).normal(0, 0.01, (300, 4))
    values[::3, 2] = np.nan
    noise = noise_of(values)
    assert noise.num_taken.tolist() == [300, 300, 200, 300]
    assert noise.sigma[2] == pytest.approx(0.01, rel=0.3)
