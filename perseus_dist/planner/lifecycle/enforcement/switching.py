"""Which point of the frontier each pipeline follows, and from which iteration on."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import replace

from perseus_dist.messages.from_planner import Switch
from perseus_dist.messages.terms import NO_ITERATION, NO_POINT
from perseus_dist.planner.job.facts.decisions import StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.enforcement import SwitchBounds
from perseus_dist.planner.job.state.membership import Membership
from perseus_dist.planner.lifecycle.enforcement.followed_plan import followed_plan
from perseus_dist.planner.lifecycle.enforcement.plan_choice import choose, target_text, unmet_deadline
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Effect,
    Log,
    Persist,
    Send,
    SendTable,
    StragglerCleared,
    StragglerReported,
    TargetSet,
)
from perseus_dist.units import PS_PER_S

MAX_DEGREE = 100
"""Of a report; what is slower stands still."""
MAX_STRAGGLERS = 1_000
"""Reports of a job that stand at once: each is stored, and in every status."""
_TIME_STEP = 0.005  # of an iteration; less is not worth a switch


def iteration_time_s(job: Job) -> float | None:
    """[s] what an iteration takes these days; else what the baseline says; None before there is a whole iteration."""
    if job.progress.recent_times_s:
        return statistics.median(job.progress.recent_times_s)
    if job.measured.baseline is not None:
        return job.measured.baseline.time_s
    return max((one.latest.time_s for one in job.progress.pipelines if one.latest is not None), default=None)


def expected_time_s(job: Job) -> float | None:
    """[s] as ``iteration_time_s``; before the run's first whole iteration, the fastest plan's time."""
    time_s = iteration_time_s(job)
    return job.plan.summary.fastest_ps / PS_PER_S if time_s is None and job.plan is not None else time_s


def effective_iteration(job: Job, now_s: float) -> int:
    """The first iteration that every rank can be expected to have heard of before it begins it.

    That is the newest begun plus those that begin while a message travels. What began since the last report is guessed
    from the time gone by, but no more than goes unreported: training that has paused has begun nothing.
    """
    if job.progress.iteration == NO_ITERATION:
        return 0
    return job.progress.iteration + _num_ahead(job, min(now_s - job.progress.iteration_at_s, job.policy.report_s))


def is_of_earlier_run(job: Job, iteration: int) -> bool:
    """Whether something was ordered for an iteration so far ahead that training must have gone back since."""
    return iteration > job.progress.iteration + 2 * _num_ahead(job, job.policy.report_s) + 1


def _num_ahead(job: Job, unreported_s: float) -> int:
    time_s = expected_time_s(job)
    return max(1, math.ceil((unreported_s + job.policy.message_s) / max(time_s, 1e-6))) if time_s else 2


def max_slowdown(job: Job) -> float:
    """Times an iteration at full clocks that one may take, by the target, power budgets and what operators report."""
    return max([job.target.slowdown or 1.0, job.pace, *(known.degree for known in job.stragglers.values())])


def is_waiting(job: Job, decided: SwitchDecided) -> bool:
    """Whether pipelines wait for a straggler that the detector has named, and no operator."""
    return (decided.t_prime_s > 0 or any(decided.own_revisions)) and not job.stragglers


def switch_for(job: Job, decided: SwitchDecided, dp_rank: int) -> Switch:
    """A pipeline's part of a decision."""
    return _switches_for(job, decided, [dp_rank])[0]


def _switches_for(job: Job, decided: SwitchDecided, dp_ranks: Iterable[int]) -> list[Switch]:
    slowdown, deadline_s, waits = _bounds(job, decided)  # once for all: there may be a thousand
    return [
        Switch(
            table_revision=decided.revision_of(dp_rank),
            point=decided.points[dp_rank],
            effective_iteration=decided.effective_iteration,
            switch_revision=decided.switch_revision,
            max_slowdown=slowdown,
            deadline_s=deadline_s,
            is_waiting=waits,
        )
        for dp_rank in dp_ranks
    ]


def _bounds(job: Job, decided: SwitchDecided) -> SwitchBounds:
    return max_slowdown(job), job.target.deadline_s or 0.0, is_waiting(job, decided)


def _send_switch(job: Job, decided: SwitchDecided) -> list[Effect]:
    """The switch in force, for every rank that is attached."""
    job.enforcement.sent_bounds = _bounds(job, decided)
    messages = _switches_for(job, decided, range(len(decided.points)))
    return [
        Send(stream=stream, message=messages[job.members.ranks[rank].rank.dp_rank])
        for stream, rank in job.members.rank_of_stream.items()
    ]


def _resend_bounds(job: Job) -> list[Effect]:
    """The switch in force once more, if what agents judge it by has changed: slowdown, deadline, whether any waits."""
    if job.switch is None or _bounds(job, job.switch) == job.enforcement.sent_bounds:
        return []
    return _send_switch(job, job.switch)


