"""From samples to a table in force: what the planning worker is asked, and what becomes of its answer."""

import math
from collections import defaultdict
from dataclasses import replace
from statistics import median

from perseus_dist.messages.terms import NO_POINT, T_MIN
from perseus_dist.planner.job.facts.plans import TableAhead, TableMade
from perseus_dist.planner.job.facts.sweeps import SAVED_PROFILE
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.self_check import SelfCheckWatch
from perseus_dist.planner.job.state.membership import Membership
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.profiling import Profiling, TakenSamples
from perseus_dist.planner.lifecycle.blocking_power import blocking_power_w, is_blocking_power_known
from perseus_dist.planner.lifecycle.enforcement.overlap import full_s_to_plan
from perseus_dist.planner.lifecycle.enforcement.switching import put_in_force
from perseus_dist.planner.lifecycle.events import (
    Effect,
    Log,
    Persist,
    PlanExpected,
    PlanFailed,
    PlanReady,
    StartPlanning,
)
from perseus_dist.planner.lifecycle.reset import cancel_planning, drop_kept_profile
from perseus_dist.planner.lifecycle.sweeping.cost import tell_cost
from perseus_dist.planner.lifecycle.sweeping.rounds import settable_clocks_mhz
from perseus_dist.planner.lifecycle.sweeping.witnesses import believed_ranks, of_newest_state
from perseus_dist.planner.lifecycle.transfers import snapshots_to_plan, transfers_are_new
from perseus_dist.planner.worker.plan_request import Contribution, PlanningRequest
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.instruction import CLOCK_CHANGE, Kind
from perseus_dist.units import PS_PER_S

_COMPUTATIONS = frozenset(Kind)
_SAVES_LITTLE = ", which saves little without a straggler or a target such as slowdown=1.05"
_STAYS = "the plan in force stays, because no new one can be made"


def start_planning(job: Job, why: str) -> list[Effect]:
    """Ask for a plan of the newest samples; an earlier request is given up."""
    effects = cancel_planning(job.planning)
    job.planning.request_id += 1
    job.planning.pending, job.planning.again_at_s = job.planning.request_id, None
    job.planning.expected_at_s = None
    job.planning.attempts += 1
    job.enter(Phase.PLANNING, why)
    if transfers_are_new(job):
        job.planning.moved_at_s = job.now_s
    job.planning.snapshots, job.planning.transfers_at_s = snapshots_to_plan(job), job.now_s
    request = first_request(job) if _is_first_wanted(job) else planning_request(job)
    job.revisions.given_table = request.revision
    job.planning.full_s = request.full_s
    made = _made_ahead(job, request)
    if made is not None:
        effects.append(Log(sentence="the plan was made ahead, while the job had another shape"))
    if not is_blocking_power_known(job):
        estimated_w = max(request.blocking_power_w)
        effects.append(Log(sentence=f"no rank has seen a GPU wait: planning with an estimate of {estimated_w:.0f} W"))
    return [*effects, StartPlanning(request=request, made=made)]


def request_frontier(job: Job, now_s: float) -> list[Effect]:
    """Ask for the whole frontier where only a first plan is in force, which is followed and guarded meanwhile."""
    if (
        not job.awaits_frontier
        or job.planning.pending is not None
        or now_s < job.planning.refine_at_s
        or not job.members.rank_of_stream
    ):
        return []
    job.planning.request_id += 1
    job.planning.pending, job.planning.expected_at_s = job.planning.request_id, None
    job.planning.attempts += 1
    request = planning_request(job)
    job.revisions.given_table = request.revision
    return [Log(sentence="planning the whole frontier beside the first plan"), StartPlanning(request=request)]


def cancel_frontier(job: Job) -> list[Effect]:
    """Give the whole frontier up where the plan before it is not in force any more: samples or work may change."""
    return cancel_planning(job.planning) if job.is_refining and job.phase is not Phase.ENFORCING else []


def _is_first_wanted(job: Job) -> bool:
    """Whether a first plan is better than what is in force: anything but a whole frontier that is followed."""
    return job.plan is None or job.plan.is_first or job.switch is None or NO_POINT in job.switch.points


def _made_ahead(job: Job, request: PlanningRequest) -> TableAhead | None:
    """The answer to a request of the same digest, if there is one."""
    made = job.planning.ahead.made
    return made.get(request.digest) if made else None


