"""Messages from the planner to agents, as protobuf and back."""

import zlib
from collections.abc import Iterable
from itertools import pairwise

from perseus_dist.messages.from_planner import (
    Attached,
    Expected,
    PlannerMessage,
    PlanTable,
    Probe,
    ProfileAck,
    Refused,
    Release,
    ScheduleWanted,
    StopSweep,
    Sweep,
    Switch,
)
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import check_clocks, check_count, check_digest, check_kind, sentence
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_BYTES_PER_CLOCK = 2
_FAST = 1  # zlib's level: rows of a frontier are much alike, so that higher levels gain little


def planner_message_to_wire(message: PlannerMessage) -> pb.PlannerMessage:
    """Protobuf of a message; sentences are cut to what agents accept. A large table takes long: compress elsewhere."""
    match message:
        case Attached():
            return pb.PlannerMessage(
                attached=pb.Attached(
                    phase=message.phase,
                    table_revision=message.table_revision,
                    acked_samples=message.acked_samples,
                    wants_timelines=message.wants_timelines,
                )
            )
        case ScheduleWanted():
            return pb.PlannerMessage(schedule_wanted=pb.ScheduleWanted())
        case Sweep():
            return pb.PlannerMessage(
                sweep=pb.Sweep(
                    sweep_id=message.sweep_id,
                    first_iteration=message.first_iteration,
                    iterations_per_clock=message.iterations_per_clock,
                    clocks_mhz=message.clocks_mhz,
                )
            )
        case StopSweep():
            stop = pb.StopSweep(sweep_id=message.sweep_id, first_iteration=message.first_iteration)
            return pb.PlannerMessage(stop_sweep=stop)
        case Probe():
            probe = pb.Probe(first_iteration=message.first_iteration, num_iterations=message.num_iterations)
            return pb.PlannerMessage(probe=probe)
        case PlanTable():
            return pb.PlannerMessage(table=_table_to_wire(message))
        case Switch():
            return pb.PlannerMessage(
                switch=pb.Switch(
                    table_revision=message.table_revision,
                    point=message.point,
                    effective_iteration=message.effective_iteration,
                    switch_revision=message.switch_revision,
                    max_slowdown=message.max_slowdown,
                    deadline_s=message.deadline_s,
                    is_waiting=message.is_waiting,
                )
            )
        case ProfileAck():
            return pb.PlannerMessage(profile_ack=pb.ProfileAck(sequence=message.sequence))
        case Release():
            return pb.PlannerMessage(release=pb.Release(reason=sentence(message.reason)))
        case Refused():
            return pb.PlannerMessage(refused=pb.Refused(reason=sentence(message.reason), retry=message.retry))


