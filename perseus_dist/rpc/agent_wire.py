"""Messages from agents to the planner, as protobuf and back."""

from perseus_dist.fingerprint import Workload
from perseus_dist.messages.from_agent import (
    AgentMessage,
    Attach,
    Drift,
    Goodbye,
    ProfileSamples,
    RunTimes,
    Sample,
    ScheduleText,
    SwitchSeen,
    Telemetry,
)
from perseus_dist.messages.terms import NO_POINT, Gpu, Rank
from perseus_dist.planning.schedule.instruction import SENDS
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import (
    CONTROLS,
    GRANULARITIES,
    check_clocks,
    check_count,
    check_digest,
    check_job_id,
    check_kind,
    findings_from_wire,
    findings_to_wire,
    sentence,
    target_from_wire,
    target_to_wire,
)
from perseus_dist.rpc.telemetry_wire import telemetry_from_wire, telemetry_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker


def agent_message_to_wire(message: AgentMessage) -> pb.AgentMessage:
    """Protobuf of a message; free text is cut to what the planner accepts."""
    match message:
        case Telemetry():
            return pb.AgentMessage(telemetry=telemetry_to_wire(message))
        case Attach():
            return pb.AgentMessage(attach=_attach_to_wire(message))
        case ScheduleText():
            return pb.AgentMessage(schedule=pb.ScheduleText(text=message.text))
        case ProfileSamples():
            return pb.AgentMessage(samples=_samples_to_wire(message))
        case Drift():
            return pb.AgentMessage(drift=_drift_to_wire(message))
        case RunTimes():
            return pb.AgentMessage(run_times=_run_times_to_wire(message))
        case SwitchSeen():
            seen = pb.SwitchSeen(table_revision=message.table_revision, switch_revision=message.switch_revision)
            return pb.AgentMessage(switch_seen=seen)
        case Goodbye():
            return pb.AgentMessage(goodbye=pb.Goodbye(reason=sentence(message.reason)))


def agent_message_from_wire(check: Checker, wire: pb.AgentMessage) -> AgentMessage:
    """The inverse of ``agent_message_to_wire``; what it gives back counts only if ``check`` ends well."""
    match wire.WhichOneof("message"):
        case "telemetry":
            return telemetry_from_wire(check, wire.telemetry)
        case "attach":
            return _attach_from_wire(check, wire.attach)
        case "schedule":
            return ScheduleText(text=wire.schedule.text)
        case "samples":
            return _samples_from_wire(check, wire.samples)
        case "drift":
            return _drift_from_wire(check, wire.drift)
        case "run_times":
            return _run_times_from_wire(check, wire.run_times)
        case "switch_seen":
            return SwitchSeen(
                table_revision=check_count(check, "switch_seen.table_revision", wire.switch_seen.table_revision),
                switch_revision=check_count(check, "switch_seen.switch_revision", wire.switch_seen.switch_revision),
            )
        case "goodbye":
            return Goodbye(reason=check.text("goodbye.reason", wire.goodbye.reason, limits.MAX_SENTENCE_LENGTH))
        case _:
            check.violated(
                "message", None, "attach, schedule, samples, telemetry, drift, run_times, switch_seen or goodbye"
            )
            return Goodbye(reason="")


# ---- attach ----------------------------------------------------------------------------------------------------------


def _attach_to_wire(attach: Attach) -> pb.Attach:
    rank, gpu = attach.rank, attach.gpu
    return pb.Attach(
        rank=pb.Rank(
            job_id=rank.job_id,
            rank=rank.rank,
            pp_rank=rank.pp_rank,
            dp_rank=rank.dp_rank,
            tp_rank=rank.tp_rank,
            pp_size=rank.pp_size,
            dp_size=rank.dp_size,
            tp_size=rank.tp_size,
            schedule_digest=rank.schedule_digest,
            granularity=rank.granularity,
        ),
        gpu=pb.Gpu(
            uuid=sentence(gpu.uuid, limits.MAX_NAME_LENGTH),
            name=sentence(gpu.name, limits.MAX_NAME_LENGTH),
            driver_version=sentence(gpu.driver_version, limits.MAX_NAME_LENGTH),
            clocks_mhz=gpu.clocks_mhz,
            control=gpu.control,
            refusal=sentence(gpu.refusal),
            energy_period_s=gpu.energy_period_s,
            memory_mib=gpu.memory_mib,
            default_power_limit_w=gpu.default_power_limit_w,
            power_limit_w=gpu.power_limit_w,
            power_profiles=sentence(gpu.power_profiles, limits.MAX_NAME_LENGTH),
        ),
        incarnation=attach.incarnation,
        iteration=attach.iteration,
        table_revision=attach.table_revision,
        target=None if attach.target is None else target_to_wire(attach.target),
        version=sentence(attach.version, limits.MAX_NAME_LENGTH),
        has_profile=attach.has_profile,
        run_id=sentence(attach.run_id, limits.MAX_NAME_LENGTH),
        workload=_workload_to_wire(attach.workload),
        host=sentence(attach.host, limits.MAX_NAME_LENGTH),
        findings=findings_to_wire(attach.findings),
        follows_moments=attach.follows_moments,
    )


