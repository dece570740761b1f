"""Sweeps and their samples: until the work changes."""

from collections import Counter
from dataclasses import dataclass, field

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.shapes.stage import MeasuredStage


@dataclass(slots=True, kw_only=True)
class ActiveSweep:
    """A sweep that is under way.

    Attributes:
        ordered: What was asked for.
        missing_mhz: By rank, the clocks whose samples are still to come; ranks with none are left out.
        num_missing: By clock, how many ranks that is.
        end_iteration: As of ``ordered``.
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
    end_iteration: int = field(init=False)
    attempts: int
    over_since_s: float | None = None
    is_to_judge: bool = False
    unable_since_s: float | None = None
    away_since_s: float | None = None
    is_paused: bool = False

    def __post_init__(self) -> None:
        self.num_missing = Counter(clock for clocks in self.missing_mhz.values() for clock in clocks)
        self.end_iteration = self.ordered.end_iteration

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


@dataclass(slots=True)
class SweepCost:
    """Iterations of a series so far, and how much longer [s] they were than at full clocks."""

    num_iterations: int = 0
    longer_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Profiling:
    """Measurements of instructions, and the sweep that takes them.

    Attributes:
        sweep_id: Highest that was ever given.
        sweep: The one under way, or None.
        sweeps: By id, all whose samples are still of interest.
        ended_series: Those that no sample is awaited from.
        samples: By series, by rank, in the order of arrival.
        reached_mhz: By rank that heat keeps from the newest series' highest clock, the clock [MHz] that it reaches.
        acked_samples: By (rank, incarnation), the highest sequence ever accepted.
        is_unplannable: Whether the ranks as they are have measured nothing that a plan can be made of.
        held_back_s: [s] that iterations took in the latest sweep, where no rank could measure blocking power because
            heat or a power cap held clocks back; infinite where that is not known any more, 0 where all is well.
        reprofiled_at_s: [s] when a sweep beside a plan was last begun, or None.
        is_unchecked: A sweep has ended whose profile has not been looked at for steps.
        num_step_sweeps: Sweeps that steps gave cause to.
        num_misstated_sweeps: Sweeps of stages whose computations took another time in probes than the profile says.
        cost: Of the newest series, until a plan is made of it.
        stages: Of earlier shapes of the job.
        has_tried_stages: Whether they were looked at for the present shape.
    """

    sweep_id: int = 0
    sweep: ActiveSweep | None = None
    sweeps: dict[int, SweepBegun] = field(default_factory=dict)
    ended_series: set[int] = field(default_factory=set)
    samples: dict[int, dict[int, list[TakenSamples]]] = field(default_factory=dict)
    reached_mhz: dict[int, int] = field(default_factory=dict)
    acked_samples: dict[tuple[int, int], int] = field(default_factory=dict)
    is_unplannable: bool = False
    held_back_s: float = 0.0
    reprofiled_at_s: float | None = None
    is_unchecked: bool = False
    num_step_sweeps: int = 0
    num_misstated_sweeps: int = 0
    cost: SweepCost | None = None
    stages: tuple[MeasuredStage, ...] = ()
    has_tried_stages: bool = False

    def end(self, series: int) -> bool:
        """Await no more samples of a series. Returns whether it is a profile, which is to be looked at for steps."""
        if self.sweep is not None and self.sweep.ordered.series == series:
            self.sweep = None
        self.ended_series.add(series)
        is_profile = series in self.sweeps and self.sweeps[series].is_profile
        self.is_unchecked |= is_profile
        return is_profile

    def of_other_work(self) -> "Profiling":
        """The state without samples; numbers that are used up stay so."""
        return Profiling(sweep_id=self.sweep_id, acked_samples=self.acked_samples)
