"""The plan of a pipeline with slow ranks, whose other ranks have time to spare: asked for, taken, kept."""

from dataclasses import replace
from typing import TypeVar

from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_transfers import of_pipeline
from perseus_dist.planner.job.state.detection import Detection, OwnRequest
from perseus_dist.planner.lifecycle.enforcement.plan_choice import judged_slow, straggling_pipelines, target_point
from perseus_dist.planner.lifecycle.enforcement.switching import decide
from perseus_dist.planner.lifecycle.events import CancelPlanning, Effect, Log, Persist, PlanFailed, StartPlanning
from perseus_dist.planner.lifecycle.plan import planning_request
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Verdict
from perseus_dist.units import PS_PER_S

_Made = TypeVar("_Made", OwnRequest, StragglerPlanReady)

_BESIDES = 1.05  # times the clock that is lost: no computation takes longer by more than that, but for noise
_LEAST_SLOW = 0.02  # over the profile, beside a straggler in the same pipeline; less may be the profile's error
_NUM_REFRESHED = 16  # iterations under a switch, after which degrees are of times under it alone
_CAUSES_OF_A_CAP = frozenset({Cause.THERMAL, Cause.POWER_CAP, Cause.POWER_BRAKE})


def request_straggler_plans(job: Job, now_s: float) -> list[Effect]:
    """Ask for a plan of every pipeline whose slow ranks are not those that it was last planned for.

    Beside a first plan none is asked for: it would be useless beside the whole frontier, and hold that up.
    """
    if job.awaits_frontier:
        return []
    effects: list[Effect] = []
    for dp_rank in straggling_pipelines(job):
        wanted = _slow_ranks(job, dp_rank)
        asked = _of_this_base(job, job.detection.straggler_requests.get(dp_rank))
        own = _of_this_base(job, job.detection.straggler_plans.get(dp_rank))
        if asked is not None and not _has_moved(job, asked.slow_ranks, wanted):
            if now_s >= asked.again_at_s:
                effects += _ask(job, dp_rank, wanted, now_s, attempts=asked.attempts + 1)
            continue
        if own is not None and not _has_moved(job, own.slow_ranks, wanted):
            effects += _give_up(job.detection, dp_rank)
            job.detection.straggler_requests[dp_rank] = OwnRequest(
                request_id=None, base_revision=own.base_revision, slow_ranks=own.slow_ranks, asked_at_s=now_s
            )
        elif asked is None or now_s >= asked.asked_at_s + job.policy.own_plan_interval_s:
            effects += [*_give_up(job.detection, dp_rank), *_ask(job, dp_rank, wanted, now_s)]
    return effects


def is_own_request(detection: Detection, request_id: int) -> bool:
    """Whether an answer of the planning worker is about a pipeline's own plan."""
    return any(asked.request_id == request_id for asked in detection.straggler_requests.values())


def apply_straggler_plan(job: Job, result: PlanResult, now_s: float) -> list[Effect]:
    """Bring it into force if its pipeline still straggles; it is kept for the next time otherwise."""
    dp_rank, asked = _answered(job.detection, result.request_id)
    if _of_this_base(job, asked) is None:  # there is another table of all pipelines by now
        return []
    if _has_recovered_partly(job, asked.slow_ranks, _slow_ranks(job, dp_rank)):
        del job.detection.straggler_requests[dp_rank]
        return [Log(sentence=f"pipeline {dp_rank} is faster than when its plan was asked for")]
    made = StragglerPlanReady(
        dp_rank=dp_rank,
        revision=result.revision,
        base_revision=asked.base_revision,
        slow_ranks=asked.slow_ranks,
        summary=result.summary,
        tables=result.tables,
    )
    job.detection.straggler_plans[dp_rank] = made
    job.num_changes += 1
    why = (
        f"own table {made.revision} of pipeline {dp_rank} takes {made.summary.baseline_time_ps / PS_PER_S:.6f} s at "
        f"all-maximum clocks with {_slow_text(made.slow_ranks)}"
    )
    return [Persist(facts=(made,)), *decide(job, now_s, why)]


