"""Tables of a job: the newest, the one that is being made, and numbers that are used up."""

import math
from dataclasses import dataclass, field

from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.measured_transfers import Snapshot
from perseus_dist.planner.shapes.likely_shapes import Shape
from perseus_dist.planner.shapes.stage import MeasuredStage
from perseus_dist.planning.frontier.slow_rank import SlowRank


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The newest table. ``tables`` are encoded for the wire, one per pp_rank; the others as of ``TableMade``."""

    revision: int
    summary: FrontierSummary
    tables: tuple[bytes, ...]
    profile_csv: bytes
    is_first: bool = False
    snapshots: tuple[Snapshot, ...] = ()
    extra_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class PlansAhead:
    """Plans for shapes that the job may come back in: as long as the job lives, whatever shape it has.

    Attributes:
        made: By digest of their requests, the oldest first.
        wanted: Shapes that are still to be planned for, the likeliest first, beside the table of ``looked_at``.
        stages: Measured then, which they are planned with.
        pending: Number and digest of the request that is being planned, or None.
        looked_at: Revision of that table, and the target then; None before there was any.
        unplannable: Digests of requests that cannot be planned.
        left: The shape that the job had before this one, or None where it had none that is known.
    """

    made: dict[str, TableAhead] = field(default_factory=dict)
    wanted: list[Shape] = field(default_factory=list)
    stages: tuple[MeasuredStage, ...] = ()
    pending: tuple[int, str] | None = None
    looked_at: tuple[int, Target] | None = None
    unplannable: set[str] = field(default_factory=set)
    left: Shape | None = None


@dataclass(slots=True, kw_only=True)
class Planning:
    """Requests to the planning worker.

    Attributes:
        request_id: Highest that was ever given.
        pending: Request that is being planned, or None.
        attempts: Requests since the last plan.
        expected_at_s: [s] when the pending request may be planned, or None where that is not known.
        again_at_s: [s] when to ask the worker again, or None.
        refine_at_s: [s] when to ask it for the whole frontier behind a first plan; infinite where it cannot be made.
        snapshots: Of the newest request.
        is_restarted: Whether the pending request replaced one that did not know the newest transfers.
        transfers_at_s: [s] when the newest plan of all pipelines was asked for.
        moved_at_s: [s] when a plan was last asked for because of transfers that the plan in force did not know.
        extra_s: [s] that iterations take beside what the profile says, as learnt so far.
        full_s: [s] of an iteration at full clocks, of the newest request; 0 where it did not say.
        learnt_at_s: [s] when ``extra_s`` was last changed.
        num_lessons: How often ``extra_s`` was changed.
        slightly_slow: Ranks that plans have been late with, although others need not wait for them.
        keeps_to_ranks: Where instructions cannot be seen, plans by phase were late: plans are by rank.
        margin: That plans keep at least for noise, as iterations have shown it to be needed.
        seen_noise: Standard deviation of an iteration's time then, as a share; 0 where the profile tells of noise.
        late_then: Share by which iterations were late when ``margin`` was last raised; 0 where it was not.
        num_slack_changes: How often ``margin`` was changed.
        ahead: Plans for other shapes.
    """

    request_id: int = 0
    pending: int | None = None
    attempts: int = 0
    expected_at_s: float | None = None
    again_at_s: float | None = None
    refine_at_s: float = 0.0
    snapshots: tuple[Snapshot, ...] = ()
    is_restarted: bool = False
    transfers_at_s: float = -math.inf
    moved_at_s: float = -math.inf
    extra_s: float = 0.0
    full_s: float = 0.0
    learnt_at_s: float = -math.inf
    num_lessons: int = 0
    slightly_slow: tuple[SlowRank, ...] = ()
    keeps_to_ranks: bool = False
    margin: float = 0.0
    seen_noise: float = 0.0
    late_then: float = 0.0
    num_slack_changes: int = 0
    ahead: PlansAhead = field(default_factory=PlansAhead)

    def begin_anew(self) -> None:
        """No plan has been asked for yet."""
        self.attempts, self.again_at_s, self.refine_at_s = 0, None, 0.0
        self.expected_at_s = None
        self.snapshots, self.slightly_slow, self.is_restarted = (), (), False
        self.transfers_at_s = self.moved_at_s = self.learnt_at_s = -math.inf
        self.extra_s, self.full_s, self.num_lessons = 0.0, 0.0, 0
        self.keeps_to_ranks = False
        self.margin = self.seen_noise = self.late_then = 0.0
        self.num_slack_changes = 0

    def keep_slack(self, summary: FrontierSummary) -> None:
        """Plan on with the slack that a plan was asked for with."""
        self.margin, self.seen_noise = summary.least_margin, summary.noise


@dataclass(slots=True, kw_only=True)
class Revisions:
    """Numbers that are used up, whatever begins anew.

    Attributes:
        held_table, held_switch: Highest that any agent has said to hold, or that were ever given.
        given_table: Highest table revision that was ever given to a request.
    """

    held_table: int = 0
    given_table: int = 0
    held_switch: int = 0
