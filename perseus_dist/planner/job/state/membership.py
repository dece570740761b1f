"""Ranks of a job: as long as the job lives, whatever runs come and go."""

from dataclasses import dataclass, field

from perseus_dist.messages.finding import Finding
from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.messages.terms import NO_ITERATION, Gpu, Rank, Target
from perseus_dist.planner.job.facts.runs import FingerprintKnown
from perseus_dist.straggler.layout import RankCoords


@dataclass(slots=True, kw_only=True)
class RankState:
    """One rank: its latest ``Attach``, and what came after it.

    Attributes:
        stream: The one it is attached by, or None.
        run_id, host, findings, follows_moments: As it says.
        target: That it wants of its run; None where it says none.
        control: As its latest telemetry says.
        said_goodbye: Its trainer has ended.
        telemetry_sequence: Of its latest telemetry; 0 before the first.
        has_reported: It has sent telemetry since it attached, and before that all samples that it had kept.
        lost_messages: Telemetry that never came.
        gpu_sample: Of its latest telemetry; gpu_reading: the latest one that says something of the clock.
        switch_seen: Highest switch revision that it has confirmed.
        iteration: Newest that it has begun.
        is_left_over: It was of another run than the job's as it attached: a trainer that is still to end, mostly.
    """

    rank: Rank
    gpu: Gpu
    incarnation: int
    stream: int | None
    has_profile: bool
    version: str
    control: str
    run_id: str = ""
    host: str = ""
    findings: tuple[Finding, ...] = ()
    follows_moments: bool = False
    target: Target | None = None
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
    gpu_reading: GpuSample = field(default_factory=GpuSample)
    switch_seen: int = 0
    iteration: int = NO_ITERATION
    is_left_over: bool = False

    @property
    def can_set_clocks(self) -> bool:
        """Whether a sweep or a plan reaches its GPU."""
        return bool(self.gpu.clocks_mhz) and self.control != "observe"


@dataclass(slots=True, kw_only=True)
class Membership:
    """The ranks of a job, attached or not.

    Attributes:
        fingerprints: By global rank, what the profile, the plan and the baseline are of.
        ranks: By global rank, those that have attached since the run began or the planner started.
        places: By global rank, where it stands; also those that only stored samples tell of.
        rank_at: Global rank by place.
        rank_of_stream: Global rank by stream, of those attached.
        schedule_asked: The stream that was asked for the schedule's text.
        stale_rank: The rank that came back with another schedule, in this run.
        gone_since_s: [s] since when no rank is attached, or None.
        stored_over_s: [s] that the job has been over for, as it was last stored.
        energy_period_s: [s] between two ticks of the slowest energy counter of ``ranks``.
        unlike: Which replicas of a stage are on GPUs of different models in this run, a sentence; empty: none.
    """

    fingerprints: dict[int, FingerprintKnown] = field(default_factory=dict)
    ranks: dict[int, RankState] = field(default_factory=dict)
    places: dict[int, RankCoords] = field(default_factory=dict)
    rank_at: dict[RankCoords, int] = field(default_factory=dict)
    rank_of_stream: dict[int, int] = field(default_factory=dict)
    schedule_asked: int | None = None
    stale_rank: int | None = None
    gone_since_s: float | None = None
    stored_over_s: float = 0.0
    energy_period_s: float = 0.0
    unlike: str = ""

    def add(self, state: RankState) -> None:
        """A rank has attached, anew or again."""
        self.ranks[state.rank.rank] = state
        self.energy_period_s = max(self.energy_period_s, state.gpu.energy_period_s)

    def newest_iteration(self, run_id: str) -> int:
        """The newest iteration that an attached rank of a run has begun."""
        of_run = (one.iteration for one in self.ranks.values() if one.stream is not None and one.run_id == run_id)
        return max(of_run, default=NO_ITERATION)

    def begin_run(self) -> None:
        """Forget the ranks of the run before that are not attached."""
        self.ranks = {rank: state for rank, state in self.ranks.items() if state.stream is not None}
        self.energy_period_s = max((state.gpu.energy_period_s for state in self.ranks.values()), default=0.0)
        self.stale_rank = None
        self.unlike = next(filter(None, (self.unlike_replica(one.rank, one.gpu) for one in self.ranks.values())), "")

    def unlike_replica(self, rank: Rank, gpu: Gpu) -> str:
        """As ``unlike`` says it, where a rank's GPU is of another model than in a pipeline beside its own.

        Two neighbours are enough, so that a rank costs the same among thousands: who comes later is compared with who
        came before, and among pipelines that differ some neighbours do.
        """
        for dp_rank in (rank.dp_rank - 1, rank.dp_rank + 1):
            other = self.ranks.get(self.rank_at.get(RankCoords(rank.pp_rank, dp_rank, rank.tp_rank), -1))
            if other is not None and gpu.name and other.gpu.name not in ("", gpu.name):
                return (
                    f"pp_rank {rank.pp_rank} is on {gpu.name} in pipeline {rank.dp_rank} and on {other.gpu.name} in "
                    f"pipeline {dp_rank}: pipelines on different GPU models are not planned, and train at full clocks"
                )
        return ""
