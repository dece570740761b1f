"""A job as the planner knows it: a mutable value that one actor owns and ``lifecycle.step`` alone changes.

Mutable, because a thousand ranks report every second: copying what they share at each message would cost more than all
decisions together. Nothing in here reads a clock or does I/O, so that the same events give the same job and effects.
"""

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from perseus_dist.messages.from_agent import GpuSample, ProfileSamples
from perseus_dist.messages.terms import NO_ITERATION, NO_POINT, T_MIN, Gpu, Rank, Target
from perseus_dist.planner.job.detector_adapter import DetectorAdapter
from perseus_dist.planner.job.facts import (
    BaselineMeasured,
    FingerprintKnown,
    JobRegistered,
    OwnTableMade,
    StragglerKnown,
    SweepBegun,
    SwitchDecided,
    TargetChosen,
)
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.guard_watch import GuardWatch
from perseus_dist.planner.job.job_history import JobHistory
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.saving import Saving
from perseus_dist.planner.job.self_check import SelfCheckWatch
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.straggler.verdicts.verdict import Verdict

NUM_RECENT = 15  # iterations behind an estimate of the iteration time
NUM_RECENT_PIPELINE = 3  # the same, of what a pipeline takes just now
NUM_PROBED = 5  # iterations of probes behind a baseline
NUM_ENFORCED = 64  # iterations behind the figures of the plan in force


class RankCoords(NamedTuple):
    """Where a rank stands in its job."""

    pp_rank: int
    dp_rank: int
    tp_rank: int


class Phase(StrEnum):
    """Where a job stands in its life."""

    REGISTERING = "registering"
    WARMING_UP = "warming_up"
    PROFILING = "profiling"
    PLANNING = "planning"
    ENFORCING = "enforcing"
    RELEASED = "released"
    REPROFILING = "re-profiling"
    OBSERVING = "observing"
    STALE = "stale"
    DONE = "done"


@dataclass(slots=True, kw_only=True)
class RankState:
    """One rank: its latest ``Attach``, and what came after it.

    Attributes:
        stream: The one it is attached by, or None.
        run_id: As it says.
        control: As its latest telemetry says.
        said_goodbye: Its trainer has ended.
        telemetry_sequence: Of its latest telemetry; 0 before the first.
        has_reported: It has sent telemetry since it attached, and before that all samples that it had kept.
        lost_messages: Telemetry that never came.
        switch_seen: Highest switch revision that it has confirmed.
    """

    rank: Rank
    gpu: Gpu
    incarnation: int
    stream: int | None
    has_profile: bool
    version: str
    control: str
    run_id: str = ""
    trouble: str = ""
    said_goodbye: bool = False
    telemetry_sequence: int = 0
    has_reported: bool = False
    lost_messages: int = 0
    lost_boundaries: int = 0
    lost_reports: int = 0
    clock_changes: int = 0
    missed_clocks: int = 0
    gpu_sample: GpuSample = field(default_factory=GpuSample)
    switch_seen: int = 0

    @property
    def can_set_clocks(self) -> bool:
        """Whether a sweep or a plan reaches its GPU."""
        return bool(self.gpu.clocks_mhz) and self.control != "observe"


