"""Which point of the frontier each pipeline follows, and from which iteration on."""

import math
import statistics

from perseus_dist.messages import NO_ITERATION, NO_POINT, Switch, Target
from perseus_dist.planner.frontier_summary import FrontierSummary
from perseus_dist.planner.job import Job, Phase
from perseus_dist.planner.lifecycle_events import (
    Answer,
    Effect,
    Log,
    Persist,
    Send,
    StragglerCleared,
    StragglerReported,
    TargetSet,
)
from perseus_dist.planner.lifecycle_facts import StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.units import PS_PER_S, deadline_ps_from_s


def iteration_time_s(job: Job) -> float | None:
    """[s] what an iteration takes these days; else what the baseline says; None before there is either."""
    if job.recent_times_s:
        return statistics.median(job.recent_times_s)
    return job.baseline.time_s if job.baseline else None


def effective_iteration(job: Job, now_s: float) -> int:
    """The first iteration that every rank can be expected to have heard of before it begins it.

    That is the newest begun plus those that begin while a message travels. What began since the last report is guessed
    from the time gone by, but no more than goes unreported: training that has paused has begun nothing.
    """
    if job.iteration == NO_ITERATION:
        return 0
    return job.iteration + _num_ahead(job, min(now_s - job.iteration_at_s, job.policy.report_s))


def is_of_earlier_run(job: Job, iteration: int) -> bool:
    """Whether something was ordered for an iteration so far ahead that training must have gone back since."""
    return iteration > job.iteration + 2 * _num_ahead(job, job.policy.report_s) + 1


def _num_ahead(job: Job, unreported_s: float) -> int:
    time_s = iteration_time_s(job)
    return max(1, math.ceil((unreported_s + job.policy.message_s) / max(time_s, 1e-6))) if time_s else 2


def switch_for(decided: SwitchDecided, dp_rank: int) -> Switch:
    """A pipeline's part of a decision."""
    return Switch(
        table_revision=decided.table_revision,
        point=decided.points[dp_rank],
        effective_iteration=decided.effective_iteration,
        switch_revision=decided.switch_revision,
    )


def decide(job: Job, now_s: float, why: str, *, force: bool = False) -> list[Effect]:
    """Choose every pipeline's point by target and stragglers.

    Args:
        job: With a plan; nothing happens before there is one.
        now_s: [s] monotonic.
        why: What has happened, in a sentence without its end.
        force: Whether to switch even where no point changes.
    """
    if job.plan is None or job.phase is Phase.STALE:
        return []
    points, choice = choose_points(job, job.plan.summary)
    unchanged = job.switch is not None and (job.switch.table_revision, job.switch.points) == (job.plan.revision, points)
    if unchanged and not force:
        return [Log(sentence=f"{why}: {choice}, as before")]
    return _switch(job, job.plan.revision, points, now_s, f"{why}: {choice}")


def release_all(job: Job, now_s: float) -> list[Effect]:
    """Have every pipeline run without a plan, if any has one."""
    if job.switch is None or set(job.switch.points) == {NO_POINT}:
        return []
    return _switch(job, job.switch.table_revision, (NO_POINT,) * len(job.switch.points), now_s, job.reason)


def _switch(job: Job, table_revision: int, points: tuple[int, ...], now_s: float, reason: str) -> list[Effect]:
    revision = max(job.held_switch_revision, job.switch.switch_revision if job.switch else 0) + 1
    decided = SwitchDecided(
        table_revision=table_revision,
        switch_revision=revision,
        effective_iteration=effective_iteration(job, now_s),
        points=points,
        reason=reason,
    )
    job.switch = decided
    job.enforced.clear()
    job.num_changes += 1
    messages = [switch_for(decided, dp_rank) for dp_rank in range(len(points))]
    return [
        Log(sentence=f"switch {revision} from iteration {decided.effective_iteration} on: {reason}"),
        Persist(facts=(decided,)),
        *(
            Send(stream=stream, message=messages[job.ranks[rank].rank.dp_rank])
            for stream, rank in job.rank_of_stream.items()
        ),
    ]


