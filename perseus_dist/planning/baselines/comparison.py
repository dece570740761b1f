"""The plan and the baselines on the same footing: one pipeline's iteration, replayed on measured times and energies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perseus_dist.errors import PlanningError
from perseus_dist.planning.baselines.baselines import zeus_global, zeus_per_stage
from perseus_dist.planning.baselines.envpipe import envpipe
from perseus_dist.planning.coarse.coarse_frontier import plan_coarse_frontier
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import j_from_uj, s_from_ps

_COARSER = {
    Granularity.INSTRUCTION: (Granularity.RANK, Granularity.PHASE),
    Granularity.PHASE: (Granularity.RANK,),
    Granularity.RANK: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlan:
    """One way to run the iteration, against all-max.

    Attributes:
        key: Identifier, for programs.
        name: Name, for people.
        execution: The iteration under it.
        reference: The iteration under all-max.
    """

    key: str
    name: str
    execution: Execution
    reference: Execution

    @property
    def slowdown_share(self) -> float:
        """Time above that of all-max, as a share of it."""
        return self.execution.time_ps / self.reference.time_ps - 1

    @property
    def saving_share(self) -> float:
        """Energy below that of all-max, as a share of it."""
        return 1 - self.execution.total_uj / self.reference.total_uj

    @property
    def power_w(self) -> float:
        """Average power of all GPUs together."""
        return float(j_from_uj(self.execution.total_uj) / s_from_ps(self.execution.time_ps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All plans side by side.

    Attributes:
        plans: All-max, the two Zeus baselines with two plans each, EnvPipe, perseus-dist by rank and by phase within
            the limit and at T*, and perseus-dist at several deadlines.
        sweeps: By key, all that the two Zeus baselines can choose from, from the highest clock down.
    """

    plans: Sequence[ComparedPlan]
    sweeps: Mapping[str, Sequence[ComparedPlan]]


def compare(frontier: Frontier, *, deadline_ps: int | None = None) -> Comparison:
    """Set the frontier's plans beside the baselines.

    Args:
        frontier: What perseus-dist chooses from. Its switch latency counts for the baselines too, though none of them
            plans with it.
        deadline_ps: [ps] what the Zeus baselines may take, and one more deadline for perseus-dist; the time of all-max
            unless given.

    Raises:
        PlanningError: The frontier has no plan for the deadline.
    """
    problem, reference = frontier.problem, frontier.baseline

    def compared(key: str, name: str, execution: Execution) -> ComparedPlan:
        return ComparedPlan(key=key, name=name, execution=execution, reference=reference)

    def realised(key: str, name: str, clock_indices: Int32Array) -> ComparedPlan:
        return compared(key, name, replay(problem, clock_indices, switch_latency_ps=frontier.switch_latency_ps))

    def planned(key: str, name: str, deadline_ps: int) -> ComparedPlan:
        return compared(key, name, frontier.execution(frontier.point_for_deadline(deadline_ps)))

    plans = [
        planned("perseus_fastest", "perseus-dist, fastest", frontier.fastest_ps),
        planned("perseus_all_max_time", "perseus-dist at T_min", reference.time_ps),
        planned("perseus_t_star", "perseus-dist at T*", frontier.t_star_ps),
    ]
    if deadline_ps is not None:
        plans.insert(2, planned("perseus_deadline", "perseus-dist at the deadline", deadline_ps))
    sweeps = {
        "zeus_global": [realised("zeus_global", "Zeus-global", clocks) for clocks in zeus_global(problem)],
        "zeus_per_stage": [realised("zeus_per_stage", "Zeus-per-stage", clocks) for clocks in zeus_per_stage(problem)],
    }
    limit_ps = reference.time_ps if deadline_ps is None else deadline_ps
    return Comparison(
        plans=[
            compared("all_max", "all-max", reference),
            *(plan for sweep in sweeps.values() for plan in _best_of(sweep, limit_ps)),
            realised("envpipe", "EnvPipe", envpipe(problem)),
            *(
                compared(f"perseus_{granularity}_{key}", f"perseus-dist by {granularity} {when}", execution)
                for granularity in _COARSER[frontier.granularity]
                for key, when, execution in _coarse(frontier, granularity, limit_ps)
            ),
            *plans,
        ],
        sweeps=sweeps,
    )


def _coarse(frontier: Frontier, granularity: Granularity, limit_ps: int) -> Iterator[tuple[str, str, Execution]]:
    """The plans with shared clocks within the limit and within T*; none where clocks cannot be shared."""
    try:
        coarse = plan_coarse_frontier(
            frontier.problem,
            granularity,
            switch_latency_ps=frontier.switch_latency_ps,
            deadlines_ps=[limit_ps, frontier.t_star_ps],
            is_whole=False,
        )
    except PlanningError:
        return
    is_met = limit_ps >= coarse.fastest_ps
    within = coarse.execution(coarse.point_for_deadline(max(limit_ps, coarse.fastest_ps)))
    at_limit = "at T_min" if limit_ps == frontier.baseline.time_ps else "at the deadline"
    yield "deadline", at_limit if is_met else f"{at_limit}, fastest", within
    within_t_star_ps = max(frontier.t_star_ps, coarse.fastest_ps)
    yield "t_star", "at T*", coarse.execution(coarse.point_for_deadline(within_t_star_ps))


def _best_of(sweep: Sequence[ComparedPlan], limit_ps: int) -> tuple[ComparedPlan, ComparedPlan]:
    """The one with the least energy no later than the limit, or the fastest where all are later; the least at all."""

    def energy(plan: ComparedPlan) -> tuple[int, int]:
        return plan.execution.total_uj, plan.execution.time_ps

    fastest_ps = min(plan.execution.time_ps for plan in sweep)
    within = min((plan for plan in sweep if plan.execution.time_ps <= max(limit_ps, fastest_ps)), key=energy)
    least = min(sweep, key=energy)
    return (
        within if within.execution.time_ps <= limit_ps else replace(within, name=f"{within.name}, fastest"),
        replace(least, key=f"{least.key}_least_energy", name=f"{least.name}, least energy"),
    )
