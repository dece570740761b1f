"""A job as the planner knows it: a mutable value that one actor owns and ``lifecycle.step`` alone changes.

Mutable, because a thousand ranks report every second: copying what they share at each message would cost more than all
decisions together. Nothing in here reads a clock or does I/O, so that the same events give the same job and effects.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from perseus_dist.messages.terms import NO_POINT, T_MIN, Target
from perseus_dist.planner.job.facts.decisions import PaceChosen, StragglerKnown, SwitchDecided, TargetChosen
from perseus_dist.planner.job.facts.plans import StragglerPlanReady
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job_history import JobHistory
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.state.detection import Detection
from perseus_dist.planner.job.state.enforcement import Enforcement
from perseus_dist.planner.job.state.measured import Measured
from perseus_dist.planner.job.state.membership import Membership
from perseus_dist.planner.job.state.planning import JobPlan, Planning, Revisions
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.job.state.progress import Progress
from perseus_dist.planning.schedule.granularity import Granularity


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
class Job:
    """Everything that is known of a job; ``job_status`` says what to show of it.

    Its parts are cut by how long they hold: ``lifecycle.reset`` says which of them begin anew together.

    Attributes:
        spec: What its first rank said; None before there was one.
        reason: The sentence that led to ``phase``.
        chosen_pace: What a power budget or a price policy asks for, or None.
        holds_probes: Whether a power budget leaves no room for probes at full clocks now.
        plan: The newest table, or None.
        stragglers: By name, those that operators reported.
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
    chosen_target: TargetChosen | None = None
    chosen_pace: PaceChosen | None = None
    holds_probes: bool = False
    plan: JobPlan | None = None
    stragglers: dict[str, StragglerKnown] = field(default_factory=dict)

    members: Membership = field(default_factory=Membership)
    progress: Progress = field(default_factory=Progress)
    measured: Measured = field(default_factory=Measured)
    profiling: Profiling = field(default_factory=Profiling)
    planning: Planning = field(default_factory=Planning)
    revisions: Revisions = field(default_factory=Revisions)
    enforcement: Enforcement = field(default_factory=Enforcement)
    detection: Detection = field(default_factory=Detection)

    num_refused_reports: int = 0
    history: JobHistory = field(default_factory=JobHistory)
    now_s: float = 0.0
    num_messages: int = 0
    num_changes: int = 0

    @property
    def switch(self) -> SwitchDecided | None:
        """The switch in force."""
        return self.enforcement.switch

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
        is_waiting = self.phase in (Phase.REGISTERING, Phase.WARMING_UP) or not self.sees_instructions
        return self.profiling.sweep is not None and not is_waiting

    @property
    def is_released(self) -> bool:
        """Whether the plan was given up, and is neither tried again nor replaced yet."""
        is_replacing = self.phase in (Phase.REPROFILING, Phase.PLANNING)
        is_without = self.switch is not None and NO_POINT in self.switch.points
        return self.phase is Phase.RELEASED or (is_replacing and is_without)

    @property
    def sees_instructions(self) -> bool:
        """Whether ranks report their instructions, so that these can be measured and have clocks of their own."""
        return self.spec is None or self.spec.granularity == Granularity.INSTRUCTION

    @property
    def num_attached(self) -> int:
        """Ranks that are attached."""
        return len(self.members.rank_of_stream)

    @property
    def num_missed_clocks(self) -> int:
        """Clocks that GPUs granted and did not reach, since the agents' start. Any thread may ask."""
        return sum(state.missed_clocks for state in list(self.members.ranks.values()))

    @property
    def num_lost_boundaries(self) -> int:
        """Boundaries that agents were too late to read, since their start. Any thread may ask."""
        return sum(state.lost_boundaries for state in list(self.members.ranks.values()))

    @property
    def target(self) -> Target:
        """Iteration time that the job is to keep: the one chosen for it, or else the fastest."""
        return self.chosen_target.target if self.chosen_target else T_MIN

    @property
    def pace(self) -> float:
        """Times an iteration at all-maximum clocks that a policy has one take at least; 0 without one."""
        return self.chosen_pace.slowdown if self.chosen_pace else 0.0

    @property
    def awaits_frontier(self) -> bool:
        """Whether the plan is a first one, and the whole frontier is to come."""
        return self.plan is not None and self.plan.is_first and self.planning.refine_at_s < math.inf

    @property
    def is_refining(self) -> bool:
        """Whether that frontier is being planned, beside the plan in force."""
        return self.awaits_frontier and self.planning.pending is not None and self.phase is not Phase.PLANNING

    def point(self, dp_rank: int) -> int:
        """Row of the table that a pipeline follows, or ``NO_POINT``."""
        return self.switch.points[dp_rank] if self.switch else NO_POINT

    def straggler_plan_in_force(self, dp_rank: int) -> StragglerPlanReady | None:
        """The plan of its own that a pipeline follows, if it does, instead of that of all pipelines."""
        own = self.detection.straggler_plans.get(dp_rank)
        is_followed = own is not None and self.switch is not None and self.switch.revision_of(dp_rank) == own.revision
        return own if is_followed else None

    def enter(self, phase: Phase, reason: str) -> None:
        """Change the phase, or the reason of being in it."""
        if (self.phase, self.reason) != (phase, reason):
            self.phase, self.reason = phase, reason
            self.num_changes += 1
