"""Facts of sweeps: which are ordered, which have ended, and what ranks measured in them."""

from bisect import bisect_left
from dataclasses import dataclass

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.keyed import KeyedFact
from perseus_dist.planner.shapes.stage import StageWork

SAVED_PROFILE = 0
"""Series, and sweep id, of a saved profile."""

OF_STAGES = -1
"""Series of what was measured of stages in earlier shapes of the job; its facts are numbered by ``rank``."""

CARRIED_ROUND = 0
"""Round of a series that was put together from those; rounds of sweeps are counted from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepBegun(KeyedFact):
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
class SweepEnded(KeyedFact):
    """All of the series that will ever come has come."""

    series: int

    KEY = "ended/{0.series}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesReceived(KeyedFact):
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
