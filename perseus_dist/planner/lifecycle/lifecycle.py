"""The life cycle of a job: one function from what happened to what is to be done, every decision with its sentence.

```
 registering -> warming_up -> profiling -> planning -> enforcing <-> re-profiling
      |              |            |            |           |
      |              +---> observing (no clock can be set, or no plan can be made)
      +-- stale (a rank came back with another schedule)   +--> done (all said goodbye, or all are gone)
```

``step(job, event, now_s)`` changes the job and returns effects, whose contract stands in ``events.py``. It is
deterministic, does no I/O and reads no clock; ``now_s`` is any clock that never goes back within a process.
``restore`` builds the job of a restarted planner from the facts that its effects made durable.
"""

from perseus_dist.messages.from_agent import (
    Attach,
    Drift,
    Goodbye,
    ProfileSamples,
    RunTimes,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.advance import advance, end_of_job, store_end
from perseus_dist.planner.lifecycle.baseline import store_saving
from perseus_dist.planner.lifecycle.enforcement.pace import set_pace
from perseus_dist.planner.lifecycle.enforcement.prediction_check import compare_prediction
from perseus_dist.planner.lifecycle.enforcement.switching import clear_straggler, decide, report_straggler, set_target
from perseus_dist.planner.lifecycle.events import (
    Answer,
    Effect,
    Forget,
    JobEvent,
    Log,
    PaceSet,
    Persist,
    PlanExpected,
    PlanFailed,
    PlannerEnds,
    PlanReady,
    RankAttached,
    RankDetached,
    RankMessage,
    StragglerCleared,
    StragglerReported,
    TargetSet,
    Tick,
)
from perseus_dist.planner.lifecycle.plan import apply_plan, expect_plan, handle_failure
from perseus_dist.planner.lifecycle.registration import attach_rank, detach_rank
from perseus_dist.planner.lifecycle.restart import restore
from perseus_dist.planner.lifecycle.schedule import handle_schedule
from perseus_dist.planner.lifecycle.shape_change.ahead import (
    handle_ahead_failure,
    is_ahead_request,
    keep_ahead,
    request_ahead,
)
from perseus_dist.planner.lifecycle.stragglers.straggler_plans import (
    apply_straggler_plan,
    handle_straggler_plan_failure,
    is_own_request,
)
from perseus_dist.planner.lifecycle.stragglers.stragglers import judge, judge_at_once
from perseus_dist.planner.lifecycle.sweeping.sweep import record_samples
from perseus_dist.planner.lifecycle.telemetry import handle_telemetry
from perseus_dist.planner.lifecycle.transfers import record_run_times

__all__ = ["Job", "Phase", "Policy", "new_job", "restore", "step"]


def new_job(job_id: str, policy: Policy) -> Job:
    """A job without any rank yet. Its first accepted ``RankAttached`` registers it (``job.spec``)."""
    return Job(job_id=job_id, policy=policy)


def step(job: Job, event: JobEvent, now_s: float) -> list[Effect]:
    """Apply an event.

    Args:
        job: Changed in place.
        event: What happened.
        now_s: [s] when, monotonic.

    Returns:
        What to do, in order; mostly nothing.
    """
    job.now_s = now_s
    if isinstance(event, RankMessage):
        job.num_messages += 1
        rank = job.members.rank_of_stream.get(event.stream)
        if rank is None:  # refused, or replaced
            return []
        if isinstance(event.message, Telemetry):  # a thousand a second, of which few matter
            phase, reason = job.phase, job.reason
            matters = handle_telemetry(job, job.members.ranks[rank], event.message, now_s)
            effects = judge_at_once(job, now_s)
            if matters:
                effects += advance(job, now_s)
            return _finished(job, phase, reason, effects)
        if isinstance(
            event.message, SwitchSeen
        ):  # of each rank at each switch, and changes nothing but for one of these
            phase, reason = job.phase, job.reason
            effects = _handle_message(job, event, now_s)
            return _finished(job, phase, reason, [*effects, *advance(job, now_s)]) if effects else []
    phase, reason = job.phase, job.reason
    effects = _handle_event(job, event, now_s)
    if job.spec is None or isinstance(event, PlannerEnds):
        return effects
    effects += advance(job, now_s)
    return _finished(job, phase, reason, effects)


def _handle_event(job: Job, event: JobEvent, now_s: float) -> list[Effect]:
    match event:
        case RankMessage():
            return _handle_message(job, event, now_s)
        case RankAttached():
            return attach_rank(job, event, now_s)
        case RankDetached(stream=stream):
            return detach_rank(job, stream, now_s)
        case PlanExpected():
            return expect_plan(job, event, now_s)
        case PlanReady(result=result):
            if is_own_request(job.detection, result.request_id):
                return apply_straggler_plan(job, result, now_s)
            if is_ahead_request(job, result.request_id):
                return keep_ahead(job, result)
            return apply_plan(job, event, now_s)
        case PlanFailed(request_id=request_id):
            if is_ahead_request(job, request_id):
                return handle_ahead_failure(job, event)
            return (
                handle_straggler_plan_failure(job, event, now_s)
                if is_own_request(job.detection, request_id)
                else handle_failure(job, event, now_s)
            )
        case Tick():
            told = [*judge(job, now_s), *compare_prediction(job, now_s)]
            return [*told, *store_saving(job, now_s), *end_of_job(job, now_s), *request_ahead(job, now_s)]
        case PlannerEnds():
            return [*store_saving(job, now_s, at_once=True), *store_end(job, now_s, at_once=True)]
        case _ if job.spec is None:
            return [Answer(accepted=False, reason=f"no rank of job {job.job_id} has attached yet"), Forget()]
        case TargetSet():
            return set_target(job, event, now_s)
        case PaceSet():
            return set_pace(job, event, now_s)
        case StragglerReported():
            return report_straggler(job, event, now_s)
        case StragglerCleared():
            return clear_straggler(job, event, now_s)


def _handle_message(job: Job, event: RankMessage, now_s: float) -> list[Effect]:
    state = job.members.ranks[job.members.rank_of_stream[event.stream]]
    match event.message:
        case ProfileSamples() as samples:
            return record_samples(job, state, event.stream, samples)
        case ScheduleText() as text:
            return handle_schedule(job, event.stream, text, now_s)
        case SwitchSeen() as seen:
            if seen.switch_revision > state.switch_seen:
                job.history.confirm_switch(seen.switch_revision, now_s)
            state.switch_seen = max(state.switch_seen, seen.switch_revision)
            newest = job.switch.switch_revision if job.switch else 0
            job.revisions.held_switch = max(job.revisions.held_switch, seen.switch_revision)
            if newest < seen.switch_revision:
                why = f"rank {state.rank.rank} holds switch {seen.switch_revision}, which the planner does not know"
                return decide(job, now_s, why, force=True)
        case Drift() as drift:
            if not job.enforcement.drifts:
                job.enforcement.drift_since_s = now_s
            share = drift.measured_time_s / drift.profile_time_s - 1
            earlier = job.enforcement.drifts.get(state.rank.rank, 0.0)
            job.enforcement.drifts[state.rank.rank] = max(share, earlier, key=abs)
            if not 0 < drift.num_iterations < job.policy.lasting_drift_iterations:
                job.enforcement.lasting_drifts.add(state.rank.rank)
            return [
                Log(
                    sentence=f"rank {state.rank.rank}: {drift.kind} of chunk {drift.chunk} takes "
                    f"{drift.measured_time_s:.6f} s at {drift.clock_mhz} MHz, expected {drift.profile_time_s:.6f} s"
                )
            ]
        case RunTimes() as times:
            record_run_times(job, state, times)
        case Goodbye():
            state.said_goodbye = True
            return end_of_job(job, now_s)
        case Telemetry() | Attach():
            pass
    return []


def _finished(job: Job, phase: Phase, reason: str, effects: list[Effect]) -> list[Effect]:
    """Say what the step has led to, and make all its facts durable at once."""
    if job.phase is not phase or job.reason != reason:
        effects.append(Log(sentence=f"{job.phase}: {job.reason}"))
    if not effects:
        return effects
    persists = [effect for effect in effects if isinstance(effect, Persist)]
    if len(persists) < 2:
        return effects
    facts = persists[0].facts
    for persist in persists[1:]:
        facts = (*(fact for fact in facts if not fact.key.startswith(persist.drop)), *persist.facts)
    together = Persist(facts=facts, drop=tuple(prefix for persist in persists for prefix in persist.drop))
    first = effects.index(persists[0])
    rest = [effect for effect in effects[first:] if not isinstance(effect, Persist)]
    return [*effects[:first], together, *rest]
