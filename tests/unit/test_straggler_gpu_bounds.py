"""Readings of GPUs at their limits: how far below the clock, how old, how many, how many peers, how much power."""

import math
from dataclasses import replace

import numpy as np
import pytest
from test_gpu_evidence import CAPPED, HOT, NEEDED, POLICY, WELL, evidence

from perseus_dist.straggler.evidence.gpu_evidence import (
    REASON_CLOCKS_SETTING,
    REASON_HW_SLOWDOWN,
    REASON_HW_THERMAL,
    REASON_POWER_BRAKE,
    REASON_POWER_CAP,
    REASON_SW_THERMAL,
    GpuEvidence,
)
from perseus_dist.straggler.evidence.observation import GpuObservation

LOST = math.log(1400 / 1200)


def read(gpus: GpuEvidence, rank: int, *readings: GpuObservation, begin_s: float = 0.0) -> GpuEvidence:
    """Readings a second apart."""
    for number, seen in enumerate(readings):
        gpus.take(rank, seen, begin_s + number)
    return gpus


@pytest.mark.parametrize(
    "reason", [REASON_SW_THERMAL, REASON_HW_THERMAL, REASON_HW_SLOWDOWN, REASON_POWER_BRAKE], ids=hex
)
def test_any_reason_but_the_cap_predicts_without_peers_even_beside_the_cap(reason: int) -> None:
    for joined in (reason, reason | REASON_POWER_CAP, reason | REASON_CLOCKS_SETTING):
        gpus = read(evidence(1), 0, *[replace(HOT, event_reasons=joined)] * NEEDED)
        assert gpus.is_throttled(0)
        assert gpus.predicts(np.array([LOST])).tolist() == [True]
    assert not read(evidence(1), 0, *[replace(HOT, event_reasons=REASON_CLOCKS_SETTING)] * NEEDED).is_throttled(0)


@pytest.mark.parametrize(("observed_mhz", "is_throttled"), [(1371, True), (1372, False), (1401, False)])
def test_a_clock_is_below_the_one_requested_where_two_percent_are_missing(
    observed_mhz: int, *, is_throttled: bool
) -> None:
    assert read(evidence(), 0, replace(HOT, observed_mhz=observed_mhz)).is_throttled(0) == is_throttled


@pytest.mark.parametrize(("observed_mhz", "is_over"), [(999, False), (1020, False), (1021, True)])
def test_a_throttled_gpu_is_free_where_it_runs_above_the_clock_that_it_was_held_to(
    observed_mhz: int, *, is_over: bool
) -> None:
    held = replace(HOT, observed_mhz=1000)
    asked_for_little = replace(WELL, requested_mhz=observed_mhz, observed_mhz=observed_mhz)
    gpus = read(evidence(), 0, *[held] * NEEDED, *[asked_for_little] * NEEDED)
    assert gpus.is_throttled(0) != is_over
    assert gpus.is_freed(0) == is_over
    assert gpus.observed_mhz[0] == (observed_mhz if is_over else 1000)


def test_temperature_and_power_are_those_of_the_latest_reading_even_of_an_idle_gpu() -> None:
    gpus = read(evidence(), 0, HOT, replace(WELL, observed_mhz=0, temperature_c=41.0, power_w=77.0))
    assert (gpus.temperature_c[0], gpus.power_w[0]) == (41.0, 77.0)
    assert (gpus.requested_mhz[0], gpus.observed_mhz[0]) == (1400, 1200)


@pytest.mark.parametrize(("later_s", "is_row"), [(0.0, True), (0.5, False)])
def test_few_throttled_readings_go_on_after_as_long_as_none_is_stale(later_s: float, *, is_row: bool) -> None:
    gpus = read(evidence(), 0, *[HOT] * (NEEDED - 1))
    gpus.take(0, HOT, NEEDED - 2 + POLICY.stale_s + later_s)
    assert gpus.has_news == is_row
    assert gpus.since_s[0] == (0.0 if is_row else NEEDED - 2 + POLICY.stale_s + later_s)


def test_enough_throttled_readings_go_on_however_late_the_next_one_comes() -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED)
    gpus.take(0, HOT, 100 * POLICY.stale_s)
    assert gpus.since_s[0] == 0.0


def test_a_second_throttling_has_an_instant_and_an_iteration_of_its_own() -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED, *[replace(WELL, iteration=8)] * NEEDED)
    assert gpus.free_iteration[0] == 8
    read(gpus, 0, replace(HOT, iteration=11, observed_mhz=1100), begin_s=50.0)
    assert (gpus.since_s[0], gpus.since_iteration[0], gpus.throttled_mhz[0]) == (50.0, 11, 1100)
    read(gpus, 0, *[replace(WELL, iteration=14)] * NEEDED, begin_s=60.0)
    assert gpus.free_iteration[0] == 14