def first_request(job: Job) -> PlanningRequest:
    """The request of a job without a plan that is followed: for a first plan, where its pipeline is large."""
    return replace(planning_request(job), is_first=True, whole_up_to=job.policy.whole_up_to)


def planning_request(job: Job) -> PlanningRequest:
    """All that is known that a plan can be made of."""
    assert job.spec is not None
    return PlanningRequest(
        request_id=job.planning.request_id,
        job_id=job.job_id,
        revision=max(job.plan.revision if job.plan else 0, job.revisions.held_table, job.revisions.given_table) + 1,
        schedule_text=job.schedule_text,
        contributions=_contributions(job),
        blocking_power_w=blocking_power_w(job),
        tp_size=job.spec.tp_size,
        switch_latency_s=switch_latency_s(job),
        deadlines_s=() if job.target.deadline_s is None else (job.target.deadline_s,),
        slowdowns=() if job.target.slowdown is None else (job.target.slowdown,),
        slightly_slow=job.planning.slightly_slow,
        snapshots=job.planning.snapshots,
        transfer_spreads=tuple((*link, spread_s) for link, spread_s in job.measured.transfer_spreads.items()),
        extra_s=job.planning.extra_s,
        full_s=full_s_to_plan(job),
        menu_mhz=_clocks_to_plan_with(job),
        granularity=_granularity(job),
        least_margin=job.planning.margin,
        seen_noise=job.planning.seen_noise,
    )


def _granularity(job: Job) -> Granularity:
    """By phase instead of by rank where every agent changes clocks by time, and how long a change takes is known."""
    assert job.spec is not None
    granularity = Granularity(job.spec.granularity)
    if granularity != Granularity.RANK or job.planning.keeps_to_ranks or not _is_switch_latency_known(job):
        return granularity
    ranks = job.members.ranks.values()
    follow_moments = bool(ranks) and all(state.follows_moments for state in ranks)
    return Granularity.PHASE if follow_moments else granularity


def is_of_other_unit(job: Job) -> bool:
    """Whether the plan, of an earlier run, is by phase and would now be by rank, or the other way round."""
    assert job.plan is not None
    return job.plan.summary.is_by_phase != (_granularity(job) == Granularity.PHASE)


def _clocks_to_plan_with(job: Job) -> tuple[int, ...]:
    """[MHz] clocks that plans may ask for although no sweep has measured them."""
    if not job.policy.plans_between_clocks:
        return ()
    return settable_clocks_mhz(job, [rank for rank, state in job.members.ranks.items() if state.can_set_clocks])


def expect_plan(job: Job, event: PlanExpected, now_s: float) -> list[Effect]:
    """Note when the plan that is awaited may be there."""
    if event.request_id == job.planning.pending:
        job.planning.expected_at_s = now_s + event.expected_s
    return []


def apply_plan(job: Job, event: PlanReady, now_s: float) -> list[Effect]:
    """Bring a frontier into force; answers that are not awaited any more are ignored."""
    result = event.result
    if result.request_id != job.planning.pending:
        return []
    job.planning.pending, job.planning.attempts, job.planning.refine_at_s = None, 0, 0.0
    job.planning.is_restarted = False
    job.enforcement.forget_drifts()  # agents compare with the new table from now on
    job.enforcement.overrun = 0.0
    job.measured.self_check = SelfCheckWatch()
    if result.revision <= job.revisions.held_table:  # an agent that follows a later one has attached meanwhile
        return start_planning(
            job, f"an agent holds table {job.revisions.held_table}: planning again under a later revision"
        )
    job.plan = JobPlan(
        revision=result.revision,
        summary=result.summary,
        tables=result.tables,
        profile_csv=result.profile_csv,
        is_first=result.is_first,
        snapshots=job.planning.snapshots,
        extra_s=job.planning.extra_s,
    )
    made = TableMade(
        revision=result.revision,
        summary=result.summary,
        tables=result.tables,
        frontier_npz=result.frontier_npz,
        profile_csv=result.profile_csv,
        is_first=result.is_first,
        snapshots=job.planning.snapshots,
        extra_s=job.planning.extra_s,
    )
    summary = result.summary
    why = (
        f"table {result.revision} has {len(summary.time_ps)} plans from {summary.fastest_ps / PS_PER_S:.6f} s to "
        f"{summary.time_ps[-1] / PS_PER_S:.6f} s, all-maximum clocks take {summary.baseline_time_ps / PS_PER_S:.6f} s"
    )
    if result.is_first:
        why += "; the whole frontier follows"
    if not job.sees_instructions:
        saves_little = not summary.is_by_phase and job.target == T_MIN
        unit = "rank and phase" if summary.is_by_phase else "rank"
        why += f"; each {unit} has one clock" + (_SAVES_LITTLE if saves_little else "")
    tell_cost(job, now_s)
    job.enter(Phase.ENFORCING, why)
    return [Persist(facts=(made,)), *put_in_force(job, now_s, why)]


