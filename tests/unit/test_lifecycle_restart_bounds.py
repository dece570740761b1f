"""A restarted planner's job at its limits: the phase that its facts tell of, and numbers that go on."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from fleets import fleet_enforcing, fleet_planning, fleet_profiling
from test_malformed_facts import good_facts
from test_planner_lifecycle import POLICY, Fleet

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import PaceChosen, SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableMade
from perseus_dist.planner.job.facts.runs import (
    BaselineMeasured,
    JobEnded,
    JobRegistered,
    SavingCounted,
    ScheduleReceived,
)
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.saving.followed import UNKNOWN, Followed
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.saving.saving import Saving
from perseus_dist.planner.lifecycle.restart import restore

_T = TypeVar("_T")


def facts_of(fleet: Fleet) -> list[Fact]:
    return list(fleet.facts.values())


def without(facts: Sequence[Fact], *kinds: type) -> list[Fact]:
    return [fact for fact in facts if not isinstance(fact, kinds)]


def only(facts: Sequence[Fact], kind: type[_T]) -> _T:
    (found,) = (fact for fact in facts if isinstance(fact, kind))
    return found


def restored(facts: Sequence[Fact]) -> Job:
    return restore("job", facts, POLICY)


def under_plan() -> list[Fact]:
    return facts_of(fleet_enforcing())


def planning() -> list[Fact]:
    return facts_of(fleet_planning())


# ---- the phase -------------------------------------------------------------------------------------------------------


def test_a_job_that_was_being_planned_is_planned_at_once_where_all_that_it_takes_is_there() -> None:
    job = restored(planning())
    assert job.phase is Phase.PLANNING
    assert job.planning.again_at_s == 0.0
    assert job.reason == "the planner was restarted"
    for missing in (BaselineMeasured, ScheduleReceived):
        job = restored(without(planning(), missing))
        assert job.phase is Phase.REGISTERING
        assert job.planning.again_at_s is None
    assert restored(without(planning(), SamplesReceived)).phase is Phase.REGISTERING


@pytest.mark.parametrize(
    ("points", "phase"),
    [((2,), Phase.ENFORCING), ((0,), Phase.ENFORCING), ((NO_POINT,), Phase.REGISTERING), (None, Phase.REGISTERING)],
)
def test_a_plan_is_in_force_where_a_switch_was_decided_that_follows_it(
    points: tuple[int, ...] | None, phase: Phase
) -> None:
    facts = under_plan()
    switch = only(facts, SwitchDecided)
    facts = without(facts, SwitchDecided) + ([] if points is None else [replace(switch, points=points)])
    assert restored(facts).phase is phase


def test_a_plan_is_in_force_where_one_pipeline_of_several_follows_it() -> None:
    facts = facts_of(fleet_enforcing(dp=2))
    switch = only(facts, SwitchDecided)
    facts = [*without(facts, SwitchDecided), replace(switch, points=(NO_POINT, 1))]
    assert restored(facts).phase is Phase.ENFORCING


def test_a_sweep_goes_on_where_instructions_can_be_seen() -> None:
    swept = facts_of(fleet_profiling())
    assert restored(swept).phase is Phase.PROFILING
    beside_plan = [*swept, *(fact for fact in under_plan() if isinstance(fact, TableMade))]
    assert restored(beside_plan).phase is Phase.REPROFILING
    spec = only(swept, JobRegistered)
    unseen = [replace(spec, granularity="rank"), *without(swept, JobRegistered)]
    assert restored(unseen).phase is Phase.REGISTERING
    begun = only(swept, SweepBegun)
    assert restored([*swept, SweepEnded(series=begun.series)]).profiling.sweep is None


def test_a_job_that_is_done_stays_so_for_the_same_reason() -> None:
    job = restored([*planning(), JobEnded(reason="every rank's trainer has ended")])
    assert (job.phase, job.reason) == (Phase.DONE, "every rank's trainer has ended")
    assert job.planning.again_at_s is None


# ---- what was decided ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t_prime_s", "own_revisions", "is_kept"), [(0.0, (), False), (0.001, (), True), (1.5, (), True), (0.0, (0,), True)]
)
def test_a_switch_that_makes_pipelines_wait_is_kept_until_it_is_known_again_who_is_slow(
    t_prime_s: float, own_revisions: tuple[int, ...], *, is_kept: bool
) -> None:
    facts = under_plan()
    switch = replace(only(facts, SwitchDecided), t_prime_s=t_prime_s, own_revisions=own_revisions)
    assert restored([*without(facts, SwitchDecided), switch]).detection.keeps_switch == is_kept


def test_a_policy_that_sets_the_pace_leaves_no_room_for_probes_until_it_says_so() -> None:
    facts = planning()
    assert not restored(facts).holds_probes
    job = restored([*facts, pace := PaceChosen(slowdown=1.5, budget="hall")])
    assert job.holds_probes
    assert job.chosen_pace == pace


@pytest.mark.parametrize(("revision", "given"), [(1, 1), (7, 7)])
def test_revisions_of_a_pipelines_own_tables_are_used_up(revision: int, given: int) -> None:
    facts = under_plan()
    made = only(facts, TableMade)
    own = StragglerPlanReady(
        dp_rank=0, revision=revision, base_revision=1, slow_ranks=(), summary=made.summary, tables=made.tables
    )
    later = replace(own, revision=max(1, revision - 1))
    job = restored([*facts, own])
    assert job.revisions.given_table == given
    assert restored([*facts, own, later]).revisions.given_table == given
    assert job.detection.straggler_plans == {0: own}


def test_numbers_that_earlier_runs_used_up_stay_so() -> None:
    facts = facts_of(fleet_profiling())
    spec = only(facts, JobRegistered)
    for last, sweep_id in ((0, 1), (1, 1), (9, 9)):
        used = replace(spec, held_revision=5, held_switch_revision=6, last_sweep_id=last)
        for ordered in ([used, *without(facts, JobRegistered)], [*without(facts, JobRegistered), used]):
            job = restored(ordered)
            assert (job.revisions.held_table, job.revisions.held_switch) == (5, 6)
            assert job.profiling.sweep_id == sweep_id


def test_iterations_are_counted_against_the_plan_that_was_followed_from_the_first_on() -> None:
    job = restored(under_plan())
    assert job.switch is not None
    followed = job.measured.saving.plans.at(0, job.switch.directives)
    assert followed is not None
    assert followed is not UNKNOWN
    job.measured.saving.plans.begin(50, job.switch.directives, Followed(key="another reason"))
    assert job.measured.saving.plans.at(0, job.switch.directives) == followed
    assert job.measured.saving.plans.at(50, job.switch.directives) == Followed(key="another reason")


# ---- what was measured -----------------------------------------------------------------------------------------------


def test_joules_that_were_saved_count_on_with_all_that_was_kept_of_them() -> None:
    saving = Saving(counted_j=7.0, counted_doubt_j=2.0)
    saving.begin(FullClocks(time_s=3.0, energy_j=9.0, num_iterations=4, weight=16.0))
    facts = without(under_plan(), SavingCounted)
    old = restored([*facts, SavingCounted(saved_j=7.0, doubt_j=2.0)]).measured
    assert (old.saving.saved_j, old.saving.counted_doubt_j, old.stored_saved_j) == (7.0, 2.0, 7.0)
    assert old.saving.full is not None
    assert old.saving.full.time_s == 1.0, "the baseline's, where an earlier version has kept nothing"
    new = restored([*facts, SavingCounted(saved_j=7.0, doubt_j=2.0, kept=saving.keep())]).measured
    assert (new.saving.saved_j, new.stored_saved_j) == (7.0, 7.0)
    assert new.saving.full is not None
    assert new.saving.full.time_s == 3.0
    assert restored(facts).measured.saving.saved_j == 0.0


def test_what_was_measured_of_stages_is_of_no_rank() -> None:
    facts = planning()
    one = next(fact for fact in facts if isinstance(fact, SamplesReceived))
    stage = replace(one, rank=7, pp_rank=1, dp_rank=5, series=OF_STAGES)
    job = restored([*facts, stage])
    assert set(job.members.places) == set(job.members.rank_at.values()) == {0, 1}


def test_blocking_power_that_was_not_measured_before_the_restart_is_measured_after_the_next_probe() -> None:
    facts = planning()
    hot = [
        replace(fact, samples=replace(fact.samples, blocking_power_w=0.0, samples=()))
        if isinstance(fact, SamplesReceived)
        else fact
        for fact in facts
    ]
    assert restored(hot).profiling.held_back_s == math.inf
    assert restored(facts).profiling.held_back_s == 0.0


@pytest.mark.parametrize(
    ("others", "attempts"),
    [
        ([], 1),
        ([(2, 1, 1)], 2),
        ([(2, 1, 1), (3, 1, 1)], 3),
        ([(2, 1, 2)], 1),
        ([(2, 1, 2), (3, 1, 2)], 2),
        ([(5, 5, 1)], 1),
        ([(2, 1, 1), (5, 5, 1), (6, 5, 1)], 2),
    ],
)
def test_sweeps_of_a_round_are_counted_as_attempts_at_it(others: list[tuple[int, int, int]], attempts: int) -> None:
    """Others by their number, their series and their round."""
    facts = facts_of(fleet_profiling())
    begun = only(facts, SweepBegun)
    more = [replace(begun, sweep_id=number, series=series, num_round=num) for number, series, num in others]
    job = restored([*facts, *more])
    assert job.profiling.sweep is not None
    assert job.profiling.sweep.attempts == attempts
    assert job.profiling.sweep.ordered == [begun, *more][-1]
    assert job.profiling.sweep_id == max(begun.sweep_id, *(number for number, *_ in others), 1)


def test_samples_that_have_come_are_not_missing_and_parts_of_them_are() -> None:
    fleet = fleet_profiling()
    fleet.iterate(4)
    facts = facts_of(fleet)
    sweep = restored(facts).profiling.sweep
    assert sweep is not None
    assert sweep.missing_mhz == {0: {1200, 1000, 800}, 1: {1200, 1000, 800}}
    parts = [
        replace(fact, samples=replace(fact.samples, last=False)) if isinstance(fact, SamplesReceived) else fact
        for fact in facts
    ]
    # As where a sweep is ordered again for what the one before has missed.
    begun = only(parts, SweepBegun)
    for known, missing in ((facts, {1200, 1000, 800}), (parts, {1400, 1200, 1000, 800})):
        again = restored([*known, replace(begun, sweep_id=2)]).profiling.sweep
        assert again is not None
        assert again.missing_mhz == {0: missing, 1: missing}


def test_the_facts_of_a_large_job_make_the_same_job_again() -> None:
    job = restored(good_facts())
    assert job.phase is Phase.ENFORCING
    assert job.spec is not None
    assert len(job.progress.pipelines) == job.spec.dp_size == 2
    assert job.stragglers.keys() == {"cooling"}
