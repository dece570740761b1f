"""Operators' requests and what they are answered, as protobuf."""

from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import check_job_id, target_from_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker
from perseus_dist.units import PS_PER_S, UJ_PER_J, UW_PER_W


def target_set(check: Checker, request: pb.SetTargetRequest) -> TargetSet:
    """The event of a request."""
    return TargetSet(target=target_from_wire(check, "target", request.target))


def straggler_reported(check: Checker, request: pb.ReportStragglerRequest) -> StragglerReported:
    """The event of a request."""
    straggler = request.straggler
    degree = check.number("straggler.degree", straggler.degree, limits.MAX_DEGREE, low=1.0)
    return StragglerReported(
        straggler_id=check_job_id(check, "straggler.id", straggler.id),
        degree=degree,
        dp_rank=check.integer("straggler.dp_rank", straggler.dp_rank, 0, limits.MAX_SIZE - 1),
    )


def straggler_cleared(check: Checker, request: pb.ClearStragglerRequest) -> StragglerCleared:
    """The event of a request."""
    return StragglerCleared(straggler_id=check_job_id(check, "id", request.id))


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
        fastest_s=summary.fastest_ps / PS_PER_S,
        t_star_s=summary.t_star_ps / PS_PER_S,
    )


def profile_to_wire(plan: JobPlan, num_gpus: int) -> pb.GetProfileResponse:
    """The profile behind a table; ``num_gpus`` of one pipeline."""
    return pb.GetProfileResponse(
        csv=plan.profile_csv.decode(), blocking_power_w=plan.summary.total_blocking_uw / UW_PER_W / num_gpus
    )
