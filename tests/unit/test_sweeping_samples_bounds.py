"""Samples and cost of a series, at the bounds: what is kept, what is dropped, where energy has risen, what is told."""

import pytest
from test_lifecycle_baseline_bounds import baseline, iteration
from test_sweeping_witnesses_bounds import sample, taken

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE, SamplesReceived, SweepBegun
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.profiling import ActiveSweep, Profiling, SweepCost, TakenSamples
from perseus_dist.planner.lifecycle.sweeping.cost import count_swept, tell_cost, tell_estimate
from perseus_dist.planner.lifecycle.sweeping.series_samples import (
    clock_of_step,
    drop_replaced,
    has_risen,
)
from perseus_dist.straggler.layout import RankCoords

CLOCKS_MHZ = (1400, 1300, 1200, 1100, 1000)


def begun(
    sweep_id: int,
    *,
    series: int = 0,
    clocks_mhz: tuple[int, ...] = CLOCKS_MHZ,
    ranks: tuple[int, ...] = (0, 1),
    of_ranks: tuple[tuple[int, ...], ...] = (),
    first_only: tuple[int, ...] = (),
    first_iteration: int = 10,
    is_profile: bool = True,
    num_round: int = 1,
) -> SweepBegun:
    return SweepBegun(
        sweep_id=sweep_id,
        series=series or sweep_id,
        first_iteration=first_iteration,
        iterations_per_clock=3,
        clocks_mhz=clocks_mhz,
        ranks=ranks,
        first_only=first_only,
        is_profile=is_profile,
        num_round=num_round,
        clocks_of_ranks=of_ranks,
    )


# ---- samples ---------------------------------------------------------------------------------------------------------


def received(sequence: int, clock_mhz: int = 1400, *, series: int = 3, last: bool = True) -> SamplesReceived:
    told = ProfileSamples(sequence=sequence, sweep_id=series, step=0, samples=(), last=last)
    return SamplesReceived(
        rank=0, pp_rank=0, dp_rank=0, tp_rank=0, incarnation=7, series=series, clock_mhz=clock_mhz, samples=told
    )


def test_a_series_replaces_what_its_ranks_measured_before_but_for_saved_profiles_and_later_series() -> None:
    own = [TakenSamples(1400, received(1).samples)]
    profiling = Profiling(sweeps={number: begun(number, series=min(number, 4)) for number in (1, 2, 3, 4, 5)})
    profiling.ended_series = {1, 2, 3, 4}
    profiling.samples = {SAVED_PROFILE: {0: own}, 1: {0: own}, 2: {0: own, 1: own}, 3: {0: own, 2: own}, 4: {0: own}}
    assert drop_replaced(profiling, 3) == ["samples/1/0/", "ended/1/", "sweep/1/", "samples/2/0/"]
    assert {series: set(of_ranks) for series, of_ranks in profiling.samples.items()} == {
        SAVED_PROFILE: {0},
        2: {1},
        3: {0, 2},
        4: {0},
    }
    assert profiling.sweeps.keys() == {2, 3, 4, 5}
    assert profiling.ended_series == {2, 3, 4}
    assert drop_replaced(profiling, 9) == []


def test_a_rank_measures_a_clock_in_each_step_that_its_sweep_has() -> None:
    profiling = Profiling(sweeps={3: begun(3, ranks=(0,), first_only=(2,))})
    for rank, step, clock_mhz in (
        (0, 0, 1400),
        (0, 4, 1000),
        (0, 5, 0),
        (0, -1, 0),
        (1, 0, 0),
        (2, 0, 1400),
        (2, 1, 0),
    ):
        told = ProfileSamples(sequence=1, sweep_id=3, step=step, samples=())
        assert clock_of_step(profiling, rank, told) == clock_mhz
    assert clock_of_step(profiling, 0, ProfileSamples(sequence=1, sweep_id=4, step=0, samples=())) == 0


# ---- where a sweep may stop ------------------------------------------------------------------------------------------


def measured_job(energies_j: dict[int, tuple[float | None, ...]], *, kind: str = "F", num_rises: int = 2) -> Job:
    """By rank, of a stage each, what its computation drew at the first clocks; None where it was missed."""
    job = Job(job_id="job", policy=Policy(num_rises_to_stop=num_rises))
    job.members.places = {rank: RankCoords(rank, 0, 0) for rank in (0, 1)}
    job.profiling.sweeps = {3: begun(3)}
    job.profiling.sweep = ActiveSweep(ordered=begun(4, series=3), missing_mhz={}, attempts=1)
    job.profiling.samples = {
        3: {
            rank: [
                taken(clock, *([] if drawn_j is None else [sample(1.0, kind=kind, energy_j=drawn_j)]))
                for clock, drawn_j in zip(CLOCKS_MHZ, own_j, strict=False)
            ]
            for rank, own_j in energies_j.items()
        }
    }
    return job


def has_job_risen(job: Job) -> bool:
    assert job.profiling.sweep is not None
    return has_risen(job, job.profiling.sweep)


RISES = (9.0, 5.0, 6.0, 5.5)


