"""What agents, operators and the planner tell each other, as plain values: the cores know these, never the wire.

``rpc.codec`` and ``rpc.job_wire`` turn each into its protobuf message and back, and validate. Field by field they
mirror ``protos/perseus_dist/rpc/v1/planner.proto``. Times are seconds, energies joules, powers watts, clocks MHz.
Standard library only.
"""

from dataclasses import dataclass, field

from perseus_dist.fingerprint import UNKNOWN_WORKLOAD, Workload

NO_ITERATION = -1
NO_POINT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where a rank stands in its job, as the framework says it."""

    job_id: str
    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    pp_size: int
    dp_size: int
    tp_size: int
    schedule_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A rank's GPU and who may set its clocks.

    Attributes:
        clocks_mhz: Supported and allowed, descending; empty where the rank cannot set clocks.
        control: ``clockd``, ``zeusd``, ``direct`` or ``observe``.
        refusal: Why control is ``observe``; empty otherwise.
        energy_period_s: How often the energy counter is published; 0 where there is none.
        memory_mib: In all; 0 where it is not known.
        default_power_limit_w, power_limit_w: By default, and enforced as the agent started; 0 where not known.
    """

    uuid: str
    name: str
    driver_version: str
    clocks_mhz: tuple[int, ...]
    control: str
    refusal: str = ""
    energy_period_s: float = 0.0
    memory_mib: int = 0
    default_power_limit_w: float = 0.0
    power_limit_w: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The iteration time that a job wants: exactly one of ``slowdown`` (>= 1), ``deadline_s``, or neither for T_min."""

    slowdown: float | None = None
    deadline_s: float | None = None


T_MIN = Target()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """An agent's first message on every stream.

    Attributes:
        run_id: The same on all ranks of one start of the trainers, and another one at each start; empty where the
            trainer does not say.
        workload: What the trainer knows of it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleText:
    """The whole pipeline's schedule, as ``format_schedule`` writes it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one kind of instruction of one chunk took at one clock, on one GPU: means over ``num_runs``.

    Attributes:
        time_std_s: Standard deviation over the runs.
        energy_std_j: Standard error of the estimate.
        window_s: Length of the energy window behind it.
        stage: -1, or the stage itself where the row comes from a saved profile.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSamples:
    """Durable at the planner before it is acknowledged. ``sequence`` counts from 1 in each incarnation."""

    sequence: int
    sweep_id: int
    step: int
    samples: tuple[Sample, ...]
    blocking_power_w: float = 0.0
    switch_latency_s: float = 0.0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KindTime:
    """What all instructions of one kind took in an iteration of a rank, as the straggler detector wants it.

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
        kind_times: One for each kind of computation; empty where no plan was followed, or the profile is not known.
        tokens: Work done, in any unit that all ranks of the job share; 0 where the framework does not say.
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
    """An instruction's time has left the profile."""

    sequence: int
    chunk: int
    kind: str
    clock_mhz: int
    profile_time_s: float
    measured_time_s: float
    num_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSeen:
    """The agent holds this switch and will follow it."""

    table_revision: int
    switch_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """The trainer has ended."""

    reason: str


AgentMessage = Attach | ScheduleText | ProfileSamples | Telemetry | Drift | SwitchSeen | Goodbye


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The answer to ``Attach``."""

    phase: str
    table_revision: int
    acked_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleWanted:
    """Nobody has sent the text of this job's schedule yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Hold ``clocks_mhz[k]`` in iterations ``first_iteration + k * iterations_per_clock`` and so on."""

    sweep_id: int
    first_iteration: int
    iterations_per_clock: int
    clocks_mhz: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSweep:
    """From this iteration on no clock is held."""

    sweep_id: int
    first_iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Run these iterations without a plan, whatever is in force, and go on with it afterwards."""

    first_iteration: int
    num_iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A rank's slice of the profile: what one kind of one chunk takes at each clock."""

    chunk: int
    kind: str
    clocks_mhz: tuple[int, ...]
    times_s: tuple[float, ...]
    energies_j: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTable:
    """One rank's clocks at every frontier point.

    Attributes:
        clocks_mhz: (num_points x num_instructions) little-endian uint16, row by row; 0 leaves the clock as it is.
        times_s, energies_j: (num_points) of the plans, the whole pipeline, ascending time.
        switch_latency_s: What the plans reckon with.
        base_revision: 0 for a table of all pipelines. Otherwise this one is for one pipeline with a slow rank alone,
            and is held beside the table of that revision, whose profile stays the one to compare with.
    """

    revision: int
    num_points: int
    num_instructions: int
    clocks_mhz: bytes
    times_s: tuple[float, ...]
    energies_j: tuple[float, ...]
    expected: tuple[Expected, ...]
    switch_latency_s: float
    schedule_digest: str
    base_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Follow row ``point`` from ``effective_iteration`` on; ``NO_POINT`` releases the clocks."""

    table_revision: int
    point: int
    effective_iteration: int
    switch_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileAck:
    """All samples up to this sequence are durable."""

    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Clocks are released until the next switch."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The stream ends after it."""

    reason: str
    retry: bool


