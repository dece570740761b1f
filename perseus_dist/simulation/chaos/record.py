"""The record of a played scenario: all that the invariants are judged by."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from perseus_dist.simulation.chaos.scenario.events import Event
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.world.world import Iteration, JobEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpan:
    """One job of the name.

    Attributes:
        job: What was trained.
        first: Its first iteration.
        last: Its last one.
        undisturbed_time_s: [s] an iteration without faults and without Perseus.
        end: What the job left behind.
    """

    job: ScenarioJob
    first: int
    last: int
    undisturbed_time_s: float
    end: JobEnd

    @property
    def iterations(self) -> range:
        """Numbers of the iterations from first to last, both included."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, kw_only=True)
class PlayedRun:
    """A scenario, played with Perseus and without.

    Attributes:
        scenario: What was to happen.
        iterations: (num_iterations) with Perseus.
        without: (num_iterations) of the same history without.
        jobs: In order.
    """

    scenario: Scenario
    iterations: Sequence[Iteration]
    without: Sequence[Iteration]
    jobs: Sequence[JobSpan]

    def job_at(self, iteration: int) -> JobSpan:
        """The job that trained an iteration."""
        return next(span for span in self.jobs if span.first <= iteration <= span.last)

    @cached_property
    def followed(self) -> tuple[bool, ...]:
        """(num_iterations) whether every rank followed a plan in it."""
        return tuple(followed for span in self.jobs for followed in span.end.followed)

    @property
    def unheeded_orders(self) -> tuple[Event, ...]:
        """Operators' orders that the planner has refused or never heard of."""
        return self.jobs[-1].end.unheeded_orders

    @property
    def clocks_left_locked(self) -> int:
        """GPUs that some job left locked."""
        return sum(span.end.clocks_left_locked for span in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An invariant that does not hold.

    Attributes:
        name: The invariant's.
        sentence: What was seen and what was allowed, in numbers.
        origin: Of a crash: the exception's type and the line that raised it; empty otherwise.
    """

    name: str
    sentence: str
    origin: str = ""
