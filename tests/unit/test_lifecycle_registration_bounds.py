"""Attaching and detaching at their limits: which ranks fit, which are refused and may try again, and what they get."""

from dataclasses import replace
from typing import Any

import pytest
from builders import make_rank
from fleets import fleet_enforcing, fleet_planning
from test_planner_lifecycle import POLICY, SCHEDULE, Fleet, _gpu, _rank, of_type

from perseus_dist.messages.from_agent import Attach, Goodbye
from perseus_dist.messages.from_planner import Attached, Refused, ScheduleWanted
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.job.timelines import MAX_PIPELINES
from perseus_dist.planner.lifecycle.events import Persist, RankAttached
from perseus_dist.planner.lifecycle.plan import planning_request, start_planning
from perseus_dist.planner.lifecycle.registration import attach_rank, detach_rank

SIZES = {"pp_size": 2, "dp_size": 3, "tp_size": 4}
SHOWN = "with {pp} x {dp} x {tp} (pp x dp x tp) and a clock for each instruction"


def refused(fleet: Fleet, stream: int) -> Refused | None:
    """The newest message of a stream, if that refuses it."""
    message = fleet.inbox[stream][-1]
    return message if isinstance(message, Refused) else None


def attached(fleet: Fleet, stream: int) -> Attached:
    (message,) = of_type(fleet.inbox[stream], Attached)
    assert isinstance(message, Attached)
    return message


# ---- ranks that contradict themselves --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), [("rank", 24), ("pp_rank", 2), ("dp_rank", 3), ("tp_rank", 4)])
def test_a_rank_is_within_its_jobs_sizes(name: str, size: int) -> None:
    for value, is_refused in ((-1, True), (0, False), (size - 1, False), (size, True)):
        fleet = Fleet()
        rank = make_rank(**{**SIZES, name: value}, schedule_digest=SCHEDULE.digest())
        stream = fleet.attach(0, rank=rank)
        found = refused(fleet, stream)
        assert (found is not None) == is_refused, value
        if found is not None:
            shape = f"schedule {SCHEDULE.digest()[:12]} {SHOWN.format(pp=2, dp=3, tp=4)}"
            assert found.reason == (
                f"saw {name} {value} in {shape}, expected 0 to {size - 1}; correct what the trainer reports"
            )
            assert not found.retry
            assert fleet.forgotten


def test_a_rank_that_contradicts_itself_is_refused_for_good_and_the_job_that_is_known_stays() -> None:
    fleet = Fleet()
    fleet.attach(0)
    for is_alone in (False, True):
        if is_alone:
            fleet.detach(0)
        found = refused(fleet, fleet.attach(1, rank=replace(_rank(1), dp_rank=1)))
        assert found is not None
        assert not found.retry
        assert "saw dp_rank 1" in found.reason
        assert not fleet.forgotten
        assert fleet.job.spec is not None


# ---- ranks that do not fit the job -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule_digest": "f" * 64},
        {"granularity": "rank"},
        {"pp_size": 3},
        {"dp_size": 2},
        {"tp_size": 2},
        {"pp_rank": 0},
    ],
    ids=str,
)
def test_a_rank_of_another_shape_or_in_another_place_is_refused_for_as_long_as_others_are_attached(
    changes: dict[str, Any],
) -> None:
    fleet = Fleet()
    fleet.attach(0)
    fleet.attach(1)
    fleet.detach(1)
    found = refused(fleet, fleet.attach(1, incarnation=9, rank=replace(_rank(1), **changes)))
    assert found is not None
    assert found.retry
    assert found.reason.endswith("as the 1 attached ranks of this job; end those, or name the job otherwise")
    assert fleet.phase() is Phase.STALE
    assert fleet.job.members.stale_rank == 1
    assert fleet.job.num_attached == 1


def test_a_rank_that_was_never_there_makes_no_plan_stale() -> None:
    fleet = Fleet()
    fleet.attach(0)
    phase = fleet.phase()
    found = refused(fleet, fleet.attach(1, rank=replace(_rank(1), schedule_digest="f" * 64)))
    assert found is not None
    assert found.retry
    assert fleet.phase() is phase