PlannerMessage = (
    Attached | ScheduleWanted | Sweep | StopSweep | Probe | PlanTable | Switch | ProfileAck | Release | Refused
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredIterations:
    """Some iterations of the whole job; figures are 0 where there is nothing to measure.

    Attributes:
        num_iterations: Behind the figures.
        time_s: Median.
        time_spread_s: Interquartile range.
        energy_j: Median of what all GPUs of the job drew, of a baseline the mean of its ordinary iterations; 0 where it
            is not known.
        energy_spread_j: Interquartile range.
    """

    num_iterations: int = 0
    time_s: float = 0.0
    time_spread_s: float = 0.0
    energy_j: float = 0.0
    energy_spread_j: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """One data-parallel replica; figures are 0, and ``point`` is -1, where there is nothing yet.

    Attributes:
        time_s: Of its latest iteration, waiting for the other pipelines included.
        pipeline_time_s: The same until it waits for gradient synchronisation: the slowest of its ranks.
        table_revision, point: What it is to follow; a table of its own where one of its ranks is slow.
        is_waiting: Whether its plan is slower than the target's, for a straggler's sake.
    """

    dp_rank: int
    attached_ranks: int
    iteration: int
    time_s: float
    energy_j: float
    table_revision: int
    point: int
    planned_time_s: float
    planned_energy_j: float
    pipeline_time_s: float = 0.0
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """As reported: a pipeline's iterations last ``degree`` times the time at all-maximum clocks. 1: it is none."""

    straggler_id: str
    degree: float
    dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerVerdict:
    """What the detector holds of a rank, or of a whole pipeline; ``straggler.verdict.Verdict`` says it in full.

    Attributes:
        degree, low, high: Time over the time expected, and the interval that it lies in.
        age_s: How long ago it began.
        is_muted: An operator's report on its pipeline wins.
        sentence: All this for an operator.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """A straggler seen or over, a report, a switch: the newest ones of a job, each told for as long as it is kept.

    Attributes:
        sequence: Counts the job's events from 1, in this life of the planner.
        kind: ``verdict``, ``recovered``, ``reported``, ``cleared``, ``switch``, ``fall``: a plan was given up, or
            ``anew``: what was measured is of other work than what runs now.
        age_s: How long ago it happened.
        iteration: The newest one begun then.
        effective_iteration: Of a switch; otherwise -1.
        switch_revision: Of a switch; otherwise 0.
        rank, dp_rank: Which it is about; -1 for none in particular.
        degree, low, high: Of a verdict or a report; otherwise 0.
        cause: Of a verdict; otherwise empty.
        t_prime_s: Of a switch: what the others wait for; 0 where nobody waits.
        points: Of a switch: each pipeline's.
    """

    sequence: int
    kind: str
    age_s: float
    iteration: int
    sentence: str
    effective_iteration: int = NO_ITERATION
    switch_revision: int = 0
    rank: int = -1
    dp_rank: int = -1
    degree: float = 0.0
    low: float = 0.0
    high: float = 0.0
    cause: str = ""
    t_prime_s: float = 0.0
    points: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFigures:
    """What the guard of the promise has seen; 0 where there is nothing yet.

    Attributes:
        reference_s: [s] an iteration at full clocks, by the newest that ran so.
        lost_s: [s] by which iterations under plans took longer than the target allows, as far as probes confirmed it.
        probes: Ordered, a few iterations each at full clocks.
        falls: Plans that were given up because they took too long.
    """

    reference_s: float = 0.0
    lost_s: float = 0.0
    probes: int = 0
    falls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job; figures are 0 where there is nothing yet.

    Attributes:
        stragglers: As reported by operators.
        verdicts: The detector's.
        t_prime_s: The time of the slowest pipeline, which the others wait for; 0 where nobody waits.
        baseline: Of the present run.
        saved_j: By measurement, since the first plan of the present run: what the same iterations would have drawn at
            all-maximum clocks, waiting for the same straggler, minus what they drew. 0 where it is not known.
        refused_reports: Ranks' reports that the detector could not take, since it began.
        events: The newest ones, ascending.
        guard: Whether the plan keeps the promise.
    """

    job_id: str
    phase: str
    reason: str
    num_ranks: int
    pipelines: tuple[PipelineStatus, ...]
    table_revision: int
    switch_revision: int
    target: Target
    stragglers: tuple[Straggler, ...]
    t_min_s: float
    t_star_s: float
    baseline: MeasuredIterations
    enforced: MeasuredIterations
    predicted_saving: float
    profiled_clocks: int
    messages: int
    missed_clocks: int
    lost_boundaries: int
    troubles: tuple[str, ...]
    verdicts: tuple[StragglerVerdict, ...] = ()
    t_prime_s: float = 0.0
    saved_j: float = 0.0
    refused_reports: int = 0
    events: tuple[JobEvent, ...] = ()
    guard: GuardFigures = GuardFigures()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One plan: its time, and what one pipeline draws until its own end."""

    time_s: float
    energy_j: float
    lower_bound_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFrontier:
    """The plans of a job's newest table; the baseline is all-maximum clocks, by the profile."""

    table_revision: int
    points: tuple[FrontierPoint, ...]
    baseline_time_s: float
    baseline_energy_j: float
    t_min_s: float
    t_star_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProfile:
    """What a job has measured, and what one of its GPUs draws while it waits."""

    csv: str
    blocking_power_w: float