def _attach_from_wire(check: Checker, wire: pb.Attach) -> Attach:
    return Attach(
        rank=_rank_from_wire(check, wire.rank),
        gpu=_gpu_from_wire(check, wire.gpu),
        incarnation=wire.incarnation,
        iteration=check.integer("attach.iteration", wire.iteration, -1, limits.MAX_ITERATION),
        table_revision=check_count(check, "attach.table_revision", wire.table_revision),
        target=target_from_wire(check, "attach.target", wire.target) if wire.HasField("target") else None,
        version=check.text("attach.version", wire.version, limits.MAX_NAME_LENGTH),
        has_profile=wire.has_profile,
        run_id=check.text("attach.run_id", wire.run_id, limits.MAX_NAME_LENGTH),
        workload=_workload_from_wire(check, wire.workload),
        host=check.text("attach.host", wire.host, limits.MAX_NAME_LENGTH),
        findings=findings_from_wire(check, "attach.findings", wire.findings),
        follows_moments=wire.follows_moments,
    )


def _rank_from_wire(check: Checker, wire: pb.Rank) -> Rank:
    pp_size = check.integer("attach.rank.pp_size", wire.pp_size, 1, limits.MAX_SIZE)
    dp_size = check.integer("attach.rank.dp_size", wire.dp_size, 1, limits.MAX_SIZE)
    tp_size = check.integer("attach.rank.tp_size", wire.tp_size, 1, limits.MAX_SIZE)
    return Rank(
        job_id=check_job_id(check, "attach.rank.job_id", wire.job_id),
        rank=check.integer("attach.rank.rank", wire.rank, 0, limits.MAX_SIZE - 1),
        pp_rank=check.integer("attach.rank.pp_rank", wire.pp_rank, 0, pp_size - 1),
        dp_rank=check.integer("attach.rank.dp_rank", wire.dp_rank, 0, dp_size - 1),
        tp_rank=check.integer("attach.rank.tp_rank", wire.tp_rank, 0, tp_size - 1),
        pp_size=pp_size,
        dp_size=dp_size,
        tp_size=tp_size,
        schedule_digest=check_digest(check, "attach.rank.schedule_digest", wire.schedule_digest),
        granularity=check.choice("attach.rank.granularity", wire.granularity or GRANULARITIES[0], GRANULARITIES),
    )


def _gpu_from_wire(check: Checker, wire: pb.Gpu) -> Gpu:
    return Gpu(
        uuid=check.text("attach.gpu.uuid", wire.uuid, limits.MAX_NAME_LENGTH),
        name=check.text("attach.gpu.name", wire.name, limits.MAX_NAME_LENGTH),
        driver_version=check.text("attach.gpu.driver_version", wire.driver_version, limits.MAX_NAME_LENGTH),
        clocks_mhz=check_clocks(check, "attach.gpu.clocks_mhz", tuple(wire.clocks_mhz)),
        control=check.choice("attach.gpu.control", wire.control, CONTROLS),
        refusal=check.text("attach.gpu.refusal", wire.refusal, limits.MAX_SENTENCE_LENGTH),
        energy_period_s=check.number("attach.gpu.energy_period_s", wire.energy_period_s, limits.MAX_SECONDS),
        memory_mib=check.integer("attach.gpu.memory_mib", wire.memory_mib, 0, limits.MAX_MEMORY_MIB),
        default_power_limit_w=check.number(
            "attach.gpu.default_power_limit_w", wire.default_power_limit_w, limits.MAX_WATTS
        ),
        power_limit_w=check.number("attach.gpu.power_limit_w", wire.power_limit_w, limits.MAX_WATTS),
        power_profiles=check.text("attach.gpu.power_profiles", wire.power_profiles, limits.MAX_NAME_LENGTH),
    )


def _workload_to_wire(workload: Workload) -> pb.Workload:
    return pb.Workload(
        framework=sentence(workload.framework, limits.MAX_NAME_LENGTH),
        versions=[sentence(version, limits.MAX_NAME_LENGTH) for version in workload.versions[: limits.MAX_VERSIONS]],
        precision=sentence(workload.precision, limits.MAX_NAME_LENGTH),
        microbatch_size=workload.microbatch_size,
        sequence_length=workload.sequence_length,
        stage_parameters=workload.stage_parameters,
        tp_size=workload.tp_size,
        cp_size=workload.cp_size,
        ep_size=workload.ep_size,
        stage_layers=workload.stage_layers,
    )


