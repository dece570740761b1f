"""Parts of a job that begin anew: numbers that are used up stay so, and what is given up is told."""

from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_profiling
from test_planner_slack import NoisyFleet

from perseus_dist.messages.from_planner import StopSweep
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.planning import Planning
from perseus_dist.planner.lifecycle.events import CancelPlanning, Persist, Send
from perseus_dist.planner.lifecycle.lifecycle import Policy, new_job
from perseus_dist.planner.lifecycle.reset import (
    FACTS_OF_A_PROFILE,
    cancel_planning,
    drop_kept_profile,
    drop_profile,
    release,
    reset_plan,
    reset_run,
    spend,
)


def test_a_plan_that_is_being_made_is_given_up_once() -> None:
    planning = Planning(request_id=7, pending=5)
    assert cancel_planning(planning) == [CancelPlanning(request_id=5)]
    assert planning.pending is None
    assert planning.request_id == 7, "no later request has its number"
    assert cancel_planning(planning) == []


def test_a_job_that_never_had_a_plan_has_used_up_no_number() -> None:
    job = new_job("job", Policy())
    assert release(job, 1.0, "why") == []
    assert (job.revisions.held_table, job.revisions.held_switch) == (0, 0)


@pytest.mark.parametrize(
    ("held", "given", "revision", "expected"),
    [(1, 2, 3, 3), (3, 2, 1, 3), (1, 3, 2, 3), (4, 0, None, 4), (0, 4, None, 4)],
)
def test_clocks_are_released_and_the_highest_revision_of_a_table_is_used_up(
    held: int, given: int, revision: int | None, expected: int
) -> None:
    job = fleet_enforcing().job
    assert job.plan is not None
    job.plan = None if revision is None else replace(job.plan, revision=revision)
    job.revisions.held_table, job.revisions.given_table = held, given
    assert release(job, 1.0, "why") != []
    assert job.revisions.held_table == expected


@pytest.mark.parametrize(("held", "expected"), [(0, 2), (1, 2), (9, 10)])
def test_the_switch_that_released_clocks_is_used_up_too(held: int, expected: int) -> None:
    job = fleet_enforcing().job
    assert job.switch is not None
    assert job.switch.switch_revision == 1
    job.revisions.held_switch = held
    release(job, 1.0, "why")
    assert job.switch is None
    assert job.revisions.held_switch == expected


def test_with_no_rank_attached_nobody_is_told_and_the_switch_is_used_up_all_the_same() -> None:
    fleet = fleet_enforcing()
    fleet.detach(0)
    fleet.detach(1)
    fleet.job.revisions.held_switch = 0
    assert fleet.job.switch is not None
    assert fleet.job.switch.points != (NO_POINT,)
    assert release(fleet.job, 1.0, "why") == []
    assert fleet.job.revisions.held_switch == 1


def used_up() -> Job:
    job = fleet_enforcing().job
    assert job.spec is not None
    job.spec = replace(job.spec, run_id="run 1", keeps_profile=True, is_anew=True)
    job.revisions.held_table, job.revisions.held_switch, job.profiling.sweep_id = 11, 12, 13
    return job


def test_the_registration_says_what_is_used_up_and_keeps_the_rest() -> None:
    job = used_up()
    spec = spend(job)
    assert spec is job.spec
    assert (spec.held_revision, spec.held_switch_revision, spec.last_sweep_id) == (11, 12, 13)
    assert (spec.run_id, spec.keeps_profile, spec.is_anew) == ("run 1", True, True)


def test_the_registration_changes_in_what_is_said_alone_even_where_that_is_empty_or_false() -> None:
    assert spend(used_up(), run_id="").run_id == ""
    assert spend(used_up(), run_id="run 2").run_id == "run 2"
    changed = spend(used_up(), keeps_profile=False)
    assert (changed.run_id, changed.keeps_profile, changed.is_anew) == ("run 1", False, True)
    changed = spend(used_up(), is_anew=False)
    assert (changed.run_id, changed.keeps_profile, changed.is_anew) == ("run 1", True, False)


def test_samples_that_were_dropped_are_not_waited_for_and_all_attached_ranks_stop() -> None:
    fleet = fleet_profiling()
    job = fleet.job
    for state in job.members.ranks.values():
        state.has_profile = True
    fleet.detach(1)
    (stop,) = drop_profile(job, fleet.now_s)
    assert isinstance(stop, Send)
    assert stop.stream == fleet.stream_of[0]
    assert isinstance(stop.message, StopSweep)
    assert stop.message.first_iteration > job.progress.iteration
    assert not any(state.has_profile for state in job.members.ranks.values())
    assert not job.profiling.samples


def test_a_profile_of_another_schedule_that_is_dropped_is_no_more_one_that_is_kept() -> None:
    job = used_up()
    *_, stored = drop_kept_profile(job, 1.0)
    assert job.spec is not None
    assert stored == Persist(facts=(job.spec,), drop=FACTS_OF_A_PROFILE)
    assert not job.spec.keeps_profile


def test_another_run_counts_its_sweeps_anew_and_plans_on_with_what_the_plan_was_made_with() -> None:
    job = NoisyFleet().to_enforcing().job
    assert job.plan is not None
    job.plan = replace(job.plan, extra_s=0.25, summary=replace(job.plan.summary, least_margin=0.5, noise=0.125))
    job.profiling.num_step_sweeps = job.profiling.num_misstated_sweeps = 2
    job.profiling.reprofiled_at_s = 5.0
    job.measured.stored_saved_at_s = 6.0
    reset_run(job)
    assert (job.profiling.num_step_sweeps, job.profiling.num_misstated_sweeps) == (0, 0)
    assert job.profiling.reprofiled_at_s is None
    assert (job.planning.extra_s, job.planning.margin, job.planning.seen_noise) == (0.25, 0.5, 0.125)
    assert job.measured.stored_saved_at_s == 6.0
    assert job.measured.baseline is None
    assert job.plan is not None
    reset_plan(job)
    assert job.plan is None
    assert job.planning.extra_s == 0.0
    reset_run(job)
    assert job.planning.extra_s == 0.0
