"""The energy of a whole job: data-parallel pipelines that wait for each other, one of them a straggler.

    straggler    |==================== R times as long =====================|
    others       |=== all-max, or a plan ===|........... waiting ...........|
                 0                          T0                              T' = R x T0

T0 is the iteration time of all-max. A straggler R times slower makes every iteration last T' = R x T0, and a pipeline
that is done earlier draws blocking power until then, so that all that is compared here takes the same time. The
straggler takes R times as long at the same average power, and counts as one of the job's pipelines in every sum:

    all-max     every pipeline runs at the maximum clock
    intrinsic   every pipeline, the straggler too, runs the best plan no later than T0, as without a straggler
    extrinsic   on top of that, all but the straggler change to the best plan for T'

Both savings are shares of the all-max energy under the same straggler, so that they add up. R = 1 means no straggler.

Source: the large-scale emulation of Perseus, SOSP '24. Fed with the published frontiers, this arithmetic gives the
published savings to the last printed digit, all 16 of them; a test holds it to that.
"""

import math
from dataclasses import dataclass

from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.units import energy_uj

DIFFERENCES_FROM_PUBLISHED = (
    "plans are realised on the measured times and energies of real clocks; the published ones are fitted and planned",
    "T' counts from the time of all-max; the published one counts from the solver's fastest plan (0.6-0.7 % shorter on "
    "its two models), and grants all-max that time too",
    "pipelines that wait anyway may run slower than T*; the published ones do not",
)
"""Differences to keep in mind beside the figures of Perseus, SOSP '24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One pipeline's iteration by itself.

    Attributes:
        time_ps: [ps]
        total_uj: [uJ] all its GPUs until it ends.
    """

    time_ps: int
    total_uj: int

    def slower(self, factor: float) -> "Iteration":
        """The same work, ``factor`` times as long at the same average power."""
        return Iteration(time_ps=round(factor * self.time_ps), total_uj=round(factor * self.total_uj))

    def until(self, end_ps: int, blocking_uw: int) -> int:
        """[uJ] of the iteration and the wait until ``end_ps``, in which its GPUs draw ``blocking_uw`` together."""
        return self.total_uj + energy_uj(blocking_uw, end_ps - self.time_ps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """A job's iteration with one straggler.

    Attributes:
        pipelines: Data-parallel pipelines, the straggler included.
        straggler: R, how many times slower the straggler is.
        blocking_uw: [uW] all GPUs of one pipeline while they wait.
        reference: All-max.
        intrinsic: The plan without a straggler, no later than all-max.
        others: The plan of those that wait for the straggler, no later than T'.
    """

    pipelines: int
    straggler: float
    blocking_uw: int
    reference: Iteration
    intrinsic: Iteration
    others: Iteration

    @property
    def t_prime_ps(self) -> int:
        """[ps] T', how long the job's iteration lasts."""
        return self.reference.slower(self.straggler).time_ps

    @property
    def slowdown_share(self) -> float:
        """Time of the planned job above T', as a share of it: 0 as long as both plans keep their deadlines."""
        ends_ps = self.t_prime_ps, self.others.time_ps, self.intrinsic.slower(self.straggler).time_ps
        return max(ends_ps) / self.t_prime_ps - 1

    @property
    def all_max_uj(self) -> int:
        """[uJ] of the job at maximum clocks."""
        return self._job_uj(self.reference, self.reference)

    @property
    def intrinsic_uj(self) -> int:
        """[uJ] of the job if it does not react to its straggler."""
        return self._job_uj(self.intrinsic, self.intrinsic)

    @property
    def planned_uj(self) -> int:
        """[uJ] of the job if it reacts."""
        return self._job_uj(self.intrinsic, self.others)

    @property
    def intrinsic_share(self) -> float:
        """Share of energy that the plan saves without reacting to the straggler."""
        return 1 - self.intrinsic_uj / self.all_max_uj

    @property
    def extrinsic_share(self) -> float:
        """Share of energy that reacting to the straggler saves on top."""
        return (self.intrinsic_uj - self.planned_uj) / self.all_max_uj

    @property
    def saving_share(self) -> float:
        """Share of energy that both save together."""
        return 1 - self.planned_uj / self.all_max_uj

    def _job_uj(self, straggler: Iteration, others: Iteration) -> int:
        slow_uj = straggler.slower(self.straggler).until(self.t_prime_ps, self.blocking_uw)
        return slow_uj + (self.pipelines - 1) * others.until(self.t_prime_ps, self.blocking_uw)


def emulate(frontier: Frontier, *, pipelines: int, straggler: float) -> Emulation:
    """A job of equal pipelines with one straggler.

    Args:
        frontier: The plans of one pipeline.
        pipelines: Data-parallel pipelines, 1 or more.
        straggler: How many times slower the straggler is, 1 (none) or more.

    Raises:
        PlanningError: No such job, or the frontier has no plan as fast as all-max.
    """
    if not (pipelines >= 1 and 1 <= straggler < math.inf):  # NaN fails too
        raise PlanningError(
            f"saw {pipelines} pipelines and a straggler {straggler} times slower, expected 1 or more of each"
        )
    reference = Iteration(time_ps=frontier.baseline.time_ps, total_uj=frontier.baseline.total_uj)
    intrinsic = frontier.point_for_deadline(reference.time_ps)
    others = frontier.point_for_straggler(reference.slower(straggler).time_ps) if straggler > 1 else intrinsic
    return Emulation(
        pipelines=pipelines,
        straggler=straggler,
        blocking_uw=frontier.problem.total_blocking_uw,
        reference=reference,
        intrinsic=iteration_at(frontier, intrinsic),
        others=iteration_at(frontier, others),
    )


def iteration_at(frontier: Frontier, point: int) -> Iteration:
    """One of the frontier's plans."""
    return Iteration(time_ps=int(frontier.time_ps[point]), total_uj=int(frontier.total_uj[point]))
