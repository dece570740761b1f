"""A sweep that ranks leave, and what follows one, at the limits: who is waited for, what comes next."""

from dataclasses import replace

import pytest
from test_sweeping_rounds_bounds import ALL_MHZ, job_of, measured
from test_sweeping_sweep_bounds import NOW_S, PLAN, has_ended, ordered_by, ready, said, sent, sweeping

from perseus_dist.messages.from_planner import StopSweep
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.sweeping.again import measure_again, measure_blocking_power
from perseus_dist.planner.lifecycle.sweeping.sweep import _has_replica, _shown, advance_sweep

# ---- who is away -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dp", [1, 2])
def test_a_sweep_pauses_for_ranks_that_are_away_unless_a_replica_measures_the_same(dp: int) -> None:
    job, sweep = sweeping({0: {1000}, 1: {1000}}, dp=dp, pp=3 - dp, iteration=91)
    del job.members.rank_of_stream[1]
    for after_s in (0.0, 1.9):
        assert advance_sweep(job, NOW_S + after_s) == []
        assert (sweep.away_since_s, sweep.is_paused) == (NOW_S, False)
    effects = advance_sweep(job, NOW_S + 2.0)
    assert said(effects) == "sweep 3 waits for ranks 1 to come back and be profiled" == job.reason
    assert sent(effects, StopSweep) == [0]
    assert sweep.is_paused
    assert advance_sweep(job, NOW_S + 4.9) == []
    assert sweep.missing_mhz.keys() == {0, 1}
    job.members.ranks[0].has_reported = True
    effects = advance_sweep(job, NOW_S + 5.0)
    assert [one.clocks_mhz for one in ordered_by(effects)] == ([] if dp == 1 else [(1000,)])
    assert 1 not in sweep.missing_mhz or dp == 1


def test_a_sweep_whose_samples_other_pipelines_have_measured_is_complete() -> None:
    job, sweep = sweeping({1: {1000}}, iteration=91)
    sweep.is_paused, sweep.away_since_s = True, NOW_S - 5.0
    del job.members.rank_of_stream[1]
    effects = advance_sweep(job, NOW_S)
    assert said(effects) == "sweep 3 is complete: other pipelines measured the same"
    assert has_ended(job, effects)


@pytest.mark.parametrize(
    ("missing_mhz", "has_measured", "is_away", "has_replica"),
    [
        ({1: {1000}}, True, False, True),
        ({1: {1000}}, True, True, True),
        ({1: {1000}}, False, False, False),
        ({0: {1000}, 1: {1000}}, False, False, True),
        ({0: {1000}, 1: {1000}}, True, True, False),
    ],
)
def test_a_replica_stands_for_another_where_it_has_measured_or_is_there_to(
    missing_mhz: dict[int, set[int]], *, has_measured: bool, is_away: bool, has_replica: bool
) -> None:
    job, sweep = sweeping(missing_mhz)
    if not has_measured:
        del job.profiling.samples[3][0]
    if is_away:
        del job.members.rank_of_stream[0]
    assert _has_replica(job, sweep, 1) == has_replica
    del job.members.places[1]
    assert not _has_replica(job, sweep, 1), "the planner was restarted, and it has not come back"


