"""A job's status, for operators and for the agent of its rank 0."""

from perseus_dist.messages.job_status import JobStatus, MeasuredIterations, PipelineStatus, Straggler, StragglerVerdict
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.measured_iterations import measured_iterations
from perseus_dist.planner.job.predicted_saving import predicted_saving, saving_interval
from perseus_dist.planner.job.state.measured import Measured
from perseus_dist.planner.lifecycle.enforcement.plan_choice import (
    own_target_point,
    reported_pipelines,
    target_point,
    unmet_deadline,
)
from perseus_dist.planner.lifecycle.status.phase_progress import phase_progress
from perseus_dist.rank_text import told_once
from perseus_dist.units import PS_PER_S, UJ_PER_J

MAX_TROUBLES = 8  # shown; a thousand ranks mostly share one cause
MAX_VERDICTS = 256  # shown: the worst
MAX_LEFT_S = 86_400.0  # shown


def job_status(job: Job) -> JobStatus:
    """The job's status, to show."""
    summary = job.plan.summary if job.plan else None
    progress = phase_progress(job)
    full, plan = job.measured.self_check.latest.full, job.measured.self_check.latest.plan
    low, high = saving_interval(job) or (0.0, 0.0)
    return JobStatus(
        job_id=job.job_id,
        phase=job.phase,
        reason=job.reason,
        num_ranks=job.num_ranks,
        pipelines=tuple(_pipeline_status(job, dp_rank) for dp_rank in range(len(job.progress.pipelines))),
        table_revision=job.plan.revision if job.plan else 0,
        switch_revision=job.switch.switch_revision if job.switch else 0,
        target=job.target,
        stragglers=tuple(
            Straggler(straggler_id=known.straggler_id, degree=known.degree, dp_rank=known.dp_rank)
            for known in job.stragglers.values()
        ),
        fastest_s=summary.fastest_ps / PS_PER_S if summary else 0.0,
        t_star_s=summary.t_star_ps / PS_PER_S if summary else 0.0,
        baseline=_baseline(job.measured),
        enforced=measured_iterations(job.measured.enforced),
        predicted_saving=predicted_saving(job),
        predicted_saving_low=low,
        predicted_saving_high=high,
        profiled_clocks=len(
            {one.clock_mhz for ranks in job.profiling.samples.values() for taken in ranks.values() for one in taken}
        ),
        messages=job.num_messages,
        missed_clocks=job.num_missed_clocks,
        lost_boundaries=job.num_lost_boundaries,
        troubles=_troubles(job),
        verdicts=_verdicts(job),
        t_prime_s=job.switch.t_prime_s if job.switch else 0.0,
        saved_j=job.measured.saving.saved_j,
        saved_doubt_j=job.measured.saving.doubt_j,
        refused_reports=job.num_refused_reports + (job.detection.watch.num_refused if job.detection.watch else 0),
        events=job.history.events(job.now_s),
        guard=job.enforcement.guard.figures,
        full_time_degree=full.time_degree if full else 0.0,
        full_energy_degree=full.energy_degree if full else 0.0,
        plan_time_degree=plan.time_degree if plan else 0.0,
        plan_energy_degree=plan.energy_degree if plan else 0.0,
        progress=progress.text,
        progress_share=progress.share or 0.0,
        phase_left_s=min(progress.left_s or 0.0, MAX_LEFT_S),
    )


def _verdicts(job: Job) -> tuple[StragglerVerdict, ...]:
    """The detector's verdicts, with their age at the latest event."""
    reported = reported_pipelines(job)
    worst = sorted(job.detection.verdicts, key=lambda verdict: verdict.degree.value, reverse=True)[:MAX_VERDICTS]
    return tuple(
        StragglerVerdict(
            rank=verdict.rank,
            pp_rank=verdict.pp_rank,
            dp_rank=verdict.dp_rank,
            degree=verdict.degree.value,
            low=verdict.degree.low,
            high=verdict.degree.high,
            cause=verdict.cause,
            age_s=max(0.0, job.now_s - verdict.since_s),
            is_whole_pipeline=verdict.is_whole_pipeline,
            is_predicted=verdict.is_predicted,
            is_flapping=verdict.is_flapping,
            is_acted_upon=verdict.is_acted_upon,
            is_muted=verdict.dp_rank in reported,
            sentence=verdict.sentence,
        )
        for verdict in worst
    )


def _troubles(job: Job) -> tuple[str, ...]:
    of_ranks = told_once({rank: state.trouble for rank, state in job.members.ranks.items()})[:MAX_TROUBLES]
    of_job = (unmet_deadline(job.target, job.plan.summary) if job.plan else "", job.measured.self_check.sentence)
    return (*of_ranks, *filter(None, of_job))


def _baseline(measured: Measured) -> MeasuredIterations:
    known = measured.baseline
    if known is None:
        return MeasuredIterations()
    return MeasuredIterations(
        num_iterations=known.num_iterations,
        time_s=known.time_s,
        time_spread_s=known.time_spread_s,
        energy_j=known.energy_j,
        energy_spread_j=known.energy_spread_j,
    )


def _pipeline_status(job: Job, dp_rank: int) -> PipelineStatus:
    pipeline, point = job.progress.pipelines[dp_rank], job.point(dp_rank)
    shared = job.plan.summary if job.plan and point != NO_POINT else None
    own = job.straggler_plan_in_force(dp_rank)
    planned = own.summary if own and shared else shared
    return PipelineStatus(
        dp_rank=dp_rank,
        attached_ranks=pipeline.num_attached,
        iteration=pipeline.iteration,
        time_s=pipeline.time_s,
        energy_j=(pipeline.latest.energy_j or 0.0) if pipeline.latest else 0.0,
        table_revision=job.switch.revision_of(dp_rank) if job.switch else 0,
        point=point,
        planned_time_s=planned.planned_ps(point) / PS_PER_S if planned else 0.0,
        planned_energy_j=planned.planned_uj(point) / UJ_PER_J if planned else 0.0,
        pipeline_time_s=pipeline.latest.pipeline_time_s if pipeline.latest else 0.0,
        is_waiting=_is_waiting(job, dp_rank, point),
    )


def _is_waiting(job: Job, dp_rank: int, point: int) -> bool:
    if job.plan is None or point == NO_POINT:
        return False
    own, summary = job.straggler_plan_in_force(dp_rank), job.plan.summary
    if own is not None:
        return own.summary.time_ps[point] > own.summary.time_ps[own_target_point(job, own)]
    return summary.planned_ps(point) > summary.time_ps[target_point(job, summary)]
