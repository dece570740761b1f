"""Plans beside all-max, in a table for people."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from perseus_dist.interval_text import interval_text
from perseus_dist.library.schedule import shape_text
from perseus_dist.library.tables import Column, format_table, html_table
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.plan import Plan, plan_for_deadline
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.saving_interval import ErrorsKnownBy, SavingInterval, errors_known_by
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import j_from_uj, ms_from_ps, s_from_ps

_SHARING = {Granularity.PHASE: "rank and phase", Granularity.RANK: "rank"}
FASTEST, AT_T_MIN = "fastest", "at T_min"

_COLUMNS: tuple[Column, ...] = (
    ("plan", "name", "s"),
    ("time\n[s]", "time_s", ".6f"),
    ("slowdown\n[%]", "slowdown_percent", "+z.3f"),
    ("energy\n[J]", "energy_j", ".2f"),
    ("saving\n[%]", "saving_percent", "z.2f"),
    ("interval\n[%]", "interval", ">s"),
    ("above bound\n[%]", "gap_percent", "z.3f"),
    ("clock changes\nper rank", "changes", ">s"),
)


def format_plans(plans: Mapping[str, Plan], *, is_plain: bool = False) -> str:
    """A line for all-max, waiting for the straggler of the first plan if there is one, then one for each named plan."""
    return format_table(_COLUMNS, _records(plans), is_plain=is_plain)


def html_plans(plans: Mapping[str, Plan]) -> str:
    """The table of ``format_plans`` as HTML."""
    return html_table(_COLUMNS, _records(plans))


def problem_text(
    problem: PlanningProblem, switch_latency_ps: int, granularity: Granularity = Granularity.INSTRUCTION
) -> str:
    """The planning problem, in a line."""
    parts = [shape_text(problem.dag.schedule)]
    if problem.tensor_parallel > 1:
        parts.append(f"tensor parallel {problem.tensor_parallel}")
    if granularity != Granularity.INSTRUCTION:
        parts.append(f"one clock for each {_SHARING[granularity]}")
    if latency := latency_text(problem, switch_latency_ps):
        parts.append(f"{latency} per clock change")
    return ", ".join(parts)


def latency_text(problem: PlanningProblem, switch_latency_ps: int) -> str:
    """How long clock changes take, as ``6 to 20 ms``; empty where they are free."""
    latencies_ps = problem.latencies_ps(switch_latency_ps)[
        np.concatenate([one.clocks_mhz for one in problem.curves]) > 0
    ]
    if not latencies_ps.any():
        return ""
    least_ms, most_ms = (f"{ms_from_ps(bound_ps):.4g}" for bound_ps in (latencies_ps.min(), latencies_ps.max()))
    return f"{most_ms} ms" if least_ms == most_ms else f"{least_ms} to {most_ms} ms"


def plans_that_matter(frontier: Frontier) -> dict[str, Plan]:
    """The fastest plan, and those at T_min, the time of all-max, and at T*."""
    deadlines_ps = {
        FASTEST: frontier.fastest_ps,
        AT_T_MIN: frontier.baseline.time_ps,
        "at T*": frontier.t_star_ps,
    }
    return by_time({name: plan_for_deadline(frontier, deadline_ps) for name, deadline_ps in deadlines_ps.items()})


def by_time(plans: Mapping[str, Plan]) -> dict[str, Plan]:
    """From the fastest to the slowest."""
    return dict(sorted(plans.items(), key=lambda item: item[1].execution.time_ps))


def gap_text(frontier: Frontier) -> str:
    """How many plans there are, how far above the bound, and how long it took."""
    gaps = 100 * frontier.gaps[frontier.deadline_points]
    return (
        f"{len(gaps)} plans from the fastest to T*, on average {gaps.mean():.3f} % above the {_bound_text(frontier)} "
        f"and at worst {gaps.max():.3f} %; solved in {frontier.solve_seconds:.3f} s, realised in "
        f"{frontier.realise_seconds:.3f} s."
    )


def _bound_text(frontier: Frontier) -> str:
    if frontier.granularity != Granularity.INSTRUCTION:
        return f"lower bound of all plans with one clock for each {_SHARING[frontier.granularity]},"
    if not frontier.bound.tolerance:
        return "exact lower bound"
    return f"lower bound, itself at most {100 * frontier.bound.tolerance:.2g} % below the exact one,"


def plan_interval_text(interval: SavingInterval | None) -> str:
    """An interval of savings in percent, as ``12.3 to 13.0``."""
    return "-" if interval is None else interval_text(100 * interval.low, 100 * interval.high)


def interval_note(problem: PlanningProblem) -> str:
    """Where intervals of savings come from; empty where repeated measurements stand behind them."""
    match errors_known_by(problem):
        case None:
            return "Savings have no interval: the profile has neither repeated measurements nor six clocks to judge by."
        case ErrorsKnownBy.SCATTER:
            return (
                "Intervals are by the scatter of times and energies over clocks: the profile has no repeated "
                "measurements."
            )
        case _:
            return ""


def _records(plans: Mapping[str, Plan]) -> Sequence[dict[str, Any]]:
    first = next(iter(plans.values()))
    all_max = replace(first, execution=first.frontier.baseline)
    return [_record("all-max", all_max), *(_record(*item) for item in plans.items())]


def _record(name: str, plan: Plan) -> dict[str, Any]:
    changes = plan.execution.changes
    low, high = int(changes.min()), int(changes.max())
    return {
        "name": name,
        "time_s": float(s_from_ps(plan.execution.time_ps)),
        "slowdown_percent": 100 * plan.slowdown_share,
        "energy_j": float(j_from_uj(plan.energy_uj)),
        "saving_percent": 100 * plan.saving_share,
        "interval": plan_interval_text(plan.saving_interval) if plan.execution is not plan.frontier.baseline else "",
        "gap_percent": 100 * plan.gap_share,
        "changes": f"{low}" if low == high else f"{low}-{high}",
    }
