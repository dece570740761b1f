"""From an agent to its planner: who it is, what it measured, what it follows."""

from dataclasses import dataclass, field

from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload
from perseus_dist.messages.finding import Finding
from perseus_dist.messages.terms import NO_ITERATION, NO_POINT, Gpu, Rank, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """An agent's first message on every stream.

    Attributes:
        run_id: The same on all ranks of one start of the trainers, and another one at each start; empty where the
            trainer does not say.
        workload: What the trainer knows of it.
        host: Name of the node; empty where it is not known.
        findings: Troubles of the node and its GPU that the agent found as it started.
        follows_moments: Tables with moments are of use: it changes clocks by time where instructions cannot be seen.
    """

    rank: Rank
    gpu: Gpu
    incarnation: int
    iteration: int = NO_ITERATION
    table_revision: int = 0
    target: Target | None = None
    version: str = ""
    has_profile: bool = False
    run_id: str = ""
    workload: Workload = UNKNOWN_WORKLOAD
    host: str = ""
    findings: tuple[Finding, ...] = ()
    follows_moments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleText:
    """The whole pipeline's schedule, as ``format_schedule`` writes it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Time and energy of one kind of instruction of one chunk at one clock, on one GPU: means over ``num_runs``.

    Attributes:
        time_std_s: Standard deviation over the runs.
        energy_std_j: Standard error of the estimate.
        window_s: Length of the energy window behind it.
        stage: -1, or the stage itself where the row comes from a saved profile.
        time_p90_s: Of kind ``CLOCK_CHANGE``: ``time_s`` is the median from the request for the clock to its effect, of
            ``num_runs`` changes, and this what nine in ten take no longer than; 0 where that is not known. Likewise of
            transfers of a saved profile.
    """

    chunk: int
    kind: str
    clock_mhz: int
    time_s: float
    energy_j: float
    time_std_s: float
    energy_std_j: float
    num_runs: int
    window_s: float
    stage: int = -1
    time_p90_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSamples:
    """Acknowledged once durable, or at once where no sweep waits for them.

    ``sequence`` counts from 1 in each incarnation.
    """

    sequence: int
    sweep_id: int
    step: int
    samples: tuple[Sample, ...]
    blocking_power_w: float = 0.0
    switch_latency_s: float = 0.0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTime:
    """Time of all instructions of one kind in an iteration of a rank over the profile's, for the straggler detector.

    Attributes:
        kind: A computation.
        time_ratio: Their time over what the profile says at the clocks that were *requested*.
        requested_mhz: The mean of those clocks.
    """

    kind: str
    time_ratio: float
    requested_mhz: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationReport:
    """One iteration of one rank.

    Attributes:
        time_s: From its begin to the next one's.
        pipeline_time_s: From its begin until this rank waits for gradient synchronisation.
        energy_j: None where it is not known.
        kind_times: One for each kind of computation; empty where neither a plan nor a probe was followed, or the
            profile is not known.
        tokens: Work done, as in ``Hook.work``; 0 where the framework does not say.
        input_wait_s: Waited for input data; None where the framework does not say.
        is_live: Whether the agent saw it begin and end as that happened. Otherwise its figures say nothing.
    """

    iteration: int
    time_s: float
    pipeline_time_s: float
    energy_j: float | None
    table_revision: int = 0
    point: int = NO_POINT
    kind_times: tuple[KindTime, ...] = ()
    tokens: float = 0.0
    input_wait_s: float | None = None
    is_live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """A GPU at one instant.

    Attributes:
        requested_mhz: Clock that was requested and due by then; 0 where none was.
        clock_mhz: 0 where there is nothing new to say of the clock: it was not read since the last telemetry, or of an
            idle GPU, or while a change of clock was under way; ``requested_mhz`` and ``event_reasons`` are 0 then.
    """

    requested_mhz: int = 0
    power_w: float = 0.0
    clock_mhz: int = 0
    event_reasons: int = 0
    temperature_c: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Batched about once a second, at once where a GPU's throttling begins or ends; counts are since the agent's start.

    Attributes:
        iteration: The newest one begun when this was sent.
    """

    sequence: int
    iteration: int = NO_ITERATION
    iterations: tuple[IterationReport, ...] = ()
    gpu: GpuSample = field(default_factory=GpuSample)
    lost_boundaries: int = 0
    lost_reports: int = 0
    clock_changes: int = 0
    missed_clocks: int = 0
    control: str = "observe"
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An instruction's time has left the profile: reported soon, and again where it lasts.

    Attributes:
        sequence: Ascending, per stream.
        chunk, kind: Of the instruction.
        clock_mhz: [MHz] requested for its newest run.
        profile_time_s, measured_time_s: [s] at that clock: by the profile, and the median of its newest runs.
        num_runs: These.
        num_iterations: In a row, in which it has lasted; 0 from an agent that does not say.
    """

    sequence: int
    chunk: int
    kind: str
    clock_mhz: int
    profile_time_s: float
    measured_time_s: float
    num_runs: int
    num_iterations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """When the computations of one iteration began and ended, at full clocks or under a plan.

    Attributes:
        iteration: Its number.
        begins_ns, ends_ns: (num_computations) [ns] by the host's monotonic clock, in the order of the rank's schedule.
        clocks_mhz: (num_computations) [MHz] as they were read, else as requested; empty at full clocks.
        table_revision, point: Of the plan that was followed.
        host_clock: Names the clock: ranks of the same name read the same one. Empty where that is not known.
    """

    iteration: int
    begins_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]
    clocks_mhz: tuple[int, ...] = ()
    table_revision: int = 0
    point: int = NO_POINT
    host_clock: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSeen:
    """The agent holds this switch and will follow it."""

    table_revision: int
    switch_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The trainer has ended."""

    reason: str


AgentMessage = Attach | ScheduleText | ProfileSamples | Telemetry | Drift | RunTimes | SwitchSeen | Goodbye
