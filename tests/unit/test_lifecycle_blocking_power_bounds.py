"""Power of waiting GPUs at its limits: what is alike, what is estimated, and when a sweep is due for it."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from fleets import fleet_planning
from test_lifecycle_baseline_bounds import iteration
from test_planner_lifecycle import sample

from perseus_dist.messages.from_agent import ProfileSamples, Sample
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.blocking_power import (
    blocking_power_w,
    is_blocking_power_known,
    note_unmeasured,
    why_measured_again,
)

SHARE = 0.35  # of the least that a computation draws


def taken(clock_mhz: int, power_w: float, *samples: Sample) -> TakenSamples:
    told = ProfileSamples(
        sequence=1, sweep_id=1, step=0, samples=samples, blocking_power_w=power_w, switch_latency_s=0.0, last=True
    )
    return TakenSamples(clock_mhz, told)


def job_of(of_series: Mapping[int, Mapping[int, list[TakenSamples]]], *, dp: int = 1, open_series: int = -9) -> Job:
    """With these samples, by series and rank; all series have ended but one."""
    job = fleet_planning(dp=dp).job
    job.profiling.samples = {series: dict(of_ranks) for series, of_ranks in of_series.items()}
    job.profiling.ended_series = {*of_series} - {open_series}
    return job


def powers(*of_ranks_w: float, dp: int = 1) -> tuple[float, ...]:
    """By pp_rank, where ranks drew so much, waiting."""
    return blocking_power_w(job_of({1: {rank: [taken(1400, w)] for rank, w in enumerate(of_ranks_w)}}, dp=dp))


@pytest.mark.parametrize(
    ("of_ranks_w", "expected_w"),
    [
        ((60.0, 80.0), (60.0, 80.0)),
        ((60.0, 90.0), (60.0, 90.0)),
        ((60.0, 90.1), (60.0, 60.0)),
        ((90.1, 60.0), (60.0, 60.0)),
        ((60.0, 0.0), (60.0, 60.0)),
        ((0.0, 0.5), (0.5, 0.5)),
    ],
)
def test_gpus_that_wait_draw_alike_and_what_is_far_from_that_is_left_out(
    of_ranks_w: tuple[float, ...], expected_w: tuple[float, ...]
) -> None:
    assert powers(*of_ranks_w) == expected_w


@pytest.mark.parametrize(
    ("of_ranks_w", "expected_w"),
    [
        ((40.0, 60.0, 60.0, 60.0), (50.0, 60.0)),
        ((39.9, 60.0, 60.0, 60.0), (60.0, 60.0)),
        ((90.0, 60.0, 60.0, 60.0), (75.0, 60.0)),
        ((60.0, 50.0, 70.0, 80.0), (65.0, 65.0)),
    ],
)
def test_a_stages_power_is_the_mean_of_its_replicas_that_are_near_the_usual(
    of_ranks_w: tuple[float, ...], expected_w: tuple[float, ...]
) -> None:
    assert powers(*of_ranks_w, dp=2) == pytest.approx(expected_w)


def test_a_rank_waits_at_its_highest_clock_and_the_newest_series_that_has_ended_tells() -> None:
    of_rank = [taken(1000, 50.0), taken(1400, 80.0), taken(1200, 70.0), taken(1400, 0.0)]
    assert blocking_power_w(job_of({1: {0: of_rank}})) == (80.0, 80.0)
    two = {1: {0: [taken(1400, 80.0)], 1: [taken(1400, 82.0)]}, 2: {0: [taken(1400, 90.0)]}}
    assert blocking_power_w(job_of(two)) == (90.0, 82.0)
    assert blocking_power_w(job_of(two, open_series=2)) == (80.0, 82.0)


@pytest.mark.parametrize(
    ("samples", "expected_w"),
    [
        ((sample("F", 1400, 10.0),), SHARE * 10.0 * 14),
        ((sample("F", 1400, 10.0), sample("B", 1000, 10.0)), SHARE * 100.0),
        ((sample("F", 1400, 10.0), sample("B", 1000, 0.0)), SHARE * 140.0),
        ((sample("F", 1400, 0.5),), SHARE * 7.0),
        ((sample("F", 1400, 10.0), replace(sample("B", 1000, 10.0), time_s=0.0)), SHARE * 140.0),
        ((sample("F", 1400, 10.0), replace(sample("B", 1000, 10.0), time_s=2.0)), SHARE * 5.0),
        ((sample("F", 1400, 10.0), sample("CONST", 1000, 0.1)), SHARE * 140.0),
        ((), 0.0),
    ],
)
def test_before_a_rank_has_waited_a_share_of_the_least_power_of_a_computation_is_reckoned_with(
    samples: tuple[Sample, ...], expected_w: float
) -> None:
    found = blocking_power_w(job_of({1: {0: [taken(1400, 0.0, *samples)]}}))
    assert found == pytest.approx((expected_w, expected_w))


def test_nothing_is_estimated_from_a_series_that_goes_on() -> None:
    of_series = {1: {0: [taken(1400, 0.0, sample("F", 1400, 10.0))]}}
    assert blocking_power_w(job_of(of_series, open_series=1)) == (0.0, 0.0)
    assert not is_blocking_power_known(job_of(of_series))
    assert is_blocking_power_known(job_of({1: {0: [taken(1400, 0.1)]}}))


@pytest.mark.parametrize(("stage", "expected"), [(0, (70.0, 140.0)), (1, (140.0, 70.0)), (2, (140.0, 140.0))])
def test_a_sample_of_a_saved_profile_is_of_its_stage_wherever_it_came_from(
    stage: int, expected: tuple[float, float]
) -> None:
    """Stages are on GPUs of two models, so that each model's least tells; one that the schedule lacks says nothing."""
    told_by = 0 if stage else 1
    job = job_of({0: {told_by: [taken(0, 0.0, sample("F", 1400, 5.0, stage=stage))]}, 1: {}})
    usual = [taken(1400, 0.0, sample("F", 1400, 10.0))]
    job.profiling.samples[1] = {0: usual, 1: usual}
    known = job.members.fingerprints[1]
    job.members.fingerprints[1] = replace(known, fingerprint=replace(known.fingerprint, gpu_name="H200"))
    assert blocking_power_w(job) == pytest.approx(tuple(SHARE * power_w for power_w in expected))


