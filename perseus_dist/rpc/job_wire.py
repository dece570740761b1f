"""A job's frontier and profile, as a planner answers them, and the requests for them. Every number is checked."""

from perseus_dist.messages.job_status import FrontierPoint, JobFrontier, JobProfile
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.job_status_wire import MAX_JOB_JOULES
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker


def watch_request(job_id: str) -> bytes:
    """The request of ``WatchJob``, encoded."""
    return pb.WatchJobRequest(job_id=job_id).SerializeToString()


def frontier_request(job_id: str) -> bytes:
    """The request of ``GetFrontier``, encoded."""
    return pb.GetFrontierRequest(job_id=job_id).SerializeToString()


def profile_request(job_id: str) -> bytes:
    """The request of ``GetProfile``, encoded."""
    return pb.GetProfileRequest(job_id=job_id).SerializeToString()


def decode_frontier(data: bytes) -> JobFrontier:
    """A ``GetFrontierResponse``.

    Raises:
        InvalidMessageError: The bytes are no such message, or fields are out of their ranges.
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
        fastest_s=_seconds(check, "fastest_s", wire.fastest_s),
        t_star_s=_seconds(check, "t_star_s", wire.t_star_s),
    )
    check.finish()
    return frontier


def decode_profile(data: bytes) -> JobProfile:
    """A ``GetProfileResponse``.

    Raises:
        InvalidMessageError: The bytes are no such message, or fields are out of their ranges.
    """
    wire, check = parse(pb.GetProfileResponse, data), Checker()
    power_w = check.number("blocking_power_w", wire.blocking_power_w, limits.MAX_WATTS)
    check.finish()
    return JobProfile(csv=wire.csv, blocking_power_w=power_w)


def _seconds(check: Checker, field: str, value: float) -> float:
    return check.number(field, value, limits.MAX_SECONDS)


def _joules(check: Checker, field: str, value: float) -> float:
    return check.number(field, value, MAX_JOB_JOULES)