def handle_failure(job: Job, event: PlanFailed, now_s: float) -> list[Effect]:
    """Ask again if that can help, measure where a saved profile does not fit, else go on as before."""
    if event.request_id != job.planning.pending:
        return []
    if job.is_refining:
        return _handle_frontier_failure(job, event, now_s)
    job.planning.pending = None
    if event.transient and job.planning.attempts < job.policy.max_planning_attempts:
        job.planning.again_at_s = now_s + job.policy.planning_retry_s
        job.enter(Phase.PLANNING, f"planning is tried again in {job.policy.planning_retry_s:g} s: {event.reason}")
        return []
    job.planning.attempts = 0
    assert job.spec is not None
    if not job.sees_instructions and job.plan is None:  # the profile may still serve while they can be seen
        job.enter(Phase.OBSERVING, f"no clock for each rank can be planned until a rank starts anew: {event.reason}")
        job.profiling.is_unplannable = True
        return []
    if job.spec.keeps_profile and job.plan is None:
        why = f"the profile of another schedule cannot be planned with ({event.reason}): profiling instead"
        job.enter(Phase.WARMING_UP, why)
        return [Log(sentence=why), *drop_kept_profile(job, now_s)]
    if SAVED_PROFILE in job.profiling.samples and job.plan is None:
        del job.profiling.samples[SAVED_PROFILE]
        job.profiling.ended_series.discard(SAVED_PROFILE)
        for state in job.members.ranks.values():
            state.has_profile = False
        why = f"the saved profile cannot be planned with ({event.reason}): profiling instead"
        job.enter(Phase.WARMING_UP, why)
        dropped = Persist(drop=(f"samples/{SAVED_PROFILE}/", f"ended/{SAVED_PROFILE}/"))
        return [Log(sentence=why), dropped]  # the phase goes on at once, and its reason is another then
    if job.plan is not None:
        _go_on(job, event.reason)
        return []
    job.enter(Phase.OBSERVING, f"no plan can be made until a rank starts anew: {event.reason}")
    job.profiling.is_unplannable = True
    for known in (job.profiling.samples, job.profiling.sweeps, job.profiling.ended_series):
        known.clear()
    job.profiling.stages = ()
    job.spec = replace(job.spec, last_sweep_id=job.profiling.sweep_id)
    return [Persist(facts=(job.spec,), drop=("samples/", "sweep/", "ended/"))]


def _handle_frontier_failure(job: Job, event: PlanFailed, now_s: float) -> list[Effect]:
    """Ask again if that can help; else the first plan stays until there is another one."""
    job.planning.pending = None
    if event.transient and job.planning.attempts < job.policy.max_planning_attempts:
        job.planning.refine_at_s = now_s + job.policy.planning_retry_s
        return [Log(sentence=f"the whole frontier is tried again in {job.policy.planning_retry_s:g} s: {event.reason}")]
    job.planning.attempts, job.planning.refine_at_s = 0, math.inf
    job.enter(Phase.ENFORCING, f"the first plan stays, because the whole frontier cannot be made: {event.reason}")
    return []


def do_without_choice(job: Job) -> None:
    """Plan nothing: a sweep has ended, and no computation was measured at a second clock. Its samples are kept."""
    why = f"no rank could set clocks in the sweep: {refusal(job.members)}"
    if job.plan is not None:
        _go_on(job, why)
    else:
        # Where ranks say that they can, the next sweep would end no better.
        job.profiling.is_unplannable = any(state.can_set_clocks for state in job.members.ranks.values())
        job.enter(Phase.OBSERVING, why)


