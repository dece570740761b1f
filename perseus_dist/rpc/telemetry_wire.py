"""Telemetry as protobuf and back."""

from perseus_dist.messages.from_agent import GpuSample, IterationReport, KindTime, Telemetry
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import CONTROLS, check_count, sentence
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_COMPUTATIONS = tuple(map(str, Kind))


def telemetry_to_wire(message: Telemetry) -> pb.Telemetry:
    """Protobuf of telemetry; its trouble is cut to what the planner accepts."""
    return pb.Telemetry(
        sequence=message.sequence,
        iterations=[_iteration_to_wire(report) for report in message.iterations],
        gpu=pb.GpuSample(
            power_w=message.gpu.power_w,
            clock_mhz=message.gpu.clock_mhz,
            event_reasons=message.gpu.event_reasons,
            temperature_c=message.gpu.temperature_c,
            requested_mhz=message.gpu.requested_mhz,
        ),
        lost_boundaries=message.lost_boundaries,
        lost_reports=message.lost_reports,
        clock_changes=message.clock_changes,
        missed_clocks=message.missed_clocks,
        control=message.control,
        trouble=sentence(message.trouble),
        iteration=message.iteration,
    )


def telemetry_from_wire(check: Checker, wire: pb.Telemetry) -> Telemetry:
    """The inverse of ``telemetry_to_wire``; what it gives back counts only if ``check`` ends well."""
    if len(wire.iterations) > limits.MAX_ITERATIONS:
        seen = f"{len(wire.iterations)} iterations"
        check.violated("telemetry.iterations", seen, f"at most {limits.MAX_ITERATIONS}")
        check.finish()
    return Telemetry(
        sequence=check_count(check, "telemetry.sequence", wire.sequence, low=1),
        iteration=check.integer("telemetry.iteration", wire.iteration, NO_ITERATION, limits.MAX_ITERATION),
        iterations=tuple(
            _iteration_from_wire(check, f"telemetry.iterations[{index}].", report)
            for index, report in enumerate(wire.iterations)
        ),
        gpu=_gpu_from_wire(check, wire.gpu),
        lost_boundaries=check_count(check, "telemetry.lost_boundaries", wire.lost_boundaries),
        lost_reports=check_count(check, "telemetry.lost_reports", wire.lost_reports),
        clock_changes=check_count(check, "telemetry.clock_changes", wire.clock_changes),
        missed_clocks=check_count(check, "telemetry.missed_clocks", wire.missed_clocks),
        control=check.choice("telemetry.control", wire.control, CONTROLS),
        trouble=check.text("telemetry.trouble", wire.trouble, limits.MAX_SENTENCE_LENGTH),
    )


def _gpu_from_wire(check: Checker, wire: pb.GpuSample) -> GpuSample:
    return GpuSample(
        requested_mhz=check.integer("telemetry.gpu.requested_mhz", wire.requested_mhz, 0, limits.MAX_CLOCK_MHZ),
        power_w=check.number("telemetry.gpu.power_w", wire.power_w, limits.MAX_WATTS),
        clock_mhz=check.integer("telemetry.gpu.clock_mhz", wire.clock_mhz, 0, limits.MAX_CLOCK_MHZ),
        event_reasons=wire.event_reasons,
        temperature_c=check.number(
            "telemetry.gpu.temperature_c", wire.temperature_c, limits.MAX_CELSIUS, low=limits.MIN_CELSIUS
        ),
    )


def _iteration_to_wire(report: IterationReport) -> pb.IterationReport:
    return pb.IterationReport(
        iteration=report.iteration,
        time_s=report.time_s,
        pipeline_time_s=report.pipeline_time_s,
        energy_j=0.0 if report.energy_j is None else report.energy_j,
        energy_known=report.energy_j is not None,
        table_revision=report.table_revision,
        point=report.point,
        kind_times=[
            pb.KindTime(kind=one.kind, time_ratio=one.time_ratio, requested_mhz=one.requested_mhz)
            for one in report.kind_times
        ],
        tokens=report.tokens,
        input_wait_s=report.input_wait_s,
        is_backlog=not report.is_live,
    )


def _iteration_from_wire(check: Checker, at: str, wire: pb.IterationReport) -> IterationReport:
    energy_j = check.number(at + "energy_j", wire.energy_j, limits.MAX_JOULES)
    input_wait_s = check.number(at + "input_wait_s", wire.input_wait_s, limits.MAX_SECONDS)
    return IterationReport(
        iteration=check.integer(at + "iteration", wire.iteration, 0, limits.MAX_ITERATION),
        time_s=check.number(at + "time_s", wire.time_s, limits.MAX_SECONDS),
        pipeline_time_s=check.number(at + "pipeline_time_s", wire.pipeline_time_s, limits.MAX_SECONDS),
        energy_j=energy_j if wire.energy_known else None,
        table_revision=check_count(check, at + "table_revision", wire.table_revision),
        point=check.integer(at + "point", wire.point, -1, limits.MAX_POINTS),
        kind_times=_kind_times_from_wire(check, at + "kind_times", wire),
        tokens=check.number(at + "tokens", wire.tokens, limits.MAX_TOKENS),
        input_wait_s=input_wait_s if wire.HasField("input_wait_s") else None,
        is_live=not wire.is_backlog,
    )


def _kind_times_from_wire(check: Checker, field: str, wire: pb.IterationReport) -> tuple[KindTime, ...]:
    if len(wire.kind_times) > limits.MAX_KIND_TIMES:
        check.violated(field, f"{len(wire.kind_times)} kinds", f"at most {limits.MAX_KIND_TIMES}")
        return ()
    taken = tuple(
        KindTime(kind=one.kind, time_ratio=one.time_ratio, requested_mhz=one.requested_mhz) for one in wire.kind_times
    )
    if len({one.kind for one in taken}) < len(taken):
        check.violated(field, [one.kind for one in taken], "each kind once")
    for index, one in enumerate(taken):
        at = f"{field}[{index}]."
        check.choice(at + "kind", one.kind, _COMPUTATIONS)
        check.number(at + "time_ratio", one.time_ratio, limits.MAX_TIME_RATIO, low=limits.MIN_TIME_RATIO)
        check.integer(at + "requested_mhz", one.requested_mhz, 0, limits.MAX_CLOCK_MHZ)
    return taken