@dataclass(slots=True)
class Iteration:
    """One iteration of a pipeline or of the whole job, as far as it has been reported.

    Attributes:
        num_parts: Ranks, or pipelines, that have reported it.
        time_s: [s] the longest of theirs.
        pipeline_time_s: [s] the same, until gradient synchronisation.
        energy_j: [J] of all theirs; None once one is not known.
        is_released: Whether all of them ran without a plan.
        is_planned: Whether all of them followed a plan, of the switch in force or of another.
        is_enforced: Whether all of them followed the switch in force.
        is_live: Whether all agents saw it live; otherwise its figures say nothing.
    """

    number: int
    num_parts: int
    time_s: float
    pipeline_time_s: float
    energy_j: float | None
    is_released: bool
    is_planned: bool
    is_enforced: bool
    is_live: bool


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """One data-parallel replica.

    Attributes:
        iteration: The newest that any of its ranks reported.
        time_s: [s] that it took.
        latest: The newest that all its ranks reported.
        recent_times_s: [s] of the latest of those, until gradient synchronisation.
        unfinished: Iterations that some rank has not reported yet, by number.
    """

    num_attached: int = 0
    iteration: int = NO_ITERATION
    time_s: float = 0.0
    latest: Iteration | None = None
    recent_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_RECENT_PIPELINE))
    unfinished: dict[int, Iteration] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ActiveSweep:
    """A sweep that is under way.

    Attributes:
        ordered: What was asked for.
        missing_mhz: By rank, the clocks whose samples are still to come; ranks with none are left out.
        num_missing: By clock, how many ranks that is.
        attempts: Sweeps of this series so far.
        over_since_s: [s] when its last iteration was seen to be over, or None.
        is_to_judge: Whether a clock has been measured by all ranks since energies were last looked at.
        unable_since_s: [s] since when none of its ranks can set clocks, or None.
        away_since_s: [s] since when ranks are away whose samples it lacks, or None.
        is_paused: It waits for them at full clocks.
    """

    ordered: SweepBegun
    missing_mhz: dict[int, set[int]]
    num_missing: dict[int, int] = field(init=False)
    attempts: int
    over_since_s: float | None = None
    is_to_judge: bool = False
    unable_since_s: float | None = None
    away_since_s: float | None = None
    is_paused: bool = False

    def __post_init__(self) -> None:
        self.num_missing = Counter(clock for clocks in self.missing_mhz.values() for clock in clocks)

    def take(self, rank: int, clock_mhz: int) -> None:
        """A rank's samples at a clock have come."""
        missing_mhz = self.missing_mhz.get(rank, set())
        if clock_mhz not in missing_mhz:
            return
        missing_mhz.discard(clock_mhz)
        if not missing_mhz:
            del self.missing_mhz[rank]
        self.num_missing[clock_mhz] -= 1
        self.is_to_judge |= self.num_missing[clock_mhz] == 0

    def excuse(self, rank: int) -> None:
        """Nothing more is awaited from a rank."""
        for clock_mhz in tuple(self.missing_mhz.get(rank, ())):
            self.take(rank, clock_mhz)