def _go_on(job: Job, why: str) -> None:
    """As before, since no new plan can be made; one that was dropped is tried again after a while."""
    if job.switch is None or NO_POINT not in job.switch.points:
        job.enter(Phase.ENFORCING, f"{_STAYS}: {why}")
        return
    job.enforcement.guard.hold_back(job.progress.iteration)
    job.enter(Phase.RELEASED, f"no plan is followed, because no new one can be made: {why}")


def refusal(members: Membership) -> str:
    """Why clocks cannot be set, in the words of the first rank that says so."""
    said = (state.gpu.refusal or state.trouble for state in members.ranks.values())
    return next(filter(None, said), "no reason given")


def has_profile(job: Job) -> bool:
    """Whether a saved profile is there, or a sweep has ended that leaves a choice of clocks."""
    if job.plan is None and SAVED_PROFILE in job.profiling.ended_series:
        return True
    is_swept = any(
        series in job.profiling.ended_series and ordered.is_profile for series, ordered in job.profiling.sweeps.items()
    )
    return is_swept and _has_clock_choice(job)


def has_swept(profiling: Profiling) -> bool:
    """Whether a sweep has ended, of whatever kind."""
    return any(series != SAVED_PROFILE for series in profiling.ended_series)


def has_blocking_power(job: Job) -> bool:
    """Whether a sweep has looked for it, or a saved profile has brought it along."""
    return has_swept(job.profiling) or is_blocking_power_known(job)


def _has_clock_choice(job: Job) -> bool:
    """Whether some computation was measured at more than one clock."""
    for rank in job.members.places:
        clock_of: dict[tuple[int, int, str], int] = {}
        for taken in newest_samples(job.profiling, rank):
            for sample in taken.samples.samples:
                key = (sample.stage, sample.chunk, sample.kind)
                if sample.kind in _COMPUTATIONS and clock_of.setdefault(key, sample.clock_mhz) != sample.clock_mhz:
                    return True
    return False


def newest_samples(profiling: Profiling, rank: int) -> list[TakenSamples]:
    """A rank's samples of the newest profile that it has a part in."""
    series = newest_series(profiling, rank)
    return [] if series is None else profiling.samples[series][rank]


def newest_series(profiling: Profiling, rank: int) -> int | None:
    """The series of that profile."""
    for series in sorted(profiling.samples, reverse=True):
        is_profile = series == SAVED_PROFILE or (series in profiling.sweeps and profiling.sweeps[series].is_profile)
        if is_profile and series in profiling.ended_series and profiling.samples[series].get(rank):
            return series
    return None


def _contributions(job: Job) -> tuple[Contribution, ...]:
    saved = job.profiling.samples.get(SAVED_PROFILE, {})
    measured = of_newest_state({rank: newest_samples(job.profiling, rank) for rank in job.members.places})
    believed = believed_ranks(measured, job.members.places)
    contributions = []
    for rank, place in sorted(job.members.places.items(), key=lambda item: item[1]):  # in whatever order they came
        own = measured[rank] if rank in believed else []
        for taken in {id(found): found for found in (own, saved.get(rank, []))}.values():
            samples = tuple(sample for one in taken for sample in one.samples.samples)
            if samples:
                contributions.append(Contribution(pp_rank=place.pp_rank, tp_rank=place.tp_rank, samples=samples))
    return tuple(contributions)


def switch_latency_s(job: Job) -> float:
    """The upper quartile over the ranks of what each has seen."""
    of_ranks_s = _seen_latencies_s(job)
    if not of_ranks_s:
        return job.policy.default_switch_latency_s
    return of_ranks_s[math.ceil(0.75 * len(of_ranks_s)) - 1]


def _seen_latencies_s(job: Job) -> list[float]:
    """[s] of the ranks that have seen clock changes, ascending."""
    seen_s: defaultdict[int, list[float]] = defaultdict(list)
    for of_series in job.profiling.samples.values():
        for rank, taken in of_series.items():
            seen_s[rank] += [one.samples.switch_latency_s for one in taken if one.samples.switch_latency_s > 0]
    return sorted(median(latencies_s) for latencies_s in seen_s.values() if latencies_s)


def _is_switch_latency_known(job: Job) -> bool:
    """Whether a rank has seen clock changes, or a profile tells of them."""
    return bool(_seen_latencies_s(job)) or any(
        sample.kind == CLOCK_CHANGE
        for of_series in job.profiling.samples.values()
        for taken in of_series.values()
        for one in taken
        for sample in one.samples.samples
    )
