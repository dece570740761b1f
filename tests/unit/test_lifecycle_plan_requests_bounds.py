"""Requests to the planning worker at their limits: when one is made, under which number, and of what."""

import math
from dataclasses import replace
from typing import Any

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_planner_first_plan import under_first_plan
from test_planner_lifecycle import CLOCKS_MHZ, POLICY, Fleet, sample, summary

from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import CancelPlanning, Effect, Log, PlanExpected, StartPlanning
from perseus_dist.planner.lifecycle.plan import (
    cancel_frontier,
    expect_plan,
    is_of_other_unit,
    planning_request,
    request_frontier,
    start_planning,
)
from perseus_dist.planning.schedule.granularity import Granularity

LATENCY_S = 0.02


def asked(effects: list[Effect]) -> StartPlanning:
    found = effects[-1]
    assert isinstance(found, StartPlanning)
    return found


def said(effects: list[Effect]) -> list[str]:
    return [effect.sentence for effect in effects if isinstance(effect, Log)]


def awaiting() -> Job:
    """A plan that may be there in a while, or is to be asked for again."""
    job = fleet_planning().job
    job.planning.expected_at_s, job.planning.again_at_s = 5.0, 6.0
    return job


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_a_new_request_gives_up_the_one_before_and_has_the_next_number() -> None:
    job = awaiting()
    assert (job.planning.pending, job.planning.attempts) == (1, 1)
    effects = start_planning(job, "something else")
    assert effects[0] == CancelPlanning(request_id=1)
    assert asked(effects).request.request_id == job.planning.pending == job.planning.request_id == 2
    assert job.planning.attempts == 2
    assert (job.planning.expected_at_s, job.planning.again_at_s) == (None, None)
    assert (job.phase, job.reason) == (Phase.PLANNING, "something else")
    assert job.planning.transfers_at_s == job.now_s
    assert job.planning.moved_at_s == -math.inf, "no transfer is new"


@pytest.mark.parametrize(
    ("plan", "held", "given", "revision"),
    [(None, 0, 0, 1), (None, 3, 0, 4), (None, 0, 3, 4), (5, 3, 4, 6), (3, 5, 4, 6), (3, 4, 5, 6)],
)
def test_a_table_has_a_later_revision_than_any_that_was_given_or_is_held(
    plan: int | None, held: int, given: int, revision: int
) -> None:
    job = fleet_enforcing().job
    assert job.plan is not None
    job.plan = None if plan is None else replace(job.plan, revision=plan)
    job.revisions.held_table, job.revisions.given_table = held, given
    assert planning_request(job).revision == revision


@pytest.mark.parametrize(("request_id", "expected_at_s"), [(1, 12.5), (2, None), (0, None)])
def test_when_a_plan_may_be_there_is_known_of_the_one_that_is_awaited(
    request_id: int, expected_at_s: float | None
) -> None:
    job = fleet_planning().job
    assert expect_plan(job, PlanExpected(request_id=request_id, expected_s=2.5), 10.0) == []
    assert job.planning.expected_at_s == expected_at_s


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_a_first_plan_is_asked_for_until_a_whole_frontier_is_followed() -> None:
    job = fleet_enforcing(dp=2).job
    plan, switch = job.plan, job.switch
    assert plan is not None
    assert switch is not None
    first, partly = replace(plan, is_first=True), replace(switch, points=(1, NO_POINT))
    for known, followed, is_first in (
        (plan, switch, False),
        (None, switch, True),
        (first, switch, True),
        (plan, None, True),
        (plan, partly, True),
    ):
        job.plan, job.enforcement.switch = known, followed
        request = asked(start_planning(job, "again")).request
        assert request.is_first == is_first
        assert request.whole_up_to == (job.policy.whole_up_to if is_first else 0)
        assert job.revisions.given_table == request.revision


@pytest.mark.parametrize(
    ("target", "slowdowns", "deadlines_s"),
    [(Target(), (), ()), (Target(slowdown=1.2), (1.2,), ()), (Target(deadline_s=1.5), (), (1.5,))],
)
def test_the_time_that_the_target_asks_for_gets_a_plan_of_its_own(
    target: Target, slowdowns: tuple[float, ...], deadlines_s: tuple[float, ...]
) -> None:
    job = fleet_planning().job
    job.chosen_target = TargetChosen(target=target, by_operator=True)
    request = planning_request(job)
    assert (request.slowdowns, request.deadlines_s) == (slowdowns, deadlines_s)


def test_plans_may_ask_for_clocks_between_those_that_were_measured_where_the_policy_says_so() -> None:
    assert planning_request(fleet_planning().job).menu_mhz == CLOCKS_MHZ
    unwilling = Fleet(policy=replace(POLICY, plans_between_clocks=False)).to_planning()
    assert planning_request(unwilling.job).menu_mhz == ()
    job = fleet_planning().job
    job.members.ranks[1].control = "observe"
    job.members.ranks[1].gpu = replace(job.members.ranks[1].gpu, clocks_mhz=(1400,))
    assert planning_request(job).menu_mhz == CLOCKS_MHZ, "a rank that can set no clock limits none"


