"""Telemetry as protobuf and back.

Ten thousand messages a second are read here. So each part is looked at as a whole first, and field by field only where
something is out of its range.
"""

from collections.abc import Sequence

from perseus_dist.messages.from_agent import GpuSample, IterationReport, KindTime, Telemetry
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import CONTROLS, check_count, sentence
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_COMPUTATIONS = tuple(map(str, Kind))
# Names of this module are found faster than another's.
_MAX_COUNT, _MAX_ITERATION, _MAX_POINTS = limits.MAX_COUNT, limits.MAX_ITERATION, limits.MAX_POINTS
_MAX_SECONDS, _MAX_JOULES, _MAX_TOKENS = limits.MAX_SECONDS, limits.MAX_JOULES, limits.MAX_TOKENS
_MAX_CLOCK_MHZ, _MAX_WATTS = limits.MAX_CLOCK_MHZ, limits.MAX_WATTS
_MIN_CELSIUS, _MAX_CELSIUS = limits.MIN_CELSIUS, limits.MAX_CELSIUS
_MIN_RATIO, _MAX_RATIO = limits.MIN_TIME_RATIO, limits.MAX_TIME_RATIO


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
    reports = wire.iterations
    if len(reports) > limits.MAX_ITERATIONS:
        seen = f"{len(reports)} iterations"
        check.violated("telemetry.iterations", seen, f"at most {limits.MAX_ITERATIONS}")
        check.finish()
    message = Telemetry(
        sequence=wire.sequence,
        iteration=wire.iteration,
        iterations=tuple([_iteration_from_wire(check, index, one) for index, one in enumerate(reports)])
        if reports
        else (),
        gpu=_gpu_from_wire(check, wire.gpu),
        lost_boundaries=wire.lost_boundaries,
        lost_reports=wire.lost_reports,
        clock_changes=wire.clock_changes,
        missed_clocks=wire.missed_clocks,
        control=wire.control,
        trouble=wire.trouble,
    )
    if not (
        0 < message.sequence <= _MAX_COUNT
        and NO_ITERATION <= message.iteration <= _MAX_ITERATION
        and message.lost_boundaries <= _MAX_COUNT
        and message.lost_reports <= _MAX_COUNT
        and message.clock_changes <= _MAX_COUNT
        and message.missed_clocks <= _MAX_COUNT
        and message.control in CONTROLS
        and not message.trouble
    ):
        _check_telemetry(check, message)
    return message


def _check_telemetry(check: Checker, message: Telemetry) -> None:
    check_count(check, "telemetry.sequence", message.sequence, low=1)
    check.integer("telemetry.iteration", message.iteration, NO_ITERATION, limits.MAX_ITERATION)
    check_count(check, "telemetry.lost_boundaries", message.lost_boundaries)
    check_count(check, "telemetry.lost_reports", message.lost_reports)
    check_count(check, "telemetry.clock_changes", message.clock_changes)
    check_count(check, "telemetry.missed_clocks", message.missed_clocks)
    check.choice("telemetry.control", message.control, CONTROLS)
    check.text("telemetry.trouble", message.trouble, limits.MAX_SENTENCE_LENGTH)


def _gpu_from_wire(check: Checker, wire: pb.GpuSample) -> GpuSample:
    gpu = GpuSample(
        requested_mhz=wire.requested_mhz,
        power_w=wire.power_w,
        clock_mhz=wire.clock_mhz,
        event_reasons=wire.event_reasons,
        temperature_c=wire.temperature_c,
    )
    if not (
        0 <= gpu.requested_mhz <= _MAX_CLOCK_MHZ
        and 0.0 <= gpu.power_w <= _MAX_WATTS
        and 0 <= gpu.clock_mhz <= _MAX_CLOCK_MHZ
        and _MIN_CELSIUS <= gpu.temperature_c <= _MAX_CELSIUS
    ):
        at = "telemetry.gpu."
        check.integer(at + "requested_mhz", gpu.requested_mhz, 0, limits.MAX_CLOCK_MHZ)
        check.number(at + "power_w", gpu.power_w, limits.MAX_WATTS)
        check.integer(at + "clock_mhz", gpu.clock_mhz, 0, limits.MAX_CLOCK_MHZ)
        check.number(at + "temperature_c", gpu.temperature_c, limits.MAX_CELSIUS, low=limits.MIN_CELSIUS)
    return gpu


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


