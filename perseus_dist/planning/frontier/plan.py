"""A plan: a clock for every instruction of every rank, at one point of the frontier, and its figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import Execution
from perseus_dist.planning.frontier.saving_interval import SavingInterval, saving_intervals
from perseus_dist.planning.schedule.granularity import Granularity, sharing
from perseus_dist.planning.value_equality import ValueEquality
from perseus_dist.units import energy_uj, j_from_uj, ms_from_ps, s_from_ps, w_from_uw

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan(ValueEquality):
    """One iteration under chosen clocks. Energies count until its end, or until a straggler's if that is later.

    Attributes:
        frontier: The frontier that it is a point of.
        deadline_ps: [ps] within which it was chosen.
        t_prime_ps: [ps] iteration time of the straggler that everybody waits for; 0 for none.
        execution: The iteration under it, instruction by instruction.
    """

    frontier: Frontier
    deadline_ps: int
    t_prime_ps: int = 0
    execution: Execution

    def _value(self) -> object:
        """Clocks on a frontier, and who is waited for; whatever deadline they were chosen for."""
        return self.frontier, self.execution.clocks_mhz, self.t_prime_ps

    @property
    def until_ps(self) -> int:
        """[ps] when the last GPU stops waiting."""
        return max(self.t_prime_ps, self.execution.time_ps)

    @property
    def energy_uj(self) -> int:
        """[uJ] that the pipeline draws."""
        return self._waited_uj(self.execution)

    @property
    def lower_bound_uj(self) -> float:
        """[uJ] that any execution draws at least, waiting as long."""
        return float(self.frontier.bound.total_uj(np.array(self.until_ps)))

    @property
    def gap_share(self) -> float:
        """Energy above the lower bound, as a share of it."""
        return self.energy_uj / self.lower_bound_uj - 1

    @property
    def saving_share(self) -> float:
        """Energy below that of all-max, which waits for a straggler too, as a share of it."""
        return 1 - self.energy_uj / self._waited_uj(self.frontier.baseline)

    @property
    def saving_interval(self) -> SavingInterval | None:
        """Where the saving is likely to lie, by the profile's errors; None where the profile does not show them."""
        problem, switch_latency_ps = self.frontier.problem, self.frontier.switch_latency_ps
        indices = problem.clock_indices(self.execution.clocks_mhz)
        found = saving_intervals(problem, [indices], switch_latency_ps=switch_latency_ps, t_prime_ps=self.t_prime_ps)
        return None if found is None else found[0]

    @property
    def slowdown_share(self) -> float:
        """Time above that of all-max, as a share of it."""
        return self.execution.time_ps / self.frontier.baseline.time_ps - 1

    def _waited_uj(self, execution: Execution) -> int:
        waiting_ps = max(0, self.t_prime_ps - execution.time_ps)
        return execution.total_uj + energy_uj(self.frontier.problem.total_blocking_uw, waiting_ps)


def all_max(frontier: Frontier) -> Plan:
    """Every computation at the maximum clock: no plan of the frontier, but what its plans are held against."""
    return Plan(frontier=frontier, deadline_ps=frontier.baseline.time_ps, execution=frontier.baseline)


def plan_for_deadline(frontier: Frontier, deadline_ps: int) -> Plan:
    """The plan with the least energy within a deadline.

    Raises:
        PlanningError: Even the fastest plan is later.
    """
    execution = frontier.execution(frontier.point_for_deadline(deadline_ps))
    return Plan(frontier=frontier, deadline_ps=deadline_ps, execution=execution)


