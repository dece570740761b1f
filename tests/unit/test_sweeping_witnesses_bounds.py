"""Which samples of a series are believed, at the bounds of what is slower than another and of what has changed."""

import math
from dataclasses import replace

import pytest

from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.sweeping.witnesses import (
    believed_ranks,
    curves,
    of_newest_state,
    partly_measured,
    witnesses,
)
from perseus_dist.straggler.layout import RankCoords

ONE_STAGE = {rank: RankCoords(0, rank, 0) for rank in range(3)}
CONSTANT = "L"


def sample(
    time_s: float,
    *,
    kind: str = "F",
    chunk: int = 0,
    energy_j: float = 100.0,
    std_s: float = 0.0,
    std_j: float = 0.0,
    num_runs: int = 1,
) -> Sample:
    return Sample(
        chunk=chunk,
        kind=kind,
        clock_mhz=0,
        time_s=time_s,
        energy_j=energy_j,
        time_std_s=std_s,
        energy_std_j=std_j,
        num_runs=num_runs,
        window_s=4.0,
    )


def taken(clock_mhz: int, *samples: Sample) -> TakenSamples:
    at_clock = tuple(replace(one, clock_mhz=clock_mhz) for one in samples)
    return TakenSamples(clock_mhz, ProfileSamples(sequence=1, sweep_id=1, step=0, samples=at_clock))


# ---- who is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usual", "slow", "is_believed"),
    [
        (sample(100.0), sample(101.0), True),
        (sample(100.0), sample(101.001), False),
        (sample(1.0, std_s=0.012, num_runs=16), sample(1.0249, std_s=0.004), True),
        (sample(1.0, std_s=0.012, num_runs=16), sample(1.0251, std_s=0.004), False),
        (sample(1.0, std_s=0.012, num_runs=16), sample(1.0249, std_s=0.004, num_runs=0), True),
        (sample(1.0, std_s=0.012, num_runs=16), sample(1.0251, std_s=0.004, num_runs=0), False),
    ],
)
def test_a_replica_is_believed_that_is_slower_by_less_than_a_share_and_what_runs_scatter_by(
    usual: Sample, slow: Sample, *, is_believed: bool
) -> None:
    of_ranks = {0: [taken(1400, usual)], 1: [taken(1400, slow)]}
    assert believed_ranks(of_ranks, ONE_STAGE) == (frozenset({0, 1}) if is_believed else frozenset({0}))


def test_who_measured_nothing_at_the_maximum_clock_is_believed_and_nobody_whose_place_is_not_known() -> None:
    f, slow_f = sample(1.0), sample(1.5)
    of_ranks = {0: [taken(1400, f)], 1: [taken(1000, slow_f)], 2: [taken(1400, slow_f)], 7: [taken(1400, f)]}
    assert believed_ranks(of_ranks, ONE_STAGE) == frozenset({0, 1})
    assert believed_ranks({}, ONE_STAGE) == frozenset()


def test_a_slow_replica_is_not_believed_beside_a_stage_whose_maximum_clock_is_higher() -> None:
    places = {0: RankCoords(0, 0, 0), 1: RankCoords(1, 0, 0), 2: RankCoords(0, 1, 0), 3: RankCoords(1, 1, 0)}
    f, slow_f = sample(1.0), sample(1.3)
    of_ranks = {0: [taken(1400, slow_f), taken(1000, slow_f)], 2: [taken(1400, f), taken(1000, f)]}
    of_ranks |= {1: [taken(1980, f)], 3: [taken(1980, f)]}
    assert believed_ranks(of_ranks, places) == frozenset({1, 2, 3})


# ---- what has changed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "has_changed"),
    [
        (sample(100.0), sample(101.0), False),
        (sample(100.0), sample(101.001), True),
        (sample(100.0), sample(99.0), False),
        (sample(100.0), sample(98.999), True),
        (sample(2.0, std_s=0.012, num_runs=16), sample(2.0349, std_s=0.004), False),
        (sample(2.0, std_s=0.012, num_runs=16), sample(2.0351, std_s=0.004), True),
    ],
)
def test_a_rank_is_in_another_state_where_the_maximum_clock_clearly_takes_another_time(
    before: Sample, now: Sample, *, has_changed: bool
) -> None:
    samples = [taken(1400, before), taken(1000, before), taken(1400, now), taken(900, now)]
    assert of_newest_state({3: samples}) == {3: samples[2:] if has_changed else samples}