def _workload_from_wire(check: Checker, wire: pb.Workload) -> Workload:
    at = "attach.workload."
    for field, seen, most in (
        ("versions", len(wire.versions), limits.MAX_VERSIONS),
        ("stage_parameters", len(wire.stage_parameters), limits.MAX_CHUNK + 1),
        ("stage_layers", len(wire.stage_layers), limits.MAX_CHUNK + 1),
    ):
        if seen > most:
            check.violated(at + field, f"{seen} values", f"at most {most}")
            check.finish()
    return Workload(
        framework=check.text(at + "framework", wire.framework, limits.MAX_NAME_LENGTH),
        versions=tuple(
            check.text(f"{at}versions[{index}]", version, limits.MAX_NAME_LENGTH)
            for index, version in enumerate(wire.versions)
        ),
        precision=check.text(at + "precision", wire.precision, limits.MAX_NAME_LENGTH),
        microbatch_size=check_count(check, at + "microbatch_size", wire.microbatch_size),
        sequence_length=check_count(check, at + "sequence_length", wire.sequence_length),
        stage_parameters=tuple(
            check_count(check, f"{at}stage_parameters[{index}]", count)
            for index, count in enumerate(wire.stage_parameters)
        ),
        tp_size=check.integer(at + "tp_size", wire.tp_size, 0, limits.MAX_SIZE),
        cp_size=check.integer(at + "cp_size", wire.cp_size, 0, limits.MAX_SIZE),
        ep_size=check.integer(at + "ep_size", wire.ep_size, 0, limits.MAX_SIZE),
        stage_layers=tuple(
            check_count(check, f"{at}stage_layers[{index}]", count) for index, count in enumerate(wire.stage_layers)
        ),
    )


# ---- samples ---------------------------------------------------------------------------------------------------------


def _samples_to_wire(message: ProfileSamples) -> pb.ProfileSamples:
    return pb.ProfileSamples(
        sequence=message.sequence,
        sweep_id=message.sweep_id,
        step=message.step,
        samples=[
            pb.Sample(
                chunk=sample.chunk,
                kind=sample.kind,
                clock_mhz=sample.clock_mhz,
                time_s=sample.time_s,
                energy_j=sample.energy_j,
                time_std_s=sample.time_std_s,
                energy_std_j=sample.energy_std_j,
                num_runs=sample.num_runs,
                window_s=sample.window_s,
                stage=sample.stage,
                time_p90_s=sample.time_p90_s,
            )
            for sample in message.samples
        ],
        blocking_power_w=message.blocking_power_w,
        switch_latency_s=message.switch_latency_s,
        last=message.last,
    )


def _samples_from_wire(check: Checker, wire: pb.ProfileSamples) -> ProfileSamples:
    if len(wire.samples) > limits.MAX_SAMPLES:
        check.violated("samples.samples", f"{len(wire.samples)} samples", f"at most {limits.MAX_SAMPLES}")
        check.finish()
    return ProfileSamples(
        sequence=check_count(check, "samples.sequence", wire.sequence, low=1),
        sweep_id=check_count(check, "samples.sweep_id", wire.sweep_id),
        step=check.integer("samples.step", wire.step, 0, limits.MAX_CLOCKS),
        samples=tuple(
            _sample_from_wire(check, f"samples.samples[{index}].", sample) for index, sample in enumerate(wire.samples)
        ),
        blocking_power_w=check.number("samples.blocking_power_w", wire.blocking_power_w, limits.MAX_WATTS),
        switch_latency_s=check.number("samples.switch_latency_s", wire.switch_latency_s, limits.MAX_SECONDS),
        last=wire.last,
    )


def _sample_from_wire(check: Checker, at: str, wire: pb.Sample) -> Sample:
    return Sample(
        chunk=check.integer(at + "chunk", wire.chunk, 0, limits.MAX_CHUNK),
        kind=check_kind(check, at + "kind", wire.kind),
        clock_mhz=check.integer(at + "clock_mhz", wire.clock_mhz, int(wire.kind not in SENDS), limits.MAX_CLOCK_MHZ),
        time_s=check.positive(at + "time_s", wire.time_s, limits.MAX_SECONDS),
        energy_j=check.number(at + "energy_j", wire.energy_j, limits.MAX_JOULES),
        time_std_s=check.number(at + "time_std_s", wire.time_std_s, limits.MAX_SECONDS),
        energy_std_j=check.number(at + "energy_std_j", wire.energy_std_j, limits.MAX_JOULES),
        num_runs=check.integer(at + "num_runs", wire.num_runs, 1, limits.MAX_RUNS),
        window_s=check.number(at + "window_s", wire.window_s, limits.MAX_SECONDS),
        stage=check.integer(at + "stage", wire.stage, -1, limits.MAX_SIZE - 1),
        time_p90_s=check.number(at + "time_p90_s", wire.time_p90_s, limits.MAX_SECONDS),
    )


