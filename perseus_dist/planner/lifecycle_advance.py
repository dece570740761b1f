"""What comes next: the phase that a job goes on to once what it waited for is there."""

from collections.abc import Collection

from perseus_dist.planner.job import Job, Phase
from perseus_dist.planner.lifecycle_events import Effect, Forget, Persist
from perseus_dist.planner.lifecycle_facts import JobEnded
from perseus_dist.planner.lifecycle_guard import keep_promise
from perseus_dist.planner.lifecycle_plan import (
    cancel_planning,
    do_without_choice,
    has_blocking_power,
    has_profile,
    has_swept,
    refusal,
    start_planning,
)
from perseus_dist.planner.lifecycle_saving import keep_saving
from perseus_dist.planner.lifecycle_sweep import advance_sweep, begin_series, common_clocks_mhz
from perseus_dist.planner.lifecycle_switch import decide, is_of_earlier_run
from perseus_dist.planner.lifecycle_telemetry import measured_baseline

_MIN_CLOCKS = 2  # less is no choice


def advance(job: Job, now_s: float) -> list[Effect]:
    """Go on as far as possible."""
    effects: list[Effect] = []
    for _ in range(len(Phase)):  # each phase is entered once at most
        before = (job.phase, job.sweep, job.planning)
        match job.phase:
            case Phase.REGISTERING:
                effects += _registering(job, now_s)
            case Phase.WARMING_UP | Phase.OBSERVING:
                effects += _warming_up(job, now_s)
            case Phase.PROFILING | Phase.REPROFILING:
                effects += _profiling(job, now_s)
            case Phase.PLANNING | Phase.ENFORCING:
                effects += [*keep_promise(job, now_s), *_enforcing(job, now_s)]
            case Phase.RELEASED:
                effects += _released(job, now_s)
            case Phase.STALE | Phase.DONE:
                pass
        if (job.phase, job.sweep, job.planning) == before:
            break
    return effects


def end_of_job(job: Job, now_s: float) -> list[Effect]:
    """A job is over once all ranks have said goodbye, or none has been attached for long; later it is forgotten."""
    if job.phase is Phase.DONE:
        if job.gone_since_s is None:  # restored: how long ago it ended is not known
            job.gone_since_s = now_s
        return [Forget()] if now_s - job.gone_since_s > job.policy.keep_done_s else []
    if job.ranks and len(job.ranks) == job.num_ranks and all(state.said_goodbye for state in job.ranks.values()):
        job.enter(Phase.DONE, f"every rank's trainer has ended{_never_enforced(job)}")
    elif not job.rank_of_stream:
        if job.gone_since_s is None:  # restored, and no rank has come back yet
            job.gone_since_s = now_s
        if now_s - job.gone_since_s <= job.policy.gone_s:
            return []
        job.enter(Phase.DONE, f"no rank has been attached for {job.policy.gone_s:g} s{_never_enforced(job)}")
    else:
        return []
    job.gone_since_s = now_s
    ended = Persist(facts=(JobEnded(reason=job.reason),))
    return [*cancel_planning(job), *keep_saving(job, now_s, is_over=True), ended]


def _never_enforced(job: Job) -> str:
    """Why a job that ends was without a plan, behind the reason of its end."""
    return f"; it was {job.phase} because {job.reason}" if job.phase in (Phase.OBSERVING, Phase.STALE) else ""


def _registering(job: Job, now_s: float) -> list[Effect]:
    if job.plan is not None:
        job.enter(Phase.ENFORCING, "the plan of an earlier run is in force")
        return decide(job, now_s, "the job is back")
    if not job.schedule_text:
        job.enter(Phase.REGISTERING, "waiting for the schedule's text")
    elif job.num_attached < job.num_ranks:
        job.enter(Phase.REGISTERING, f"{job.num_attached} of {job.num_ranks} ranks are attached")
    else:
        job.enter(Phase.WARMING_UP, f"all {job.num_ranks} ranks are attached: measuring the baseline")
    return []


def _warming_up(job: Job, now_s: float) -> list[Effect]:
    """Baseline first, then whatever of a profile is not there yet."""
    effects: list[Effect] = []
    if job.baseline is None:
        job.baseline = measured_baseline(job)
        if job.baseline is None:
            return []
        job.num_changes += 1
        effects.append(Persist(facts=(job.baseline,)))
    if job.num_attached < job.num_ranks or job.is_unplannable:
        return effects
    setters = [rank for rank, state in job.ranks.items() if state.can_set_clocks]
    others = [rank for rank, state in job.ranks.items() if not state.can_set_clocks]
    clocks_mhz = common_clocks_mhz(job, setters)
    rank_0 = job.ranks[0]
    if not setters:
        job.enter(Phase.OBSERVING, f"no rank can set clocks: {refusal(job)}")
        effects += _observing(job, now_s)
    elif len(clocks_mhz) < _MIN_CLOCKS:
        reason = f"{len(clocks_mhz)} clocks can be set on all ranks, expected {_MIN_CLOCKS}; widen clockd's bounds"
        job.enter(Phase.OBSERVING, reason)
    elif rank_0.has_profile and not has_profile(job):
        job.enter(Phase.WARMING_UP, "waiting for the saved profile of rank 0")
    elif not has_profile(job):
        job.enter(Phase.PROFILING, f"sweeping {len(clocks_mhz)} clocks from {clocks_mhz[0]} MHz down")
        effects += begin_series(job, clocks_mhz, setters, others, now_s, is_profile=True)
    elif not has_blocking_power(job):
        job.enter(Phase.PROFILING, f"measuring blocking power at {clocks_mhz[0]} MHz, which no saved profile tells")
        effects += begin_series(job, clocks_mhz[:1], [], job.ranks, now_s, is_profile=False)
    else:
        effects += start_planning(job, "planning from the saved profile")
    return effects