def test_an_answer_that_was_made_ahead_is_used() -> None:
    fleet = fleet_planning()
    request = fleet.requests[-1]
    made = TableAhead(
        digest=request.digest, summary=summary(), tables=(), frontier_npz=b"", profile_csv=b"", is_first=True
    )
    fleet.job.planning.ahead.made["another"] = made
    effects = start_planning(fleet.job, "again")
    assert (asked(effects).made, said(effects)) == (None, [])
    fleet.job.planning.ahead.made[request.digest] = made
    effects = start_planning(fleet.job, "again")
    assert asked(effects).made is made
    assert said(effects) == ["the plan was made ahead, while the job had another shape"]


def test_blocking_power_that_is_estimated_is_told_of_the_stage_that_draws_most() -> None:
    job = fleet_planning().job
    for of_series in job.profiling.samples.values():
        for of_rank in of_series.values():
            of_rank[:] = [replace(one, samples=replace(one.samples, blocking_power_w=0.0)) for one in of_rank]
    effects = start_planning(job, "again")
    most_w = max(asked(effects).request.blocking_power_w)
    assert most_w > 0
    assert said(effects) == [f"no rank has seen a GPU wait: planning with an estimate of {most_w:.0f} W"]


# ---- the whole frontier ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["", "first plan", "answer", "time", "ranks"])
def test_the_whole_frontier_is_asked_for_beside_a_first_plan_once_it_is_due(missing: str) -> None:
    fleet = under_first_plan()
    job = fleet.job
    assert job.plan is not None
    number, attempts, given = job.planning.request_id, job.planning.attempts, job.revisions.given_table
    job.planning.pending = number if missing == "answer" else None
    job.planning.refine_at_s, job.planning.expected_at_s = 50.0, 5.0
    if missing == "first plan":
        job.plan = replace(job.plan, is_first=False)
    elif missing == "ranks":
        job.members.rank_of_stream.clear()
    effects = request_frontier(job, 49.9 if missing == "time" else 50.0)
    assert bool(effects) == (missing == "")
    if effects:
        assert said(effects) == ["planning the whole frontier beside the first plan"]
        request = asked(effects).request
        assert (request.request_id, job.planning.pending, job.planning.request_id) == (number + 1,) * 3
        assert job.planning.attempts == attempts + 1
        assert job.planning.expected_at_s is None
        assert not request.is_first
        assert job.revisions.given_table == request.revision == given + 1


def test_the_whole_frontier_is_given_up_where_the_first_plan_is_not_in_force_any_more() -> None:
    job = under_first_plan().job
    pending = job.planning.pending
    assert pending is not None
    assert cancel_frontier(job) == []
    job.phase = Phase.RELEASED
    assert cancel_frontier(job) == [CancelPlanning(request_id=pending)]
    job = fleet_planning().job
    assert cancel_frontier(job) == [], "a plan that is awaited is none beside another"


# ---- granularity -----------------------------------------------------------------------------------------------------


def unseen(*, follows: tuple[bool, bool] = (True, True), keeps: bool = False, granularity: str = "rank") -> Job:
    job = fleet_enforcing().job
    assert job.spec is not None
    job.spec = replace(job.spec, granularity=granularity)
    job.planning.keeps_to_ranks = keeps
    for rank, one in enumerate(follows):
        job.members.ranks[rank].follows_moments = one
    return job


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Granularity.PHASE),
        ({"follows": (True, False)}, Granularity.RANK),
        ({"keeps": True}, Granularity.RANK),
        ({"granularity": "instruction"}, Granularity.INSTRUCTION),
    ],
    ids=["all change clocks by time", "one does not", "that was late", "instructions are seen"],
)
def test_clocks_change_by_time_where_every_agent_follows_that_and_instructions_cannot_be_seen(
    changes: dict[str, Any], expected: Granularity
) -> None:
    job = unseen(**changes)
    assert planning_request(job).granularity == expected
    assert job.plan is not None
    for is_by_phase in (False, True):
        job.plan = replace(job.plan, summary=replace(job.plan.summary, is_by_phase=is_by_phase))
        assert is_of_other_unit(job) == (is_by_phase != (expected is Granularity.PHASE))


@pytest.mark.parametrize(
    ("latency_s", "kinds", "is_known"),
    [(0.001, "F", True), (0.0, "F", False), (0.0, "", False), (0.0, "CLOCK_CHANGE", True)],
)
def test_clocks_change_by_time_where_it_is_known_how_long_a_change_takes(
    latency_s: float, kinds: str, *, is_known: bool
) -> None:
    job = unseen()
    (of_series,) = job.profiling.samples.values()
    told = (sample(kinds, 1400, 1.0),) if kinds else ()
    for of_rank in of_series.values():
        of_rank[:] = [
            replace(one, samples=replace(one.samples, samples=told, switch_latency_s=latency_s)) for one in of_rank
        ]
    assert planning_request(job).granularity == (Granularity.PHASE if is_known else Granularity.RANK)


def test_without_any_rank_no_clock_changes_by_time() -> None:
    job = unseen()
    job.members.ranks.clear()
    assert planning_request(job).granularity == Granularity.RANK
