"""Operators' requests and what they are answered, as protobuf."""

from perseus_dist.messages import JobStatus, MeasuredIterations, PipelineStatus
from perseus_dist.planner.job import JobPlan
from perseus_dist.planner.lifecycle_events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import check_job_id, target_from_wire, target_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker
from perseus_dist.units import PS_PER_S, UJ_PER_J, UW_PER_W


def target_set(check: Checker, request: pb.SetTargetRequest) -> TargetSet:
    """The event of a request."""
    return TargetSet(target=target_from_wire(check, "target", request.target))


def straggler_reported(check: Checker, request: pb.ReportStragglerRequest) -> StragglerReported:
    """The event of a request."""
    straggler = request.straggler
    if not straggler.degree > 1.0 or straggler.degree > limits.MAX_SLOWDOWN:
        check.violated("straggler.degree", straggler.degree, f"a number above 1 and up to {limits.MAX_SLOWDOWN:g}")
    return StragglerReported(
        straggler_id=check_job_id(check, "straggler.id", straggler.id),
        degree=straggler.degree,
        dp_rank=check.integer("straggler.dp_rank", straggler.dp_rank, 0, limits.MAX_SIZE - 1),
    )


def straggler_cleared(check: Checker, request: pb.ClearStragglerRequest) -> StragglerCleared:
    """The event of a request."""
    return StragglerCleared(straggler_id=check_job_id(check, "id", request.id))


def status_to_wire(status: JobStatus) -> pb.JobStatus:
    """A job's status."""
    return pb.JobStatus(
        job_id=status.job_id,
        phase=status.phase,
        reason=status.reason,
        num_ranks=status.num_ranks,
        pipelines=[_pipeline_to_wire(pipeline) for pipeline in status.pipelines],
        table_revision=status.table_revision,
        switch_revision=status.switch_revision,
        target=target_to_wire(status.target),
        stragglers=[
            pb.StragglerReport(id=straggler.straggler_id, degree=straggler.degree, dp_rank=straggler.dp_rank)
            for straggler in status.stragglers
        ],
        t_min_s=status.t_min_s,
        t_star_s=status.t_star_s,
        baseline=_measured_to_wire(status.baseline),
        enforced=_measured_to_wire(status.enforced),
        predicted_saving=status.predicted_saving,
        profiled_clocks=status.profiled_clocks,
        messages=status.messages,
        missed_clocks=status.missed_clocks,
        lost_boundaries=status.lost_boundaries,
        troubles=status.troubles,
    )


def _measured_to_wire(measured: MeasuredIterations) -> pb.MeasuredIterations:
    return pb.MeasuredIterations(
        num_iterations=measured.num_iterations,
        time_s=measured.time_s,
        time_spread_s=measured.time_spread_s,
        energy_j=measured.energy_j,
        energy_spread_j=measured.energy_spread_j,
    )


def _pipeline_to_wire(pipeline: PipelineStatus) -> pb.PipelineStatus:
    return pb.PipelineStatus(
        dp_rank=pipeline.dp_rank,
        attached_ranks=pipeline.attached_ranks,
        iteration=pipeline.iteration,
        time_s=pipeline.time_s,
        energy_j=pipeline.energy_j,
        table_revision=pipeline.table_revision,
        point=pipeline.point,
        planned_time_s=pipeline.planned_time_s,
        planned_energy_j=pipeline.planned_energy_j,
    )


def frontier_to_wire(plan: JobPlan) -> pb.GetFrontierResponse:
    """The points of a table."""
    summary = plan.summary
    points = zip(summary.time_ps, summary.total_uj, summary.lower_bound_uj, strict=True)
    return pb.GetFrontierResponse(
        table_revision=plan.revision,
        points=[
            pb.FrontierPoint(time_s=time_ps / PS_PER_S, energy_j=uj / UJ_PER_J, lower_bound_j=bound_uj / UJ_PER_J)
            for time_ps, uj, bound_uj in points
        ],
        baseline_time_s=summary.baseline_time_ps / PS_PER_S,
        baseline_energy_j=summary.baseline_uj / UJ_PER_J,
        t_min_s=summary.t_min_ps / PS_PER_S,
        t_star_s=summary.t_star_ps / PS_PER_S,
    )


def profile_to_wire(plan: JobPlan, num_gpus: int) -> pb.GetProfileResponse:
    """The profile behind a table; ``num_gpus`` of one pipeline."""
    return pb.GetProfileResponse(
        csv=plan.profile_csv.decode(), blocking_power_w=plan.summary.total_blocking_uw / UW_PER_W / num_gpus
    )
