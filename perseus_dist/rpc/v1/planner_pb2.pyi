from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentMessage(_message.Message):
    __slots__ = ("attach", "schedule", "samples", "telemetry", "drift", "goodbye", "switch_seen", "run_times")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_FIELD_NUMBER: _ClassVar[int]
    DRIFT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    SWITCH_SEEN_FIELD_NUMBER: _ClassVar[int]
    RUN_TIMES_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    schedule: ScheduleText
    samples: ProfileSamples
    telemetry: Telemetry
    drift: Drift
    goodbye: Goodbye
    switch_seen: SwitchSeen
    run_times: RunTimes
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., schedule: _Optional[_Union[ScheduleText, _Mapping]] = ..., samples: _Optional[_Union[ProfileSamples, _Mapping]] = ..., telemetry: _Optional[_Union[Telemetry, _Mapping]] = ..., drift: _Optional[_Union[Drift, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., switch_seen: _Optional[_Union[SwitchSeen, _Mapping]] = ..., run_times: _Optional[_Union[RunTimes, _Mapping]] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("job_id", "rank", "pp_rank", "dp_rank", "tp_rank", "pp_size", "dp_size", "tp_size", "schedule_digest", "granularity")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    TP_RANK_FIELD_NUMBER: _ClassVar[int]
    PP_SIZE_FIELD_NUMBER: _ClassVar[int]
    DP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TP_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRANULARITY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    pp_size: int
    dp_size: int
    tp_size: int
    schedule_digest: str
    granularity: str
    def __init__(self, job_id: _Optional[str] = ..., rank: _Optional[int] = ..., pp_rank: _Optional[int] = ..., dp_rank: _Optional[int] = ..., tp_rank: _Optional[int] = ..., pp_size: _Optional[int] = ..., dp_size: _Optional[int] = ..., tp_size: _Optional[int] = ..., schedule_digest: _Optional[str] = ..., granularity: _Optional[str] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("uuid", "name", "driver_version", "clocks_mhz", "control", "refusal", "energy_period_s", "memory_mib", "default_power_limit_w", "power_limit_w", "power_profiles")
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ENERGY_PERIOD_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_POWER_LIMIT_W_FIELD_NUMBER: _ClassVar[int]
    POWER_LIMIT_W_FIELD_NUMBER: _ClassVar[int]
    POWER_PROFILES_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    name: str
    driver_version: str
    clocks_mhz: _containers.RepeatedScalarFieldContainer[int]
    control: str
    refusal: str
    energy_period_s: float
    memory_mib: int
    default_power_limit_w: float
    power_limit_w: float
    power_profiles: str
    def __init__(self, uuid: _Optional[str] = ..., name: _Optional[str] = ..., driver_version: _Optional[str] = ..., clocks_mhz: _Optional[_Iterable[int]] = ..., control: _Optional[str] = ..., refusal: _Optional[str] = ..., energy_period_s: _Optional[float] = ..., memory_mib: _Optional[int] = ..., default_power_limit_w: _Optional[float] = ..., power_limit_w: _Optional[float] = ..., power_profiles: _Optional[str] = ...) -> None: ...

class Workload(_message.Message):
    __slots__ = ("framework", "versions", "precision", "microbatch_size", "sequence_length", "stage_parameters", "tp_size", "cp_size", "ep_size", "stage_layers")
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STAGE_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TP_SIZE_FIELD_NUMBER: _ClassVar[int]
    CP_SIZE_FIELD_NUMBER: _ClassVar[int]
    EP_SIZE_FIELD_NUMBER: _ClassVar[int]
    STAGE_LAYERS_FIELD_NUMBER: _ClassVar[int]
    framework: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    precision: str
    microbatch_size: int
    sequence_length: int
    stage_parameters: _containers.RepeatedScalarFieldContainer[int]
    tp_size: int
    cp_size: int
    ep_size: int
    stage_layers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, framework: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., precision: _Optional[str] = ..., microbatch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., stage_parameters: _Optional[_Iterable[int]] = ..., tp_size: _Optional[int] = ..., cp_size: _Optional[int] = ..., ep_size: _Optional[int] = ..., stage_layers: _Optional[_Iterable[int]] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("rank", "gpu", "incarnation", "iteration", "table_revision", "target", "version", "has_profile", "run_id", "workload", "host", "findings", "follows_moments")
    RANK_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HAS_PROFILE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_MOMENTS_FIELD_NUMBER: _ClassVar[int]
    rank: Rank
    gpu: Gpu
    incarnation: int
    iteration: int
    table_revision: int
    target: Target
    version: str
    has_profile: bool
    run_id: str
    workload: Workload
    host: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    follows_moments: bool
    def __init__(self, rank: _Optional[_Union[Rank, _Mapping]] = ..., gpu: _Optional[_Union[Gpu, _Mapping]] = ..., incarnation: _Optional[int] = ..., iteration: _Optional[int] = ..., table_revision: _Optional[int] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., version: _Optional[str] = ..., has_profile: bool = ..., run_id: _Optional[str] = ..., workload: _Optional[_Union[Workload, _Mapping]] = ..., host: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., follows_moments: bool = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("level", "subject", "what", "remedy")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    level: str
    subject: str
    what: str
    remedy: str
    def __init__(self, level: _Optional[str] = ..., subject: _Optional[str] = ..., what: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class ScheduleText(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("chunk", "kind", "clock_mhz", "time_s", "energy_j", "time_std_s", "energy_std_j", "num_runs", "window_s", "stage", "time_p90_s")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    TIME_STD_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_STD_J_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TIME_P90_S_FIELD_NUMBER: _ClassVar[int]
    chunk: int
    kind: str
    clock_mhz: int
    time_s: float
    energy_j: float
    time_std_s: float
    energy_std_j: float
    num_runs: int
    window_s: float
    stage: int
    time_p90_s: float
    def __init__(self, chunk: _Optional[int] = ..., kind: _Optional[str] = ..., clock_mhz: _Optional[int] = ..., time_s: _Optional[float] = ..., energy_j: _Optional[float] = ..., time_std_s: _Optional[float] = ..., energy_std_j: _Optional[float] = ..., num_runs: _Optional[int] = ..., window_s: _Optional[float] = ..., stage: _Optional[int] = ..., time_p90_s: _Optional[float] = ...) -> None: ...

class ProfileSamples(_message.Message):
    __slots__ = ("sequence", "sweep_id", "step", "samples", "blocking_power_w", "switch_latency_s", "last")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SWEEP_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    BLOCKING_POWER_W_FIELD_NUMBER: _ClassVar[int]
    SWITCH_LATENCY_S_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    sweep_id: int
    step: int
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    blocking_power_w: float
    switch_latency_s: float
    last: bool
    def __init__(self, sequence: _Optional[int] = ..., sweep_id: _Optional[int] = ..., step: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., blocking_power_w: _Optional[float] = ..., switch_latency_s: _Optional[float] = ..., last: bool = ...) -> None: ...

class KindTime(_message.Message):
    __slots__ = ("kind", "time_ratio", "requested_mhz")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_MHZ_FIELD_NUMBER: _ClassVar[int]
    kind: str
    time_ratio: float
    requested_mhz: int
    def __init__(self, kind: _Optional[str] = ..., time_ratio: _Optional[float] = ..., requested_mhz: _Optional[int] = ...) -> None: ...

class IterationReport(_message.Message):
    __slots__ = ("iteration", "time_s", "pipeline_time_s", "energy_j", "energy_known", "table_revision", "point", "kind_times", "tokens", "input_wait_s", "is_backlog")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    ENERGY_KNOWN_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    KIND_TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    INPUT_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    IS_BACKLOG_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    time_s: float
    pipeline_time_s: float
    energy_j: float
    energy_known: bool
    table_revision: int
    point: int
    kind_times: _containers.RepeatedCompositeFieldContainer[KindTime]
    tokens: float
    input_wait_s: float
    is_backlog: bool
    def __init__(self, iteration: _Optional[int] = ..., time_s: _Optional[float] = ..., pipeline_time_s: _Optional[float] = ..., energy_j: _Optional[float] = ..., energy_known: bool = ..., table_revision: _Optional[int] = ..., point: _Optional[int] = ..., kind_times: _Optional[_Iterable[_Union[KindTime, _Mapping]]] = ..., tokens: _Optional[float] = ..., input_wait_s: _Optional[float] = ..., is_backlog: bool = ...) -> None: ...

class GpuSample(_message.Message):
    __slots__ = ("power_w", "clock_mhz", "event_reasons", "temperature_c", "requested_mhz")
    POWER_W_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    EVENT_REASONS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_C_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_MHZ_FIELD_NUMBER: _ClassVar[int]
    power_w: float
    clock_mhz: int
    event_reasons: int
    temperature_c: float
    requested_mhz: int
    def __init__(self, power_w: _Optional[float] = ..., clock_mhz: _Optional[int] = ..., event_reasons: _Optional[int] = ..., temperature_c: _Optional[float] = ..., requested_mhz: _Optional[int] = ...) -> None: ...

class Telemetry(_message.Message):
    __slots__ = ("sequence", "iterations", "gpu", "lost_boundaries", "lost_reports", "clock_changes", "missed_clocks", "control", "trouble", "iteration")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    LOST_BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    LOST_REPORTS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_CHANGES_FIELD_NUMBER: _ClassVar[int]
    MISSED_CLOCKS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    iterations: _containers.RepeatedCompositeFieldContainer[IterationReport]
    gpu: GpuSample
    lost_boundaries: int
    lost_reports: int
    clock_changes: int
    missed_clocks: int
    control: str
    trouble: str
    iteration: int
    def __init__(self, sequence: _Optional[int] = ..., iterations: _Optional[_Iterable[_Union[IterationReport, _Mapping]]] = ..., gpu: _Optional[_Union[GpuSample, _Mapping]] = ..., lost_boundaries: _Optional[int] = ..., lost_reports: _Optional[int] = ..., clock_changes: _Optional[int] = ..., missed_clocks: _Optional[int] = ..., control: _Optional[str] = ..., trouble: _Optional[str] = ..., iteration: _Optional[int] = ...) -> None: ...

class Drift(_message.Message):
    __slots__ = ("sequence", "chunk", "kind", "clock_mhz", "profile_time_s", "measured_time_s", "num_runs", "num_iterations")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    PROFILE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_TIME_S_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNS_FIELD_NUMBER: _ClassVar[int]
    NUM_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    chunk: int
    kind: str
    clock_mhz: int
    profile_time_s: float
    measured_time_s: float
    num_runs: int
    num_iterations: int
    def __init__(self, sequence: _Optional[int] = ..., chunk: _Optional[int] = ..., kind: _Optional[str] = ..., clock_mhz: _Optional[int] = ..., profile_time_s: _Optional[float] = ..., measured_time_s: _Optional[float] = ..., num_runs: _Optional[int] = ..., num_iterations: _Optional[int] = ...) -> None: ...

class RunTimes(_message.Message):
    __slots__ = ("iteration", "first_ns", "begins_ns", "ends_ns", "clocks_mhz", "table_revision", "point", "host_clock")
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    FIRST_NS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_NS_FIELD_NUMBER: _ClassVar[int]
    ENDS_NS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    HOST_CLOCK_FIELD_NUMBER: _ClassVar[int]
    iteration: int
    first_ns: int
    begins_ns: _containers.RepeatedScalarFieldContainer[int]
    ends_ns: _containers.RepeatedScalarFieldContainer[int]
    clocks_mhz: _containers.RepeatedScalarFieldContainer[int]
    table_revision: int
    point: int
    host_clock: str
    def __init__(self, iteration: _Optional[int] = ..., first_ns: _Optional[int] = ..., begins_ns: _Optional[_Iterable[int]] = ..., ends_ns: _Optional[_Iterable[int]] = ..., clocks_mhz: _Optional[_Iterable[int]] = ..., table_revision: _Optional[int] = ..., point: _Optional[int] = ..., host_clock: _Optional[str] = ...) -> None: ...

class SwitchSeen(_message.Message):
    __slots__ = ("table_revision", "switch_revision")
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    SWITCH_REVISION_FIELD_NUMBER: _ClassVar[int]
    table_revision: int
    switch_revision: int
    def __init__(self, table_revision: _Optional[int] = ..., switch_revision: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class PlannerMessage(_message.Message):
    __slots__ = ("attached", "schedule_wanted", "sweep", "stop_sweep", "table", "switch", "profile_ack", "release", "refused", "probe")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_WANTED_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    STOP_SWEEP_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ACK_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    schedule_wanted: ScheduleWanted
    sweep: Sweep
    stop_sweep: StopSweep
    table: PlanTable
    switch: Switch
    profile_ack: ProfileAck
    release: Release
    refused: Refused
    probe: Probe
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., schedule_wanted: _Optional[_Union[ScheduleWanted, _Mapping]] = ..., sweep: _Optional[_Union[Sweep, _Mapping]] = ..., stop_sweep: _Optional[_Union[StopSweep, _Mapping]] = ..., table: _Optional[_Union[PlanTable, _Mapping]] = ..., switch: _Optional[_Union[Switch, _Mapping]] = ..., profile_ack: _Optional[_Union[ProfileAck, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("phase", "table_revision", "acked_samples", "wants_timelines")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    ACKED_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    WANTS_TIMELINES_FIELD_NUMBER: _ClassVar[int]
    phase: str
    table_revision: int
    acked_samples: int
    wants_timelines: bool
    def __init__(self, phase: _Optional[str] = ..., table_revision: _Optional[int] = ..., acked_samples: _Optional[int] = ..., wants_timelines: bool = ...) -> None: ...

class ScheduleWanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Sweep(_message.Message):
    __slots__ = ("sweep_id", "first_iteration", "iterations_per_clock", "clocks_mhz")
    SWEEP_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ITERATION_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_PER_CLOCK_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    sweep_id: int
    first_iteration: int
    iterations_per_clock: int
    clocks_mhz: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sweep_id: _Optional[int] = ..., first_iteration: _Optional[int] = ..., iterations_per_clock: _Optional[int] = ..., clocks_mhz: _Optional[_Iterable[int]] = ...) -> None: ...

class StopSweep(_message.Message):
    __slots__ = ("sweep_id", "first_iteration")
    SWEEP_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ITERATION_FIELD_NUMBER: _ClassVar[int]
    sweep_id: int
    first_iteration: int
    def __init__(self, sweep_id: _Optional[int] = ..., first_iteration: _Optional[int] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("first_iteration", "num_iterations")
    FIRST_ITERATION_FIELD_NUMBER: _ClassVar[int]
    NUM_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    first_iteration: int
    num_iterations: int
    def __init__(self, first_iteration: _Optional[int] = ..., num_iterations: _Optional[int] = ...) -> None: ...

class PlanTable(_message.Message):
    __slots__ = ("revision", "num_points", "num_instructions", "clocks_mhz", "times_s", "energies_j", "expected", "switch_latency_s", "schedule_digest", "base_revision", "change_clocks_mhz", "change_latencies_s", "moments_ns")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    NUM_POINTS_FIELD_NUMBER: _ClassVar[int]
    NUM_INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    TIMES_S_FIELD_NUMBER: _ClassVar[int]
    ENERGIES_J_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    SWITCH_LATENCY_S_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BASE_REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    CHANGE_LATENCIES_S_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_NS_FIELD_NUMBER: _ClassVar[int]
    revision: int
    num_points: int
    num_instructions: int
    clocks_mhz: bytes
    times_s: _containers.RepeatedScalarFieldContainer[float]
    energies_j: _containers.RepeatedScalarFieldContainer[float]
    expected: _containers.RepeatedCompositeFieldContainer[Expected]
    switch_latency_s: float
    schedule_digest: str
    base_revision: int
    change_clocks_mhz: _containers.RepeatedScalarFieldContainer[int]
    change_latencies_s: _containers.RepeatedScalarFieldContainer[float]
    moments_ns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, revision: _Optional[int] = ..., num_points: _Optional[int] = ..., num_instructions: _Optional[int] = ..., clocks_mhz: _Optional[bytes] = ..., times_s: _Optional[_Iterable[float]] = ..., energies_j: _Optional[_Iterable[float]] = ..., expected: _Optional[_Iterable[_Union[Expected, _Mapping]]] = ..., switch_latency_s: _Optional[float] = ..., schedule_digest: _Optional[str] = ..., base_revision: _Optional[int] = ..., change_clocks_mhz: _Optional[_Iterable[int]] = ..., change_latencies_s: _Optional[_Iterable[float]] = ..., moments_ns: _Optional[_Iterable[int]] = ...) -> None: ...

class Expected(_message.Message):
    __slots__ = ("chunk", "kind", "clocks_mhz", "times_s", "energies_j")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLOCKS_MHZ_FIELD_NUMBER: _ClassVar[int]
    TIMES_S_FIELD_NUMBER: _ClassVar[int]
    ENERGIES_J_FIELD_NUMBER: _ClassVar[int]
    chunk: int
    kind: str
    clocks_mhz: _containers.RepeatedScalarFieldContainer[int]
    times_s: _containers.RepeatedScalarFieldContainer[float]
    energies_j: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, chunk: _Optional[int] = ..., kind: _Optional[str] = ..., clocks_mhz: _Optional[_Iterable[int]] = ..., times_s: _Optional[_Iterable[float]] = ..., energies_j: _Optional[_Iterable[float]] = ...) -> None: ...

class Switch(_message.Message):
    __slots__ = ("table_revision", "point", "effective_iteration", "switch_revision", "max_slowdown", "deadline_s", "is_waiting")
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_ITERATION_FIELD_NUMBER: _ClassVar[int]
    SWITCH_REVISION_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    IS_WAITING_FIELD_NUMBER: _ClassVar[int]
    table_revision: int
    point: int
    effective_iteration: int
    switch_revision: int
    max_slowdown: float
    deadline_s: float
    is_waiting: bool
    def __init__(self, table_revision: _Optional[int] = ..., point: _Optional[int] = ..., effective_iteration: _Optional[int] = ..., switch_revision: _Optional[int] = ..., max_slowdown: _Optional[float] = ..., deadline_s: _Optional[float] = ..., is_waiting: bool = ...) -> None: ...

class ProfileAck(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "retry")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retry: bool
    def __init__(self, reason: _Optional[str] = ..., retry: bool = ...) -> None: ...

class NodeMessage(_message.Message):
    __slots__ = ("frames", "node")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[NodeFrame]
    node: NodeHello
    def __init__(self, frames: _Optional[_Iterable[_Union[NodeFrame, _Mapping]]] = ..., node: _Optional[_Union[NodeHello, _Mapping]] = ...) -> None: ...

class NodeHello(_message.Message):
    __slots__ = ("host", "findings")
    HOST_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    host: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, host: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...

class NodeFrame(_message.Message):
    __slots__ = ("channel", "open", "message", "close")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    channel: int
    open: str
    message: bytes
    close: bool
    def __init__(self, channel: _Optional[int] = ..., open: _Optional[str] = ..., message: _Optional[bytes] = ..., close: bool = ...) -> None: ...

class NodeReply(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[NodeReplyFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[NodeReplyFrame, _Mapping]]] = ...) -> None: ...

class NodeReplyFrame(_message.Message):
    __slots__ = ("channels", "message", "ended")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    channels: _containers.RepeatedScalarFieldContainer[int]
    message: bytes
    ended: ChannelEnded
    def __init__(self, channels: _Optional[_Iterable[int]] = ..., message: _Optional[bytes] = ..., ended: _Optional[_Union[ChannelEnded, _Mapping]] = ...) -> None: ...

class ChannelEnded(_message.Message):
    __slots__ = ("code", "reason", "owner")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    owner: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("t_min", "slowdown", "deadline_s")
    T_MIN_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    t_min: bool
    slowdown: float
    deadline_s: float
    def __init__(self, t_min: bool = ..., slowdown: _Optional[float] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "replicas", "is_admin", "planning_queue")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IS_ADMIN_FIELD_NUMBER: _ClassVar[int]
    PLANNING_QUEUE_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    replicas: _containers.RepeatedScalarFieldContainer[str]
    is_admin: bool
    planning_queue: PlanningQueue
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., replicas: _Optional[_Iterable[str]] = ..., is_admin: bool = ..., planning_queue: _Optional[_Union[PlanningQueue, _Mapping]] = ...) -> None: ...

class PlanningQueue(_message.Message):
    __slots__ = ("num_waiting", "oldest_s", "num_waiting_others", "oldest_others_s", "num_workers", "num_at_once", "num_workers_others")
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    OLDEST_S_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_OTHERS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OTHERS_S_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    NUM_AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_OTHERS_FIELD_NUMBER: _ClassVar[int]
    num_waiting: int
    oldest_s: float
    num_waiting_others: int
    oldest_others_s: float
    num_workers: int
    num_at_once: int
    num_workers_others: int
    def __init__(self, num_waiting: _Optional[int] = ..., oldest_s: _Optional[float] = ..., num_waiting_others: _Optional[int] = ..., oldest_others_s: _Optional[float] = ..., num_workers: _Optional[int] = ..., num_at_once: _Optional[int] = ..., num_workers_others: _Optional[int] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class StragglerReport(_message.Message):
    __slots__ = ("id", "degree", "dp_rank")
    ID_FIELD_NUMBER: _ClassVar[int]
    DEGREE_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    id: str
    degree: float
    dp_rank: int
    def __init__(self, id: _Optional[str] = ..., degree: _Optional[float] = ..., dp_rank: _Optional[int] = ...) -> None: ...

class PipelineStatus(_message.Message):
    __slots__ = ("dp_rank", "attached_ranks", "iteration", "time_s", "energy_j", "table_revision", "point", "planned_time_s", "planned_energy_j", "pipeline_time_s", "is_waiting")
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_RANKS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    PLANNED_TIME_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    IS_WAITING_FIELD_NUMBER: _ClassVar[int]
    dp_rank: int
    attached_ranks: int
    iteration: int
    time_s: float
    energy_j: float
    table_revision: int
    point: int
    planned_time_s: float
    planned_energy_j: float
    pipeline_time_s: float
    is_waiting: bool
    def __init__(self, dp_rank: _Optional[int] = ..., attached_ranks: _Optional[int] = ..., iteration: _Optional[int] = ..., time_s: _Optional[float] = ..., energy_j: _Optional[float] = ..., table_revision: _Optional[int] = ..., point: _Optional[int] = ..., planned_time_s: _Optional[float] = ..., planned_energy_j: _Optional[float] = ..., pipeline_time_s: _Optional[float] = ..., is_waiting: bool = ...) -> None: ...

class StragglerVerdict(_message.Message):
    __slots__ = ("rank", "pp_rank", "dp_rank", "degree", "low", "high", "cause", "age_s", "is_whole_pipeline", "is_predicted", "is_flapping", "is_acted_upon", "is_muted", "sentence")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    DEGREE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_PIPELINE_FIELD_NUMBER: _ClassVar[int]
    IS_PREDICTED_FIELD_NUMBER: _ClassVar[int]
    IS_FLAPPING_FIELD_NUMBER: _ClassVar[int]
    IS_ACTED_UPON_FIELD_NUMBER: _ClassVar[int]
    IS_MUTED_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pp_rank: int
    dp_rank: int
    degree: float
    low: float
    high: float
    cause: str
    age_s: float
    is_whole_pipeline: bool
    is_predicted: bool
    is_flapping: bool
    is_acted_upon: bool
    is_muted: bool
    sentence: str
    def __init__(self, rank: _Optional[int] = ..., pp_rank: _Optional[int] = ..., dp_rank: _Optional[int] = ..., degree: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., cause: _Optional[str] = ..., age_s: _Optional[float] = ..., is_whole_pipeline: bool = ..., is_predicted: bool = ..., is_flapping: bool = ..., is_acted_upon: bool = ..., is_muted: bool = ..., sentence: _Optional[str] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("sequence", "kind", "age_s", "iteration", "sentence", "effective_iteration", "switch_revision", "rank", "dp_rank", "degree", "low", "high", "cause", "t_prime_s", "points")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_ITERATION_FIELD_NUMBER: _ClassVar[int]
    SWITCH_REVISION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    DEGREE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    T_PRIME_S_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    kind: str
    age_s: float
    iteration: int
    sentence: str
    effective_iteration: int
    switch_revision: int
    rank: int
    dp_rank: int
    degree: float
    low: float
    high: float
    cause: str
    t_prime_s: float
    points: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence: _Optional[int] = ..., kind: _Optional[str] = ..., age_s: _Optional[float] = ..., iteration: _Optional[int] = ..., sentence: _Optional[str] = ..., effective_iteration: _Optional[int] = ..., switch_revision: _Optional[int] = ..., rank: _Optional[int] = ..., dp_rank: _Optional[int] = ..., degree: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., cause: _Optional[str] = ..., t_prime_s: _Optional[float] = ..., points: _Optional[_Iterable[int]] = ...) -> None: ...

class GuardFigures(_message.Message):
    __slots__ = ("reference_s", "lost_s", "probes", "falls")
    REFERENCE_S_FIELD_NUMBER: _ClassVar[int]
    LOST_S_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    FALLS_FIELD_NUMBER: _ClassVar[int]
    reference_s: float
    lost_s: float
    probes: int
    falls: int
    def __init__(self, reference_s: _Optional[float] = ..., lost_s: _Optional[float] = ..., probes: _Optional[int] = ..., falls: _Optional[int] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "phase", "reason", "num_ranks", "pipelines", "table_revision", "switch_revision", "target", "stragglers", "fastest_s", "t_star_s", "baseline", "enforced", "predicted_saving", "profiled_clocks", "messages", "missed_clocks", "lost_boundaries", "troubles", "verdicts", "t_prime_s", "saved_j", "refused_reports", "events", "guard", "saved_doubt_j", "full_time_degree", "full_energy_degree", "plan_time_degree", "plan_energy_degree", "progress", "progress_share", "phase_left_s", "predicted_saving_low", "predicted_saving_high")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_RANKS_FIELD_NUMBER: _ClassVar[int]
    PIPELINES_FIELD_NUMBER: _ClassVar[int]
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    SWITCH_REVISION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STRAGGLERS_FIELD_NUMBER: _ClassVar[int]
    FASTEST_S_FIELD_NUMBER: _ClassVar[int]
    T_STAR_S_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    ENFORCED_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_SAVING_FIELD_NUMBER: _ClassVar[int]
    PROFILED_CLOCKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MISSED_CLOCKS_FIELD_NUMBER: _ClassVar[int]
    LOST_BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    T_PRIME_S_FIELD_NUMBER: _ClassVar[int]
    SAVED_J_FIELD_NUMBER: _ClassVar[int]
    REFUSED_REPORTS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    GUARD_FIELD_NUMBER: _ClassVar[int]
    SAVED_DOUBT_J_FIELD_NUMBER: _ClassVar[int]
    FULL_TIME_DEGREE_FIELD_NUMBER: _ClassVar[int]
    FULL_ENERGY_DEGREE_FIELD_NUMBER: _ClassVar[int]
    PLAN_TIME_DEGREE_FIELD_NUMBER: _ClassVar[int]
    PLAN_ENERGY_DEGREE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_SHARE_FIELD_NUMBER: _ClassVar[int]
    PHASE_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_SAVING_LOW_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_SAVING_HIGH_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    phase: str
    reason: str
    num_ranks: int
    pipelines: _containers.RepeatedCompositeFieldContainer[PipelineStatus]
    table_revision: int
    switch_revision: int
    target: Target
    stragglers: _containers.RepeatedCompositeFieldContainer[StragglerReport]
    fastest_s: float
    t_star_s: float
    baseline: MeasuredIterations
    enforced: MeasuredIterations
    predicted_saving: float
    profiled_clocks: int
    messages: int
    missed_clocks: int
    lost_boundaries: int
    troubles: _containers.RepeatedScalarFieldContainer[str]
    verdicts: _containers.RepeatedCompositeFieldContainer[StragglerVerdict]
    t_prime_s: float
    saved_j: float
    refused_reports: int
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    guard: GuardFigures
    saved_doubt_j: float
    full_time_degree: float
    full_energy_degree: float
    plan_time_degree: float
    plan_energy_degree: float
    progress: str
    progress_share: float
    phase_left_s: float
    predicted_saving_low: float
    predicted_saving_high: float
    def __init__(self, job_id: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., num_ranks: _Optional[int] = ..., pipelines: _Optional[_Iterable[_Union[PipelineStatus, _Mapping]]] = ..., table_revision: _Optional[int] = ..., switch_revision: _Optional[int] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., stragglers: _Optional[_Iterable[_Union[StragglerReport, _Mapping]]] = ..., fastest_s: _Optional[float] = ..., t_star_s: _Optional[float] = ..., baseline: _Optional[_Union[MeasuredIterations, _Mapping]] = ..., enforced: _Optional[_Union[MeasuredIterations, _Mapping]] = ..., predicted_saving: _Optional[float] = ..., profiled_clocks: _Optional[int] = ..., messages: _Optional[int] = ..., missed_clocks: _Optional[int] = ..., lost_boundaries: _Optional[int] = ..., troubles: _Optional[_Iterable[str]] = ..., verdicts: _Optional[_Iterable[_Union[StragglerVerdict, _Mapping]]] = ..., t_prime_s: _Optional[float] = ..., saved_j: _Optional[float] = ..., refused_reports: _Optional[int] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., guard: _Optional[_Union[GuardFigures, _Mapping]] = ..., saved_doubt_j: _Optional[float] = ..., full_time_degree: _Optional[float] = ..., full_energy_degree: _Optional[float] = ..., plan_time_degree: _Optional[float] = ..., plan_energy_degree: _Optional[float] = ..., progress: _Optional[str] = ..., progress_share: _Optional[float] = ..., phase_left_s: _Optional[float] = ..., predicted_saving_low: _Optional[float] = ..., predicted_saving_high: _Optional[float] = ...) -> None: ...

class MeasuredIterations(_message.Message):
    __slots__ = ("num_iterations", "time_s", "time_spread_s", "energy_j", "energy_spread_j")
    NUM_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    TIME_SPREAD_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    ENERGY_SPREAD_J_FIELD_NUMBER: _ClassVar[int]
    num_iterations: int
    time_s: float
    time_spread_s: float
    energy_j: float
    energy_spread_j: float
    def __init__(self, num_iterations: _Optional[int] = ..., time_s: _Optional[float] = ..., time_spread_s: _Optional[float] = ..., energy_j: _Optional[float] = ..., energy_spread_j: _Optional[float] = ...) -> None: ...

class GetFrontierRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class FrontierPoint(_message.Message):
    __slots__ = ("time_s", "energy_j", "lower_bound_j")
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    LOWER_BOUND_J_FIELD_NUMBER: _ClassVar[int]
    time_s: float
    energy_j: float
    lower_bound_j: float
    def __init__(self, time_s: _Optional[float] = ..., energy_j: _Optional[float] = ..., lower_bound_j: _Optional[float] = ...) -> None: ...

class GetFrontierResponse(_message.Message):
    __slots__ = ("table_revision", "points", "baseline_time_s", "baseline_energy_j", "fastest_s", "t_star_s")
    TABLE_REVISION_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_TIME_S_FIELD_NUMBER: _ClassVar[int]
    BASELINE_ENERGY_J_FIELD_NUMBER: _ClassVar[int]
    FASTEST_S_FIELD_NUMBER: _ClassVar[int]
    T_STAR_S_FIELD_NUMBER: _ClassVar[int]
    table_revision: int
    points: _containers.RepeatedCompositeFieldContainer[FrontierPoint]
    baseline_time_s: float
    baseline_energy_j: float
    fastest_s: float
    t_star_s: float
    def __init__(self, table_revision: _Optional[int] = ..., points: _Optional[_Iterable[_Union[FrontierPoint, _Mapping]]] = ..., baseline_time_s: _Optional[float] = ..., baseline_energy_j: _Optional[float] = ..., fastest_s: _Optional[float] = ..., t_star_s: _Optional[float] = ...) -> None: ...

class GetProfileRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class GetProfileResponse(_message.Message):
    __slots__ = ("csv", "blocking_power_w")
    CSV_FIELD_NUMBER: _ClassVar[int]
    BLOCKING_POWER_W_FIELD_NUMBER: _ClassVar[int]
    csv: str
    blocking_power_w: float
    def __init__(self, csv: _Optional[str] = ..., blocking_power_w: _Optional[float] = ...) -> None: ...

class SetTargetRequest(_message.Message):
    __slots__ = ("job_id", "target")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    target: Target
    def __init__(self, job_id: _Optional[str] = ..., target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class ReportStragglerRequest(_message.Message):
    __slots__ = ("job_id", "straggler")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STRAGGLER_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    straggler: StragglerReport
    def __init__(self, job_id: _Optional[str] = ..., straggler: _Optional[_Union[StragglerReport, _Mapping]] = ...) -> None: ...

class ClearStragglerRequest(_message.Message):
    __slots__ = ("job_id", "id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    id: str
    def __init__(self, job_id: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class TokenGrant(_message.Message):
    __slots__ = ("name", "role", "jobs", "certificate", "created_s", "created_by", "expires_s", "revoked_s", "revoked_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
    REVOKED_S_FIELD_NUMBER: _ClassVar[int]
    REVOKED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    certificate: str
    created_s: float
    created_by: str
    expires_s: float
    revoked_s: float
    revoked_by: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., certificate: _Optional[str] = ..., created_s: _Optional[float] = ..., created_by: _Optional[str] = ..., expires_s: _Optional[float] = ..., revoked_s: _Optional[float] = ..., revoked_by: _Optional[str] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("name", "role", "jobs", "certificate", "valid_for_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    certificate: str
    valid_for_s: float
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., certificate: _Optional[str] = ..., valid_for_s: _Optional[float] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("grant", "token")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    grant: TokenGrant
    token: str
    def __init__(self, grant: _Optional[_Union[TokenGrant, _Mapping]] = ..., token: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("grants",)
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    grants: _containers.RepeatedCompositeFieldContainer[TokenGrant]
    def __init__(self, grants: _Optional[_Iterable[_Union[TokenGrant, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("id", "time_s", "identity", "peer", "action", "job", "before", "after", "outcome", "replica")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    id: int
    time_s: float
    identity: str
    peer: str
    action: str
    job: str
    before: str
    after: str
    outcome: str
    replica: str
    def __init__(self, id: _Optional[int] = ..., time_s: _Optional[float] = ..., identity: _Optional[str] = ..., peer: _Optional[str] = ..., action: _Optional[str] = ..., job: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., outcome: _Optional[str] = ..., replica: _Optional[str] = ...) -> None: ...

class ReadAuditRequest(_message.Message):
    __slots__ = ("after_id", "since_s", "job", "limit", "own")
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    after_id: int
    since_s: float
    job: str
    limit: int
    own: bool
    def __init__(self, after_id: _Optional[int] = ..., since_s: _Optional[float] = ..., job: _Optional[str] = ..., limit: _Optional[int] = ..., own: bool = ...) -> None: ...

class ReadAuditResponse(_message.Message):
    __slots__ = ("records", "missing")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[AuditRecord]
    missing: str
    def __init__(self, records: _Optional[_Iterable[_Union[AuditRecord, _Mapping]]] = ..., missing: _Optional[str] = ...) -> None: ...

class PatternValue(_message.Message):
    __slots__ = ("pattern", "value")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    value: float
    def __init__(self, pattern: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("name", "watts", "jobs", "objective", "guard_band", "weights", "max_slowdowns")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WATTS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    GUARD_BAND_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOWDOWNS_FIELD_NUMBER: _ClassVar[int]
    name: str
    watts: float
    jobs: _containers.RepeatedScalarFieldContainer[str]
    objective: str
    guard_band: float
    weights: _containers.RepeatedCompositeFieldContainer[PatternValue]
    max_slowdowns: _containers.RepeatedCompositeFieldContainer[PatternValue]
    def __init__(self, name: _Optional[str] = ..., watts: _Optional[float] = ..., jobs: _Optional[_Iterable[str]] = ..., objective: _Optional[str] = ..., guard_band: _Optional[float] = ..., weights: _Optional[_Iterable[_Union[PatternValue, _Mapping]]] = ..., max_slowdowns: _Optional[_Iterable[_Union[PatternValue, _Mapping]]] = ...) -> None: ...

class LoadTarget(_message.Message):
    __slots__ = ("name", "budget", "start_s", "end_s", "watts", "best_effort")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    WATTS_FIELD_NUMBER: _ClassVar[int]
    BEST_EFFORT_FIELD_NUMBER: _ClassVar[int]
    name: str
    budget: str
    start_s: float
    end_s: float
    watts: float
    best_effort: bool
    def __init__(self, name: _Optional[str] = ..., budget: _Optional[str] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., watts: _Optional[float] = ..., best_effort: bool = ...) -> None: ...

class BudgetShare(_message.Message):
    __slots__ = ("job_id", "planned_w", "full_w", "measured_w", "slowdown", "is_paced", "reason", "holds_probes")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PLANNED_W_FIELD_NUMBER: _ClassVar[int]
    FULL_W_FIELD_NUMBER: _ClassVar[int]
    MEASURED_W_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    IS_PACED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    HOLDS_PROBES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    planned_w: float
    full_w: float
    measured_w: float
    slowdown: float
    is_paced: bool
    reason: str
    holds_probes: bool
    def __init__(self, job_id: _Optional[str] = ..., planned_w: _Optional[float] = ..., full_w: _Optional[float] = ..., measured_w: _Optional[float] = ..., slowdown: _Optional[float] = ..., is_paced: bool = ..., reason: _Optional[str] = ..., holds_probes: bool = ...) -> None: ...

class BudgetStatus(_message.Message):
    __slots__ = ("budget", "cap_w", "load_target", "planned_w", "measured_w", "least_w", "is_met", "troubles", "shares", "load_targets", "weighted_slowdown", "weighted_slowdown_bound")
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    CAP_W_FIELD_NUMBER: _ClassVar[int]
    LOAD_TARGET_FIELD_NUMBER: _ClassVar[int]
    PLANNED_W_FIELD_NUMBER: _ClassVar[int]
    MEASURED_W_FIELD_NUMBER: _ClassVar[int]
    LEAST_W_FIELD_NUMBER: _ClassVar[int]
    IS_MET_FIELD_NUMBER: _ClassVar[int]
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    LOAD_TARGETS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WEIGHTED_SLOWDOWN_BOUND_FIELD_NUMBER: _ClassVar[int]
    budget: Budget
    cap_w: float
    load_target: str
    planned_w: float
    measured_w: float
    least_w: float
    is_met: bool
    troubles: _containers.RepeatedScalarFieldContainer[str]
    shares: _containers.RepeatedCompositeFieldContainer[BudgetShare]
    load_targets: _containers.RepeatedCompositeFieldContainer[LoadTarget]
    weighted_slowdown: float
    weighted_slowdown_bound: float
    def __init__(self, budget: _Optional[_Union[Budget, _Mapping]] = ..., cap_w: _Optional[float] = ..., load_target: _Optional[str] = ..., planned_w: _Optional[float] = ..., measured_w: _Optional[float] = ..., least_w: _Optional[float] = ..., is_met: bool = ..., troubles: _Optional[_Iterable[str]] = ..., shares: _Optional[_Iterable[_Union[BudgetShare, _Mapping]]] = ..., load_targets: _Optional[_Iterable[_Union[LoadTarget, _Mapping]]] = ..., weighted_slowdown: _Optional[float] = ..., weighted_slowdown_bound: _Optional[float] = ...) -> None: ...

class ForecastError(_message.Message):
    __slots__ = ("mean_kwh", "percent", "hours")
    MEAN_KWH_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    mean_kwh: float
    percent: float
    hours: float
    def __init__(self, mean_kwh: _Optional[float] = ..., percent: _Optional[float] = ..., hours: _Optional[float] = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyStatus(_message.Message):
    __slots__ = ("budgets", "prices")
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    PRICES_FIELD_NUMBER: _ClassVar[int]
    budgets: _containers.RepeatedCompositeFieldContainer[BudgetStatus]
    prices: _containers.RepeatedCompositeFieldContainer[PriceStatus]
    def __init__(self, budgets: _Optional[_Iterable[_Union[BudgetStatus, _Mapping]]] = ..., prices: _Optional[_Iterable[_Union[PriceStatus, _Mapping]]] = ...) -> None: ...

class SetBudgetRequest(_message.Message):
    __slots__ = ("budget",)
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    budget: Budget
    def __init__(self, budget: _Optional[_Union[Budget, _Mapping]] = ...) -> None: ...

class ClearBudgetRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class SetLoadTargetRequest(_message.Message):
    __slots__ = ("load_target",)
    LOAD_TARGET_FIELD_NUMBER: _ClassVar[int]
    load_target: LoadTarget
    def __init__(self, load_target: _Optional[_Union[LoadTarget, _Mapping]] = ...) -> None: ...

class ClearLoadTargetRequest(_message.Message):
    __slots__ = ("budget", "name")
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    budget: str
    name: str
    def __init__(self, budget: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PricePolicy(_message.Message):
    __slots__ = ("name", "jobs", "signal", "deadline_s", "iterations")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    signal: str
    deadline_s: float
    iterations: int
    def __init__(self, name: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., signal: _Optional[str] = ..., deadline_s: _Optional[float] = ..., iterations: _Optional[int] = ...) -> None: ...

class PricedJob(_message.Message):
    __slots__ = ("job_id", "iterations_done", "slowdown", "is_paced", "price_kwh", "finish_s", "is_on_time", "is_over", "reason", "budget")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_DONE_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    IS_PACED_FIELD_NUMBER: _ClassVar[int]
    PRICE_KWH_FIELD_NUMBER: _ClassVar[int]
    FINISH_S_FIELD_NUMBER: _ClassVar[int]
    IS_ON_TIME_FIELD_NUMBER: _ClassVar[int]
    IS_OVER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    iterations_done: float
    slowdown: float
    is_paced: bool
    price_kwh: float
    finish_s: float
    is_on_time: bool
    is_over: bool
    reason: str
    budget: str
    def __init__(self, job_id: _Optional[str] = ..., iterations_done: _Optional[float] = ..., slowdown: _Optional[float] = ..., is_paced: bool = ..., price_kwh: _Optional[float] = ..., finish_s: _Optional[float] = ..., is_on_time: bool = ..., is_over: bool = ..., reason: _Optional[str] = ..., budget: _Optional[str] = ...) -> None: ...

class PriceStatus(_message.Message):
    __slots__ = ("policy", "trouble", "jobs", "forecast_error")
    POLICY_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FORECAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    policy: PricePolicy
    trouble: str
    jobs: _containers.RepeatedCompositeFieldContainer[PricedJob]
    forecast_error: ForecastError
    def __init__(self, policy: _Optional[_Union[PricePolicy, _Mapping]] = ..., trouble: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[PricedJob, _Mapping]]] = ..., forecast_error: _Optional[_Union[ForecastError, _Mapping]] = ...) -> None: ...

class SetPricePolicyRequest(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: PricePolicy
    def __init__(self, policy: _Optional[_Union[PricePolicy, _Mapping]] = ...) -> None: ...

class ClearPricePolicyRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...