def test_a_stage_none_of_whose_ranks_is_known_is_on_the_model_that_most_are_on() -> None:
    job = job_of({1: {0: [taken(1400, 60.0)]}})
    del job.members.fingerprints[1]
    assert blocking_power_w(job) == (60.0, 60.0)


# ---- measuring it again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "is_noted"),
    [
        (taken(1400, 0.0), True),
        (taken(1400, 0.0, sample("CONST", 1400, 1.0)), True),
        (taken(1400, 0.0, sample("F", 1400, 1.0)), False),
        (taken(0, 0.0), False),
        (taken(1400, 80.0), False),
    ],
)
def test_a_sweep_that_heat_kept_from_its_clocks_has_measured_nothing_and_its_iterations_are_noted(
    one: TakenSamples, *, is_noted: bool
) -> None:
    job = job_of({1: {0: [taken(1400, 0.0, sample("B", 1400, 1.0))], 1: [one]}})
    note_unmeasured(job, 2.0)
    assert job.profiling.held_back_s == (2.0 if is_noted else 0.0)
    unended = job_of({1: {0: [one]}}, open_series=1)
    note_unmeasured(unended, 2.0)
    assert unended.profiling.held_back_s == 0.0


@pytest.mark.parametrize(
    ("held_back_s", "times_s", "is_again"),
    [
        (1.0, (0.99,), False),
        (1.0, (0.9899,), True),
        (1.0, (0.5, 0.99), False),
        (1.0, (0.99, 0.5), True),
        (1.0, (), False),
        (0.0, (0.5,), False),
        (0.5, (0.4,), True),
        (math.inf, (5.0,), True),
    ],
)
def test_it_is_measured_again_where_the_newest_probe_is_clearly_faster_than_the_sweep_was(
    held_back_s: float, times_s: tuple[float, ...], *, is_again: bool
) -> None:
    job = fleet_planning().job
    job.profiling.held_back_s = held_back_s
    job.measured.probed.clear()
    job.measured.probed.extend(iteration(number, time_s) for number, time_s in enumerate(times_s))
    why = why_measured_again(job)
    expected = "iterations at full clocks take {:.4f} s now: measuring blocking power once more"
    assert why == (expected.format(times_s[-1]) if is_again else "")
