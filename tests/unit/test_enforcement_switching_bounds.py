"""Switches at their limits: from which iteration on, what is worth one, who is told what, and what operators say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fleets import fleet_enforcing
from test_enforcement_plan_choice_bounds import TABLE, exactly, give_own_plan, job, slow, switch_to
from test_planner_detector_adapter_bounds import adapter
from test_planner_lifecycle import S, of_type, summary

from perseus_dist.messages.terms import NO_ITERATION, NO_POINT, T_MIN, Target
from perseus_dist.planner.job.facts.decisions import StragglerKnown, TargetChosen
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.enforcement.pace import set_pace
from perseus_dist.planner.lifecycle.enforcement.switching import (
    MAX_STRAGGLERS,
    clear_straggler,
    decide,
    effective_iteration,
    is_of_earlier_run,
    put_in_force,
    release_all,
    report_straggler,
    resume,
    set_target,
    switch_for,
)
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Effect,
    Log,
    PaceSet,
    Persist,
    Send,
    SendTable,
    StragglerCleared,
    StragglerReported,
    TargetSet,
)

NOW_S = 50.0


def said(effects: Sequence[Effect]) -> list[str]:
    return [effect.sentence for effect in effects if isinstance(effect, Log)]


def answered(effects: Sequence[Effect]) -> Answer:
    (answer,) = of_type(effects, Answer)
    assert isinstance(answer, Answer)
    return answer


def waiting(t_prime_s: float = 2.0, *owns: int) -> Job:
    """Pipeline 0 waits for pipeline 1."""
    made = job()
    switch_to(made, t_prime_s=t_prime_s, own_revisions=owns)
    return made


# ---- from which iteration on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_s", "since_s", "num_ahead"),
    [
        (1.0, 0.0, 1),
        (1.0, 0.5, 1),
        (1.0, 1.0, 2),
        (1.0, 2.0, 3),
        (1.0, 500.0, 3),
        (0.5, 1.0, 3),
        (0.0, 0.0, 2),
        (1e-12, 0.0, 300_000),  # no less than a microsecond
        (None, 0.0, 2),
        ("plan", 1.0, 3),
    ],
)
def test_a_switch_is_for_the_first_iteration_that_nobody_begins_before_a_message_is_there(
    time_s: float | str | None, since_s: float, num_ahead: int
) -> None:
    """Messages take 0.3 s and reports 2 s; before anything was measured, the fastest plan's time counts."""
    made = job(table=replace(TABLE, time_ps=(S // 2, S, S, S)))
    made.progress.iteration_at_s = NOW_S - since_s
    if isinstance(time_s, float):
        made.progress.recent_times_s.append(time_s)
    elif time_s is None:
        made.plan = None
    assert effective_iteration(made, NOW_S) == made.progress.iteration + num_ahead
    made.progress.iteration = NO_ITERATION
    assert effective_iteration(made, NOW_S) == 0


@pytest.mark.parametrize(("ahead", "is_of_earlier"), [(11, False), (12, True)])
def test_what_was_ordered_too_far_ahead_is_of_an_earlier_run(ahead: int, *, is_of_earlier: bool) -> None:
    made = job()
    made.progress.recent_times_s.append(0.5)  # five begin while a report and a message travel
    assert is_of_earlier_run(made, made.progress.iteration + ahead) == is_of_earlier


# ---- what a switch says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "deadline_s"), [(T_MIN, 0.0), (Target(deadline_s=1.2), 1.2)])
def test_a_switch_tells_the_deadline_if_there_is_one(target: Target, deadline_s: float) -> None:
    made = job(target=target)
    switch_to(made, points=(1, 2), own_revisions=(0, 11))
    assert made.switch is not None
    told = switch_for(made, made.switch, 1)
    assert (told.table_revision, told.point, told.deadline_s) == (11, 2, deadline_s)


@pytest.mark.parametrize("is_kept", [False, True])
def test_ranks_hear_once_of_a_bound_that_changes_no_plan_and_nothing_begins_anew(*, is_kept: bool) -> None:
    fleet = fleet_enforcing()
    fleet.tell(TargetSet(target=Target(deadline_s=9.0)))
    fleet.iterate(3)
    loose = [fleet.switch(rank) for rank in range(fleet.job.num_ranks)]
    guard, num_enforced = fleet.job.enforcement.guard.guard, len(fleet.job.measured.enforced)
    first_iteration = guard.first_iteration
    fleet.job.chosen_target = TargetChosen(target=Target(deadline_s=1.25), by_operator=True)
    fleet.job.detection.keeps_switch = is_kept
    sent = [effect for effect in decide(fleet.job, NOW_S, "why") if isinstance(effect, Send)]
    assert [one.message for one in sent] == [replace(one, deadline_s=1.25) for one in loose if one is not None]
    assert len(sent) == fleet.job.num_ranks
    assert (guard.first_iteration, len(fleet.job.measured.enforced)) == (first_iteration, num_enforced)
    assert of_type(decide(fleet.job, NOW_S, "why"), Send) == []


# ---- what is worth a switch ------------------------------------------------------------------------------------------


def decided(made: Job, *, force: bool = False, is_routine: bool = False) -> str:
    """What came of a decision: ``nothing``, a ``word``, or a ``switch``."""
    before = made.switch
    effects = decide(made, NOW_S, "why", force=force, is_routine=is_routine)
    assert made.switch is not None
    if before is not None and made.switch.switch_revision == before.switch_revision:
        return "word" if effects else "nothing"
    assert said(effects)[0].startswith(f"switch {made.switch.switch_revision} from iteration ")
    return "switch"


@pytest.mark.parametrize(
    ("case", "force", "is_routine", "expected"),
    [
        ("", False, False, "word"),
        ("", False, True, "nothing"),
        ("", True, False, "switch"),
        ("another target", False, False, "switch"),
        ("another target", False, True, "switch"),
        ("T' alone", False, False, "word"),
        ("kept", False, False, "word"),
        ("kept", True, False, "switch"),
        ("kept, of another table", False, False, "switch"),
        ("kept, another target", False, False, "word"),
    ],
)
def test_a_switch_is_worth_other_orders_or_force(case: str, expected: str, *, force: bool, is_routine: bool) -> None:
    made = job(target=Target(slowdown=1.2) if "another target" in case else T_MIN)
    made.detection.keeps_switch = "kept" in case
    if case == "T' alone":  # no plan lies within it
        made.detection.verdicts = (slow(pipeline=exactly(1.05), is_whole_pipeline=True),)
    if case == "kept, of another table":
        assert made.plan is not None
        made.plan = replace(made.plan, revision=2)
    assert decided(made, force=force, is_routine=is_routine) == expected


def test_a_wait_that_begins_and_ends_by_the_same_plans_is_known_and_stored() -> None:
    """Agents judge by whether pipelines wait, and so do counts of joules."""
    made = job()
    before = made.switch
    assert before is not None
    straggler = slow(pipeline=exactly(1.05), is_whole_pipeline=True)  # no slower plan lies within its time
    for verdicts, waits in [((straggler,), True), ((), False)]:
        made.detection.verdicts = verdicts
        effects = decide(made, NOW_S, "why")
        assert made.switch is not None
        assert (made.switch.t_prime_s > 0, switch_for(made, made.switch, 0).is_waiting) == (waits, waits)
        assert of_type(effects, Persist) == [Persist(facts=(made.switch,))]
        assert replace(made.switch, t_prime_s=0.0) == before
        assert of_type(decide(made, NOW_S, "why"), Persist) == []


def test_clocks_that_are_released_stay_so_whatever_is_decided() -> None:
    made = waiting(2.0, 0, 11)
    made.phase = Phase.RELEASED
    assert said(decide(made, NOW_S, "why")) == ["why: clocks stay released"]
    assert decided(made, force=True) == "switch"
    assert made.switch is not None
    assert (made.switch.points, made.switch.own_revisions, made.switch.t_prime_s) == ((NO_POINT,) * 2, (), 0.0)
    assert release_all(made, NOW_S, "why") == [], "nothing is left to release"
    made.enforcement.switch = None
    assert release_all(made, NOW_S, "why") == []
    made = waiting(2.0)
    switch_to(made, points=(NO_POINT, 0))
    assert release_all(made, NOW_S, "why") != []


@pytest.mark.parametrize(("slowest_ps", "is_worth"), [(1_005 * S // 1000, False), (1_005 * S // 1000 + 1, True)])
def test_a_plan_that_lasts_longer_by_no_more_than_a_share_is_not_worth_a_routine_switch(
    slowest_ps: int, *, is_worth: bool
) -> None:
    table = replace(TABLE, time_ps=(S, slowest_ps, 2 * S, 3 * S))
    made = job(table=table, target=Target(slowdown=1.006))
    assert decided(made, is_routine=True) == ("switch" if is_worth else "nothing")


@pytest.mark.parametrize(("held", "before", "expected"), [(0, None, 1), (0, 1, 2), (5, 1, 6), (5, 7, 8), (5, None, 6)])
def test_a_switch_has_a_number_that_no_agent_has_heard_of(held: int, before: int | None, expected: int) -> None:
    made = job()
    made.revisions.held_switch = held
    switch_to(made, switch_revision=before or 0)
    made.enforcement.switch = made.switch if before else None
    assert decided(made, force=True) == "switch"
    assert made.switch is not None
    assert made.switch.switch_revision == expected
    assert made.num_changes == 1


# ---- who is told what ------------------------------------------------------------------------------------------------


def tables(effects: Sequence[Effect]) -> list[tuple[int, bytes]]:
    return [(effect.stream, effect.encoded) for effect in effects if isinstance(effect, SendTable)]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_pipelines_own_tables_go_once_to_its_ranks_alone(*, is_first: bool) -> None:
    fleet = fleet_enforcing(dp=2)
    made = fleet.job
    made.detection.verdicts = (slow(degree=1.3),)
    own = give_own_plan(made, table=summary(fastest_s=1.3))
    assert made.plan is not None
    made.detection.straggler_plans[1] = replace(own, base_revision=made.plan.revision)
    if is_first:
        made.enforcement.switch = None
    streams = fleet.stream_of
    assert tables(decide(made, NOW_S, "why")) == [(streams[2], b"own 0"), (streams[3], b"own 1")]
    made.chosen_target = TargetChosen(target=Target(slowdown=1.6), by_operator=True)
    effects = decide(made, NOW_S, "why")
    assert any(isinstance(effect, Persist) for effect in effects), "other points of the same tables"
    assert tables(effects) == []
    before = made.switch
    everyone = [(streams[rank], b"table 0" if rank % 2 == 0 else b"table 1") for rank in range(4)]
    assert tables(put_in_force(made, NOW_S, "why")) == everyone, "and no rank is told its own ones again"
    assert made.switch is not before, "though nothing else is ordered"


@pytest.mark.parametrize(
    ("case", "is_told"), [("own plan", True), ("the same own plan", False), ("full clocks", True), ("target", False)]
)
def test_what_a_straggler_costs_is_measured_anew_under_a_plan_for_it_or_at_full_clocks(
    case: str, *, is_told: bool
) -> None:
    made = job(pace=2.0 if "same" in case else 0.0)
    made.detection.watch = adapter()
    if case == "target":
        made.chosen_target = TargetChosen(target=Target(slowdown=1.2), by_operator=True)
    else:
        made.detection.verdicts = (slow(degree=1.3),)
    if "own" in case:  # of five plans: the number of the last stands for full clocks in the table of all
        times_ps = tuple(13 * S // 10 + step * S // 10 for step in range(5))
        table = replace(TABLE, time_ps=times_ps, total_uj=(5, 4, 3, 2, 1), baseline_time_ps=times_ps[0])
        give_own_plan(made, table=table, is_followed="same" in case)
    assert decided(made) == "switch"
    assert made.switch is not None
    until = made.detection.watch._detector._time._pipeline_until[1]
    assert until == (made.switch.effective_iteration - 1 if is_told else -1)


# ---- what operators say ----------------------------------------------------------------------------------------------

FASTER = Target(deadline_s=0.5)


@pytest.mark.parametrize(
    ("phase", "has_plan", "expected"),
    [
        (Phase.RELEASED, True, Phase.ENFORCING),
        (Phase.RELEASED, False, Phase.RELEASED),
        (Phase.PLANNING, True, Phase.PLANNING),
    ],
)
def test_a_plan_that_was_given_up_is_tried_again_at_an_operators_word(
    phase: Phase, expected: Phase, *, has_plan: bool
) -> None:
    made = job()
    made.phase = phase
    made.plan = made.plan if has_plan else None
    resume(made, "why")
    assert made.phase is expected


def test_a_target_is_stored_as_the_operators_unless_it_is_so_already_or_cannot_be_met() -> None:
    made = job(target=Target(slowdown=1.2))
    made.enforcement.overrun, made.detection.keeps_switch = 0.01, True
    wish = TargetSet(target=Target(slowdown=1.2))
    stored = set_target(made, wish, NOW_S)[0]
    assert stored == Persist(facts=(TargetChosen(target=wish.target, by_operator=True),)), "it was the job's own"
    assert (made.enforcement.overrun, made.detection.keeps_switch) == (0.0, False)
    (again,) = set_target(made, wish, NOW_S)
    assert again == Answer(accepted=True, reason="1.2 times the time at all-maximum clocks is the target already")
    (unmet,) = set_target(made, TargetSet(target=FASTER), NOW_S)
    assert (answered([unmet]).accepted, made.target) == (False, wish.target)
    made.plan = None
    assert answered(set_target(made, TargetSet(target=FASTER), NOW_S)).accepted, "nothing is known of it yet"


@pytest.mark.parametrize(("dp_rank", "is_accepted"), [(-1, False), (0, True), (1, True), (2, False)])
def test_stragglers_are_reported_of_pipelines_that_there_are(dp_rank: int, *, is_accepted: bool) -> None:
    made = job()
    made.detection.keeps_switch = True
    event = StragglerReported(straggler_id="gpu", degree=1.5, dp_rank=dp_rank)
    answer = answered(report_straggler(made, event, NOW_S))
    assert answer.accepted == is_accepted
    assert is_accepted or answer.reason.startswith(f"saw dp_rank {dp_rank}, expected 0 to 1; ")
    assert made.detection.keeps_switch != is_accepted
    if is_accepted:
        (again,) = report_straggler(made, event, NOW_S)
        assert again == Answer(accepted=True, reason="straggler gpu is known like that already")


def test_reports_under_ever_new_names_are_refused_in_the_end_and_known_ones_are_not() -> None:
    made = job()

    def report(name: str, degree: float) -> bool:
        event = StragglerReported(straggler_id=name, degree=degree, dp_rank=0)
        return answered(report_straggler(made, event, NOW_S)).accepted

    for number in range(MAX_STRAGGLERS - 1):
        made.stragglers[f"gpu{number}"] = StragglerKnown(straggler_id=f"gpu{number}", degree=1.5, dp_rank=0)
    assert [report("last", 1.5), report("another", 1.5), report("last", 1.6)] == [True, False, True]
    assert answered(clear_straggler(made, StragglerCleared(straggler_id="gpu0"), NOW_S)).accepted
    assert report("another", 1.5)
    assert len(made.stragglers) == MAX_STRAGGLERS


def test_who_watches_a_job_without_a_plan_is_told_once_of_each_wish() -> None:
    made = job()
    made.plan = None
    for number, (change, event) in enumerate(
        (
            (set_target, TargetSet(target=FASTER)),
            (report_straggler, StragglerReported(straggler_id="gpu", degree=2.0, dp_rank=0)),
            (clear_straggler, StragglerCleared(straggler_id="gpu")),
            (set_pace, PaceSet(slowdown=1.1, budget="hall", holds_probes=False, reason="why")),
        )
    ):
        made.detection.keeps_switch = True
        effects = change(made, event, NOW_S)  # type: ignore[operator]
        assert change is set_pace or answered(effects).accepted
        assert (made.num_changes, made.detection.keeps_switch) == (number + 1, False)