def test_a_plan_that_is_stale_stays_so_for_the_rank_that_made_it_and_until_that_is_back() -> None:
    fleet = fleet_enforcing(dp=2)
    for rank in (1, 2):
        fleet.detach(rank)
        fleet.attach(rank, incarnation=8, rank=replace(_rank(rank), dp_size=2, schedule_digest="f" * 64))
        assert fleet.job.members.stale_rank == 1
    fleet.attach(2, incarnation=9)
    assert fleet.phase() is Phase.STALE
    assert fleet.job.members.stale_rank == 1
    fleet.attach(1, incarnation=9)
    assert fleet.phase() is not Phase.STALE
    assert fleet.job.members.stale_rank is None


@pytest.mark.parametrize("has_plan", [False, True])
def test_a_plan_that_is_being_made_is_not_followed_while_ranks_disagree(*, has_plan: bool) -> None:
    fleet = fleet_enforcing() if has_plan else fleet_planning()
    if has_plan:
        start_planning(fleet.job, "planning again")
        fleet.requests.append(planning_request(fleet.job))
    fleet.detach(1)
    fleet.attach(1, incarnation=8, rank=replace(_rank(1), schedule_digest="f" * 64))
    num_asked, released = len(fleet.requests), fleet.switch(0)
    fleet.plan_ready()
    assert fleet.phase() is Phase.STALE
    assert fleet.switch(0) == released
    fleet.attach(1, incarnation=9)
    fleet.iterate()
    assert len(fleet.requests) == num_asked + 1
    fleet.plan_ready()
    assert fleet.phase() is Phase.ENFORCING
    assert fleet.job.plan is not None
    assert fleet.job.plan.revision == fleet.requests[-1].revision


def test_a_rank_that_is_attached_by_another_agent_or_in_anothers_place_may_try_again_later() -> None:
    fleet = Fleet()
    fleet.attach(0)
    found = refused(fleet, fleet.attach(0, incarnation=7))
    assert found is not None
    assert found.retry
    assert "rank 0 is attached by another agent" in found.reason
    found = refused(fleet, fleet.attach(1, rank=replace(_rank(1), pp_rank=0)))
    assert found is not None
    assert found.retry
    assert found.reason == (
        "saw rank 1 at pp_rank 0, dp_rank 0, tp_rank 0, which is rank 0's place; give every rank its own"
    )


def test_the_older_stream_of_the_same_agent_may_try_again() -> None:
    fleet = Fleet()
    old = fleet.attach(0)
    fleet.attach(0)
    found = refused(fleet, old)
    assert found is not None
    assert found.retry
    assert fleet.job.progress.pipelines[0].num_attached == 1


# ---- what a rank is told ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shows", "tp_rank", "dp_rank"), [(1, 0, 0), (1, 0, 3), (1, 0, 4), (1, 1, 0), (0, 0, 0)])
def test_one_rank_of_each_group_in_the_first_pipelines_is_asked_for_times_under_a_plan(
    shows: int, tp_rank: int, dp_rank: int
) -> None:
    fleet = Fleet(policy=replace(POLICY, shows_timelines=bool(shows)))
    rank = make_rank(pp_size=1, dp_size=5, tp_size=2, dp_rank=dp_rank, tp_rank=tp_rank, schedule_digest="d" * 64)
    stream = fleet.attach(0, rank=rank)
    assert attached(fleet, stream).wants_timelines == (bool(shows) and tp_rank == 0 and dp_rank < MAX_PIPELINES)


def test_a_rank_is_told_how_many_of_its_samples_are_durable_behind_the_fact() -> None:
    fleet = fleet_planning()
    fleet.detach(0)
    state = fleet.job.members.ranks[0]
    for incarnation, acked in ((state.incarnation, 4), (77, 0)):
        stream = fleet.attach(0, incarnation=incarnation)
        assert attached(fleet, stream).acked_samples == acked
        fleet.detach(0)


def test_a_rank_is_told_which_table_is_the_newest_and_0_before_there_is_one() -> None:
    fleet = Fleet()
    assert attached(fleet, fleet.attach(0)).table_revision == 0
    fleet = fleet_enforcing()
    fleet.detach(0)
    assert attached(fleet, fleet.attach(0)).table_revision == 1