def test_readings_told_together_are_one_for_a_gpu_that_is_free_again_too() -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED)
    for _ in range(2 * NEEDED):
        gpus.take(0, WELL, 10.0)
    assert not gpus.is_freed(0)
    assert read(gpus, 0, *[WELL] * (NEEDED - 1), begin_s=11.0).is_freed(0)


def test_a_gpu_that_was_never_throttled_is_not_freed() -> None:
    assert not read(evidence(), 0, *[WELL] * (2 * NEEDED)).is_freed(0)


def test_the_clock_that_is_left_and_the_reasons_are_those_of_the_last_readings() -> None:
    clocks = [1200, 1180, 1100, 1000, 1150, 1160]
    gpus = evidence()
    found = []
    for number, clock_mhz in enumerate(clocks):
        gpus.take(0, replace(HOT, observed_mhz=clock_mhz), float(number))
        found.append(gpus.throttled_mhz[0])
    assert found == [1200, 1200, 1180, 1100, 1100, 1150]
    brake = replace(HOT, event_reasons=REASON_POWER_BRAKE)
    gpus = read(evidence(), 0, HOT, *[brake] * (NEEDED - 1))
    assert gpus.reasons[0] == REASON_SW_THERMAL | REASON_POWER_BRAKE
    assert read(gpus, 0, brake, begin_s=10.0).reasons[0] == REASON_POWER_BRAKE


def test_heat_counts_for_as_many_readings_as_a_row_has_although_the_cap_holds_the_clock_since() -> None:
    hot_at_cap = replace(HOT, event_reasons=REASON_SW_THERMAL | REASON_POWER_CAP, observed_mhz=1220)
    gpus = evidence(1)
    losses = []
    for number, seen in enumerate([HOT, *[hot_at_cap] * NEEDED]):
        gpus.take(0, seen, float(number))
        losses.append(gpus.loss(float(number))[0])
    np.testing.assert_allclose(losses, [LOST] * NEEDED + [math.log(1400 / 1220)])


@pytest.mark.parametrize(("capped_mhz", "is_over"), [(1224, False), (1225, True)])
def test_heat_is_past_where_the_cap_lets_the_clock_rise_above_it(capped_mhz: int, *, is_over: bool) -> None:
    at_cap = replace(CAPPED, observed_mhz=capped_mhz)
    gpus = read(evidence(1), 0, HOT, at_cap, at_cap)
    np.testing.assert_allclose(gpus.loss(3.0), [math.log(1400 / 1225) if is_over else LOST])
    assert (gpus.reasons[0] == REASON_POWER_CAP) == is_over


# ---- beside peers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_peers", "counts"), [(POLICY.min_peers - 1, False), (POLICY.min_peers, True)])
@pytest.mark.parametrize("requested_mhz", [1400, 0])
def test_what_enough_peers_lose_as_well_is_no_loss(num_peers: int, requested_mhz: int, *, counts: bool) -> None:
    gpus = read(evidence(1 + num_peers), 0, *[replace(HOT, requested_mhz=requested_mhz)] * NEEDED)
    for rank in range(1, 1 + num_peers):
        read(gpus, rank, *[replace(WELL, requested_mhz=requested_mhz, observed_mhz=1300)] * NEEDED)
    by_peers = math.log(1300 / 1200)
    alone = LOST if requested_mhz else 0.0
    assert gpus.loss(float(NEEDED))[0] == pytest.approx(by_peers if counts else alone)


def test_peers_that_run_above_what_is_requested_make_no_loss_larger() -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED)
    for rank in (1, 2, 3):
        read(gpus, rank, *[replace(WELL, observed_mhz=1500)] * NEEDED)
    np.testing.assert_allclose(gpus.loss(float(NEEDED)), [LOST, 0.0, 0.0, 0.0])


def test_a_gpu_that_is_throttled_less_than_its_peers_loses_nothing() -> None:
    gpus = evidence()
    for rank in range(4):
        read(gpus, rank, *[replace(HOT, observed_mhz=1300 if rank == 0 else 1200)] * NEEDED)
    np.testing.assert_allclose(gpus.loss(float(NEEDED)), [0.0] * 4)


