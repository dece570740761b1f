"""A job's status, for operators and for the agent of its rank 0."""

from perseus_dist.messages import NO_POINT, JobStatus, MeasuredIterations, PipelineStatus, Straggler
from perseus_dist.planner.job import Job
from perseus_dist.planner.measured_iterations import measured_iterations
from perseus_dist.units import PS_PER_S, UJ_PER_J

MAX_TROUBLES = 8  # shown; a thousand ranks mostly share one cause


def job_status(job: Job) -> JobStatus:
    """What there is to show of a job."""
    summary = job.plan.summary if job.plan else None
    return JobStatus(
        job_id=job.job_id,
        phase=job.phase,
        reason=job.reason,
        num_ranks=job.num_ranks,
        pipelines=tuple(_pipeline_status(job, dp_rank) for dp_rank in range(len(job.pipelines))),
        table_revision=job.plan.revision if job.plan else 0,
        switch_revision=job.switch.switch_revision if job.switch else 0,
        target=job.target,
        stragglers=tuple(
            Straggler(straggler_id=known.straggler_id, degree=known.degree, dp_rank=known.dp_rank)
            for known in job.stragglers.values()
        ),
        t_min_s=summary.t_min_ps / PS_PER_S if summary else 0.0,
        t_star_s=summary.t_star_ps / PS_PER_S if summary else 0.0,
        baseline=_baseline(job),
        enforced=measured_iterations(job.enforced),
        predicted_saving=_predicted_saving(job),
        profiled_clocks=len(
            {one.clock_mhz for ranks in job.samples.values() for one in next(iter(ranks.values()), ())}
        ),
        messages=job.num_messages,
        missed_clocks=job.num_missed_clocks,
        lost_boundaries=job.num_lost_boundaries,
        troubles=_troubles(job),
    )


def _troubles(job: Job) -> tuple[str, ...]:
    in_trouble = [rank for rank in sorted(job.ranks) if job.ranks[rank].trouble]
    return tuple(f"rank {rank}: {job.ranks[rank].trouble}" for rank in in_trouble[:MAX_TROUBLES])


def _baseline(job: Job) -> MeasuredIterations:
    known = job.baseline
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
    pipeline, point = job.pipelines[dp_rank], job.point(dp_rank)
    planned = job.plan.summary if job.plan and point != NO_POINT else None
    return PipelineStatus(
        dp_rank=dp_rank,
        attached_ranks=pipeline.num_attached,
        iteration=pipeline.iteration,
        time_s=pipeline.time_s,
        energy_j=(pipeline.latest.energy_j or 0.0) if pipeline.latest else 0.0,
        table_revision=job.switch.table_revision if job.switch else 0,
        point=point,
        planned_time_s=planned.time_ps[point] / PS_PER_S if planned else 0.0,
        planned_energy_j=planned.total_uj[point] / UJ_PER_J if planned else 0.0,
    )


def _predicted_saving(job: Job) -> float:
    """Share of energy, of the plans in force against all-maximum clocks, by the profile.

    Pipelines end an iteration together, so all of them are counted until the slowest is through: a straggler, or with
    plans that are meant to be slower, the slowest plan.
    """
    if job.plan is None or job.switch is None or NO_POINT in job.switch.points:
        return 0.0
    summary = job.plan.summary
    slowest = max((known.degree for known in job.stragglers.values()), default=1.0)
    baseline_until_ps = round(slowest * summary.baseline_time_ps)
    until_ps = max(baseline_until_ps, *(summary.time_ps[point] for point in job.switch.points))
    planned = sum(
        summary.total_uj[point] + _waiting_uj(job, summary.time_ps[point], until_ps) for point in job.switch.points
    )
    baseline = summary.baseline_uj + _waiting_uj(job, summary.baseline_time_ps, baseline_until_ps)
    return 1 - planned / (len(job.switch.points) * baseline)


def _waiting_uj(job: Job, from_ps: int, until_ps: int) -> float:
    assert job.plan is not None
    return job.plan.summary.total_blocking_uw * (until_ps - from_ps) / PS_PER_S