def plan_for_straggler(frontier: Frontier, t_prime_ps: int) -> Plan:
    """The plan with the least energy where everybody waits for a straggler until T' anyway.

    Raises:
        PlanningError: Even the fastest plan is later.
    """
    execution = frontier.execution(frontier.point_for_straggler(t_prime_ps))
    return Plan(frontier=frontier, deadline_ps=t_prime_ps, t_prime_ps=t_prime_ps, execution=execution)


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Figures of a plan, in the units of reports."""
    return {
        "deadline_s": float(s_from_ps(plan.deadline_ps)),
        "time_s": float(s_from_ps(plan.execution.time_ps)),
        "until_s": float(s_from_ps(plan.until_ps)),
        "energy_j": float(j_from_uj(plan.energy_uj)),
        "lower_bound_j": float(j_from_uj(plan.lower_bound_uj)),
        "gap_percent": 100 * plan.gap_share,
        "saving_percent": 100 * plan.saving_share,
        **_interval_figures(plan.saving_interval),
        "slowdown_percent": 100 * plan.slowdown_share,
        "clock_changes_per_rank": plan.execution.changes.tolist(),
    }


def _interval_figures(interval: SavingInterval | None) -> dict[str, Any]:
    """Null where the profile does not show its errors."""
    if interval is None:
        return {"saving_interval_percent": None, "saving_interval_from": None}
    return {
        "saving_interval_percent": [100 * interval.low, 100 * interval.high],
        "saving_interval_from": interval.known_by,
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """The content of ``plan.json``: its figures, its deadline, and the clocks of every rank.

    Instructions stand in execution order; the clock of a constant instruction is null. Where instructions share clocks,
    ``clocks`` of each rank says which it has from what time of the iteration on.
    """
    problem, baseline = plan.frontier.problem, plan.frontier.baseline
    clocks_mhz = iter(plan.execution.clocks_mhz.tolist())
    return {
        "schema_version": SCHEMA_VERSION,
        **plan_figures(plan),
        "baseline_time_s": float(s_from_ps(baseline.time_ps)),
        "baseline_energy_j": float(j_from_uj(baseline.total_uj)),
        "schedule_digest": problem.dag.schedule.digest(),
        **latency_figures(problem, plan.frontier.switch_latency_ps),
        "tensor_parallel": problem.tensor_parallel,
        "granularity": plan.frontier.granularity,
        "blocking_power_w": w_from_uw(problem.blocking_uw // problem.tensor_parallel).tolist(),
        "ranks": [
            {
                "pp_rank": pp_rank,
                "instructions": [
                    {"id": str(instruction), "clock_mhz": next(clocks_mhz) or None} for instruction in order
                ],
                **({} if plan.frontier.granularity == Granularity.INSTRUCTION else {"clocks": _clocks(plan, pp_rank)}),
            }
            for pp_rank, order in enumerate(problem.dag.schedule.ranks)
        ],
    }


def latency_figures(problem: PlanningProblem, switch_latency_ps: int) -> dict[str, Any]:
    """How long clock changes take: the constant, and by stage and clock [MHz] what the profile says in its place."""
    of_stage: dict[str, dict[str, float]] = {}
    for curve in problem.curves:
        if curve.latencies_ps is not None:
            of_clock = zip(map(str, curve.clocks_mhz.tolist()), ms_from_ps(curve.latencies_ps).tolist(), strict=True)
            of_stage.setdefault(str(curve.stage), {}).update(of_clock)
    constant = {"switch_latency_ms": float(ms_from_ps(switch_latency_ps))}
    return {**constant, "switch_latency_by_clock_ms": of_stage} if of_stage else constant


def _clocks(plan: Plan, pp_rank: int) -> list[dict[str, Any]]:
    """A rank's clocks in order; each holds from when the computation before it ends."""
    schedule, execution = plan.frontier.problem.dag.schedule, plan.execution
    groups = sharing(schedule, plan.frontier.granularity)
    ends_ps, clocks_mhz = execution.end_ps, execution.clocks_mhz
    begin_s, clocks = 0.0, []
    for group in groups:
        if plan.frontier.problem.dag.pp_rank[group[0]] == pp_rank:
            clocks.append({"begin_s": begin_s, "clock_mhz": int(clocks_mhz[group[0]])})
            begin_s = float(s_from_ps(ends_ps[group[-1]]))
    return clocks
