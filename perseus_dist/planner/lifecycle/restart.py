"""A job as a restarted planner finds it: what it has acknowledged, ordered and decided, and no rank attached."""

import math
from collections.abc import Iterable

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableAhead, TableMade
from perseus_dist.planner.job.facts.runs import (
    BaselineMeasured,
    FingerprintKnown,
    JobEnded,
    JobRegistered,
    SavingCounted,
    ScheduleReceived,
)
from perseus_dist.planner.job.facts.sweeps import OF_STAGES, SamplesReceived, SweepBegun, SweepEnded
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.job.state.profiling import ActiveSweep, Profiling
from perseus_dist.planner.job.state.progress import Pipeline
from perseus_dist.planner.job.stored_facts import check_facts
from perseus_dist.planner.lifecycle.baseline import begin_saving
from perseus_dist.planner.lifecycle.blocking_power import note_unmeasured
from perseus_dist.planner.lifecycle.enforcement.followed_plan import followed_plan
from perseus_dist.planner.lifecycle.plan import has_profile
from perseus_dist.planner.lifecycle.sweeping.series_samples import keep_samples
from perseus_dist.straggler.layout import RankCoords


def restore(job_id: str, facts: Iterable[Fact], policy: Policy) -> Job:
    """The job that its durable facts tell of.

    Args:
        job_id: Its name.
        facts: In the order in which they were stored.
        policy: Of this planner.

    Raises:
        StoredFactError: A fact is damaged.
    """
    facts = tuple(facts)
    check_facts(facts)
    job = Job(job_id=job_id, policy=policy)
    saved = None
    for fact in facts:
        saved = fact if isinstance(fact, SavingCounted) else saved
        _restore_fact(job, fact)
    if saved is not None and saved.kept is not None:  # knows more than the baseline does
        job.measured.saving.restore(saved.kept)
    if job.switch is not None:
        job.measured.saving.plans.begin(0, job.switch.directives, followed_plan(job))
    note_unmeasured(job, math.inf)
    if job.phase is not Phase.DONE:
        job.phase = _phase(job)
        job.reason = "the planner was restarted"
    if job.phase is Phase.PLANNING:
        job.planning.again_at_s = 0.0
    return job


def _restore_fact(job: Job, fact: Fact) -> None:
    match fact:
        case JobRegistered():
            job.spec = fact
            job.progress.pipelines = [Pipeline() for _ in range(fact.dp_size)]
            job.revisions.held_table, job.revisions.held_switch = (fact.held_revision, fact.held_switch_revision)
            job.profiling.sweep_id = max(job.profiling.sweep_id, fact.last_sweep_id)
        case FingerprintKnown():
            job.members.fingerprints[fact.rank] = fact
        case SavingCounted():
            job.measured.saving.counted_j = job.measured.stored_saved_j = fact.saved_j
            job.measured.saving.counted_doubt_j = fact.doubt_j
        case ScheduleReceived():
            job.schedule_text = fact.text
        case BaselineMeasured():
            job.measured.baseline = fact
            begin_saving(job, fact)
        case SweepBegun():
            _restore_sweep(job.profiling, fact)
        case SweepEnded():
            job.profiling.end(fact.series)
        case SamplesReceived():
            if fact.series != OF_STAGES:
                place = RankCoords(fact.pp_rank, fact.dp_rank, fact.tp_rank)
                job.members.places[fact.rank], job.members.rank_at[place] = place, fact.rank
            keep_samples(job.profiling, fact)
        case TableMade():
            job.plan = JobPlan(
                revision=fact.revision,
                summary=fact.summary,
                tables=fact.tables,
                profile_csv=fact.profile_csv,
                is_first=fact.is_first,
                snapshots=fact.snapshots,
                extra_s=fact.extra_s,
            )
            job.planning.extra_s = fact.extra_s
            job.planning.keep_slack(fact.summary)
        case TableAhead():
            job.planning.ahead.made[fact.digest] = fact
        case StragglerPlanReady():
            job.detection.straggler_plans[fact.dp_rank] = fact
            job.revisions.given_table = max(job.revisions.given_table, fact.revision)
        case SwitchDecided():
            job.enforcement.switch = fact
            job.detection.keeps_switch = fact.t_prime_s > 0 or bool(fact.own_revisions)
        case TargetChosen():
            job.chosen_target = fact
        case PaceChosen():
            job.chosen_pace, job.holds_probes = fact, True
        case StragglerKnown():
            job.stragglers[fact.straggler_id] = fact
        case JobEnded():
            job.phase, job.reason, job.members.stored_over_s = Phase.DONE, fact.reason, fact.over_s


def _restore_sweep(profiling: Profiling, ordered: SweepBegun) -> None:
    """Of a series, the latest sweep is under way until the series has ended; what has come before is not missing."""
    profiling.sweep_id = max(profiling.sweep_id, ordered.sweep_id)
    profiling.sweeps[ordered.sweep_id] = ordered
    missing_mhz = {rank: set(clocks_mhz) for rank, clocks_mhz in ordered.clocks_by_rank().items()}
    round_of = (ordered.series, ordered.num_round)
    attempts = sum(1 for sweep in profiling.sweeps.values() if (sweep.series, sweep.num_round) == round_of)
    profiling.sweep = ActiveSweep(ordered=ordered, missing_mhz=missing_mhz, attempts=attempts)
    for rank, taken in profiling.samples.get(ordered.series, {}).items():
        for one in taken:
            if one.samples.last:
                profiling.sweep.take(rank, one.clock_mhz)


def _phase(job: Job) -> Phase:
    if job.profiling.sweep is not None and job.sees_instructions:
        if job.plan is None and job.measured.baseline is None:  # of an earlier run; it waits for this one's baseline
            return Phase.REGISTERING
        return Phase.REPROFILING if job.plan else Phase.PROFILING
    if job.plan is not None and job.switch is not None and set(job.switch.points) != {NO_POINT}:
        return Phase.ENFORCING
    if job.plan is not None:  # a run has just begun, or ranks did not agree on the schedule
        return Phase.REGISTERING
    if job.measured.baseline is not None and has_profile(job) and job.schedule_text:
        return Phase.PLANNING
    return Phase.REGISTERING
