"""What a planner answers to those who look at a job, as plain values. Every number is checked, every text is one line.

The other side is ``planner.operator_wire``.
"""

from perseus_dist.messages import (
    NO_ITERATION,
    NO_POINT,
    FrontierPoint,
    JobFrontier,
    JobProfile,
    JobStatus,
    MeasuredIterations,
    PipelineStatus,
    Straggler,
)
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import sentence, target_from_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_MAX_PHASE_LENGTH = 16


def watch_request(job_id: str) -> bytes:
    """``WatchJob``."""
    return pb.WatchJobRequest(job_id=job_id).SerializeToString()


def frontier_request(job_id: str) -> bytes:
    """``GetFrontier``."""
    return pb.GetFrontierRequest(job_id=job_id).SerializeToString()


def profile_request(job_id: str) -> bytes:
    """``GetProfile``."""
    return pb.GetProfileRequest(job_id=job_id).SerializeToString()


def decode_job_status(data: bytes) -> JobStatus:
    """A ``JobStatus``.

    Raises:
        InvalidMessageError: The bytes are no such message, or fields are out of their ranges.
    """
    wire, check = parse(pb.JobStatus, data), Checker()
    status = JobStatus(
        job_id=check.text("job_id", wire.job_id, limits.MAX_JOB_ID_LENGTH),
        phase=check.text("phase", wire.phase, _MAX_PHASE_LENGTH),
        reason=sentence(wire.reason),
        num_ranks=wire.num_ranks,
        pipelines=tuple(_pipeline(check, pipeline) for pipeline in wire.pipelines),
        table_revision=wire.table_revision,
        switch_revision=wire.switch_revision,
        target=target_from_wire(check, "target", wire.target),
        stragglers=tuple(
            Straggler(
                straggler_id=sentence(one.id),
                degree=check.number("stragglers.degree", one.degree, limits.MAX_SLOWDOWN),
                dp_rank=one.dp_rank,
            )
            for one in wire.stragglers
        ),
        t_min_s=_seconds(check, "t_min_s", wire.t_min_s),
        t_star_s=_seconds(check, "t_star_s", wire.t_star_s),
        baseline=_measured(check, "baseline", wire.baseline),
        enforced=_measured(check, "enforced", wire.enforced),
        predicted_saving=check.number("predicted_saving", wire.predicted_saving, 1.0, low=-limits.MAX_SLOWDOWN),
        profiled_clocks=wire.profiled_clocks,
        messages=wire.messages,
        missed_clocks=wire.missed_clocks,
        lost_boundaries=wire.lost_boundaries,
        troubles=tuple(sentence(trouble) for trouble in wire.troubles),
    )
    check.finish()
    return status


def decode_frontier(data: bytes) -> JobFrontier:
    """A ``GetFrontierResponse``.

    Raises:
        InvalidMessageError: As ``decode_job_status``.
    """
    wire, check = parse(pb.GetFrontierResponse, data), Checker()
    frontier = JobFrontier(
        table_revision=wire.table_revision,
        points=tuple(
            FrontierPoint(
                time_s=_seconds(check, "points.time_s", point.time_s),
                energy_j=_joules(check, "points.energy_j", point.energy_j),
                lower_bound_j=_joules(check, "points.lower_bound_j", point.lower_bound_j),
            )
            for point in wire.points
        ),
        baseline_time_s=_seconds(check, "baseline_time_s", wire.baseline_time_s),
        baseline_energy_j=_joules(check, "baseline_energy_j", wire.baseline_energy_j),
        t_min_s=_seconds(check, "t_min_s", wire.t_min_s),
        t_star_s=_seconds(check, "t_star_s", wire.t_star_s),
    )
    check.finish()
    return frontier


def decode_profile(data: bytes) -> JobProfile:
    """A ``GetProfileResponse``.

    Raises:
        InvalidMessageError: As ``decode_job_status``.
    """
    wire, check = parse(pb.GetProfileResponse, data), Checker()
    power_w = check.number("blocking_power_w", wire.blocking_power_w, limits.MAX_WATTS)
    check.finish()
    return JobProfile(csv=wire.csv, blocking_power_w=power_w)


def _pipeline(check: Checker, wire: pb.PipelineStatus) -> PipelineStatus:
    return PipelineStatus(
        dp_rank=wire.dp_rank,
        attached_ranks=wire.attached_ranks,
        iteration=check.integer("pipelines.iteration", wire.iteration, NO_ITERATION, limits.MAX_ITERATION),
        time_s=_seconds(check, "pipelines.time_s", wire.time_s),
        energy_j=_joules(check, "pipelines.energy_j", wire.energy_j),
        table_revision=wire.table_revision,
        point=check.integer("pipelines.point", wire.point, NO_POINT, limits.MAX_POINTS - 1),
        planned_time_s=_seconds(check, "pipelines.planned_time_s", wire.planned_time_s),
        planned_energy_j=_joules(check, "pipelines.planned_energy_j", wire.planned_energy_j),
    )


def _measured(check: Checker, field: str, wire: pb.MeasuredIterations) -> MeasuredIterations:
    return MeasuredIterations(
        num_iterations=wire.num_iterations,
        time_s=_seconds(check, f"{field}.time_s", wire.time_s),
        time_spread_s=_seconds(check, f"{field}.time_spread_s", wire.time_spread_s),
        energy_j=_joules(check, f"{field}.energy_j", wire.energy_j),
        energy_spread_j=_joules(check, f"{field}.energy_spread_j", wire.energy_spread_j),
    )


def _seconds(check: Checker, field: str, value: float) -> float:
    return check.number(field, value, limits.MAX_SECONDS)


def _joules(check: Checker, field: str, value: float) -> float:
    # Of all GPUs of a job, each of which may report as much as the limit.
    return check.number(field, value, limits.MAX_JOULES * limits.MAX_SIZE)
