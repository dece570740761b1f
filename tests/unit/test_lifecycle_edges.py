"""Decisions of a job's life cycle at their edges: what begins anew, what is waited for, what is numbered."""

import math
from copy import deepcopy
from dataclasses import fields, replace
from typing import Any

import pytest
from test_planner_lifecycle import Fleet, of_type

from perseus_dist.messages.from_agent import ScheduleText
from perseus_dist.messages.from_planner import Refused, StopSweep
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.state.planning import Planning
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.lifecycle.blocking_power import why_measured_again
from perseus_dist.planner.lifecycle.enforcement.followed_plan import followed_plan
from perseus_dist.planner.lifecycle.enforcement.prediction_check import learn
from perseus_dist.planner.lifecycle.events import StragglerReported
from perseus_dist.planner.lifecycle.reset import drop_kept_profile, drop_profile
from perseus_dist.planner.lifecycle.status.job_status import job_status

OTHER: dict[type, Any] = {bool: True, int: 7, float: 7.5, tuple: (1,), type(None): 3, dict: {(0, 1): 1}, set: {1}}


def used(state: Any) -> Any:
    """The state with another value in every field that is a plain one."""
    for one in fields(state):
        value = getattr(state, one.name)
        if type(value) in OTHER and one.init:
            setattr(state, one.name, OTHER[type(value)])
    return state


def test_planning_that_begins_anew_keeps_its_numbers_and_nothing_else() -> None:
    planning = used(Planning())
    planning.begin_anew()
    assert planning == Planning(request_id=7, pending=3, ahead=planning.ahead)


def test_the_profile_of_other_work_keeps_numbers_that_are_used_up_and_nothing_else() -> None:
    profiling = used(Profiling())
    assert profiling.of_other_work() == Profiling(sweep_id=7, acked_samples={(0, 1): 1})


def test_events_of_a_job_are_numbered_one_by_one() -> None:
    fleet = Fleet().to_enforcing()
    numbers = [event.sequence for event in job_status(fleet.job).events]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 2
    assert fleet.job.history.num_events == numbers[-1]


def test_a_schedule_that_does_not_fit_is_not_to_be_sent_again() -> None:
    fleet = Fleet()
    stream = fleet.attach(0)
    fleet.say(stream, ScheduleText(text="0F0 nonsense\n"))
    (refused,) = of_type(fleet.inbox[stream], Refused)
    assert isinstance(refused, Refused)
    assert not refused.retry


def test_a_profile_is_dropped_with_the_sweep_that_is_under_way_and_without_one_in_silence() -> None:
    fleet = Fleet().to_profiling()
    sweep = fleet.sweep(0)
    assert sweep is not None
    stops = drop_profile(fleet.job, fleet.now_s)
    assert [effect.message.sweep_id for effect in stops] == [sweep.sweep_id] * 2  # type: ignore[union-attr]
    assert drop_profile(fleet.job, fleet.now_s) == []
    assert fleet.job.profiling.sweep_id == sweep.sweep_id, "no later sweep has its number"
    assert not any(isinstance(getattr(one, "message", None), StopSweep) for one in drop_kept_profile(fleet.job, 1.0))


def test_no_plan_is_followed_before_a_switch_without_a_plan_or_where_a_pipeline_has_none() -> None:
    fleet = Fleet().to_enforcing()
    job, switch = fleet.job, fleet.job.switch
    assert switch is not None
    job.enforcement.switch = replace(switch, points=(1,) * len(switch.points))
    assert followed_plan(job) is not None
    job.enforcement.switch = None
    assert followed_plan(job) is None
    job.enforcement.switch = replace(switch, points=(NO_POINT,))
    assert followed_plan(job) is None
    job.enforcement.switch, job.plan = switch, None
    assert followed_plan(job) is None


def test_blocking_power_is_measured_again_where_iterations_have_become_clearly_faster() -> None:
    fleet = Fleet().to_enforcing()
    fleet.iterate(12)
    job = fleet.job
    for held_back_s, time_s, is_again in ((2.0, 2.0, False), (2.0, 1.99, False), (2.0, 1.0, True), (0.0, 1.0, False)):
        job.profiling.held_back_s = held_back_s
        job.measured.probed.append(replace(job.measured.enforced[-1], time_s=time_s))
        assert bool(why_measured_again(job)) == is_again, (held_back_s, time_s)


def test_between_lessons_about_longer_iterations_lies_a_time_that_doubles() -> None:
    fleet = Fleet().to_enforcing()
    fleet.job.planning.num_lessons, fleet.job.planning.learnt_at_s = 12, fleet.now_s  # nothing is learnt meanwhile
    fleet.free_s = fleet.planned_s = 1.03
    fleet.iterate(66)
    for num_lessons, interval_s in ((1, 30.0), (2, 60.0), (3, 120.0), (4, 240.0), (5, 480.0)):
        fleet.job.planning.num_lessons = num_lessons
        fleet.job.planning.learnt_at_s = fleet.now_s
        assert not learn(deepcopy(fleet.job), fleet.now_s + interval_s - 0.1)
        assert learn(deepcopy(fleet.job), fleet.now_s + interval_s + 0.1)


@pytest.mark.parametrize("degree", [1.0, 100.0])
def test_a_straggler_may_be_reported_at_the_bounds_of_its_degree(degree: float) -> None:
    fleet = Fleet(dp=2).to_enforcing()
    for reported, is_accepted in ((degree, True), (0.99, False), (100.5, False), (math.nan, False)):
        fleet.tell(StragglerReported(straggler_id="cooling", degree=reported, dp_rank=1))
        assert fleet.answers[-1].accepted == is_accepted, fleet.answers[-1].reason


def test_a_job_without_a_plan_shows_no_figure_of_one() -> None:
    status = job_status(Fleet().to_profiling().job)
    degrees = (status.full_time_degree, status.full_energy_degree, status.plan_time_degree, status.plan_energy_degree)
    assert degrees == (0.0,) * 4
    assert (status.t_prime_s, status.progress_share >= 0) == (0.0, True)