def test_eight_ranks_are_named_and_more_are_counted() -> None:
    assert _shown(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert _shown(range(9)) == "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"


@pytest.mark.parametrize(("iteration", "first_iteration"), [(83, None), (82, 86), (NO_ITERATION, None)])
def test_a_sweep_of_iterations_that_training_has_gone_back_from_is_ordered_anew_behind_a_warm_up(
    iteration: int, first_iteration: int | None
) -> None:
    job, _ = sweeping({0: {1000}}, iteration=iteration)
    found = [one.first_iteration for one in ordered_by(advance_sweep(job, NOW_S))]
    assert found == ([] if first_iteration is None else [first_iteration])


# ---- the next round --------------------------------------------------------------------------------------------------


def complete(num_round: int = 1, *, iteration: int = 98, is_profile: bool = True, has_changed: bool = False) -> Job:
    """All that was asked for has come, and the first stage lacks a clock."""
    job, _ = sweeping({}, dp=1, pp=2, iteration=iteration, num_round=num_round, is_profile=is_profile)
    assert job.policy.max_sweep_rounds == 4
    job.profiling.samples[3][0] = measured((1400, 1000))
    if has_changed:
        job.profiling.samples[3][0] = [*measured((1400,), factor=1.1), *measured((1400, 1000))]
    return job


@pytest.mark.parametrize(
    ("num_round", "has_changed", "is_profile", "is_next"),
    [
        (1, False, True, True),
        (3, False, True, True),
        (4, False, True, False),
        (4, True, True, True),
        (5, True, True, True),
        (6, True, True, False),
        (1, False, False, False),
    ],
)
def test_a_series_has_four_rounds_and_two_more_where_ranks_have_become_faster_or_slower(
    num_round: int, *, has_changed: bool, is_profile: bool, is_next: bool
) -> None:
    job = complete(num_round, has_changed=has_changed, is_profile=is_profile)
    effects = advance_sweep(job, NOW_S)
    assert has_ended(job, effects) != is_next
    if is_next:
        (ordered,) = ordered_by(effects)
        assert (ordered.sweep_id, ordered.series, ordered.num_round) == (4, 3, num_round + 1)
        assert ordered.is_profile
        assert ordered.clocks_of(0) == (1400, 1200)
        assert job.profiling.sweep is not None
        assert job.profiling.sweep.attempts == 1
        assert said(effects) == "sweep 3 is complete: sweep 4 measures 1400, 1200 MHz, too"


@pytest.mark.parametrize(("iteration", "first_iteration"), [(97, 100), (98, 100), (99, 100), (100, 101)])
def test_the_next_round_begins_behind_the_iteration_that_the_one_before_ends_with(
    iteration: int, first_iteration: int
) -> None:
    (ordered,) = ordered_by(advance_sweep(complete(iteration=iteration), NOW_S))
    assert ordered.first_iteration == first_iteration


def test_the_next_round_waits_a_while_for_ranks_that_are_away() -> None:
    job = complete()
    del job.members.rank_of_stream[1]
    for after_s in (0.0, 4.9):
        assert advance_sweep(job, NOW_S + after_s) == []
    assert ordered_by(advance_sweep(job, NOW_S + 5.0))


@pytest.mark.parametrize(
    ("num_round", "is_to_judge", "is_profile", "is_stopped"),
    [(1, True, True, True), (1, False, True, False), (2, True, True, False), (1, True, False, False)],
)
def test_a_first_round_stops_where_energy_has_risen_since_a_clock_was_measured_by_all(
    num_round: int, *, is_to_judge: bool, is_profile: bool, is_stopped: bool
) -> None:
    policy = Policy(num_rises_to_stop=2, max_saving_doubt=0.5)
    job, sweep = sweeping({0: {1000}}, iteration=91, policy=policy, num_round=num_round, is_profile=is_profile)
    sweep.is_to_judge = is_to_judge
    effects = advance_sweep(job, NOW_S)
    assert sent(effects, StopSweep) == ([0, 1] if is_stopped else [])
    assert has_ended(job, effects) == is_stopped
    assert not sweep.is_to_judge


# ---- sweeps beyond the first -----------------------------------------------------------------------------------------


def test_who_cannot_set_clocks_measures_at_the_clock_that_all_stages_have_as_their_maximum() -> None:
    job = ready(job_of(2, pp=2))
    for rank in (1, 3):
        job.members.ranks[rank].gpu = replace(job.members.ranks[rank].gpu, clocks_mhz=(1300, 1200))
    job.members.ranks[2].control = "observe"
    (ordered,) = ordered_by(measure_again(job, (0, 1), NOW_S, "for a test"))
    assert ordered.clocks_of(2) == (1300,)
    assert ordered.clocks_of(3)[0] == 1300
    assert ordered.clocks_of(0)[0] == 1400


@pytest.mark.parametrize(
    ("lacks", "plan", "phase"),
    [
        ("", None, Phase.PROFILING),
        ("", PLAN, Phase.REPROFILING),
        ("a rank", None, Phase.REGISTERING),
        ("clocks", None, Phase.REGISTERING),
        ("instructions", None, Phase.REGISTERING),
    ],
)
def test_blocking_power_is_measured_at_full_clocks_of_all_ranks(lacks: str, plan: JobPlan | None, phase: Phase) -> None:
    job = ready(job_of(2, menu_mhz=() if lacks == "clocks" else ALL_MHZ))
    job.plan, job.profiling.held_back_s = plan, 2.0
    if lacks == "a rank":
        del job.members.rank_of_stream[1]
    elif lacks == "instructions":
        assert job.spec is not None
        job.spec = replace(job.spec, granularity="rank")
    effects = measure_blocking_power(job, NOW_S, "for a test")
    assert job.phase is phase
    assert job.profiling.held_back_s == (2.0 if lacks else 0.0)
    found = [(one.clocks_mhz, one.first_only, one.is_profile) for one in ordered_by(effects)]
    assert found == ([] if lacks else [((1400,), (0, 1), False)])


@pytest.mark.parametrize("of_other_mhz", [(1980, 1700, 1400, 1100), (1980, 1755, 1605)])
def test_blocking_power_is_measured_at_each_stages_own_full_clocks(of_other_mhz: tuple[int, ...]) -> None:
    job = ready(job_of(2, pp=2))
    for rank in (1, 3):
        job.members.ranks[rank].gpu = replace(job.members.ranks[rank].gpu, clocks_mhz=of_other_mhz)
    (ordered,) = ordered_by(measure_blocking_power(job, NOW_S, "for a test"))
    assert {rank: ordered.clocks_of(rank) for rank in range(4)} == {0: (1400,), 1: (1980,), 2: (1400,), 3: (1980,)}
    assert (ordered.num_steps, ordered.is_profile) == (1, False)
