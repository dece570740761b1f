"""Requests to the planning worker and its answers: plain values that travel between two processes."""

import hashlib
from dataclasses import dataclass, replace

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.measured_transfers import Snapshot, Transfers
from perseus_dist.planning.frontier.slow_rank import SlowRank
from perseus_dist.planning.schedule.granularity import Granularity


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """Measurements of one rank.

    Attributes:
        pp_rank, tp_rank: Where it stands; ranks that differ in dp_rank alone measure the same thing.
        samples: Rows with ``stage`` -1 are of the rank's own chunks, others name their stage.
    """

    pp_rank: int
    tp_rank: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRequest:
    """All that a plan is made of.

    Attributes:
        request_id: Of its job's requests; the answer goes to the job under it.
        job_id: For messages.
        revision: Of the table that comes of it.
        schedule_text: One that ``parse_schedule`` accepts.
        contributions: The profile, rank by rank.
        blocking_power_w: (pp_size) [W] of ONE GPU of each pp_rank.
        tp_size: GPUs that share each instruction.
        switch_latency_s: [s] that a clock change takes where contributions do not say.
        deadlines_s: [s] times at which plans of their own are wanted.
        slowdowns: The same, as multiples of the time at all-maximum clocks.
        slow_ranks: Ranks of one pipeline that a plan of its own is wanted for; empty for the plan of all.
        slightly_slow: Ranks of some pipelines that are slower by less than others wait for: plans are on time with each
            of them too.
        base_revision: Of the plan of all then, beside which the other one is held.
        is_first: Whether plans for T_min and the times asked for will do at first, within seconds at any size.
        whole_up_to: Instructions of a pipeline up to which the whole frontier is planned all the same.
        snapshots: Of transfers as they may be, the likeliest first; plans are on time with all of them.
        transfer_spreads: How much longer than their least nine in ten transfers of a link take at most: of intervals.
        extra_s: [s] that an iteration takes beside instructions and transfers, as the self-check has learnt.
        full_s: [s] of an iteration at full clocks, as measured, where the next one may begin before all ranks have
            ended it; 0 where that is not known, or ranks wait for one another.
        menu_mhz: [MHz] descending, clocks that plans may ask for although they lie between those that were measured.
        granularity: What has a clock of its own.
        least_margin: Margin that plans keep at least for noise, as iterations have shown it to be needed.
        seen_noise: Standard deviation of an iteration's time as a share, where that is to correct what the profile says
            of noise; 0 where it is not.
        is_ahead: Whether no job waits for it: the job has another shape yet, and may never have this one.
    """

    request_id: int
    job_id: str
    revision: int
    schedule_text: str
    contributions: tuple[Contribution, ...]
    blocking_power_w: tuple[float, ...]
    tp_size: int
    switch_latency_s: float
    deadlines_s: tuple[float, ...] = ()
    slowdowns: tuple[float, ...] = ()
    slow_ranks: tuple[SlowRank, ...] = ()
    slightly_slow: tuple[SlowRank, ...] = ()
    base_revision: int = 0
    is_first: bool = False
    whole_up_to: int = 0
    snapshots: tuple[Snapshot, ...] = ()
    transfer_spreads: Transfers = ()
    extra_s: float = 0.0
    full_s: float = 0.0
    menu_mhz: tuple[int, ...] = ()
    granularity: Granularity = Granularity.INSTRUCTION
    least_margin: float = 0.0
    seen_noise: float = 0.0
    is_ahead: bool = False

    @property
    def is_urgent(self) -> bool:
        """Whether a job is waiting without a plan that fits, and not under one that is to become better."""
        return self.is_first or bool(self.slow_ranks)

    @property
    def content(self) -> "PlanningRequest":
        """The part that frontier, profile and clocks follow from: without names and numbers."""
        return replace(self, request_id=0, job_id="", revision=0, base_revision=0, is_ahead=False)

    @property
    def digest(self) -> str:
        """Hexadecimal, of all of that: requests of the same digest have the same plans."""
        return hashlib.sha256(repr(self.content).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A frontier, ready to be stored and sent.

    Attributes:
        request_id: What it answers.
        revision: Of the table.
        summary: What points are chosen by.
        tables: (pp_size) the ``PlannerMessage`` with the ``PlanTable`` of each pp_rank, encoded for the wire.
        frontier_npz: The frontier as ``planning.frontier.frontier_file`` saves it.
        profile_csv: The profile behind it, as ``planning.profile.profile_csv`` writes it.
        is_first: Whether it is a first plan, and no whole frontier.
    """

    request_id: int
    revision: int
    summary: FrontierSummary
    tables: tuple[bytes, ...]
    frontier_npz: bytes
    profile_csv: bytes
    is_first: bool = False

    def made_ahead(self, digest: str) -> TableAhead:
        """The same plans without numbers, for any request of the digest that this answers."""
        return TableAhead(
            digest=digest,
            summary=self.summary,
            tables=self.tables,
            frontier_npz=self.frontier_npz,
            profile_csv=self.profile_csv,
            is_first=self.is_first,
        )


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """[s] until the worker's next ``PlanResult``, as far as is known by how much of its work is done."""

    left_s: float
