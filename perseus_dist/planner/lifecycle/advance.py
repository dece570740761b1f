"""The next phase: where the job goes on to once the condition that it waited for holds."""

from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.facts.runs import JobEnded
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.baseline import baseline_length, record_baseline, store_saving
from perseus_dist.planner.lifecycle.blocking_power import note_unmeasured, why_measured_again
from perseus_dist.planner.lifecycle.drift import answer_drift, listed
from perseus_dist.planner.lifecycle.enforcement.overlap import overlap_is_new
from perseus_dist.planner.lifecycle.enforcement.prediction_check import learn
from perseus_dist.planner.lifecycle.enforcement.promise import correct_target, keep_promise, late_with
from perseus_dist.planner.lifecycle.enforcement.slack import slack_to_plan
from perseus_dist.planner.lifecycle.enforcement.slightly_slow import newly_slow
from perseus_dist.planner.lifecycle.enforcement.switching import (
    decide,
    is_of_earlier_run,
    iteration_time_s,
    put_in_force,
    release_all,
)
from perseus_dist.planner.lifecycle.events import Effect, Forget, Persist
from perseus_dist.planner.lifecycle.plan import (
    cancel_frontier,
    do_without_choice,
    has_blocking_power,
    has_profile,
    has_swept,
    is_of_other_unit,
    refusal,
    request_frontier,
    start_planning,
)
from perseus_dist.planner.lifecycle.profile_check import doubt, is_too_slow, misstated, step_in_sweep
from perseus_dist.planner.lifecycle.reset import cancel_planning
from perseus_dist.planner.lifecycle.shape_change.carry import use_stages
from perseus_dist.planner.lifecycle.sweeping.again import MIN_CLOCKS, measure_again, measure_blocking_power
from perseus_dist.planner.lifecycle.sweeping.rounds import menus_mhz
from perseus_dist.planner.lifecycle.sweeping.sweep import advance_sweep, begin_series, resume_series
from perseus_dist.planner.lifecycle.transfers import (
    are_of_long_ago,
    are_unconfirmed,
    are_unknown_to_request,
    transfers_are_new,
    transfers_have_moved,
)
from perseus_dist.planning.frontier.slow_rank import SlowRank

_TIMES_STORED = 24  # while a job that is over is kept
_UNSEEN = "instructions cannot be seen, and no whole profile of them is there: measure one while they can be seen"


def advance(job: Job, now_s: float) -> list[Effect]:
    """Go on as far as possible."""
    effects: list[Effect] = []
    if job.progress.began_at_iteration is None and job.progress.iteration != NO_ITERATION:
        job.progress.began_at_iteration, job.progress.began_at_s = job.progress.iteration, now_s
    for _ in range(len(Phase)):  # each phase is entered once at most
        before = (job.phase, job.profiling.sweep, job.planning.pending)
        match job.phase:
            case Phase.REGISTERING:
                effects += _registering(job, now_s)
            case Phase.WARMING_UP | Phase.OBSERVING:
                effects += _warming_up(job, now_s)
            case Phase.PROFILING | Phase.REPROFILING:
                effects += _profiling(job, now_s)
            case Phase.PLANNING | Phase.ENFORCING:
                effects += _under_plan(job, now_s)
            case Phase.RELEASED:
                effects += _released(job, now_s)
            case Phase.STALE | Phase.DONE:
                pass
        if (job.phase, job.profiling.sweep, job.planning.pending) == before:
            break
    return [*effects, *cancel_frontier(job)]


def end_of_job(job: Job, now_s: float) -> list[Effect]:
    """A job is over once all ranks have said goodbye, or none has been attached for long; later it is forgotten."""
    if job.phase is Phase.DONE:
        if job.members.gone_since_s is None:  # restored: how long no planner has looked on is not known
            job.members.gone_since_s = now_s - job.members.stored_over_s
        is_kept = now_s - job.members.gone_since_s <= job.policy.keep_done_s
        return store_end(job, now_s) if is_kept else [Forget()]
    ranks = job.members.ranks
    if ranks and len(ranks) == job.num_ranks and all(state.said_goodbye for state in ranks.values()):
        job.enter(Phase.DONE, f"every rank's trainer has ended{_never_enforced(job)}")
    elif not job.members.rank_of_stream:
        if job.members.gone_since_s is None:  # restored, and no rank has come back yet
            job.members.gone_since_s = now_s
        if now_s - job.members.gone_since_s <= job.policy.gone_s:
            return []
        job.enter(Phase.DONE, f"no rank has been attached for {job.policy.gone_s:g} s{_never_enforced(job)}")
    else:
        return []
    job.members.gone_since_s, job.members.stored_over_s = now_s, 0.0
    ended = Persist(facts=(JobEnded(reason=job.reason),))
    return [*cancel_planning(job.planning), *store_saving(job, now_s, at_once=True), ended]