@dataclass(frozen=True, slots=True)
class TakenSamples:
    """Samples of a rank at a clock of a sweep; 0 for those of a saved profile."""

    clock_mhz: int
    samples: ProfileSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The newest table. ``tables`` are encoded for the wire, one per pp_rank; ``is_first`` as of ``TableMade``."""

    revision: int
    summary: FrontierSummary
    tables: tuple[bytes, ...]
    profile_csv: bytes
    is_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRequest:
    """A plan that is, or was, asked for one pipeline alone.

    Attributes:
        request_id: None once it was answered.
        base_revision: Of the table of all pipelines then.
        slow_ranks: Which it is for.
        asked_at_s: [s] when.
    """

    request_id: int | None
    base_revision: int
    slow_ranks: tuple[SlowRank, ...]
    asked_at_s: float


@dataclass(slots=True, kw_only=True)
class Job:
    """Everything that is known of a job; ``job_status`` says what to show of it.

    Attributes:
        spec: What its first rank said; None before there was one.
        reason: The sentence that led to ``phase``.
        fingerprints: By global rank, what the profile, the plan and the baseline are of.
        ranks: By global rank, those that have attached since the run began or the planner started.
        places: By global rank, where it stands; also those that only stored samples tell of.
        rank_at: Global rank by place.
        rank_of_stream: Global rank by stream, of those attached.
        schedule_asked: The stream that was asked for the schedule's text.
        stale_rank: The rank that came back with another schedule.
        iteration: Newest that any rank has begun, as far as reported.
        iteration_at_s: [s] when that was learnt.
        unfinished: Iterations that some pipeline has not reported, by number.
        began_at_iteration: The first iteration that was heard of in this run; None before there is one.
        began_at_s: [s] when that was.
        released_number: The newest whole iteration that ran without a plan.
        baseline_iterations: What the baseline is made of, once the job is warm.
        baseline: Of this run.
        probed: Iterations of probes, at full clocks.
        enforced: Iterations under the switch in force.
        sweep_id: Highest that was ever given.
        sweeps: By id, all whose samples are still of interest.
        ended_series: Those that no sample is awaited from.
        samples: By series, by rank, in the order of arrival.
        acked_samples: By (rank, incarnation), the highest sequence accepted.
        drifts: By rank whose instructions' times have left the profile, by what share at most.
        planning: Request that is being planned.
        planning_attempts: Requests since the last plan.
        is_unplannable: Whether the ranks as they are have measured nothing that a plan can be made of.
        plan_again_at_s: [s] when to ask the planning worker again.
        refine_at_s: [s] when to ask it for the whole frontier behind a first plan; infinite where it cannot be made.
        held_revision, held_switch_revision: Highest that any agent has said to hold, or that were ever given.
        straggler_plans: By dp_rank, the newest made for a pipeline with slow ranks; of use while it has them.
        own_requests: By dp_rank, the newest asked for.
        given_revision: Highest table revision that was ever given to a request.
        watch: Who is slow, by what ranks report; None before there is a plan and every rank's place is known.
        verdicts: Who is held to be slow.
        keeps_switch: The switch was decided before the planner was restarted, by evidence that is lost: it stays until
            there is as much again.
        guard: Whether the plan keeps the promise, and what has come of it.
        saving: What plans have saved in this run, by measurement.
        self_check: What the profile predicts of iterations under the table in force, beside what they take.
        stored_saved_j: [J] of that, what is durable; stored_saved_at_s: [s] when it was stored.
        num_refused_reports: Reports that were not taken.
        history: What has happened, for those who watch.
        now_s: [s] of the latest event.
        num_messages: Messages of its ranks.
        num_changes: Counts whatever a watcher would want to see at once.
    """

    job_id: str
    policy: Policy
    spec: JobRegistered | None = None
    schedule_text: str = ""
    phase: Phase = Phase.REGISTERING
    reason: str = "no rank has attached yet"

    fingerprints: dict[int, FingerprintKnown] = field(default_factory=dict)
    ranks: dict[int, RankState] = field(default_factory=dict)
    places: dict[int, RankCoords] = field(default_factory=dict)
    rank_at: dict[RankCoords, int] = field(default_factory=dict)
    rank_of_stream: dict[int, int] = field(default_factory=dict)
    pipelines: list[Pipeline] = field(default_factory=list)
    schedule_asked: int | None = None
    stale_rank: int | None = None

    iteration: int = NO_ITERATION
    iteration_at_s: float = 0.0
    recent_times_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_RECENT))
    unfinished: dict[int, Iteration] = field(default_factory=dict)
    began_at_iteration: int | None = None
    began_at_s: float = 0.0
    num_warm: int = 0
    released_number: int = NO_ITERATION
    baseline_iterations: list[Iteration] = field(default_factory=list)
    baseline: BaselineMeasured | None = None
    probed: deque[Iteration] = field(default_factory=lambda: deque(maxlen=NUM_PROBED))
    enforced: deque[Iteration] = field(default_factory=lambda: deque(maxlen=NUM_ENFORCED))

    sweep_id: int = 0
    sweep: ActiveSweep | None = None
    sweeps: dict[int, SweepBegun] = field(default_factory=dict)
    ended_series: set[int] = field(default_factory=set)
    samples: dict[int, dict[int, list[TakenSamples]]] = field(default_factory=dict)
    acked_samples: dict[tuple[int, int], int] = field(default_factory=dict)
    drifts: dict[int, float] = field(default_factory=dict)
    drift_since_s: float = 0.0
    reprofiled_at_s: float | None = None

    request_id: int = 0
    planning: int | None = None
    planning_attempts: int = 0
    is_unplannable: bool = False
    plan_again_at_s: float | None = None
    refine_at_s: float = 0.0
    plan: JobPlan | None = None
    held_revision: int = 0
    straggler_plans: dict[int, OwnTableMade] = field(default_factory=dict)
    own_requests: dict[int, OwnRequest] = field(default_factory=dict)
    given_revision: int = 0

    watch: DetectorAdapter | None = None
    verdicts: tuple[Verdict, ...] = ()
    keeps_switch: bool = False
    guard: GuardWatch = field(default_factory=GuardWatch)
    saving: Saving = field(default_factory=Saving)
    self_check: SelfCheckWatch = field(default_factory=SelfCheckWatch)
    stored_saved_j: float = 0.0
    stored_saved_at_s: float = 0.0
    num_refused_reports: int = 0
    history: JobHistory = field(default_factory=JobHistory)
    now_s: float = 0.0

    switch: SwitchDecided | None = None
    held_switch_revision: int = 0
    chosen_target: TargetChosen | None = None
    stragglers: dict[str, StragglerKnown] = field(default_factory=dict)

    gone_since_s: float | None = None
    num_messages: int = 0
    num_changes: int = 0

    @property
    def ranks_per_pipeline(self) -> int:
        """GPUs of one data-parallel replica."""
        return self.spec.pp_size * self.spec.tp_size if self.spec else 0

    @property
    def num_ranks(self) -> int:
        """Ranks of the job, attached or not."""
        return self.ranks_per_pipeline * self.spec.dp_size if self.spec else 0

    @property
    def is_swept(self) -> bool:
        """Whether a sweep sets clocks; one that an earlier run began waits for this run's baseline."""
        return self.sweep is not None and self.phase not in (Phase.REGISTERING, Phase.WARMING_UP)

    @property
    def num_attached(self) -> int:
        """Ranks that are attached."""
        return len(self.rank_of_stream)

    @property
    def num_missed_clocks(self) -> int:
        """Clocks that GPUs granted and did not reach, since the agents' start. Any thread may ask."""
        return sum(state.missed_clocks for state in list(self.ranks.values()))

    @property
    def num_lost_boundaries(self) -> int:
        """Boundaries that agents were too late to read, since their start. Any thread may ask."""
        return sum(state.lost_boundaries for state in list(self.ranks.values()))

    @property
    def target(self) -> Target:
        """The job's target."""
        return self.chosen_target.target if self.chosen_target else T_MIN

    @property
    def awaits_frontier(self) -> bool:
        """Whether the plan is a first one, and the whole frontier is to come."""
        return self.plan is not None and self.plan.is_first and self.refine_at_s < math.inf

    @property
    def is_refining(self) -> bool:
        """Whether that frontier is being planned, beside the plan in force."""
        return self.awaits_frontier and self.planning is not None and self.phase is not Phase.PLANNING

    def point(self, dp_rank: int) -> int:
        """Row of the table that a pipeline follows, or ``NO_POINT``."""
        return self.switch.points[dp_rank] if self.switch else NO_POINT

    def straggler_plan_in_force(self, dp_rank: int) -> OwnTableMade | None:
        """The plan of its own that a pipeline follows, if it does, instead of that of all pipelines."""
        own = self.straggler_plans.get(dp_rank)
        is_followed = own is not None and self.switch is not None and self.switch.revision_of(dp_rank) == own.revision
        return own if is_followed else None

    def enter(self, phase: Phase, reason: str) -> None:
        """Change the phase, or the reason of being in it."""
        if (self.phase, self.reason) != (phase, reason):
            self.phase, self.reason = phase, reason
            self.num_changes += 1