def decide(job: Job, now_s: float, why: str, *, force: bool = False, is_routine: bool = False) -> list[Effect]:
    """Choose every pipeline's point by target and stragglers; where clocks are released, they stay so.

    Args:
        job: With a plan; nothing happens before there is one.
        now_s: [s] monotonic.
        why: What has happened, in a sentence without its end.
        force: Whether to switch even where no point changes.
        is_routine: Whether it is worth neither a word nor a switch where plans' times hardly change.
    """
    if job.plan is None or job.phase is Phase.STALE:
        return []
    if job.switch is None and job.phase is not Phase.ENFORCING:
        return []  # the plan of an earlier run waits for this run's baseline
    if job.is_released and job.switch is not None:  # no guard looks on until the plan is tried again
        stays = f"{why}: clocks stay released"
        return _switch(job, _released(job.switch), now_s, stays) if force else [Log(sentence=stays)]
    if job.detection.keeps_switch and job.switch is not None and job.switch.table_revision == job.plan.revision:
        kept = _without_held_plans(job, job.switch)
        stays = "the switch" if kept == job.switch else "all else"
        sentence = f"{why}: {stays} stays until it is known again who is slow"
        return _switch(job, kept, now_s, sentence) if force else [Log(sentence=sentence), *_resend_bounds(job)]
    choice = choose(job)
    wanted = SwitchDecided(
        table_revision=job.plan.revision,
        switch_revision=0,
        effective_iteration=0,
        points=choice.points,
        reason="",
        own_revisions=choice.own_revisions,
        t_prime_s=choice.selection.t_prime_s or 0.0,
    )
    if is_routine and _barely_differs(job, wanted):
        return []
    if job.switch is not None and _orders(job.switch) == _orders(wanted) and not force:
        # The same clocks may have another reason: what an operator reported is not what full clocks take, and where T'
        # is over no pipeline waits any more.
        same = replace(job.switch, t_prime_s=wanted.t_prime_s)
        changed = [Persist(facts=(same,))] if same != job.switch else []
        job.enforcement.switch = same
        job.measured.saving.plans.begin(effective_iteration(job, now_s), job.switch.directives, followed_plan(job))
        return [Log(sentence=f"{why}: {choice.sentence}, as before"), *changed, *_resend_bounds(job)]
    return _switch(job, wanted, now_s, f"{why}: {choice.sentence}")


def put_in_force(job: Job, now_s: float, why: str) -> list[Effect]:
    """Bring a plan into force that no attached rank holds: tables first."""
    assert job.plan is not None
    tables = [
        SendTable(stream=stream, encoded=job.plan.tables[job.members.places[rank].pp_rank])
        for stream, rank in job.members.rank_of_stream.items()
    ]
    return [*tables, *decide(job, now_s, why, force=True)]


def release_all(job: Job, now_s: float, why: str) -> list[Effect]:
    """Have every pipeline run without a plan, if any has one."""
    if job.switch is None or set(job.switch.points) == {NO_POINT}:
        return []
    return _switch(job, _released(job.switch), now_s, why)


def resume(job: Job, why: str) -> None:
    """Try a plan that was given up once more, at once, because an operator has asked for something else."""
    if job.phase is Phase.RELEASED and job.plan is not None:
        job.enter(Phase.ENFORCING, why)


def _released(switch: SwitchDecided) -> SwitchDecided:
    return replace(switch, points=(NO_POINT,) * len(switch.points), own_revisions=(), t_prime_s=0.0)


def _without_held_plans(job: Job, switch: SwitchDecided) -> SwitchDecided:
    """The same, but for pipelines' own plans where these were given up: such pipelines run at full clocks."""
    is_held = job.progress.iteration < job.enforcement.guard.own_plans_held_until
    if job.plan is None or not is_held or not any(switch.own_revisions):
        return switch
    full = job.plan.summary.full_point
    points = (full if own else point for point, own in zip(switch.points, switch.own_revisions, strict=True))
    return replace(switch, points=tuple(points), own_revisions=())


def _orders(decided: SwitchDecided) -> tuple[object, ...]:
    """The directives for all pipelines, to compare."""
    return decided.table_revision, decided.points, decided.own_revisions


def _barely_differs(job: Job, wanted: SwitchDecided) -> bool:
    """Whether no plan's time would change by what a switch is worth: T' is measured, and never quite the same."""
    before = job.switch
    if job.plan is None or before is None or NO_POINT in before.points:
        return False
    if (before.table_revision, before.own_revisions) != (wanted.table_revision, wanted.own_revisions):
        return False
    if bool(before.t_prime_s) != bool(wanted.t_prime_s):
        return False
    for dp_rank, (old, new) in enumerate(zip(before.points, wanted.points, strict=True)):
        summary = (job.straggler_plan_in_force(dp_rank) or job.plan).summary
        old_ps = summary.planned_ps(old)
        is_full_in_one = (old == summary.full_point) != (new == summary.full_point)
        if is_full_in_one or abs(summary.planned_ps(new) - old_ps) > _TIME_STEP * old_ps:
            return False
    return True