def _observing(job: Job, now_s: float) -> list[Effect]:
    """Measure once at the clock that the GPUs run at by themselves: nothing to plan with, but something to look at."""
    if job.sweep is not None:
        return advance_sweep(job, now_s)
    clock_mhz = max(state.gpu_sample.clock_mhz for state in job.ranks.values())
    if has_swept(job) or not clock_mhz:
        return []
    return begin_series(job, (clock_mhz,), [], job.ranks, now_s, is_profile=not job.ranks[0].has_profile)


def _profiling(job: Job, now_s: float) -> list[Effect]:
    effects = advance_sweep(job, now_s) if job.sweep is not None else []
    if job.sweep is not None:
        return effects
    if has_profile(job):
        return [*effects, *start_planning(job, "planning from what was measured")]
    do_without_choice(job)
    return effects


def _enforcing(job: Job, now_s: float) -> list[Effect]:
    """Switch, plan and measure again where that has become due."""
    if job.switch is not None and job.rank_of_stream and is_of_earlier_run(job, job.switch.effective_iteration):
        return decide(job, now_s, "training has gone back to an earlier iteration", force=True)
    if job.plan_again_at_s is not None and job.planning is None:
        if now_s < job.plan_again_at_s:
            return []
        return start_planning(job, "planning again")
    if job.phase is Phase.PLANNING or not job.drifted_ranks:
        return []
    if now_s < job.drift_since_s + job.policy.drift_settle_s:
        return []
    job.drifted_ranks -= _stragglers(job)  # such a rank has left the profile of its stage, which is as true as ever
    if not job.drifted_ranks:
        return []
    if job.reprofiled_at_s is not None and now_s < job.reprofiled_at_s + job.policy.min_reprofile_interval_s:
        return []
    drifted = _agreed(job)
    if not drifted:
        return []
    pp_ranks = ", ".join(map(str, sorted(drifted)))
    return _measure_again(job, drifted, now_s, f"times of pp_rank {pp_ranks} have left the profile: sweeping it again")


def _agreed(job: Job) -> set[int]:
    """The pp_ranks whose profile is wrong: all replicas there have left it. One alone is slow, or fast."""
    stays = {
        state.rank.pp_rank
        for rank, state in job.ranks.items()
        if state.stream is not None and rank not in job.drifted_ranks
    }
    return {job.ranks[rank].rank.pp_rank for rank in job.drifted_ranks} - stays


def _released(job: Job, now_s: float) -> list[Effect]:
    """A plan was given up: measure again what it was made of, or, if that was in vain, try it again later."""
    if job.num_attached < job.num_ranks or not job.guard.has_held(job.iteration):
        return []
    assert job.spec is not None
    if job.guard.num_plan_falls % 2:
        effects = _measure_again(job, range(job.spec.pp_size), now_s, "the plan was slow: sweeping all ranks again")
        if effects:
            return effects
    job.enter(Phase.ENFORCING, "the plan is tried again")
    return decide(job, now_s, job.reason, force=True)


def _measure_again(job: Job, pp_ranks: Collection[int], now_s: float, why: str) -> list[Effect]:
    """Sweep the ranks of some stages; nothing where they have no choice of clocks."""
    concerned = [
        rank for rank, state in job.ranks.items() if state.rank.pp_rank in pp_ranks and state.stream is not None
    ]
    setters = [rank for rank in concerned if job.ranks[rank].can_set_clocks]
    clocks_mhz = common_clocks_mhz(job, setters)
    if len(clocks_mhz) < _MIN_CLOCKS:
        return []
    job.drifted_ranks.clear()
    job.reprofiled_at_s = now_s
    job.enter(Phase.REPROFILING, why)
    others = [rank for rank in concerned if rank not in setters]
    return begin_series(job, clocks_mhz, setters, others, now_s, is_profile=True)


def _stragglers(job: Job) -> set[int]:
    """Ranks that verdicts are about, acted upon or not: with those of its tensor-parallel group, or of its pipeline."""
    places = {(verdict.dp_rank, verdict.pp_rank) for verdict in job.verdicts if not verdict.is_whole_pipeline}
    pipelines = {verdict.dp_rank for verdict in job.verdicts if verdict.is_whole_pipeline}
    return {
        rank
        for rank, state in job.ranks.items()
        if (state.rank.dp_rank, state.rank.pp_rank) in places or state.rank.dp_rank in pipelines
    }