def _iteration_from_wire(check: Checker, index: int, wire: pb.IterationReport) -> IterationReport:
    energy_j, input_wait_s = wire.energy_j, wire.input_wait_s
    report = IterationReport(
        iteration=wire.iteration,
        time_s=wire.time_s,
        pipeline_time_s=wire.pipeline_time_s,
        energy_j=energy_j if wire.energy_known else None,
        table_revision=wire.table_revision,
        point=wire.point,
        kind_times=_kind_times_from_wire(check, index, wire),
        tokens=wire.tokens,
        input_wait_s=input_wait_s if wire.HasField("input_wait_s") else None,
        is_live=not wire.is_backlog,
    )
    if not (
        0 <= report.iteration <= _MAX_ITERATION
        and 0.0 <= report.time_s <= _MAX_SECONDS
        and 0.0 <= report.pipeline_time_s <= _MAX_SECONDS
        and 0.0 <= energy_j <= _MAX_JOULES
        and report.table_revision <= _MAX_COUNT
        and -1 <= report.point <= _MAX_POINTS
        and 0.0 <= report.tokens <= _MAX_TOKENS
        and 0.0 <= input_wait_s <= _MAX_SECONDS
    ):
        at = f"telemetry.iterations[{index}]."
        check.number(at + "energy_j", energy_j, limits.MAX_JOULES)
        check.number(at + "input_wait_s", input_wait_s, limits.MAX_SECONDS)
        check.integer(at + "iteration", report.iteration, 0, limits.MAX_ITERATION)
        check.number(at + "time_s", report.time_s, limits.MAX_SECONDS)
        check.number(at + "pipeline_time_s", report.pipeline_time_s, limits.MAX_SECONDS)
        check_count(check, at + "table_revision", report.table_revision)
        check.integer(at + "point", report.point, -1, limits.MAX_POINTS)
        check.number(at + "tokens", report.tokens, limits.MAX_TOKENS)
    return report


def _kind_times_from_wire(check: Checker, index: int, wire: pb.IterationReport) -> tuple[KindTime, ...]:
    kind_times = wire.kind_times
    if not kind_times:
        return ()
    if len(kind_times) > limits.MAX_KIND_TIMES:
        field = f"telemetry.iterations[{index}].kind_times"
        check.violated(field, f"{len(kind_times)} kinds", f"at most {limits.MAX_KIND_TIMES}")
        return ()
    taken = []
    are_right = True
    kinds = set()
    for one in kind_times:
        kind, ratio, clock_mhz = one.kind, one.time_ratio, one.requested_mhz
        kinds.add(kind)
        if not (kind in _COMPUTATIONS and _MIN_RATIO <= ratio <= _MAX_RATIO and 0 <= clock_mhz <= _MAX_CLOCK_MHZ):
            are_right = False
        taken.append(KindTime(kind=kind, time_ratio=ratio, requested_mhz=clock_mhz))
    if not are_right or len(kinds) < len(taken):
        _check_kind_times(check, f"telemetry.iterations[{index}].kind_times", taken)
    return tuple(taken)


def _check_kind_times(check: Checker, field: str, taken: Sequence[KindTime]) -> None:
    if len({one.kind for one in taken}) < len(taken):
        check.violated(field, [one.kind for one in taken], "each kind once")
    for index, one in enumerate(taken):
        at = f"{field}[{index}]."
        check.choice(at + "kind", one.kind, _COMPUTATIONS)
        check.number(at + "time_ratio", one.time_ratio, limits.MAX_TIME_RATIO, low=limits.MIN_TIME_RATIO)
        check.integer(at + "requested_mhz", one.requested_mhz, 0, limits.MAX_CLOCK_MHZ)