# ---- witnesses and curves --------------------------------------------------------------------------------------------


def test_a_rank_without_computations_is_no_witness_and_one_that_missed_any_has_measured_partly() -> None:
    f, b, constant = sample(1.0), sample(1.0, kind="B"), sample(1.0, kind=CONSTANT)
    places = {0: RankCoords(0, 0, 0), 1: RankCoords(1, 0, 0)}
    of_ranks = {
        0: [taken(1400, f, b), taken(1200, f, constant), taken(1100, constant), taken(1000)],
        1: [taken(1400, constant)],
        7: [taken(1200, f)],
    }
    assert witnesses(of_ranks, places, places) == {0: {1400: {0: 1}}}
    assert partly_measured(of_ranks, places) == {0: {1200}}


@pytest.mark.parametrize(
    ("least", "other", "is_slower"),
    [
        (sample(100.0), sample(102.0), False),
        (sample(100.0), sample(102.1), True),
        (sample(100.0, std_s=1.0), sample(102.1, std_s=1.0), True),  # of one run, no scatter is known
        (sample(100.0, std_s=0.5, num_runs=4), sample(103.06, std_s=0.7, num_runs=4), False),
        (sample(100.0, std_s=0.5, num_runs=4), sample(103.07, std_s=0.7, num_runs=4), True),
        (sample(100.0, std_s=0.1), sample(103.34, std_s=0.4, num_runs=4), False),
        (sample(100.0, std_s=0.1), sample(103.35, std_s=0.4, num_runs=4), True),
        (sample(100.0, std_s=0.1, num_runs=0), sample(103.34, std_s=0.4, num_runs=4), False),
        (sample(100.0, std_s=0.1, num_runs=0), sample(103.35, std_s=0.4, num_runs=4), True),
        (sample(100.0, std_s=0.1, num_runs=2), sample(102.25, std_s=0.1, num_runs=2), False),
        (sample(100.0, std_s=0.1, num_runs=2), sample(102.35, std_s=0.1, num_runs=2), True),
    ],
)
def test_a_clock_counts_with_the_mean_of_measurements_that_were_not_disturbed(
    least: Sample, other: Sample, *, is_slower: bool
) -> None:
    of_ranks = {0: [taken(1400, least)], 1: [taken(1400, other)]}
    (curve,) = curves(of_ranks, ONE_STAGE, (0, 1, 2), 80.0)[0]
    assert curve.times_s == ((100.0 if is_slower else pytest.approx((100.0 + other.time_s) / 2)),)
    assert curve.blocking_power_w == 80.0


def test_errors_of_a_mean_shrink_with_runs_and_with_measurements() -> None:
    of_ranks = {
        0: [taken(1400, sample(1.0, energy_j=10.0, std_s=0.04, std_j=0.5, num_runs=16)), taken(1000, sample(1.4))],
        1: [taken(1400, sample(1.002, energy_j=12.0, std_s=0.04, std_j=0.7, num_runs=4))],
        2: [taken(1400, sample(1.001, energy_j=11.0, std_s=0.03, std_j=0.9, num_runs=0))],
    }
    (curve,) = curves(of_ranks, ONE_STAGE, of_ranks, 80.0)[0]
    assert curve.clocks_mhz == (1400, 1000)
    assert curve.times_s == pytest.approx((1.001, 1.4))
    assert curve.energies_j == pytest.approx((11.0, 100.0))
    assert curve.time_errors_s == pytest.approx(((0.01 + 0.02 + 0.03) / 3 / math.sqrt(3), 0.0))
    assert curve.energy_errors_j == pytest.approx((0.7 / math.sqrt(3), 0.0))
