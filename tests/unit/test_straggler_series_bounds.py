"""Evidence of stragglers at limits: how often it must suffice, what is learned at first, where ranks go on."""

import math

import numpy as np
import pytest
from test_evidence_series import NOBODY, POLICY, SLOW, noise_of, series
from test_straggler_baseline_bounds import Replicas
from test_straggler_intake import seen
from test_straggler_intake_bounds import elsewhere

from perseus_dist.straggler.evidence.series import BoolArray, EvidenceSeries


def num_until_raised(made: EvidenceSeries, is_excused: BoolArray) -> int | None:
    """Slow iterations until the evidence suffices."""
    for number in range(1, 12):
        made.take(np.array([SLOW, 0.0]), NOBODY)
        if made.is_raised(is_excused)[0]:
            return number
    return None


@pytest.mark.parametrize("is_excused", [NOBODY, ~NOBODY], ids=["by time alone", "where NVML says throttled"])
def test_clear_evidence_suffices_at_the_second_iteration_that_can_be_judged(is_excused: BoolArray) -> None:
    assert num_until_raised(series(), is_excused) == POLICY.min_history + POLICY.num_passes - 1


def test_where_nvml_says_throttled_two_medians_suffice_in_a_noisy_job() -> None:
    for is_excused, num in ((~NOBODY, 3), (NOBODY, 6)):
        made = series()
        for number in range(20):
            made.take(np.full(2, 0.07 * (-1) ** number), NOBODY)
        assert num_until_raised(made, is_excused) == num


@pytest.mark.parametrize("num", [1, 9, 40])
def test_values_that_stay_make_means_the_noisier_the_more_pairs_have_shown_it(num: int) -> None:
    noise = noise_of(np.full((num + 1, 1), 0.01))
    num_pairs = sum(0.99**age for age in range(num))
    correlation = (num_pairs + 24 * 0.2) / (num_pairs + 24)
    inflation = (1 + correlation) / (1 - correlation)
    assert noise.variance_of_mean[0] / noise.sigma[0] ** 2 == pytest.approx(inflation)


def test_two_replicas_that_become_slower_together_before_their_history_is_known_have_one_all_the_same() -> None:
    made = Replicas(2).settle(0.0, 0.0, num=2).settle(0.3, 0.3, num=20)
    agreed, alone = made.take(0.3, 0.3)
    np.testing.assert_allclose([agreed, alone], 0.0, atol=0.01)


def test_enough_peers_that_become_slower_together_at_first_are_no_stragglers_once_they_are_few() -> None:
    made = Replicas(5).settle(*[0.0] * 5, num=2).settle(*[0.3] * 5, num=40)
    made.clocks[2:] = [1395.0, 1380.0, 1365.0]
    _, alone = made.take(*[0.3] * 5)
    assert not np.isnan(alone[:2]).any()
    np.testing.assert_allclose(alone[:2], 0.0, atol=0.02)


def test_after_a_jump_one_report_from_elsewhere_makes_no_other_one() -> None:
    made = elsewhere(3, 3)
    assert made.num_jumps == 1
    for rank in range(3):
        made.take(rank, seen(900), 3.0)
    assert made.num_jumps == 1
    for rank in range(2):
        made.take(rank, seen(901), 3.0)
    assert made.num_jumps == 2
    assert not math.isinf(made.last_seen_s.min())