def handle_straggler_plan_failure(job: Job, event: PlanFailed, now_s: float) -> list[Effect]:
    """Ask again if that can help; the pipeline stays on the plan of its own that it follows, or at full clocks."""
    dp_rank, asked = _answered(job.detection, event.request_id)
    if event.transient and asked.attempts < job.policy.max_planning_attempts:
        retry_s = job.policy.planning_retry_s
        job.detection.straggler_requests[dp_rank] = replace(asked, request_id=None, again_at_s=now_s + retry_s)
        return [Log(sentence=f"planning for pipeline {dp_rank} alone is tried again in {retry_s:g} s: {event.reason}")]
    return [Log(sentence=f"no plan of its own can be made for pipeline {dp_rank}: {event.reason}")]


def _ask(job: Job, dp_rank: int, slow_ranks: tuple[SlowRank, ...], now_s: float, *, attempts: int = 1) -> list[Effect]:
    assert job.plan is not None
    summary = job.plan.summary
    job.planning.request_id += 1
    shared = planning_request(job)
    request = replace(
        shared,
        snapshots=of_pipeline(shared.snapshots, dp_rank),
        slow_ranks=slow_ranks,
        slightly_slow=(),
        base_revision=job.plan.revision,
        deadlines_s=(summary.time_ps[target_point(job, summary)] / PS_PER_S,),
        slowdowns=(),
    )
    job.revisions.given_table = request.revision
    job.detection.straggler_requests[dp_rank] = OwnRequest(
        request_id=request.request_id,
        base_revision=job.plan.revision,
        slow_ranks=slow_ranks,
        asked_at_s=now_s,
        attempts=attempts,
    )
    sentence = f"planning for pipeline {dp_rank} alone, with {_slow_text(slow_ranks)}"
    return [Log(sentence=sentence), StartPlanning(request=request)]


def _give_up(detection: Detection, dp_rank: int) -> list[Effect]:
    asked = detection.straggler_requests.pop(dp_rank, None)
    if asked is None or asked.request_id is None:
        return []
    return [CancelPlanning(request_id=asked.request_id)]


def _answered(detection: Detection, request_id: int) -> tuple[int, OwnRequest]:
    """Whose request it was; it is none any more, but what it was for stays known."""
    dp_rank, asked = next(item for item in detection.straggler_requests.items() if item[1].request_id == request_id)
    detection.straggler_requests[dp_rank] = replace(asked, request_id=None)
    return dp_rank, asked


def _of_this_base(job: Job, made: _Made | None) -> _Made | None:
    """Plans made, or requested, beside the newest table of all pipelines; older ones are useless."""
    is_of_this = made is not None and job.plan is not None and made.base_revision == job.plan.revision
    return made if is_of_this else None


def _slow_ranks(job: Job, dp_rank: int) -> tuple[SlowRank, ...]:
    """The slow ranks of a pipeline, one for each pp_rank at most, ascending.

    A plan needs what their instructions take over the profile: of one that others wait for the verdict's degree, as far
    as the newest iterations agree, since peers may hide by how much; and of those beside it the same, even where it is
    too little for a verdict, because a plan that gives time of theirs away is late. Not beside a cap: the same cap may
    hold them, and at other clocks they take another time.
    """
    slow = {
        verdict.pp_rank: _slow_rank(job, verdict)
        for verdict in judged_slow(job)
        if verdict.dp_rank == dp_rank and verdict.is_acted_upon and not verdict.is_whole_pipeline
    }
    is_capped = any(one.cap_mhz for one in slow.values())
    asked = job.detection.straggler_requests.get(dp_rank)
    known = {one.pp_rank for one in asked.slow_ranks} if asked is not None else set()
    ratios = {} if is_capped else _time_ratios(job, dp_rank)
    for pp_rank, (least, usual, most) in ratios.items():
        standing = slow.get(pp_rank)
        if standing is not None:
            slow[pp_rank] = replace(standing, factor=min(max(standing.factor, least), most))
        elif usual > 1 + (_LEAST_SLOW / 2 if pp_rank in known else _LEAST_SLOW):
            slow[pp_rank] = SlowRank(pp_rank=pp_rank, factor=usual)
    return tuple(slow[pp_rank] for pp_rank in sorted(slow))


