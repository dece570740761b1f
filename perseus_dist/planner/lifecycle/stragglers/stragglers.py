"""Who is slow: what ranks report is put to the detector, and what it concludes becomes switches and own plans."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

from perseus_dist.messages.from_agent import IterationReport, Telemetry
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.detector_adapter import DetectorAdapter
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.membership import RankState
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.enforcement.plan_choice import (
    is_seen_under_straggler_plans,
    own_target_point,
    target_point,
)
from perseus_dist.planner.lifecycle.enforcement.switching import decide, is_waiting
from perseus_dist.planner.lifecycle.events import Effect, Log
from perseus_dist.planner.lifecycle.stragglers.straggler_plans import request_straggler_plans
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule_text import parse_schedule
from perseus_dist.straggler.layout import RankCoords
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.straggler.verdicts.causes import Cause
from perseus_dist.straggler.verdicts.verdict import Degree, Verdict
from perseus_dist.units import PS_PER_S

_POLICY = StragglerPolicy()
_MAX_KEPT = 4 * _POLICY.min_history  # iterations under a switch whose evidence is lost and does not come again
_CLEARLY_SLOW = 0.01  # over the profile, in each of the newest iterations
_TOLD_STEP = 0.02  # a verdict whose degree has moved by so much is an event


def observe(job: Job, state: RankState, message: Telemetry, now_s: float) -> None:
    """Put a rank's report to the detector: under a plan alone, since there is nothing to compare with before."""
    if job.plan is None or job.switch is None:
        return
    watch = job.detection.watch
    if watch is None or watch.revision != job.plan.revision:
        watch = job.detection.watch = _watch_of_table(job, now_s)
        if watch is None:
            return
    rank = state.rank.rank
    # In a probe a rank may be at a power cap that its peers, who have not begun it, are not seen to reach.
    if job.enforcement.guard.guard.is_probed(message.iteration):
        watch.note_alive(rank, now_s)
    elif message.gpu.clock_mhz:
        watch.observe_gpu(rank, message.gpu, message.iteration, now_s)
    if job.phase is Phase.REPROFILING:
        return  # where some ranks are swept, the times of all in their pipeline say nothing about it
    for report in message.iterations:
        if report.kind_times and report.is_live and report.iteration >= job.enforcement.guard.swept_until:
            planned_s = _planned_time_s(job, state.rank.dp_rank, report)
            if planned_s is not None:
                watch.observe(rank, report, planned_s, now_s)


def judge_at_once(job: Job, now_s: float) -> list[Effect]:
    """Judge where a GPU's throttling has begun or ended; nothing happens otherwise."""
    return judge(job, now_s) if job.detection.watch is not None and job.detection.watch.has_urgent_news(now_s) else []


def judge(job: Job, now_s: float) -> list[Effect]:
    """Judge, and do what follows; wanted about once a second."""
    watch = job.detection.watch
    if watch is None or job.plan is None or watch.revision != job.plan.revision:
        return []
    judgement = watch.judge(now_s)
    sentences = [*judgement.news, *watch.take_refusals(now_s)]
    effects: list[Effect] = [Log(sentence=sentence) for sentence in sentences]
    if not watch.is_ripe and len(job.measured.enforced) < _MAX_KEPT:
        # The earlier verdicts stand; under another table they need other plans.
        return [*effects, *request_straggler_plans(job, now_s)]
    before, job.detection.verdicts = job.detection.verdicts, _as_measured(job, judgement.verdicts)
    was_kept, job.detection.keeps_switch = job.detection.keeps_switch, False
    why = _tell(job, before, now_s) if before != job.detection.verdicts else ""
    effects += request_straggler_plans(job, now_s)
    # Plans that the guard is about to judge stay until then, or plans that are late in turns are never judged.
    if (was_kept or why) and _is_about_to_fall(job):
        job.detection.keeps_switch = True
        return effects
    if not why and not job.enforcement.guard.guard.is_probing and is_seen_under_straggler_plans(job):
        why = "pipelines with slow ranks have been seen under plans of their own"
    if was_kept or why:
        effects += decide(job, now_s, why or "it is known again who is slow", is_routine=True)
    return effects


def _is_about_to_fall(job: Job) -> bool:
    """Whether a plan is being judged that took the place of pipelines that waited, and were late."""
    watch = job.enforcement.guard
    is_judged = watch.num_wait_falls > 0 and watch.guard.is_probing and watch.guard.breach is None
    return is_judged and job.switch is not None and not is_waiting(job, job.switch)