def test_a_job_that_was_done_is_not_over_once_a_rank_is_back() -> None:
    fleet = fleet_planning()
    for rank in (0, 1):
        fleet.say(fleet.stream_of[rank], Goodbye(reason="finished"))
        fleet.detach(rank)
    assert "over" in fleet.facts
    fleet.attach(0, incarnation=5)
    assert "over" not in fleet.facts
    assert not fleet.job.members.ranks[0].said_goodbye


def test_whoever_watches_sees_a_rank_attach_and_detach() -> None:
    fleet = fleet_enforcing()
    job = fleet.job
    before = job.num_changes
    detach_rank(job, fleet.stream_of[1], 7.0)
    assert job.num_changes == before + 1
    assert job.progress.pipelines[0].num_attached == 1
    assert job.members.gone_since_s is None
    assert detach_rank(job, fleet.stream_of[1], 8.0) == []
    assert job.num_changes == before + 1
    detach_rank(job, fleet.stream_of[0], 9.0)
    assert job.members.gone_since_s == 9.0
    fleet.attach(1)
    assert job.members.gone_since_s is None
    assert job.progress.pipelines[0].num_attached == 1
    fleet.attach(0, iteration=NO_ITERATION)
    before = job.num_changes
    told = Attach(rank=_rank(0), gpu=_gpu(), incarnation=1000, iteration=NO_ITERATION, run_id="run 1")
    detach_rank(job, fleet.stream_of[0], 10.0)
    attach_rank(job, RankAttached(stream=99, attach=told), 11.0)
    assert job.num_changes == before + 2


def test_a_rank_that_comes_back_has_said_nothing_yet_and_brings_its_profile_along_again() -> None:
    fleet = fleet_planning()
    state = fleet.job.members.ranks[0]
    state.said_goodbye = True
    assert state.has_reported
    fleet.detach(0)
    fleet.attach(0, has_profile=True, incarnation=state.incarnation)
    assert fleet.job.members.ranks[0] is state
    assert (state.said_goodbye, state.has_reported, state.has_profile) == (False, False, True)


@pytest.mark.parametrize(("incarnation", "is_unplannable"), [(1000, True), (7, False)])
def test_another_agent_may_measure_what_the_ranks_as_they_were_could_not(
    incarnation: int, *, is_unplannable: bool
) -> None:
    fleet = fleet_planning()
    fleet.job.profiling.is_unplannable = True
    fleet.detach(0)
    fleet.attach(0, incarnation=incarnation)
    assert fleet.job.profiling.is_unplannable == is_unplannable


def test_only_the_rank_that_was_asked_for_the_schedule_passes_that_on() -> None:
    fleet = Fleet()
    for rank in (0, 1):
        fleet.attach(rank)
    asked = fleet.job.members.schedule_asked
    fleet.detach(1)
    assert fleet.job.members.schedule_asked == asked == fleet.stream_of[0]
    fleet.attach(1)
    fleet.detach(0)
    assert fleet.job.members.schedule_asked == fleet.stream_of[1]
    assert ScheduleWanted() in fleet.sent(1)


def test_a_rank_that_takes_part_in_another_run_begins_it_and_one_that_says_none_is_of_the_first() -> None:
    told = Attach(rank=_rank(0), gpu=_gpu(), incarnation=1)
    effects = attach_rank(Fleet().job, RankAttached(stream=1, attach=told), 1.0)
    assert not any(isinstance(one, Persist) and one.drop for one in effects), "there was none before"
    fleet = Fleet()
    fleet.attach(0, run_id="")
    fleet.detach(0)
    fleet.attach(0, incarnation=9, run_id="run 2")
    assert fleet.job.spec is not None
    assert fleet.job.spec.run_id == "run 2"
    fleet.attach(1, run_id="run 3")
    assert [fleet.job.members.ranks[rank].run_id for rank in (0, 1)] == ["run 2", "run 3"]
    fleet.detach(1)
    fleet.attach(1, incarnation=9, run_id="")
    assert fleet.job.members.ranks[1].run_id == "run 2"