@pytest.mark.parametrize(("age_s", "is_known"), [(POLICY.stale_s, True), (POLICY.stale_s + 0.25, False)])
def test_a_reading_is_known_until_it_is_stale(age_s: float, *, is_known: bool) -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED)
    np.testing.assert_allclose(gpus.loss(NEEDED - 1 + age_s)[0], LOST if is_known else 0.0)


def test_a_loss_is_of_the_gpu_that_is_throttled_now() -> None:
    gpus = read(evidence(), 0, *[HOT] * NEEDED)
    read(gpus, 1, replace(WELL, observed_mhz=1300))
    np.testing.assert_allclose(gpus.loss(float(NEEDED)), [LOST, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(("loss", "supports"), [(0.02, False), (0.0201, True), (-0.1, False)])
def test_a_loss_beyond_a_clock_step_or_two_makes_slow_times_credible(loss: float, *, supports: bool) -> None:
    assert evidence(1).supports(np.array([loss])).tolist() == [supports]


def test_a_loss_predicts_where_half_of_it_would_matter() -> None:
    limit = math.log(POLICY.min_degree) / POLICY.gpu_gain_share
    gpus = read(evidence(1), 0, *[HOT] * NEEDED)
    predicted = [gpus.predicts(np.array([loss])).tolist() for loss in (0.99 * limit, limit, 1.01 * limit)]
    assert predicted == [[False], [False], [True]]


@pytest.mark.parametrize(("num_peers", "is_predicted"), [(POLICY.min_peers - 1, False), (POLICY.min_peers, True)])
def test_a_power_cap_predicts_where_enough_peers_say_what_they_reach(num_peers: int, *, is_predicted: bool) -> None:
    gpus = read(evidence(1 + num_peers), 0, *[CAPPED] * NEEDED)
    for rank in range(1, 1 + num_peers):
        read(gpus, rank, *[replace(WELL, power_w=400.0)] * NEEDED)
    loss = gpus.loss(float(NEEDED))
    assert loss[0] == pytest.approx(LOST)
    assert bool(gpus.predicts(loss)[0]) == is_predicted


@pytest.mark.parametrize(("power_w", "is_loaded"), [(319.9, False), (320.0, True), (400.0, True)])
def test_a_peer_says_something_about_a_power_cap_where_it_draws_nearly_as_much(
    power_w: float, *, is_loaded: bool
) -> None:
    gpus = read(evidence(), 0, *[CAPPED] * NEEDED)
    for rank in (1, 2, 3):
        read(gpus, rank, *[replace(WELL, power_w=power_w)] * NEEDED)
    assert bool(gpus.predicts(gpus.loss(float(NEEDED)))[0]) == is_loaded


def test_the_power_that_peers_are_held_against_is_the_least_that_the_cap_was_met_at() -> None:
    gpus = read(evidence(), 0, *[CAPPED] * NEEDED)
    read(gpus, 0, replace(CAPPED, power_w=300.0), begin_s=10.0)
    for rank in (1, 2, 3):
        read(gpus, rank, *[replace(WELL, power_w=250.0)] * NEEDED, begin_s=8.0)
    assert gpus.predicts(gpus.loss(11.0)).tolist() == [True, False, False, False]


def test_a_capped_gpu_loses_no_more_than_is_between_it_and_the_lowest_clock_that_peers_have_met_the_cap_at() -> None:
    gpus = read(evidence(), 0, *[replace(CAPPED, observed_mhz=1100)] * NEEDED)
    for rank in (1, 2, 3):
        read(gpus, rank, replace(CAPPED, observed_mhz=1150), CAPPED, *[replace(WELL, power_w=400.0)] * 2)
    np.testing.assert_allclose(gpus.loss(4.0)[0], math.log(1150 / 1100))


def test_of_peers_that_do_not_meet_the_cap_the_highest_clock_counts() -> None:
    gpus = read(evidence(), 0, *[CAPPED] * NEEDED)
    for rank in (1, 2, 3):
        slower = replace(WELL, requested_mhz=1250, observed_mhz=1250, power_w=400.0)
        read(gpus, rank, replace(slower, requested_mhz=1300, observed_mhz=1300), slower)
    np.testing.assert_allclose(gpus.loss(3.0)[0], math.log(1300 / 1200))


def test_the_iterations_of_what_was_never_read_are_not_known() -> None:
    gpus = evidence()
    assert gpus.since_iteration.tolist() == [-1] * 4
    assert gpus.free_iteration.tolist() == [-1] * 4
    assert np.isnan(gpus.since_s).all()


def test_nothing_is_lost_before_anything_was_read() -> None:
    assert evidence().loss(5.0).tolist() == [0.0] * 4
    assert not evidence().predicts(np.full(4, 1.0)).any()