# ---- drift -----------------------------------------------------------------------------------------------------------


def _drift_to_wire(message: Drift) -> pb.Drift:
    return pb.Drift(
        sequence=message.sequence,
        chunk=message.chunk,
        kind=message.kind,
        clock_mhz=message.clock_mhz,
        profile_time_s=message.profile_time_s,
        measured_time_s=message.measured_time_s,
        num_runs=message.num_runs,
        num_iterations=message.num_iterations,
    )


def _drift_from_wire(check: Checker, wire: pb.Drift) -> Drift:
    return Drift(
        sequence=check_count(check, "drift.sequence", wire.sequence, low=1),
        chunk=check.integer("drift.chunk", wire.chunk, 0, limits.MAX_CHUNK),
        kind=check_kind(check, "drift.kind", wire.kind),
        clock_mhz=check.integer("drift.clock_mhz", wire.clock_mhz, 1, limits.MAX_CLOCK_MHZ),
        profile_time_s=check.positive("drift.profile_time_s", wire.profile_time_s, limits.MAX_SECONDS),
        measured_time_s=check.positive("drift.measured_time_s", wire.measured_time_s, limits.MAX_SECONDS),
        num_runs=check.integer("drift.num_runs", wire.num_runs, 1, limits.MAX_RUNS),
        num_iterations=check.integer("drift.num_iterations", wire.num_iterations, 0, limits.MAX_RUNS),
    )


# ---- times of runs ---------------------------------------------------------------------------------------------------


def _run_times_to_wire(message: RunTimes) -> pb.RunTimes:
    first_ns = message.begins_ns[0] if message.begins_ns else 0
    return pb.RunTimes(
        iteration=message.iteration,
        first_ns=first_ns,
        begins_ns=[begin_ns - first_ns for begin_ns in message.begins_ns],
        ends_ns=[end_ns - first_ns for end_ns in message.ends_ns],
        clocks_mhz=message.clocks_mhz,
        table_revision=message.table_revision,
        point=message.point if message.clocks_mhz else 0,
        host_clock=sentence(message.host_clock, limits.MAX_NAME_LENGTH),
    )


def _run_times_from_wire(check: Checker, wire: pb.RunTimes) -> RunTimes:
    num_begins, num_ends = len(wire.begins_ns), len(wire.ends_ns)
    if num_begins != num_ends or num_begins > limits.MAX_TIMED_RUNS:
        check.violated(
            "run_times.begins_ns",
            f"{num_begins} begins and {num_ends} ends",
            f"as many of each, at most {limits.MAX_TIMED_RUNS}",
        )
        check.finish()
    first_ns = check.integer("run_times.first_ns", wire.first_ns, 0, limits.MAX_COUNT >> 1)
    longest_ns = int(limits.MAX_SECONDS * 1e9)
    for name, times_ns in (("begins_ns", wire.begins_ns), ("ends_ns", wire.ends_ns)):
        if times_ns and not -longest_ns <= min(times_ns) <= max(times_ns) <= longest_ns:
            check.violated(
                f"run_times.{name}", f"{min(times_ns)} to {max(times_ns)}", f"at most {longest_ns} either way"
            )
    if wire.clocks_mhz:
        if len(wire.clocks_mhz) != num_begins:
            check.violated("run_times.clocks_mhz", f"{len(wire.clocks_mhz)} clocks", f"none, or {num_begins}")
        check.integer("run_times.clocks_mhz", min(wire.clocks_mhz), 0, limits.MAX_CLOCK_MHZ)
        check.integer("run_times.clocks_mhz", max(wire.clocks_mhz), 0, limits.MAX_CLOCK_MHZ)
    point = check.integer("run_times.point", wire.point, NO_POINT, limits.MAX_POINTS)
    return RunTimes(
        iteration=check.integer("run_times.iteration", wire.iteration, 0, limits.MAX_ITERATION),
        begins_ns=tuple(first_ns + begin_ns for begin_ns in wire.begins_ns),
        ends_ns=tuple(first_ns + end_ns for end_ns in wire.ends_ns),
        clocks_mhz=tuple(wire.clocks_mhz),
        table_revision=check_count(check, "run_times.table_revision", wire.table_revision),
        point=point if wire.clocks_mhz else NO_POINT,
        host_clock=check.text("run_times.host_clock", wire.host_clock, limits.MAX_NAME_LENGTH),
    )
