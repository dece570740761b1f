"""What a planner answers to those who look at a job, as plain values. Every number is checked, every text is one line.

The other side is ``planner.operator_wire``.
"""

from perseus_dist.messages import (
    NO_ITERATION,
    NO_POINT,
    FrontierPoint,
    GuardFigures,
    JobEvent,
    JobFrontier,
    JobProfile,
    JobStatus,
    MeasuredIterations,
    PipelineStatus,
    Straggler,
    StragglerVerdict,
)
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_count, sentence, target_from_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_MAX_WORD_LENGTH = 16
# Of all GPUs of a job, each of which may report as much as the limit.
_MAX_JOB_JOULES = limits.MAX_JOULES * limits.MAX_SIZE
_MAX_LOST_S = 1e9


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
    _check_lengths(check, wire)
    status = JobStatus(
        job_id=check.text("job_id", wire.job_id, limits.MAX_JOB_ID_LENGTH),
        phase=check.text("phase", wire.phase, _MAX_WORD_LENGTH),
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
        verdicts=tuple(_verdict(check, f"verdicts[{index}].", one) for index, one in enumerate(wire.verdicts)),
        t_prime_s=_seconds(check, "t_prime_s", wire.t_prime_s),
        saved_j=_joules(check, "saved_j", wire.saved_j, low=-_MAX_JOB_JOULES),
        refused_reports=wire.refused_reports,
        events=tuple(_event(check, f"events[{index}].", one) for index, one in enumerate(wire.events)),
        guard=GuardFigures(
            reference_s=_seconds(check, "guard.reference_s", wire.guard.reference_s),
            lost_s=check.number("guard.lost_s", wire.guard.lost_s, _MAX_LOST_S),
            probes=wire.guard.probes,
            falls=wire.guard.falls,
        ),
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


def _check_lengths(check: Checker, wire: pb.JobStatus) -> None:
    for field, seen, most in (
        ("verdicts", len(wire.verdicts), limits.MAX_VERDICTS),
        ("events", len(wire.events), limits.MAX_EVENTS),
    ):
        if seen > most:
            check.violated(field, f"{seen} of them", f"at most {most}")
    check.finish()


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
        pipeline_time_s=_seconds(check, "pipelines.pipeline_time_s", wire.pipeline_time_s),
        is_waiting=wire.is_waiting,
    )


def _verdict(check: Checker, at: str, wire: pb.StragglerVerdict) -> StragglerVerdict:
    return StragglerVerdict(
        rank=_place(check, at + "rank", wire.rank),
        pp_rank=_place(check, at + "pp_rank", wire.pp_rank),
        dp_rank=_place(check, at + "dp_rank", wire.dp_rank),
        degree=_degree(check, at + "degree", wire.degree),
        low=_degree(check, at + "low", wire.low),
        high=_degree(check, at + "high", wire.high),
        cause=check.text(at + "cause", wire.cause, _MAX_WORD_LENGTH),
        age_s=_seconds(check, at + "age_s", wire.age_s),
        is_whole_pipeline=wire.is_whole_pipeline,
        is_predicted=wire.is_predicted,
        is_flapping=wire.is_flapping,
        is_acted_upon=wire.is_acted_upon,
        is_muted=wire.is_muted,
        sentence=sentence(wire.sentence),
    )


def _event(check: Checker, at: str, wire: pb.JobEvent) -> JobEvent:
    return JobEvent(
        sequence=check_count(check, at + "sequence", wire.sequence, low=1),
        kind=check.text(at + "kind", wire.kind, _MAX_WORD_LENGTH),
        age_s=_seconds(check, at + "age_s", wire.age_s),
        iteration=check.integer(at + "iteration", wire.iteration, NO_ITERATION, limits.MAX_ITERATION),
        sentence=sentence(wire.sentence),
        effective_iteration=check.integer(
            at + "effective_iteration", wire.effective_iteration, NO_ITERATION, limits.MAX_ITERATION
        ),
        switch_revision=check_count(check, at + "switch_revision", wire.switch_revision),
        rank=_place(check, at + "rank", wire.rank, low=-1),
        dp_rank=_place(check, at + "dp_rank", wire.dp_rank, low=-1),
        degree=_degree(check, at + "degree", wire.degree),
        low=_degree(check, at + "low", wire.low),
        high=_degree(check, at + "high", wire.high),
        cause=check.text(at + "cause", wire.cause, _MAX_WORD_LENGTH),
        t_prime_s=_seconds(check, at + "t_prime_s", wire.t_prime_s),
        points=tuple(check.integer(at + "points", point, NO_POINT, limits.MAX_POINTS - 1) for point in wire.points),
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


def _joules(check: Checker, field: str, value: float, low: float = 0.0) -> float:
    return check.number(field, value, _MAX_JOB_JOULES, low)


def _degree(check: Checker, field: str, value: float) -> float:
    return check.number(field, value, limits.MAX_SLOWDOWN)


def _place(check: Checker, field: str, value: int, low: int = 0) -> int:
    return check.integer(field, value, low, limits.MAX_SIZE - 1)
