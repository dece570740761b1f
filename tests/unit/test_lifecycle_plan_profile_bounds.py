"""What plans are made of, at its limits: which samples make a profile, and how long changes of clock take."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_planner_lifecycle import POLICY, sample

from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.plan import (
    has_blocking_power,
    has_profile,
    has_swept,
    newest_series,
    planning_request,
    switch_latency_s,
)

# ---- switch latency --------------------------------------------------------------------------------------------------


def taken(*latencies_s: float, samples: tuple[Sample, ...] = (), clock_mhz: int = 1400) -> list[TakenSamples]:
    return [
        TakenSamples(
            clock_mhz,
            ProfileSamples(sequence=1, sweep_id=1, step=0, samples=samples, switch_latency_s=one_s, last=True),
        )
        for one_s in latencies_s
    ]


@pytest.mark.parametrize(
    ("of_ranks", "expected_s"),
    [
        ([], POLICY.default_switch_latency_s),
        ([(0.0, 0.0)], POLICY.default_switch_latency_s),
        ([(0.01,)], 0.01),
        ([(0.01,), (0.02,)], 0.02),
        ([(0.01,), (0.02,), (0.03,)], 0.03),
        ([(0.04,), (0.03,), (0.02,), (0.01,)], 0.03),
        ([(0.05,), (0.04,), (0.03,), (0.02,), (0.01,)], 0.04),
        ([(0.01,), (0.02,), (0.03,), (0.04,), (0.05,), (0.06,), (0.07,), (0.08,)], 0.06),
        ([(0.0, 0.01, 0.02, 0.06)], 0.02),
        ([(0.0,), (0.01,)], 0.01),
    ],
)
def test_a_change_of_clock_takes_the_upper_quartile_of_what_ranks_have_seen_on_the_median(
    of_ranks: list[tuple[float, ...]], expected_s: float
) -> None:
    job = fleet_planning().job
    job.profiling.samples = {1: {rank: taken(*seen_s) for rank, seen_s in enumerate(of_ranks)}}
    assert switch_latency_s(job) == pytest.approx(expected_s)


# ---- what profile is there -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "is_choice"),
    [
        ((sample("F", 1400, 1.0), sample("F", 1300, 1.0)), True),
        ((sample("F", 1400, 1.0), sample("F", 1400, 1.0)), False),
        ((sample("F", 1400, 1.0), sample("B", 1300, 1.0)), False),
        ((sample("CONST", 1400, 1.0), sample("CONST", 1300, 1.0)), False),
        ((sample("F", 1400, 1.0), replace(sample("F", 1300, 1.0), chunk=1)), False),
        ((sample("F", 1400, 1.0, stage=0), sample("F", 1300, 1.0, stage=1)), False),
        ((), False),
    ],
)
def test_a_sweep_that_has_ended_makes_a_profile_where_a_computation_was_measured_at_two_clocks(
    samples: tuple[Sample, ...], *, is_choice: bool
) -> None:
    job = fleet_planning().job
    (series,) = job.profiling.samples
    job.profiling.samples[series] = {1: taken(0.01, samples=samples)}
    assert has_profile(job) == is_choice
    ordered = job.profiling.sweeps[series]
    job.profiling.sweeps[series] = replace(ordered, is_profile=False)
    assert not has_profile(job)
    job.profiling.sweeps[series] = ordered
    job.profiling.ended_series.clear()
    assert not has_profile(job)


def test_a_saved_profile_will_do_until_there_is_a_plan() -> None:
    job = fleet_enforcing().job
    job.profiling.samples.clear()
    job.profiling.sweeps.clear()
    job.profiling.ended_series = {SAVED_PROFILE}
    assert not has_profile(job)
    job.plan = None
    assert has_profile(job)
    assert not has_swept(job.profiling)
    assert not has_blocking_power(job)
    job.profiling.samples[SAVED_PROFILE] = {}
    job.profiling.ended_series.add(3)
    assert has_swept(job.profiling)
    assert has_blocking_power(job)


def test_a_saved_profile_is_none_beside_a_plan_before_the_sweep_that_is_to_replace_it_has_ended() -> None:
    job = fleet_enforcing().job
    choice = (sample("F", 1400, 1.0, stage=0), sample("F", 1300, 1.0, stage=0))
    job.profiling.samples = {SAVED_PROFILE: {0: taken(0.01, samples=choice, clock_mhz=0)}}
    job.profiling.ended_series = {SAVED_PROFILE}
    assert not has_profile(job)
    job.plan = None
    assert has_profile(job)


def test_the_newest_profile_of_a_rank_is_of_the_last_series_that_has_ended_with_samples_of_it() -> None:
    job = fleet_planning().job
    profiling = job.profiling
    (first,) = profiling.sweeps.values()
    one = taken(0.01)
    profiling.sweeps = {number: replace(first, sweep_id=number, series=number) for number in (1, 2, 3, 4)}
    profiling.sweeps[3] = replace(profiling.sweeps[3], is_profile=False)
    profiling.samples = {
        SAVED_PROFILE: {0: one, 5: one},
        1: {0: one, 1: one},
        2: {0: one, 1: []},
        3: {0: one},
        4: {0: one},
    }
    profiling.ended_series = {SAVED_PROFILE, 1, 2, 3}
    assert [newest_series(profiling, rank) for rank in (0, 1, 5, 6)] == [2, 1, SAVED_PROFILE, None]
    profiling.ended_series.add(4)
    assert newest_series(profiling, 0) == 4


def test_a_plan_is_made_of_the_ranks_that_were_not_slow_and_of_a_saved_profile_in_the_order_of_places() -> None:
    job = fleet_planning(dp=2).job
    (series,) = job.profiling.samples
    slow = replace(sample("F", 1400, 1.0), time_s=10.0)
    usual, saved = sample("F", 1400, 1.0), sample("F", 1400, 2.0, stage=1)
    job.profiling.samples = {
        series: {3: taken(0.01, samples=(usual,)), 0: taken(0.01, samples=(usual,)), 2: taken(0.01, samples=(slow,))},
        SAVED_PROFILE: {0: taken(0.0, samples=(saved,), clock_mhz=0)},
    }
    job.profiling.ended_series.add(SAVED_PROFILE)
    found = [(one.pp_rank, one.tp_rank, one.samples) for one in planning_request(job).contributions]
    assert found == [(0, 0, (usual,)), (0, 0, (saved,)), (1, 0, (usual,))]
    del job.profiling.samples[series]
    assert [one.samples for one in planning_request(job).contributions] == [(saved,)]
