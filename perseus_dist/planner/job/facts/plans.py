"""Facts of planning: the tables that frontiers gave, for the job as it is, for other shapes, and beside a straggler."""

from dataclasses import dataclass

from perseus_dist.planner.job.facts.keyed import KeyedFact
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.measured_transfers import Snapshot
from perseus_dist.planning.frontier.slow_rank import SlowRank


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMade(KeyedFact):
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
class TableAhead(KeyedFact):
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
class StragglerPlanReady(KeyedFact):
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