@pytest.mark.parametrize(
    ("energies_j", "has_risen_again"),
    [
        ({0: RISES, 1: RISES}, True),
        ({0: RISES, 1: RISES[:3]}, False),  # the second stage has not measured the last clock yet
        ({0: (*RISES, 1.0), 1: RISES}, True),  # nor this one
        ({0: RISES, 1: (9.0, 8.0, 5.0, 5.5)}, False),
        ({0: RISES, 1: (5.0, 5.0, 5.0, 5.0)}, True),  # as cheap at the first
        ({0: RISES, 1: (9.0, 5.0, None, 6.0)}, False),  # of the clocks after its least one alone tells
        ({0: RISES, 1: (5.0, None, 6.0, 7.0)}, True),
        ({0: RISES, 1: (None, None, None, None)}, True),  # of a stage without any computation
        ({0: (None,) * 4, 1: (None,) * 4}, False),
        ({}, False),
    ],
)
def test_a_sweep_stops_where_each_computation_drew_more_at_two_clocks_than_at_its_best(
    energies_j: dict[int, tuple[float | None, ...]], *, has_risen_again: bool
) -> None:
    assert has_job_risen(measured_job(energies_j)) == has_risen_again


def test_constants_do_not_keep_a_sweep_from_stopping_nor_stop_it_where_places_are_not_known() -> None:
    job = measured_job({0: RISES, 1: RISES})
    job.profiling.samples[3][1].append(taken(1400, sample(1.0, kind="LOAD")))
    assert has_job_risen(job)
    del job.members.places[1]
    assert not has_job_risen(job)


# ---- cost ------------------------------------------------------------------------------------------------------------


def sentences(job: Job) -> list[str]:
    return [event.sentence for event in job.history.events(0.0)]


def test_a_sweep_takes_longer_by_as_much_as_the_lowest_clock_of_each_step_is_lower() -> None:
    job = Job(job_id="job", policy=Policy())
    ordered = begun(3, clocks_mhz=(1400, 1000, 700), of_ranks=((1400, 1000, 700), (1400, 1000)), first_only=(2,))
    for times_s, longer_s in (((), "0.0"), ((2.0, 2.0, 9.0), "8.4")):  # of 2 s: 3 * (0.4 + 1.0)
        job.progress.recent_times_s.extend(times_s)
        tell_estimate(job, ordered, 24, 5.0)
        assert sentences(job)[-1].startswith(
            "sweep 3 measures 3 of 24 clocks in 9 iterations, "
            f"which take at most {longer_s} s longer than at full clocks; "
        )
        assert job.profiling.cost == SweepCost()


def swept_job(phase: Phase = Phase.PROFILING) -> Job:
    """Iterations 10 to 18 are of an earlier series, 20 to 34 of the newest, 40 to 42 of its second round."""
    job = Job(job_id="job", policy=Policy(), phase=phase)
    job.profiling.cost = SweepCost()
    job.profiling.sweeps = {
        1: begun(1, clocks_mhz=(1400, 1300, 900)),
        2: begun(2, first_iteration=20),
        3: begun(3, series=2, first_iteration=40, clocks_mhz=(1400, 1150), of_ranks=((1400,), (1150,))),
    }
    job.measured.baseline = baseline()
    return job


@pytest.mark.parametrize("phase", [Phase.PROFILING, Phase.REPROFILING, Phase.PLANNING, Phase.ENFORCING])
def test_iterations_of_the_newest_series_count_from_the_first_to_the_last(phase: Phase) -> None:
    job = swept_job(phase)
    assert job.profiling.cost is not None
    numbers = []
    for number in range(50):
        before = job.profiling.cost.num_iterations
        count_swept(job, iteration(number, 1.5))
        numbers += [number] * (job.profiling.cost.num_iterations - before)
    assert numbers == ([] if phase is Phase.ENFORCING else [*range(20, 35), *range(40, 43)])
    assert job.profiling.cost.longer_s == pytest.approx(0.5 * len(numbers))


def test_without_a_baseline_a_sweep_is_no_longer_than_full_clocks_and_without_an_estimate_nothing_counts() -> None:
    job = swept_job()
    job.measured.baseline = None
    count_swept(job, iteration(20, 1.5))
    assert job.profiling.cost == SweepCost(1, 0.0)
    job.profiling.sweeps.clear()
    count_swept(job, iteration(20, 1.5))
    assert job.profiling.cost == SweepCost(1, 0.0)
    job = swept_job()
    job.profiling.cost = None
    count_swept(job, iteration(20, 1.5))
    assert job.profiling.cost is None


def test_what_the_newest_series_has_cost_is_told_once() -> None:
    job = swept_job()
    job.profiling.cost = SweepCost(18, 9.0)
    tell_cost(job, 5.0)
    tell_cost(job, 5.0)
    assert sentences(job) == [
        "6 clocks were measured in 18 iterations, which took 9.0 s longer than at full clocks",
    ]


@pytest.mark.parametrize(("num_iterations", "num_told"), [(0, 0), (1, 1)])
def test_a_series_that_is_not_known_or_of_which_no_iteration_was_seen_has_no_cost(
    num_iterations: int, num_told: int
) -> None:
    job = swept_job()
    job.profiling.cost = SweepCost(num_iterations, 9.0)
    tell_cost(job, 5.0)
    assert len(sentences(job)) == num_told
    assert job.profiling.cost is None
    job.profiling.cost = SweepCost(1, 9.0)
    job.profiling.sweeps.clear()
    tell_cost(job, 5.0)
    assert len(sentences(job)) == num_told
