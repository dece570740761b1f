"""Answers of the planning worker at their limits: what is awaited, what is tried again, and what a failure leads to."""

import math
from dataclasses import replace

import pytest
from fleets import fleet_enforcing, fleet_planning
from test_planner_first_plan import answer, under_first_plan
from test_planner_lifecycle import S, summary

from perseus_dist.messages.terms import NO_POINT, Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import Effect, Log, Persist, PlanFailed, PlanReady, StartPlanning
from perseus_dist.planner.lifecycle.plan import apply_plan, do_without_choice, handle_failure, refusal
from perseus_dist.planner.worker.plan_request import PlanResult

NOW_S = 1000.0


def result(job: Job, *, revision: int = 7, is_first: bool = False, is_by_phase: bool = False) -> PlanReady:
    """Of the request that is awaited."""
    made = replace(summary(), time_ps=(S, round(1.1 * S), round(1.2 * S), round(1.5 * S)), baseline_time_ps=2 * S)
    assert job.planning.pending is not None
    return PlanReady(
        result=PlanResult(
            request_id=job.planning.pending,
            revision=revision,
            summary=replace(made, is_by_phase=is_by_phase),
            tables=(b"0", b"1"),
            frontier_npz=b"npz",
            profile_csv=b"csv",
            is_first=is_first,
        )
    )


def failed(job: Job, *, is_transient: bool = False) -> PlanFailed:
    assert job.planning.pending is not None
    return PlanFailed(request_id=job.planning.pending, reason="no luck", transient=is_transient)


def dropped(effects: list[Effect]) -> tuple[str, ...]:
    return tuple(prefix for effect in effects if isinstance(effect, Persist) for prefix in effect.drop)


# ---- a plan is there -------------------------------------------------------------------------------------------------


def test_a_plan_that_is_awaited_is_stored_and_comes_into_force_and_counts_begin_anew() -> None:
    job = fleet_planning().job
    job.planning.attempts, job.planning.refine_at_s, job.planning.is_restarted = 2, math.inf, True
    job.enforcement.overrun, job.planning.extra_s = 0.01, 0.25
    job.enforcement.drifts[0] = 0.2
    stored, *_ = apply_plan(job, result(job), NOW_S)
    assert isinstance(stored, Persist)
    (fact,) = stored.facts
    assert isinstance(fact, TableMade)
    assert (fact.revision, fact.extra_s, fact.is_first) == (7, 0.25, False)
    assert job.plan is not None
    assert (job.plan.revision, job.plan.extra_s) == (7, 0.25)
    assert (job.planning.pending, job.planning.attempts, job.planning.refine_at_s) == (None, 0, 0.0)
    assert not job.planning.is_restarted
    assert job.enforcement.overrun == 0.0
    assert not job.enforcement.drifts
    assert job.phase is Phase.ENFORCING
    assert job.reason == ("table 7 has 4 plans from 1.000000 s to 1.500000 s, all-maximum clocks take 2.000000 s")


def test_an_answer_that_is_not_awaited_changes_nothing() -> None:
    job = fleet_planning().job
    event = result(job)
    job.planning.pending = 2
    assert apply_plan(job, event, NOW_S) == []
    assert handle_failure(job, PlanFailed(request_id=1, reason="no luck"), NOW_S) == []
    assert (job.plan, job.planning.pending, job.phase) == (None, 2, Phase.PLANNING)


@pytest.mark.parametrize(("held", "is_late"), [(6, False), (7, True), (8, True)])
def test_a_table_that_is_not_later_than_one_that_an_agent_holds_is_planned_again(held: int, *, is_late: bool) -> None:
    job = fleet_planning().job
    job.revisions.held_table = held
    effects = apply_plan(job, result(job), NOW_S)
    assert (job.plan is None) == is_late
    assert isinstance(effects[-1], StartPlanning) == is_late
    if is_late:
        assert effects[-1].request.revision == held + 1  # type: ignore[union-attr]
        assert job.reason == f"an agent holds table {held}: planning again under a later revision"