def planner_message_from_wire(check: Checker, wire: pb.PlannerMessage) -> PlannerMessage:
    """The inverse of ``planner_message_to_wire``; what it gives back counts only if ``check`` ends well."""
    match wire.WhichOneof("message"):
        case "attached":
            return Attached(
                phase=check.text("attached.phase", wire.attached.phase, limits.MAX_NAME_LENGTH),
                table_revision=check_count(check, "attached.table_revision", wire.attached.table_revision),
                acked_samples=check_count(check, "attached.acked_samples", wire.attached.acked_samples),
                wants_timelines=wire.attached.wants_timelines,
            )
        case "schedule_wanted":
            return ScheduleWanted()
        case "sweep":
            return Sweep(
                sweep_id=check_count(check, "sweep.sweep_id", wire.sweep.sweep_id),
                first_iteration=_iteration(check, "sweep.first_iteration", wire.sweep.first_iteration),
                iterations_per_clock=check.integer(
                    "sweep.iterations_per_clock", wire.sweep.iterations_per_clock, 1, limits.MAX_RUNS
                ),
                clocks_mhz=check_clocks(check, "sweep.clocks_mhz", tuple(wire.sweep.clocks_mhz)),
            )
        case "stop_sweep":
            return StopSweep(
                sweep_id=check_count(check, "stop_sweep.sweep_id", wire.stop_sweep.sweep_id),
                first_iteration=_iteration(check, "stop_sweep.first_iteration", wire.stop_sweep.first_iteration),
            )
        case "probe":
            return Probe(
                first_iteration=_iteration(check, "probe.first_iteration", wire.probe.first_iteration),
                num_iterations=check.integer("probe.num_iterations", wire.probe.num_iterations, 1, limits.MAX_RUNS),
            )
        case "table":
            return _table_from_wire(check, wire.table)
        case "switch":
            return Switch(
                table_revision=check_count(check, "switch.table_revision", wire.switch.table_revision),
                point=check.integer("switch.point", wire.switch.point, NO_POINT, limits.MAX_POINTS),
                effective_iteration=_iteration(check, "switch.effective_iteration", wire.switch.effective_iteration),
                switch_revision=check_count(check, "switch.switch_revision", wire.switch.switch_revision),
                max_slowdown=check.number("switch.max_slowdown", wire.switch.max_slowdown, limits.MAX_SLOWDOWN),
                deadline_s=check.number("switch.deadline_s", wire.switch.deadline_s, limits.MAX_SECONDS),
                is_waiting=wire.switch.is_waiting,
            )
        case "profile_ack":
            return ProfileAck(sequence=check_count(check, "profile_ack.sequence", wire.profile_ack.sequence))
        case "release":
            return Release(reason=check.text("release.reason", wire.release.reason, limits.MAX_SENTENCE_LENGTH))
        case "refused":
            reason = check.text("refused.reason", wire.refused.reason, limits.MAX_SENTENCE_LENGTH)
            return Refused(reason=reason, retry=wire.refused.retry)
        case _:
            check.violated("message", None, "a message of this or an earlier version")
            return ScheduleWanted()


def _iteration(check: Checker, field: str, value: int) -> int:
    return check.integer(field, value, 0, limits.MAX_ITERATION)


# ---- plan tables -----------------------------------------------------------------------------------------------------


def _table_to_wire(table: PlanTable) -> pb.PlanTable:
    return pb.PlanTable(
        revision=table.revision,
        num_points=table.num_points,
        num_instructions=table.num_instructions,
        clocks_mhz=zlib.compress(table.clocks_mhz, _FAST),
        times_s=table.times_s,
        energies_j=table.energies_j,
        expected=[
            pb.Expected(
                chunk=expected.chunk,
                kind=expected.kind,
                clocks_mhz=expected.clocks_mhz,
                times_s=expected.times_s,
                energies_j=expected.energies_j,
            )
            for expected in table.expected
        ],
        switch_latency_s=table.switch_latency_s,
        schedule_digest=table.schedule_digest,
        base_revision=table.base_revision,
        change_clocks_mhz=table.change_clocks_mhz,
        change_latencies_s=table.change_latencies_s,
        moments_ns=table.moments_ns,
    )