def store_end(job: Job, now_s: float, *, at_once: bool = False) -> list[Effect]:
    """Store now and then for how long a job has been over, or planners that are restarted daily would never forget it.

    Args:
        job: Over or not.
        now_s: [s] monotonic.
        at_once: The planner ends.
    """
    if job.phase is not Phase.DONE or job.members.gone_since_s is None:
        return []
    over_s = now_s - job.members.gone_since_s
    least_s = 0.0 if at_once else job.policy.keep_done_s / _TIMES_STORED
    if over_s <= job.members.stored_over_s + least_s:
        return []
    job.members.stored_over_s = over_s
    return [Persist(facts=(JobEnded(reason=job.reason, over_s=over_s),))]


def _never_enforced(job: Job) -> str:
    """Why a job that ends was without a plan, behind the reason of its end."""
    return f"; it was {job.phase} because {job.reason}" if job.phase in (Phase.OBSERVING, Phase.STALE) else ""


def _registering(job: Job, now_s: float) -> list[Effect]:
    is_ready = job.switch is not None or job.measured.baseline is not None
    if job.plan is not None and (is_ready or _is_overdue(job, now_s)):
        job.enter(Phase.ENFORCING, "the plan that was kept is in force")
        return decide(job, now_s, "the job is back") if job.switch is not None else []
    if not job.schedule_text:
        job.enter(Phase.REGISTERING, "waiting for the schedule's text")
    elif job.num_attached < job.num_ranks:
        job.enter(Phase.REGISTERING, f"{job.num_attached} of {job.num_ranks} ranks are attached")
    else:
        job.enter(Phase.WARMING_UP, f"all {job.num_ranks} ranks are attached: measuring the baseline")
    return []


def _can_do_without_baseline(job: Job, now_s: float) -> bool:
    """Whether a plan of an earlier run, or a whole profile, need not wait for a baseline: probes measure one then."""
    assert job.spec is not None
    is_warm = job.measured.num_warm >= job.policy.num_warmup_with_plan
    if job.plan is not None:
        are_there = job.num_attached == job.num_ranks and job.progress.iteration >= job.policy.num_warmup_with_plan
        return is_warm or are_there or _is_overdue(job, now_s)
    is_whole = has_profile(job) and (
        not job.sees_instructions or (job.profiling.sweep is None and has_blocking_power(job))
    )
    return is_warm and is_whole and job.spec.keeps_profile


def _is_overdue(job: Job, now_s: float) -> bool:
    """Whether the run's baseline does not come, so that a plan that is there need not wait for it any longer."""
    policy = job.policy
    if job.progress.began_at_iteration is None or now_s < job.progress.began_at_s + policy.baseline_patience_s:
        return False
    num_wanted = policy.num_warmup_iterations + policy.max_baseline_attempts * baseline_length(job)
    return job.progress.iteration > job.progress.began_at_iteration + num_wanted