@pytest.mark.parametrize(
    ("granularity", "is_first", "is_by_phase", "slowdown", "end"),
    [
        ("instruction", False, False, None, "2.000000 s"),
        ("instruction", True, False, None, "2.000000 s; the whole frontier follows"),
        (
            "rank",
            False,
            False,
            None,
            "; each rank has one clock, which saves little without a straggler or a target such as slowdown=1.05",
        ),
        ("rank", False, False, 1.05, "; each rank has one clock"),
        ("rank", False, True, None, "; each rank and phase has one clock"),
    ],
)
def test_what_a_plan_is_good_for_is_said(
    granularity: str, slowdown: float | None, end: str, *, is_first: bool, is_by_phase: bool
) -> None:
    job = fleet_planning().job
    assert job.spec is not None
    job.spec = replace(job.spec, granularity=granularity)
    job.chosen_target = TargetChosen(target=Target(slowdown=slowdown), by_operator=True)
    apply_plan(job, result(job, is_first=is_first, is_by_phase=is_by_phase), NOW_S)
    assert job.reason.endswith(end)


# ---- a plan cannot be made -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "is_transient", "is_again"), [(1, True, True), (2, True, True), (3, True, False), (1, False, False)]
)
def test_a_worker_that_died_is_asked_again_after_a_while_up_to_three_times(
    attempts: int, *, is_transient: bool, is_again: bool
) -> None:
    job = fleet_planning().job
    job.planning.attempts = attempts
    handle_failure(job, failed(job, is_transient=is_transient), NOW_S)
    assert job.planning.pending is None
    assert job.planning.attempts == (attempts if is_again else 0)
    assert job.planning.again_at_s == (NOW_S + 10.0 if is_again else None)
    assert job.phase is (Phase.PLANNING if is_again else Phase.OBSERVING)
    if is_again:
        assert job.reason == "planning is tried again in 10 s: no luck"


def test_a_profile_that_no_plan_can_be_made_of_is_dropped_and_the_job_observed() -> None:
    job = fleet_planning().job
    sweep_id = job.profiling.sweep_id
    (stored,) = handle_failure(job, failed(job), NOW_S)
    assert isinstance(stored, Persist)
    assert stored.facts == (job.spec,)
    assert dropped([stored]) == ("samples/", "sweep/", "ended/")
    assert job.spec is not None
    assert job.spec.last_sweep_id == sweep_id
    assert (job.phase, job.reason) == (Phase.OBSERVING, "no plan can be made until a rank starts anew: no luck")
    assert job.profiling.is_unplannable
    assert not job.profiling.samples


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_profile_may_still_serve_where_instructions_cannot_be_seen_now(*, has_plan: bool) -> None:
    job = (fleet_enforcing() if has_plan else fleet_planning()).job
    assert job.spec is not None
    job.spec = replace(job.spec, granularity="rank")
    job.planning.pending = 5
    assert handle_failure(job, failed(job), NOW_S) == []
    assert job.profiling.samples
    assert job.profiling.is_unplannable == (not has_plan)
    assert job.phase is (Phase.ENFORCING if has_plan else Phase.OBSERVING)
    if not has_plan:
        assert job.reason == "no clock for each rank can be planned until a rank starts anew: no luck"


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_profile_that_was_kept_from_another_schedule_is_measured_again_where_it_cannot_be_planned_with(
    *, has_plan: bool
) -> None:
    job = (fleet_enforcing() if has_plan else fleet_planning()).job
    assert job.spec is not None
    job.spec = replace(job.spec, keeps_profile=True)
    job.planning.pending = 5
    effects = handle_failure(job, failed(job), NOW_S)
    why = "the profile of another schedule cannot be planned with (no luck): profiling instead"
    assert (Log(sentence=why) in effects) == (not has_plan)
    assert bool(job.profiling.samples) == has_plan
    assert job.phase is (Phase.ENFORCING if has_plan else Phase.WARMING_UP)
    assert not job.profiling.is_unplannable


