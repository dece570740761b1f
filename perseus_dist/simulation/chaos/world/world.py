"""Interface of a world that plays a scenario: a job that trains one iteration at a time, disturbed between two.

``simulation.chaos`` asks for no more than this of the simulator, so that its decisions can be tested without one. There
are always two worlds of a scenario: one with Perseus and one without, in which no clock is ever set.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.simulation.chaos.scenario.events import Event
from perseus_dist.simulation.chaos.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerView:
    """The planner's view as an iteration ends; none while the planner is down.

    Attributes:
        table_revision, switch_revision: Of the newest table and switch; 0 before the first.
        fastest_s: [s] of the fastest plan; 0 without one.
        has_plan: Whether every pipeline is to follow a plan's point by now.
        planned_energy_j: [J] that the plans in force promise for the whole job, until each pipeline's own end.
        planned_times_s: (dp) [s] of each pipeline's plan; empty without a plan.
        blocking_w: [W] of one whole pipeline that waits.
        waiting: Pipelines whose plan is slower than the target's, for a straggler's sake.
        slow_ranks: Ranks that a verdict which is acted upon calls slow.
    """

    table_revision: int = 0
    switch_revision: int = 0
    fastest_s: float = 0.0
    has_plan: bool = False
    planned_energy_j: float = 0.0
    planned_times_s: tuple[float, ...] = ()
    blocking_w: float = 0.0
    waiting: tuple[int, ...] = ()
    slow_ranks: tuple[int, ...] = ()

    def promised_energy_j(self, time_s: float) -> float:
        """[J] by the plans in force, where every pipeline waits until an iteration of this length ends."""
        waiting_s = sum(max(0.0, time_s - planned_s) for planned_s in self.planned_times_s)
        return self.planned_energy_j + self.blocking_w * waiting_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of the whole job, as the simulated machine knows it.

    Attributes:
        time_s: [s] from its begin to its end.
        energy_j: [J] of all GPUs.
        phase: Of the job, by the planner as the iteration ends; "" where there is none, "down" where it is down.
        is_sweep: Whether some clock was held in it to be measured, or a sweep stood between two of its clocks.
        view: None without a planner.
        locked_without_lease: GPUs that are locked although their lease has been over for longer than unlocking takes.
    """

    time_s: float
    energy_j: float
    phase: str = ""
    is_sweep: bool = False
    view: PlannerView | None = None
    locked_without_lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """A row of the profile in force, beside what the undisturbed machine would show.

    Attributes:
        true_time_s, true_energy_j: The truth, of one GPU; 0 where it has no such clock.
        blocking_w: [W] that the GPU draws while it waits for others of its tensor-parallel group.
        num_runs: Behind the measurement.
    """

    stage: int
    kind: str
    clock_mhz: int
    time_s: float
    energy_j: float
    true_time_s: float
    true_energy_j: float
    num_runs: int
    blocking_w: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """The end of a job, once everything on its way has arrived.

    Attributes:
        followed: (iterations of this job) whether every rank followed a plan in it, and its agent saw it live.
        baseline: As the planner reports it.
        enforced: The same, of the iterations under the last plan.
        saved_j: [J] the same, of all runs of the job; saved_doubt_j: [J] by which it may be more or less.
        profile: In force; empty without a plan.
        acknowledged: Names of what agents and operators may rely on: what was confirmed to them and not replaced since,
            and what was lost as the planner was started again.
        durable: Names of those that a planner which starts now would know.
        went_back: A sentence for each revision that an agent held and then held a lower one.
        clocks_left_locked: GPUs that are still locked when all leases are over; one whose lease's holder is stopped
            stays locked until the holder goes on, and is not counted.
        unheeded_orders: Operators' orders until then that the planner has refused, as one to a job of which it knows no
            rank, or that it was killed before it had heard of.
    """

    followed: tuple[bool, ...]
    baseline: MeasuredIterations
    enforced: MeasuredIterations
    saved_j: float = 0.0
    saved_doubt_j: float = 0.0
    profile: tuple[ProfileRow, ...] = ()
    acknowledged: frozenset[str] = frozenset()
    durable: frozenset[str] = frozenset()
    went_back: tuple[str, ...] = ()
    clocks_left_locked: int = 0
    unheeded_orders: tuple[Event, ...] = ()


class World(Protocol):
    """A job that is under way."""

    def apply(self, event: Event) -> JobEnd | None:
        """Disturb it.

        Returns:
            What the job has left behind, if the event begins another.

        Raises:
            ScenarioError: This world cannot do that.
        """

    def run_iteration(self) -> Iteration:
        """Train one iteration on all ranks, and return what was measured of it."""

    def end(self) -> JobEnd:
        """The trainers end; what is still on its way arrives."""


class OpenWorld(Protocol):
    """Opens the world in which a scenario is played, with Perseus or without."""

    def __call__(self, scenario: Scenario, *, with_perseus: bool) -> AbstractContextManager[World]:
        """A world in which the scenario's first job has not begun yet."""