def choose_points(job: Job, summary: FrontierSummary) -> tuple[tuple[int, ...], str]:
    """Each pipeline's point, and why in a clause.

    A pipeline that waits for a straggler until T' anyway takes the plan of least energy within T'; the straggler itself
    keeps the target's plan, and so does everybody if the target is as slow as T'.
    """
    assert job.spec is not None
    at_target = summary.point_for_deadline(_deadline_ps(job.target, summary))
    target_s = summary.time_ps[at_target] / PS_PER_S
    choice = f"{_target_text(job.target)} is point {at_target} at {target_s:.6f} s"
    if not job.stragglers:
        return (at_target,) * job.spec.dp_size, choice
    t_prime_ps = round(max(known.degree for known in job.stragglers.values()) * summary.baseline_time_ps)
    if t_prime_ps <= summary.time_ps[at_target]:
        return (at_target,) * job.spec.dp_size, f"{choice}, no faster than the straggler"
    waiting = summary.point_for_straggler(t_prime_ps)
    straggling = {known.dp_rank for known in job.stragglers.values()}
    points = tuple(at_target if dp_rank in straggling else waiting for dp_rank in range(job.spec.dp_size))
    who = ", ".join(map(str, sorted(straggling)))
    return (points, f"{choice}, all but pipeline {who} wait until {t_prime_ps / PS_PER_S:.6f} s at point {waiting}")


def set_target(job: Job, event: TargetSet, now_s: float) -> list[Effect]:
    """An operator's wish, which no later rank overrules."""
    if job.plan is not None and event.target.deadline_s is not None:
        fastest_s = job.plan.summary.t_min_ps / PS_PER_S
        if _deadline_ps(event.target, job.plan.summary) < job.plan.summary.t_min_ps:
            reason = (
                f"a deadline of {event.target.deadline_s:g} s cannot be met: the fastest plan takes {fastest_s:.9f} s"
            )
            return [Answer(accepted=False, reason=reason)]
    job.chosen_target = TargetChosen(target=event.target, by_operator=True)
    job.num_changes += 1
    why = f"an operator wants {_target_text(event.target)}"
    return [Persist(facts=(job.chosen_target,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]


def report_straggler(job: Job, event: StragglerReported, now_s: float) -> list[Effect]:
    """Let all other pipelines wait as cheaply as they can."""
    assert job.spec is not None
    if not 0 <= event.dp_rank < job.spec.dp_size:
        reason = f"saw dp_rank {event.dp_rank}, expected 0 to {job.spec.dp_size - 1}; name the pipeline that straggles"
        return [Answer(accepted=False, reason=reason)]
    known = StragglerKnown(straggler_id=event.straggler_id, degree=event.degree, dp_rank=event.dp_rank)
    job.stragglers[event.straggler_id] = known
    job.num_changes += 1
    why = f"straggler {event.straggler_id}: pipeline {event.dp_rank} takes {event.degree:g} times as long"
    return [Persist(facts=(known,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]


def clear_straggler(job: Job, event: StragglerCleared, now_s: float) -> list[Effect]:
    """Back to the target's plan, if that was the last one."""
    known = job.stragglers.pop(event.straggler_id, None)
    if known is None:
        reported = ", ".join(sorted(job.stragglers)) or "none"
        reason = f"saw straggler {event.straggler_id!r}, expected one that was reported: {reported}"
        return [Answer(accepted=False, reason=reason)]
    job.num_changes += 1
    why = f"straggler {event.straggler_id} is over"
    return [Persist(drop=(known.key,)), *decide(job, now_s, why), Answer(accepted=True, reason=why)]


def _deadline_ps(target: Target, summary: FrontierSummary) -> int:
    if target.deadline_s is not None:
        return deadline_ps_from_s(target.deadline_s)
    return round((target.slowdown or 1.0) * summary.baseline_time_ps)


def _target_text(target: Target) -> str:
    if target.deadline_s is not None:
        return f"a deadline of {target.deadline_s:g} s"
    if target.slowdown is not None:
        return f"{target.slowdown:g} times the time at all-maximum clocks"
    return "the time at all-maximum clocks"