def _table_from_wire(check: Checker, wire: pb.PlanTable) -> PlanTable:
    num_points = check.integer("table.num_points", wire.num_points, 1, limits.MAX_POINTS)
    num_instructions = check.integer("table.num_instructions", wire.num_instructions, 0, limits.MAX_INSTRUCTIONS)
    for field, values in (("table.times_s", wire.times_s), ("table.energies_j", wire.energies_j)):
        if len(values) != num_points:
            check.violated(field, f"{len(values)} values", f"one for each of {num_points} points")
    if len(wire.change_clocks_mhz) != len(wire.change_latencies_s):
        seen = f"{len(wire.change_latencies_s)} values"
        check.violated("table.change_latencies_s", seen, f"one for each of {len(wire.change_clocks_mhz)} clocks")
    num_moments = len(wire.moments_ns)
    if num_moments not in (0, num_points * (num_instructions - 1)):
        seen = f"{num_moments} moments"
        check.violated("table.moments_ns", seen, f"none, or {num_instructions - 1} for each of {num_points} points")
    elif any(
        earlier_ns > later_ns
        for place, (earlier_ns, later_ns) in enumerate(pairwise(wire.moments_ns), start=1)
        if place % (num_instructions - 1)
    ):
        check.violated("table.moments_ns", "moments that go back", "ascending ones in each row")
    revision = check_count(check, "table.revision", wire.revision)
    return PlanTable(
        revision=revision,
        num_points=num_points,
        num_instructions=num_instructions,
        clocks_mhz=_decompressed(check, wire.clocks_mhz, num_points * num_instructions * _BYTES_PER_CLOCK),
        times_s=_numbers(check, "table.times_s", wire.times_s, limits.MAX_SECONDS),
        energies_j=_numbers(check, "table.energies_j", wire.energies_j, limits.MAX_JOULES),
        expected=tuple(
            _expected_from_wire(check, f"table.expected[{index}].", expected)
            for index, expected in enumerate(wire.expected)
        ),
        switch_latency_s=check.number("table.switch_latency_s", wire.switch_latency_s, limits.MAX_SECONDS),
        schedule_digest=check_digest(check, "table.schedule_digest", wire.schedule_digest),
        base_revision=check.integer("table.base_revision", wire.base_revision, 0, max(0, revision - 1)),
        change_clocks_mhz=tuple(
            check.integer("table.change_clocks_mhz", clock_mhz, 1, limits.MAX_CLOCK_MHZ)
            for clock_mhz in wire.change_clocks_mhz
        ),
        change_latencies_s=_numbers(check, "table.change_latencies_s", wire.change_latencies_s, limits.MAX_SECONDS),
        moments_ns=tuple(
            check.integer("table.moments_ns", moment_ns, 0, int(limits.MAX_SECONDS * 1e9))
            for moment_ns in wire.moments_ns
        ),
    )


def _decompressed(check: Checker, compressed: bytes, num_bytes: int) -> bytes:
    """Never more than the sizes say, which are bounded themselves: a few bytes can decompress to gigabytes."""
    if num_bytes > limits.MAX_TABLE_BYTES:
        check.violated("table.num_points", f"a table of {num_bytes} bytes", f"at most {limits.MAX_TABLE_BYTES}")
        check.finish()
    if num_bytes < 0:  # one of the sizes is, which is among the violations
        return b""
    stream = zlib.decompressobj()
    try:
        clocks_mhz = stream.decompress(compressed, num_bytes + 1)
    except zlib.error as error:
        check.violated("table.clocks_mhz", str(error), "zlib data")
        return b""
    if len(clocks_mhz) != num_bytes or not stream.eof:
        check.violated("table.clocks_mhz", f"{len(clocks_mhz)} bytes or more", f"{num_bytes} of num_points rows")
    return clocks_mhz


def _expected_from_wire(check: Checker, at: str, wire: pb.Expected) -> Expected:
    clocks_mhz = check_clocks(check, at + "clocks_mhz", tuple(wire.clocks_mhz))
    for field, values in (("times_s", wire.times_s), ("energies_j", wire.energies_j)):
        if len(values) != len(clocks_mhz):
            check.violated(at + field, f"{len(values)} values", f"one for each of {len(clocks_mhz)} clocks")
    return Expected(
        chunk=check.integer(at + "chunk", wire.chunk, 0, limits.MAX_CHUNK),
        kind=check_kind(check, at + "kind", wire.kind),
        clocks_mhz=clocks_mhz,
        times_s=_numbers(check, at + "times_s", wire.times_s, limits.MAX_SECONDS),
        energies_j=_numbers(check, at + "energies_j", wire.energies_j, limits.MAX_JOULES),
    )


def _numbers(check: Checker, field: str, values: Iterable[float], high: float) -> tuple[float, ...]:
    return tuple(check.number(f"{field}[{index}]", value, high) for index, value in enumerate(values))
