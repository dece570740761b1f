"""Facts that outlive the planner process. A job is rebuilt from its own, in the order in which they were stored.

A fact replaces the earlier one with the same ``key``; those with different keys are kept side by side. Budgets, load
targets and price policies are facts of the planner itself, and stored in the name of no job.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar
from urllib.parse import quote

from perseus_dist.fingerprint import Fingerprint
from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.measured_transfers import Snapshot
from perseus_dist.planner.job.saving.kept import KeptSaving
from perseus_dist.planner.shapes.stage import StageWork
from perseus_dist.planning.frontier.slow_rank import SlowRank

SAVED_PROFILE = 0
"""Series, and sweep id, of a saved profile."""

OF_STAGES = -1
"""Series of what was measured of stages in earlier shapes of the job; its facts are numbered by ``rank``."""

CARRIED_ROUND = 0
"""Round of a series that was put together from those; rounds of sweeps are counted from 1."""


class _Keyed:
    """A fact; ``KEY`` is a format string of its fields, ``KIND`` its name in databases if not the class's."""

    __slots__ = ()
    KEY: ClassVar[str]
    KIND: ClassVar[str] = ""

    @classmethod
    def kind(cls) -> str:
        """The name of this class's facts in databases."""
        return cls.KIND or cls.__name__

    @property
    def key(self) -> str:
        """A later fact of the same key replaces this one."""
        return self.KEY.format(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRegistered(_Keyed):
    """The job exists. Written by the first rank of each run.

    Attributes:
        token_sha256: Whom the job belongs to: the hexadecimal hash of a token, or ``uid:1000``; empty for anybody.
        held_revision, held_switch_revision, last_sweep_id: What earlier runs of the job have used up.
        run_id: Of the run, as its ranks say it.
        keeps_profile: The profile was measured while the job had another schedule.
        is_anew: Nothing of earlier runs is left, so that ranks which attach later are not compared with them.
        granularity: As of ``messages.terms.Rank``, the same for all ranks.
    """

    schedule_digest: str
    pp_size: int
    dp_size: int
    tp_size: int
    token_sha256: str
    held_revision: int = 0
    held_switch_revision: int = 0
    last_sweep_id: int = 0
    run_id: str = ""
    keeps_profile: bool = False
    is_anew: bool = False
    granularity: str = "instruction"

    KEY = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintKnown(_Keyed):
    """A rank's work, as far as it was ever known: the stored profile, plan and baseline are of this work.

    Attributes:
        run_id: Of the run that it was last compared in.
    """

    rank: int
    run_id: str
    fingerprint: Fingerprint

    KEY = "fingerprint/{0.rank}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleReceived(_Keyed):
    """The schedule's text, once the planner has checked it."""

    text: str

    KEY = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineMeasured(_Keyed):
    """Iterations of the whole job at full clocks in the present run, as ``MeasuredIterations``.

    Attributes:
        is_probed: They are of probes, not of the run's begin.
    """

    num_iterations: int
    time_s: float
    time_spread_s: float
    energy_j: float
    energy_spread_j: float
    is_probed: bool = False

    KEY = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingCounted(_Keyed):
    """[J] saved in the present run, by measurement, and by how much that may be wrong; stored from time to time.

    Attributes:
        kept: What may be counted anew as more is measured; None in what earlier versions stored.
    """

    saved_j: float
    doubt_j: float = 0.0
    kept: KeptSaving | None = None

    KEY = "saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBegun(_Keyed):
    """A sweep is ordered.

    Attributes:
        series: Id of the first sweep of several that complete each other.
        clocks_mhz: [MHz] all that some rank measures at, descending.
        ranks: Ascending, who measures at all these clocks, or at those of ``clocks_of_ranks``.
        first_only: Ascending, who measures at the first alone, mostly because it cannot set clocks.
        is_profile: Whether its samples make a profile; else blocking power and latency alone are wanted of them.
        num_round: Of the series, from 1: each chooses its clocks by what the rounds before have measured. Or
            ``CARRIED_ROUND``.
        clocks_of_ranks: (num_ranks) each rank's clock [MHz] in each step, descending; empty where all measure at all.
    """

    sweep_id: int
    series: int
    first_iteration: int
    iterations_per_clock: int
    clocks_mhz: tuple[int, ...]
    ranks: tuple[int, ...]
    first_only: tuple[int, ...]
    is_profile: bool
    num_round: int = 1
    clocks_of_ranks: tuple[tuple[int, ...], ...] = ()

    KEY = "sweep/{0.sweep_id}/"

    @property
    def num_steps(self) -> int:
        """Each holds a clock for ``iterations_per_clock``; ranks may be at different ones."""
        return max(map(len, self.clocks_of_ranks), default=len(self.clocks_mhz))

    @property
    def end_iteration(self) -> int:
        """The first one behind it."""
        return self.first_iteration + self.iterations_per_clock * self.num_steps

    def clocks_of(self, rank: int) -> tuple[int, ...]:
        """A rank's clock [MHz] in each step; () where it has no part. Found quickly: each rank's samples ask."""
        index = bisect_left(self.ranks, rank)
        if self.ranks[index : index + 1] == (rank,):
            return self.clocks_of_ranks[index] if self.clocks_of_ranks else self.clocks_mhz
        index = bisect_left(self.first_only, rank)
        return self.clocks_mhz[:1] if self.first_only[index : index + 1] == (rank,) else ()

    def clocks_by_rank(self) -> dict[int, tuple[int, ...]]:
        """Each rank's clock [MHz] in each step."""
        found = dict.fromkeys(self.first_only, self.clocks_mhz[:1])
        if not self.clocks_of_ranks:
            return found | dict.fromkeys(self.ranks, self.clocks_mhz)
        return found | dict(zip(self.ranks, self.clocks_of_ranks, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded(_Keyed):
    """All of the series that will ever come has come."""

    series: int

    KEY = "ended/{0.series}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesReceived(_Keyed):
    """Measurements of a rank, and where they belong.

    Attributes:
        work: Of series ``OF_STAGES``, the stage that they are of.
    """

    rank: int
    pp_rank: int
    dp_rank: int
    tp_rank: int
    incarnation: int
    series: int
    clock_mhz: int
    samples: ProfileSamples
    work: StageWork | None = None

    KEY = "samples/{0.series}/{0.rank}/{0.incarnation}/{0.samples.sequence}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMade(_Keyed):
    """A frontier has been planned, or the first plans of one.

    Attributes:
        revision: Of its tables; never goes back.
        summary: What points are chosen by.
        tables: (pp_size) encoded for the wire.
        frontier_npz: As ``planning.frontier.frontier_file`` saves it.
        profile_csv: The profile behind it.
        is_first: Whether it is a first plan, which the whole frontier is to replace.
        snapshots, extra_s: As of the request.
    """

    revision: int
    summary: FrontierSummary
    tables: tuple[bytes, ...]
    frontier_npz: bytes
    profile_csv: bytes
    is_first: bool = False
    snapshots: tuple[Snapshot, ...] = ()
    extra_s: float = 0.0

    KEY = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAhead(_Keyed):
    """A frontier has been planned for a shape that the job does not have yet; its tables have no revision of the job's.

    Attributes:
        digest: Of the request that it answers: all that it depends on.
        summary, tables, frontier_npz, profile_csv, is_first: As of ``TableMade``.
    """

    digest: str
    summary: FrontierSummary
    tables: tuple[bytes, ...]
    frontier_npz: bytes
    profile_csv: bytes
    is_first: bool

    KEY = "ahead/{0.digest}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerPlanReady(_Keyed):
    """A frontier of one pipeline alone has been planned, which has slow ranks.

    Attributes:
        dp_rank: The pipeline.
        revision: Of its tables, which count along with those of all pipelines.
        base_revision: Of the table of all pipelines beside which it is held.
        slow_ranks: Which, and how slow.
        summary: What points are chosen by.
        tables: (pp_size) encoded for the wire.
    """

    dp_rank: int
    revision: int
    base_revision: int
    slow_ranks: tuple[SlowRank, ...]
    summary: FrontierSummary
    tables: tuple[bytes, ...]

    KEY = "own/{0.dp_rank}/"
    KIND = "OwnTableMade"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchDecided(_Keyed):
    """Each pipeline's point; ``switch_revision`` never goes back.

    Attributes:
        points: (dp_size) rows of the table, or ``NO_POINT``.
        own_revisions: (dp_size) of the pipeline's own table; 0 for that of all. Empty where no pipeline has one.
        t_prime_s: [s] what pipelines wait for; 0 where none waits.
    """

    table_revision: int
    switch_revision: int
    effective_iteration: int
    points: tuple[int, ...]
    reason: str
    own_revisions: tuple[int, ...] = ()
    t_prime_s: float = 0.0

    KEY = "switch"

    def revision_of(self, dp_rank: int) -> int:
        """Of the table that a pipeline follows."""
        return (self.own_revisions[dp_rank] if self.own_revisions else 0) or self.table_revision

    @property
    def directives(self) -> Mapping[int, tuple[int, int]]:
        """By dp_rank, the table revision and the point that its ranks are to follow."""
        return _directives(self)


@lru_cache(maxsize=8)
def _directives(decided: SwitchDecided) -> Mapping[int, tuple[int, int]]:
    """Kept, because each iteration of a job is compared with those in force; of a thousand pipelines they take long."""
    return {dp_rank: (decided.revision_of(dp_rank), point) for dp_rank, point in enumerate(decided.points)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChosen(_Keyed):
    """The job's target, and whether an operator set it, who overrules the job's own."""

    target: Target
    by_operator: bool

    KEY = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceChosen(_Keyed):
    """A policy makes the job take this many times an iteration at all-maximum clocks, or its target's if longer.

    Attributes:
        slowdown: Above 1, or below where the target's plan is faster than all-maximum clocks by the profile.
        budget: Name of the power budget; empty where it is a price policy.
        price: Name of the price policy; empty where it is a power budget.
    """

    slowdown: float
    budget: str
    price: str = ""

    KEY = "pace"


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerKnown(_Keyed):
    """A pipeline's iterations last ``degree`` times the time at all-maximum clocks."""

    straggler_id: str
    degree: float
    dp_rank: int

    KEY = "straggler/{0.quoted_id}/"

    @property
    def quoted_id(self) -> str:
        """The straggler's name with its slashes quoted, for keys."""
        return quote(self.straggler_id, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded(_Keyed):
    """The job is done, and why. Dropped when a rank attaches again."""

    reason: str

    KEY = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSet(_Keyed):
    """A group of jobs shares a power budget.

    Attributes:
        name: Of the budget.
        watts: That the group may draw; 0 for no limit but load targets.
        jobs: Patterns of job names with ``*`` and ``?``; empty for all jobs.
        objective: As of ``policies.power_budget.Objective``.
        guard_band: Share of the cap to stay below it, for peaks.
        weights: Patterns, each with the weight of the jobs that it covers; the first that does counts, else 1.
        max_slowdowns: Likewise, times an iteration at full clocks that one of them may take at most; else no limit.
    """

    name: str
    watts: float
    jobs: tuple[str, ...] = ()
    objective: str = "total"
    guard_band: float = 0.0
    weights: tuple[tuple[str, float], ...] = ()
    max_slowdowns: tuple[tuple[str, float], ...] = ()

    KEY = "budget/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTargetSet(_Keyed):
    """Between two Unix times a budget's group may draw no more than this.

    Attributes:
        name: Of the load target, among those of the budget.
        budget: The budget's name.
        watts: That the group may draw.
        best_effort: Whether it was accepted without being known to be possible.
    """

    name: str
    budget: str
    start_s: float
    end_s: float
    watts: float
    best_effort: bool

    KEY = "load/{0.budget}/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePolicySet(_Keyed):
    """Jobs follow a price, or carbon, on the way to a number of iterations that each is to do by a deadline.

    Attributes:
        name: Of the policy.
        jobs: Names of jobs.
        signal: Name of the signal, among the planner's.
        deadline_s: Unix time.
        iterations: That each job has to do from when the policy was set.
    """

    name: str
    jobs: tuple[str, ...]
    signal: str
    deadline_s: float
    iterations: int

    KEY = "price/{0.name}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceProgress(_Keyed):
    """Iterations that a job has done under a price policy.

    Attributes:
        policy: Its name.
        done: Over all its runs since the policy was set.
        run_id: The run that was counted last.
        iteration: Of that run, up to where they are counted; -1 where that was not known yet.
    """

    policy: str
    job_id: str
    done: int
    run_id: str
    iteration: int

    KEY = "price/{0.policy}/{0.job_id}/"


Fact = (
    JobRegistered
    | FingerprintKnown
    | ScheduleReceived
    | BaselineMeasured
    | SavingCounted
    | SweepBegun
    | SweepEnded
    | SamplesReceived
    | TableMade
    | TableAhead
    | StragglerPlanReady
    | SwitchDecided
    | TargetChosen
    | PaceChosen
    | StragglerKnown
    | JobEnded
    | BudgetSet
    | LoadTargetSet
    | PricePolicySet
    | PriceProgress
)