def _time_ratios(job: Job, dp_rank: int) -> dict[int, tuple[float, float, float]]:
    """By pp_rank of a pipeline, ``GuardWatch.time_ratios`` of the slowest of its tensor-parallel ranks."""
    known: dict[int, tuple[float, float, float]] = {}
    for rank, place in job.members.places.items():
        ratios = job.enforcement.guard.time_ratios(rank) if place.dp_rank == dp_rank else None
        if ratios is not None:
            known[place.pp_rank] = max(ratios, known.get(place.pp_rank, ratios), key=lambda one: one[1])
    return known


def _slow_rank(job: Job, verdict: Verdict) -> SlowRank:
    if verdict.cause in _CAUSES_OF_A_CAP and verdict.throttled_mhz and not _is_slow_besides(job, verdict):
        is_bound = verdict.cause is Cause.POWER_CAP and not verdict.is_predicted
        measured = verdict.degree.value if is_bound else 0.0
        return SlowRank(pp_rank=verdict.pp_rank, cap_mhz=verdict.throttled_mhz, factor=measured)
    return SlowRank(pp_rank=verdict.pp_rank, factor=verdict.degree.value)


def _is_slow_besides(job: Job, verdict: Verdict) -> bool:
    """Whether a rank is slower than its throttled clock can make it, so that something else slows it, too.

    Beside a plan for another clock, times may be those of the clock before for a while.
    """
    asked = job.detection.straggler_requests.get(verdict.dp_rank)
    is_for_clock = asked is not None and any(
        slow.cap_mhz for slow in asked.slow_ranks if slow.pp_rank == verdict.pp_rank
    )
    highest_mhz = max(job.members.ranks[verdict.rank].gpu.clocks_mhz, default=0)
    if verdict.is_predicted or not highest_mhz or (is_for_clock and len(job.measured.enforced) < _NUM_REFRESHED):
        return False
    return verdict.degree.low > _BESIDES * highest_mhz / verdict.throttled_mhz


def _has_moved(job: Job, before: tuple[SlowRank, ...], now: tuple[SlowRank, ...]) -> bool:
    """Whether a plan for some slow ranks is no plan for these."""
    if [slow.pp_rank for slow in before] != [slow.pp_rank for slow in now]:
        return True
    policy = job.policy
    return any(
        bool(old.cap_mhz) != bool(new.cap_mhz)
        or abs(new.cap_mhz - old.cap_mhz) > policy.own_plan_cap_share * old.cap_mhz
        or abs(new.factor - old.factor) >= policy.own_plan_factor_step
        for old, new in zip(before, now, strict=True)
    )


def _has_recovered_partly(job: Job, before: tuple[SlowRank, ...], now: tuple[SlowRank, ...]) -> bool:
    """Whether slow ranks are clearly faster than they were, so that a plan for what they were is late for nothing."""
    policy, then = job.policy, {slow.pp_rank: slow for slow in before}
    return any(
        (old := then.get(new.pp_rank)) is not None
        and (
            0 < old.cap_mhz * (1 + policy.own_plan_cap_share) < new.cap_mhz
            or old.factor - new.factor > 2 * policy.own_plan_factor_step
        )
        for new in now
    )


def _slow_text(slow_ranks: tuple[SlowRank, ...]) -> str:
    return " and ".join(
        f"pp_rank {slow.pp_rank} held to {slow.cap_mhz} MHz"
        + (f" and measured {slow.factor:.3f} times as slow" if slow.factor else "")
        if slow.cap_mhz
        else f"pp_rank {slow.pp_rank} {slow.factor:.3f} times as slow"
        for slow in slow_ranks
    )
