"""Readings of single GPUs: from which on one is throttled, free again, or says nothing, and what it loses."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_IDLE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
    GpuEvidence,
)
from perseus_dist.straggler.evidence.observation import GpuObservation
from perseus_dist.straggler.layout import Layout, RankCoords
from perseus_dist.straggler.policy import StragglerPolicy

POLICY = StragglerPolicy()
WELL = GpuObservation(requested_mhz=1400, observed_mhz=1400, temperature_c=60.0, power_w=300.0, iteration=4)
HOT = replace(WELL, observed_mhz=1200, event_reasons=REASON_SW_THERMAL, temperature_c=90.0, iteration=5)
CAPPED = replace(WELL, observed_mhz=1200, event_reasons=REASON_POWER_CAP, power_w=400.0)
NEEDED = POLICY.min_gpu_samples


def evidence(dp_size: int = 4) -> GpuEvidence:
    return GpuEvidence(Layout.of([RankCoords(0, dp_rank) for dp_rank in range(dp_size)]), POLICY)


def test_a_gpu_is_throttled_from_its_first_reading_and_known_to_be_from_enough_of_them() -> None:
    gpus = evidence()
    for number in range(1, NEEDED + 1):
        assert not gpus.has_news
        gpus.take(0, HOT, 10.0 + number)
        assert gpus.is_throttled(0)
        assert not gpus.is_throttled(1)
    assert gpus.has_news
    assert (gpus.since_s[0], gpus.since_iteration[0], gpus.reasons[0]) == (11.0, 5, REASON_SW_THERMAL)
    assert gpus.throttled_mhz[0] == 1200
    assert (gpus.temperature_c[0], gpus.power_w[0]) == (90.0, 300.0)


def test_it_is_free_again_from_its_first_reading_and_known_to_be_from_enough_of_them() -> None:
    gpus = evidence()
    for number in range(NEEDED):
        gpus.take(0, HOT, 10.0 + number)
    gpus.has_news = False
    for number in range(1, NEEDED + 1):
        assert not gpus.is_freed(0)
        assert not gpus.has_news
        gpus.take(0, replace(WELL, iteration=20 + number), 30.0 + number)
        assert not gpus.is_throttled(0)
        assert math.isnan(gpus.since_s[0])
    assert gpus.is_freed(0)
    assert gpus.has_news
    assert gpus.free_iteration[0] == 21
    gpus.take(0, HOT, 50.0)
    assert not gpus.is_freed(0)


@pytest.mark.parametrize(
    "seen",
    [
        replace(HOT, event_reasons=REASON_SW_THERMAL | REASON_IDLE),
        replace(HOT, observed_mhz=0),
        replace(HOT, observed_mhz=1380),  # a step below what is requested
        replace(HOT, event_reasons=0),
    ],
    ids=["idle", "unknown clock", "a clock step", "no reason"],
)
def test_what_says_nothing_of_throttling_is_left_out(seen: GpuObservation) -> None:
    gpus = evidence()
    for number in range(2 * NEEDED):
        gpus.take(0, seen, float(number))
    assert not gpus.is_throttled(0)
    assert not gpus.has_news
    assert np.array_equal(gpus.loss(1.0), [0.0] * 4)


def test_a_gpu_of_which_no_clock_is_requested_is_throttled_by_its_reason_and_loses_what_peers_reach() -> None:
    gpus = evidence()
    for number in range(NEEDED):
        gpus.take(0, replace(HOT, requested_mhz=0), float(number))
        for rank in (1, 2, 3):
            gpus.take(rank, replace(WELL, requested_mhz=0), float(number))
    assert gpus.is_throttled(0)
    np.testing.assert_allclose(gpus.loss(float(NEEDED)), [math.log(1400 / 1200), 0.0, 0.0, 0.0])


def test_readings_that_come_together_are_one_and_old_ones_count_no_more() -> None:
    gpus = evidence()
    for _ in range(NEEDED):
        gpus.take(0, HOT, 1.0)
    assert not gpus.has_news
    for number in range(1, NEEDED):  # with the first too few, if that one were too old
        gpus.take(0, HOT, 1.0 + POLICY.stale_s + number)
    assert not gpus.has_news
    gpus.take(0, HOT, 1.0 + POLICY.stale_s + NEEDED)
    assert gpus.has_news
    assert gpus.since_s[0] == 2.0 + POLICY.stale_s


def test_heat_predicts_slow_times_and_a_power_cap_that_peers_do_not_show_does_not() -> None:
    for seen, is_predicted in ((HOT, True), (CAPPED, False)):
        gpus = evidence(dp_size=1)
        for number in range(NEEDED):
            assert not gpus.predicts(gpus.loss(float(number))).any(), "too few readings"
            gpus.take(0, seen, float(number))
        loss = gpus.loss(float(NEEDED))
        assert bool(gpus.predicts(loss)[0]) == is_predicted
        if is_predicted:
            assert loss[0] == pytest.approx(math.log(1400 / 1200))
            assert gpus.supports(loss)[0]


def test_a_power_cap_that_all_peers_meet_at_the_same_clock_costs_nothing_beyond_theirs() -> None:
    gpus = evidence()
    for number in range(NEEDED):
        for rank in range(4):
            gpus.take(rank, replace(CAPPED, observed_mhz=1100 if rank == 3 else 1200), float(number))
    loss = gpus.loss(float(NEEDED))
    np.testing.assert_allclose(loss, [0.0, 0.0, 0.0, math.log(1200 / 1100)])
    assert gpus.predicts(loss).tolist() == [False, False, False, True]
    assert gpus.loss(float(NEEDED) + POLICY.stale_s + 1).tolist() == [0.0] * 4, "readings are too old"
