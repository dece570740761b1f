"""The planner's view of its job, for the invariants."""

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.simulation.chaos.world.world import PlannerView
from perseus_dist.units import UW_PER_W


def planner_view(job: Job) -> PlannerView:
    """The job as an operator would see it."""
    status = job_status(job)
    switch = job.switch
    has_plan = (
        job.plan is not None
        and switch is not None
        and NO_POINT not in switch.points
        and job.progress.iteration >= switch.effective_iteration
    )
    return PlannerView(
        table_revision=status.table_revision,
        switch_revision=status.switch_revision,
        fastest_s=status.fastest_s,
        has_plan=has_plan,
        planned_energy_j=sum(pipeline.planned_energy_j for pipeline in status.pipelines),
        planned_times_s=tuple(pipeline.planned_time_s for pipeline in status.pipelines) if has_plan else (),
        blocking_w=job.plan.summary.total_blocking_uw / UW_PER_W if job.plan else 0.0,
        waiting=tuple(pipeline.dp_rank for pipeline in status.pipelines if pipeline.is_waiting),
        slow_ranks=tuple(verdict.rank for verdict in status.verdicts if verdict.is_acted_upon and not verdict.is_muted),
    )