def _warming_up(job: Job, now_s: float) -> list[Effect]:
    """Baseline first, then whatever of a profile is not there yet."""
    if job.members.unlike:
        job.enter(Phase.OBSERVING, job.members.unlike)
        return record_baseline(job) if job.measured.baseline is None else []
    effects = use_stages(job)
    if job.measured.baseline is None:
        effects += record_baseline(job)
        if job.measured.baseline is None and not _can_do_without_baseline(job, now_s):
            return effects
    if job.plan is not None:
        if job.num_attached == job.num_ranks and is_of_other_unit(job):
            why = "the plan of an earlier run changes clocks by time, or could: planning for what these agents follow"
            return [*effects, *start_planning(job, why)]
        job.enter(Phase.ENFORCING, "the plan that was kept is in force")
        return effects
    if job.num_attached < job.num_ranks or job.profiling.is_unplannable:
        return effects
    if job.profiling.sweep is not None and job.sees_instructions and job.phase is not Phase.OBSERVING:
        job.enter(Phase.PROFILING, "the sweep that was under way goes on")
        return [*effects, *resume_series(job, now_s)]
    setters = [rank for rank, state in job.members.ranks.items() if state.can_set_clocks]
    others = [rank for rank, state in job.members.ranks.items() if not state.can_set_clocks]
    menus = menus_mhz(job, setters).values()
    num_clocks, highest_mhz = min(map(len, menus), default=0), sorted({max(menu, default=0) for menu in menus})
    highest = " and ".join(map(str, highest_mhz))
    rank_0 = job.members.ranks[0]
    if not setters:
        job.enter(Phase.OBSERVING, f"no rank can set clocks: {refusal(job.members)}")
        effects += _observing(job, now_s)
    elif num_clocks < MIN_CLOCKS:
        reason = f"{num_clocks} clocks can be set on all ranks of a stage, expected {MIN_CLOCKS}; widen clockd's bounds"
        job.enter(Phase.OBSERVING, reason)
    elif rank_0.has_profile and not has_profile(job):
        job.enter(Phase.WARMING_UP, "waiting for the saved profile of rank 0")
    elif not has_profile(job) and not job.sees_instructions:
        job.enter(Phase.OBSERVING, _UNSEEN)
    elif not has_profile(job):
        job.enter(Phase.PROFILING, f"sweeping clocks from {highest} MHz down")
        effects += begin_series(job, setters, dict.fromkeys(others, highest_mhz[0]), now_s, is_profile=True)
    elif not has_blocking_power(job) and job.sees_instructions:
        why = f"measuring blocking power at {highest} MHz, which no saved profile tells"
        effects += measure_blocking_power(job, now_s, why)
    else:
        effects += start_planning(job, "planning from the profile that is there")
    return effects


def _observing(job: Job, now_s: float) -> list[Effect]:
    """Measure once at the clock that the GPUs run at by themselves: nothing to plan with, but something to look at."""
    if not job.sees_instructions:
        return []
    if job.profiling.sweep is not None:
        return advance_sweep(job, now_s)
    clock_mhz = max(state.gpu_sample.clock_mhz for state in job.members.ranks.values())
    if has_swept(job.profiling) or not clock_mhz:
        return []
    ranks = job.members.ranks
    return begin_series(job, [], dict.fromkeys(ranks, clock_mhz), now_s, is_profile=not ranks[0].has_profile)


def _profiling(job: Job, now_s: float) -> list[Effect]:
    sweep = job.profiling.sweep
    effects = advance_sweep(job, now_s) if sweep is not None else []
    if job.profiling.sweep is not None:
        return effects
    note_unmeasured(job, iteration_time_s(job) or 0.0)
    if has_profile(job) or (sweep is not None and not sweep.ordered.is_profile):
        return [*effects, *start_planning(job, "planning from what was measured")]
    do_without_choice(job)
    return effects


def _under_plan(job: Job, now_s: float) -> list[Effect]:
    effects = keep_promise(job, now_s)
    if job.phase is Phase.RELEASED:  # a plan that has just been given up is not given up once more
        return effects
    return [*effects, *_enforcing(job, now_s)]