def _as_measured(job: Job, verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts, where NVML alone predicts what a power cap costs bounded by what the rank's computations take.

    Some computations meet the cap and some run above the clock that was read, and peers that wait at other clocks say
    nothing about them: whatever waits for what that clock predicts is late.
    """
    before = {_place(verdict): verdict for verdict in job.detection.verdicts}
    return tuple(_bounded(job, verdict, before.get(_place(verdict))) for verdict in verdicts)


def _bounded(job: Job, verdict: Verdict, before: Verdict | None) -> Verdict:
    ratios = job.enforcement.guard.time_ratios(verdict.rank)
    if not verdict.is_predicted or verdict.cause is not Cause.POWER_CAP or ratios is None:
        return verdict
    least, _, most = ratios
    was_measured = before is not None and not before.is_predicted
    if least < 1 + _CLEARLY_SLOW and not was_measured:  # it may have met the cap since
        return verdict
    told = verdict.degree
    low, value, high = (min(degree, max(1.0, most)) for degree in (told.low, told.value, told.high))
    if before is not None and was_measured and abs(before.degree.value - value) < _POLICY.degree_step:
        return replace(verdict, degree=before.degree, is_predicted=False)
    return replace(verdict, degree=Degree(value=value, low=low, high=high), is_predicted=False)


def _tell(job: Job, before: Sequence[Verdict], now_s: float) -> str:
    """Keep what is new for those who watch; returns why plans may change."""
    job.num_changes += 1
    was, now = ({_place(verdict): verdict for verdict in verdicts} for verdicts in (before, job.detection.verdicts))
    for place in was.keys() - now.keys():
        over = was[place]
        who = f"pipeline {over.dp_rank}" if over.is_whole_pipeline else f"rank {over.rank}"
        _add_event(job, "recovered", f"{who} is no straggler any more", over, now_s)
    for place, verdict in now.items():
        known = was.get(place)
        if known is None:
            job.history.num_verdicts[verdict.cause] += 1
        elif abs(verdict.degree.value - known.degree.value) < _TOLD_STEP and (verdict.cause, verdict.is_acted_upon) == (
            known.cause,
            known.is_acted_upon,
        ):
            continue
        _add_event(job, "verdict", verdict.sentence, verdict, now_s)
    acted_upon = [verdict.sentence for verdict in job.detection.verdicts if verdict.is_acted_upon]
    return "; ".join(acted_upon[:2]) or "nobody straggles that others should wait for"


def _add_event(job: Job, kind: str, sentence: str, verdict: Verdict, now_s: float) -> None:
    job.history.add(
        kind,
        sentence,
        now_s=now_s,
        iteration=job.progress.iteration,
        rank=verdict.rank,
        dp_rank=verdict.dp_rank,
        degree=verdict.degree.value,
        low=verdict.degree.low,
        high=verdict.degree.high,
        cause=verdict.cause,
    )


def _place(verdict: Verdict) -> tuple[int, int, bool]:
    return verdict.dp_rank, verdict.pp_rank, verdict.is_whole_pipeline


def _watch_of_table(job: Job, now_s: float) -> DetectorAdapter | None:
    """A detector for the newest table; None while it is not known where every rank stands.

    Times of a table that was made anew for other transfers are compared with the same profile: who is slow, and what
    has been usual, stays known.
    """
    if job.plan is None or job.switch is None or len(job.members.places) < job.num_ranks:
        return None
    profile, watch = _times_by_profile(job.plan), job.detection.watch
    if watch is not None and watch.profile == profile:
        watch.change_table(job.plan.revision, job.switch.effective_iteration)
        return watch
    places = [job.members.places[rank] for rank in range(job.num_ranks)]
    shares = dict(zip(Kind, job.plan.summary.kind_shares, strict=False))  # of an older planner's plan there are none
    watch = DetectorAdapter(
        revision=job.plan.revision,
        profile=profile,
        schedule=parse_schedule(job.schedule_text),
        places=[RankCoords(pp_rank=at.pp_rank, dp_rank=at.dp_rank, tp_rank=at.tp_rank) for at in places],
        kind_shares={str(kind): share for kind, share in shares.items() if share > 0},
        policy=_POLICY,
    )
    for (dp_rank, pp_rank), degree in _held_slow(job, job.switch).items():
        watch.resume(dp_rank, pp_rank, degree, now_s)
    return watch


def _held_slow(job: Job, switch: SwitchDecided) -> dict[tuple[int, int], float]:
    """By dp_rank and pp_rank, how slow ranks are that others wait for since before the planner was restarted.

    The plans in force tell: those of pipelines with slow ranks are made for these.
    """
    return {
        (dp_rank, slow.pp_rank): slow.factor
        for dp_rank, own in job.detection.straggler_plans.items()
        if job.detection.keeps_switch and switch.revision_of(dp_rank) == own.revision
        for slow in own.slow_ranks
        if slow.factor > _POLICY.min_degree
    }


def _times_by_profile(plan: JobPlan) -> frozenset[tuple[str, ...]]:
    """Stage, kind, clock and time of each computation at each clock; transfers have no clock."""
    rows = csv.DictReader(StringIO(plan.profile_csv.decode()))
    return frozenset(
        (row["stage"], row["instruction"], row["frequency"], row["time"])
        for row in rows
        if row["frequency"] not in ("", "0")
    )


def _planned_time_s(job: Job, dp_rank: int, report: IterationReport) -> float | None:
    """[s] that an iteration was to take; None where the plan that it followed is not known any more.

    A straggling pipeline on its own plan, or at full clocks until it has one, is held against the target's, so that its
    recovery is seen; what its own plan lets it wait beyond what it needs is no slowness. Once it has recovered, it is
    as slow as that plan makes it.
    """
    assert job.plan is not None
    summary = job.plan.summary
    if job.enforcement.guard.guard.is_probed(report.iteration) and report.point == NO_POINT:
        return summary.baseline_time_ps / PS_PER_S
    if report.point == NO_POINT or report.table_revision < job.plan.revision:
        return None
    target_s = summary.time_ps[target_point(job, summary)] / PS_PER_S
    is_slow = any(verdict.dp_rank == dp_rank for verdict in job.detection.verdicts)
    if report.table_revision == job.plan.revision:
        if report.point == summary.full_point and is_slow:
            return target_s
        return summary.planned_ps(report.point) / PS_PER_S if report.point <= summary.full_point else None
    own = job.detection.straggler_plans.get(dp_rank)
    is_known = own is not None and own.revision == report.table_revision and report.point < len(own.summary.time_ps)
    if own is None or not is_known:
        return target_s if is_slow else None
    own_ps = own.summary.time_ps[report.point]
    return target_s * own_ps / own.summary.time_ps[own_target_point(job, own)] if is_slow else own_ps / PS_PER_S
