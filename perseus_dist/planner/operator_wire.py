"""Operators' requests and what they are answered, as protobuf."""

from heapq import nlargest
from operator import attrgetter

from perseus_dist.messages import JobEvent, JobStatus, MeasuredIterations, PipelineStatus, StragglerVerdict
from perseus_dist.planner.job import JobPlan
from perseus_dist.planner.lifecycle_events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import check_job_id, sentence, target_from_wire, target_to_wire
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


def status_to_wire(status: JobStatus) -> pb.JobStatus:
    """A job's status: of more verdicts than are told the worst, of more events the newest."""
    verdicts = status.verdicts
    if len(verdicts) > limits.MAX_VERDICTS:
        verdicts = tuple(nlargest(limits.MAX_VERDICTS, verdicts, key=attrgetter("degree")))
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
        verdicts=[_verdict_to_wire(verdict) for verdict in verdicts],
        t_prime_s=status.t_prime_s,
        saved_j=status.saved_j,
        refused_reports=status.refused_reports,
        events=[_event_to_wire(event) for event in status.events[-limits.MAX_EVENTS :]],
        guard=pb.GuardFigures(
            reference_s=status.guard.reference_s,
            lost_s=status.guard.lost_s,
            probes=status.guard.probes,
            falls=status.guard.falls,
        ),
    )


def _verdict_to_wire(verdict: StragglerVerdict) -> pb.StragglerVerdict:
    return pb.StragglerVerdict(
        rank=verdict.rank,
        pp_rank=verdict.pp_rank,
        dp_rank=verdict.dp_rank,
        degree=_degree(verdict.degree),
        low=_degree(verdict.low),
        high=_degree(verdict.high),
        cause=verdict.cause,
        age_s=verdict.age_s,
        is_whole_pipeline=verdict.is_whole_pipeline,
        is_predicted=verdict.is_predicted,
        is_flapping=verdict.is_flapping,
        is_acted_upon=verdict.is_acted_upon,
        is_muted=verdict.is_muted,
        sentence=sentence(verdict.sentence),
    )


def _event_to_wire(event: JobEvent) -> pb.JobEvent:
    return pb.JobEvent(
        sequence=event.sequence,
        kind=event.kind,
        age_s=event.age_s,
        iteration=event.iteration,
        sentence=sentence(event.sentence),
        effective_iteration=event.effective_iteration,
        switch_revision=event.switch_revision,
        rank=event.rank,
        dp_rank=event.dp_rank,
        degree=_degree(event.degree),
        low=_degree(event.low),
        high=_degree(event.high),
        cause=event.cause,
        t_prime_s=event.t_prime_s,
        points=event.points,
    )


def _degree(degree: float) -> float:
    """As the wire carries it: the upper end of an interval that little is known of may be any number."""
    return min(degree, limits.MAX_SLOWDOWN)


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
        pipeline_time_s=pipeline.pipeline_time_s,
        is_waiting=pipeline.is_waiting,
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