def _enforcing(job: Job, now_s: float) -> list[Effect]:
    """Switch, plan and measure again where that has become due."""
    if job.phase is Phase.ENFORCING and job.switch is None and job.plan is not None:
        return put_in_force(job, now_s, job.reason)
    effects = record_baseline(job)  # of probes, where the run began without one, or with one that was slow
    if job.switch is not None and job.members.rank_of_stream and is_of_earlier_run(job, job.switch.effective_iteration):
        return [*effects, *decide(job, now_s, "training has gone back to an earlier iteration", force=True)]
    effects += correct_target(job, now_s)
    if job.planning.again_at_s is not None and (job.planning.pending is None or job.is_refining):
        if now_s < job.planning.again_at_s:
            return effects
        return [*effects, *start_planning(job, "planning again")]
    if job.phase is Phase.PLANNING:
        if why := are_unknown_to_request(job):
            job.planning.is_restarted, job.planning.moved_at_s = True, now_s
            effects += start_planning(job, f"{why}: beginning anew")
        return effects
    if slow := late_with(job):
        return [*effects, *_plan_with(job, slow)]
    doubts = doubt(job)
    if why := transfers_have_moved(job, now_s, is_urgent=bool(doubts)):
        if not are_of_long_ago(job):
            return [*effects, *start_planning(job, why), *decide(job, now_s, why, is_routine=True)]
        job.enforcement.guard.guard.suspect("transfers that the plan does not know may be over")
    elif why := learn(job, now_s) or overlap_is_new(job):
        return [*effects, *start_planning(job, why)]
    elif doubts and are_unconfirmed(job):
        job.enforcement.guard.guard.suspect("transfers that the plan knows may be over")
    elif doubts and job.spec is not None:
        effects += measure_again(job, range(job.spec.pp_size), now_s, doubts)
    elif (why := step_in_sweep(job)) and job.spec is not None:
        measured_again = measure_again(job, range(job.spec.pp_size), now_s, why)
        effects += [*measured_again, *(release_all(job, now_s, why) if measured_again else [])]
    elif shares := misstated(job):
        job.profiling.num_misstated_sweeps += 1
        most = max(shares.values(), key=abs)
        excess = f"up to {abs(100 * most):.1f} % {'more' if most > 0 else 'less'} at full clocks than by the profile"
        why = f"computations of pp_rank {listed(shares)} take {excess}: sweeping it again"
        effects += measure_again(job, shares, now_s, why)
    elif why := slack_to_plan(job):
        job.history.add("self_check", why, now_s=now_s, iteration=job.progress.iteration)
        return [*effects, *start_planning(job, why)]
    else:
        effects += answer_drift(job, now_s)
    if job.phase is Phase.ENFORCING and (why := why_measured_again(job)):
        effects += measure_blocking_power(job, now_s, why)
    return [*effects, *request_frontier(job, now_s)] if job.phase is Phase.ENFORCING else effects


def _released(job: Job, now_s: float) -> list[Effect]:
    """A plan was given up: measure again what it was made of, or, if that was in vain, try it again later.

    A straggler that has been found explains the loss, and beside replicas is no part of the profile: the plan goes on
    with what is planned for that. Nor is the profile to blame for a plan that was slow now and then.
    """
    if job.num_attached < job.num_ranks:
        return []
    # The probe that showed the breach has shown new transfers, too: a plan that knows them need not wait.
    if why := transfers_are_new(job) or learn(job, now_s):
        return start_planning(job, why)
    if not job.enforcement.guard.has_held(job.progress.iteration):
        return []
    assert job.spec is not None
    is_explained = job.spec.dp_size > 1 and bool(job.detection.verdicts)
    too_slow = is_too_slow(job)
    if why := transfers_have_moved(job, now_s, is_urgent=too_slow):
        return start_planning(job, why)
    too_slow &= not are_unconfirmed(job)
    if slow := newly_slow(job, job.enforcement.guard.slower_then, beside_replicas=True):
        return _plan_with(job, slow)
    if job.plan is not None and job.plan.summary.is_by_phase and job.enforcement.guard.num_plan_falls > 1:
        job.planning.keeps_to_ranks = True
        return start_planning(job, "clocks that change by time were late twice: planning one clock for each rank")
    if not is_explained and job.enforcement.guard.may_sweep(is_too_slow=too_slow):
        effects = measure_again(job, range(job.spec.pp_size), now_s, "the plan was slow: sweeping all ranks again")
        if effects:
            return effects
    job.enter(Phase.ENFORCING, "the plan is tried again")
    return decide(job, now_s, job.reason, force=True)


def _plan_with(job: Job, slow: tuple[SlowRank, ...]) -> list[Effect]:
    job.planning.slightly_slow = slow
    ranks = " and ".join(f"a rank of pp_rank {one.pp_rank} {one.factor:.3f} times as slow" for one in slow)
    return start_planning(job, f"iterations take longer than the target allows: planning with {ranks}")