def _switch(job: Job, wanted: SwitchDecided, now_s: float, reason: str) -> list[Effect]:
    """Bring an order into force: everybody at the same iteration, own tables first."""
    before = job.switch
    revision = max(job.revisions.held_switch, before.switch_revision if before else 0) + 1
    effective = effective_iteration(job, now_s)
    decided = replace(wanted, switch_revision=revision, effective_iteration=effective, reason=reason)
    job.enforcement.switch = decided
    moved = _moved(before, decided)
    job.enforcement.guard.begin_plan(effective, moved)
    job.measured.saving.plans.begin(effective, decided.directives, followed_plan(job))
    job.measured.enforced.clear()
    job.num_changes += 1
    job.history.add(
        "switch",
        reason,
        now_s=now_s,
        iteration=job.progress.iteration,
        effective_iteration=effective,
        switch_revision=revision,
        t_prime_s=decided.t_prime_s,
        points=decided.points,
    )
    tables: list[Effect] = []
    for dp_rank in moved:
        own = job.straggler_plan_in_force(dp_rank)
        if own is not None and (before is None or before.revision_of(dp_rank) != own.revision):
            tables += own_tables(job.members, own)
        elif own is not None or job.plan is None or decided.points[dp_rank] != job.plan.summary.full_point:
            continue
        if job.detection.watch is not None:
            job.detection.watch.change_plan(dp_rank, effective)
    return [
        Log(sentence=f"switch {revision} from iteration {effective} on: {reason}"),
        Persist(facts=(decided,)),
        *tables,
        *_send_switch(job, decided),
    ]


def _moved(before: SwitchDecided | None, decided: SwitchDecided) -> list[int]:
    """The dp_ranks whose order is another one than before."""
    orders = before.directives if before is not None else {}
    return [dp_rank for dp_rank, order in decided.directives.items() if orders.get(dp_rank) != order]


def own_tables(members: Membership, own: StragglerPlanReady) -> list[Effect]:
    """A pipeline's own table, for each of its ranks that is attached."""
    return [
        SendTable(stream=stream, encoded=own.tables[members.places[rank].pp_rank])
        for stream, rank in members.rank_of_stream.items()
        if members.places[rank].dp_rank == own.dp_rank
    ]


def set_target(job: Job, event: TargetSet, now_s: float) -> list[Effect]:
    """An operator's wish, which no later rank overrules; repeated, it does not try again what was given up."""
    if job.plan is not None and (reason := unmet_deadline(event.target, job.plan.summary)):
        return [Answer(accepted=False, reason=reason)]
    chosen = TargetChosen(target=event.target, by_operator=True)
    if chosen == job.chosen_target:
        return [Answer(accepted=True, reason=f"{target_text(event.target)} is the target already")]
    job.chosen_target = chosen
    job.enforcement.overrun = 0.0
    job.detection.keeps_switch = False
    job.num_changes += 1
    why = f"an operator wants {target_text(event.target)}"
    resume(job, why)
    return [Persist(facts=(job.chosen_target,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]


def report_straggler(job: Job, event: StragglerReported, now_s: float) -> list[Effect]:
    """Let all other pipelines wait as cheaply as they can; the same report once more changes nothing."""
    assert job.spec is not None
    if not 0 <= event.dp_rank < job.spec.dp_size:
        reason = f"saw dp_rank {event.dp_rank}, expected 0 to {job.spec.dp_size - 1}; name the pipeline that straggles"
        return [Answer(accepted=False, reason=reason)]
    if not 1 <= event.degree <= MAX_DEGREE:
        reason = f"saw degree {event.degree:g}, expected 1 (it does not straggle) to {MAX_DEGREE}"
        return [Answer(accepted=False, reason=reason)]
    known = StragglerKnown(straggler_id=event.straggler_id, degree=event.degree, dp_rank=event.dp_rank)
    if known == job.stragglers.get(event.straggler_id):
        return [Answer(accepted=True, reason=f"straggler {event.straggler_id} is known like that already")]
    if event.straggler_id not in job.stragglers and len(job.stragglers) >= MAX_STRAGGLERS:
        reason = f"saw a report under a new name beside {MAX_STRAGGLERS} others; clear those that are over"
        return [Answer(accepted=False, reason=reason)]
    job.stragglers[event.straggler_id] = known
    job.detection.keeps_switch = False
    job.num_changes += 1
    why = f"straggler {event.straggler_id}: pipeline {event.dp_rank} takes {event.degree:g} times as long"
    resume(job, why)
    job.history.add(
        "reported", why, now_s=now_s, iteration=job.progress.iteration, dp_rank=event.dp_rank, degree=event.degree
    )
    return [Persist(facts=(known,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]


def clear_straggler(job: Job, event: StragglerCleared, now_s: float) -> list[Effect]:
    """Back to the target's plan, if that was the last one."""
    known = job.stragglers.pop(event.straggler_id, None)
    if known is None:
        reported = ", ".join(sorted(job.stragglers)) or "none"
        reason = f"saw straggler {event.straggler_id!r}, expected one that was reported: {reported}"
        return [Answer(accepted=False, reason=reason)]
    job.detection.keeps_switch = False
    job.num_changes += 1
    why = f"straggler {event.straggler_id} is over"
    resume(job, why)
    job.history.add(
        "cleared", why, now_s=now_s, iteration=job.progress.iteration, dp_rank=known.dp_rank, degree=known.degree
    )
    return [Persist(drop=(known.key,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]