@pytest.mark.parametrize("has_plan", [True, False])
def test_a_saved_profile_that_cannot_be_planned_with_is_measured_instead_and_not_waited_for(*, has_plan: bool) -> None:
    job = (fleet_enforcing() if has_plan else fleet_planning()).job
    job.profiling.samples[SAVED_PROFILE] = {}
    job.profiling.ended_series.add(SAVED_PROFILE)
    for state in job.members.ranks.values():
        state.has_profile = True
    job.planning.pending = 5
    effects = handle_failure(job, failed(job), NOW_S)
    assert dropped(effects) == (() if has_plan else ("samples/0/", "ended/0/"))
    assert (SAVED_PROFILE in job.profiling.samples) == has_plan
    assert (SAVED_PROFILE in job.profiling.ended_series) == has_plan
    assert any(state.has_profile for state in job.members.ranks.values()) == has_plan
    assert job.phase is (Phase.ENFORCING if has_plan else Phase.WARMING_UP)
    assert not job.profiling.is_unplannable


@pytest.mark.parametrize(
    ("points", "phase", "reason"),
    [
        ((1, 1), Phase.ENFORCING, "the plan in force stays, because no new one can be made: no luck"),
        ((1, NO_POINT), Phase.RELEASED, "no plan is followed, because no new one can be made: no luck"),
        (None, Phase.ENFORCING, "the plan in force stays, because no new one can be made: no luck"),
    ],
)
def test_where_no_new_plan_can_be_made_the_one_before_stays_or_is_tried_again_later(
    points: tuple[int, ...] | None, phase: Phase, reason: str
) -> None:
    job = fleet_enforcing(dp=2).job
    assert job.switch is not None
    job.enforcement.switch = None if points is None else replace(job.switch, points=points)
    job.planning.pending, job.phase = 5, Phase.PLANNING
    assert handle_failure(job, failed(job), NOW_S) == []
    assert (job.phase, job.reason) == (phase, reason)
    assert job.enforcement.guard.is_holding == (phase is Phase.RELEASED)


# ---- the whole frontier ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "is_transient", "is_again"), [(2, True, True), (3, True, False), (1, False, False)]
)
def test_a_frontier_that_cannot_be_made_is_tried_again_or_the_first_plan_stays(
    attempts: int, *, is_transient: bool, is_again: bool
) -> None:
    fleet = under_first_plan()
    job = fleet.job
    job.planning.attempts = attempts
    effects = handle_failure(job, failed(job, is_transient=is_transient), NOW_S)
    assert job.planning.pending is None
    assert job.planning.attempts == (attempts if is_again else 0)
    assert job.planning.refine_at_s == (NOW_S + 10.0 if is_again else math.inf)
    assert job.phase is Phase.ENFORCING
    assert effects == ([Log(sentence="the whole frontier is tried again in 10 s: no luck")] if is_again else [])
    stays = "the first plan stays, because the whole frontier cannot be made: no luck"
    assert (job.reason == stays) == (not is_again)


def test_the_whole_frontier_counts_its_attempts_anew() -> None:
    fleet = under_first_plan()
    fleet.job.planning.attempts = 3
    answer(fleet, fleet.requests[-1], is_first=False)
    assert fleet.job.planning.attempts == 0


# ---- sweeps without a choice of clocks -------------------------------------------------------------------------------


@pytest.mark.parametrize("can_set", [(True, True), (True, False), (False, False)])
def test_a_sweep_without_a_choice_of_clocks_is_not_repeated_by_ranks_that_say_that_they_can_set_them(
    can_set: tuple[bool, bool],
) -> None:
    job = fleet_planning().job
    for rank, one in enumerate(can_set):
        job.members.ranks[rank].control = "clockd" if one else "observe"
    do_without_choice(job)
    assert job.profiling.is_unplannable == any(can_set)
    assert (job.phase, job.reason) == (Phase.OBSERVING, "no rank could set clocks in the sweep: no reason given")
    assert job.profiling.samples


def test_a_sweep_without_a_choice_of_clocks_leaves_the_plan_in_force() -> None:
    job = fleet_enforcing().job
    do_without_choice(job)
    assert job.phase is Phase.ENFORCING
    assert job.reason.startswith("the plan in force stays")
    assert not job.profiling.is_unplannable


def test_why_clocks_cannot_be_set_is_said_in_the_words_of_the_first_rank_that_does() -> None:
    members = fleet_planning().job.members
    members.ranks[1].trouble = "clockd is gone"
    assert refusal(members) == "clockd is gone"
    members.ranks[1].gpu = replace(members.ranks[1].gpu, refusal="no rights")
    assert refusal(members) == "no rights"
    members.ranks[0].trouble = "no socket"
    assert refusal(members) == "no socket"
