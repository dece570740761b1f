"""Policies: budgets, with their power over time against the cap and the jobs that share it; and price policies."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.budget.history import PowerSample
from perseus_dist.planner.budget.price_follower import PricedJob
from perseus_dist.planner.budget.price_policies import PriceState
from perseus_dist.planner.budget.sharing import BudgetState
from perseus_dist.planner.job.facts.policies import LoadTargetSet
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.web.views.frontier_chart import ticks
from perseus_dist.policies.power_budget import Objective

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 40
_LEAST_SPAN_S = 60.0
_HEADROOM = 1.08


def budgets_document(budgets: Budgets, caller: Caller, jobs: Mapping[str, Job]) -> dict[str, Any]:
    """All budgets and price policies of jobs that the caller may see, for the template.

    Args:
        budgets: Of the planner.
        caller: Who looks.
        jobs: That the caller may see, by name.
    """
    slowing = {job_id: job.chosen_pace.budget for job_id, job in jobs.items() if job.chosen_pace is not None}
    return {
        "budgets": [
            budget_document(
                state,
                budgets.history.of(state.budget.name),
                jobs.keys(),
                budgets.coming_load_targets(state.budget.name),
            )
            | {"may_change": caller.may_limit(state.budget.jobs)}
            for state in budgets.seen_by(caller, jobs.keys())
        ],
        "prices": [
            price_document(state, jobs.keys(), slowing) for state in budgets.prices.seen_by(caller, jobs.keys())
        ],
    }


def budget_document(
    state: BudgetState,
    samples: Sequence[PowerSample],
    visible: Collection[str],
    load_targets: Iterable[LoadTargetSet] = (),
) -> dict[str, Any]:
    """A budget, for the template.

    Args:
        state: Of the budget.
        samples: Of its power, oldest first.
        visible: Names of the jobs that the caller may see.
        load_targets: Of the budget, in force and to come, in the order of their begins.
    """
    return {
        "name": state.budget.name,
        "jobs": " ".join(state.budget.jobs) or "all jobs",
        "cap_w": state.cap_w,
        "load_target": state.load_target,
        "planned_w": state.planned_w,
        "measured_w": state.measured_w,
        "troubles": state.troubles_for(visible),
        "shares": [share for share in state.shares if share.demand.job_id in visible],
        "num_hidden": sum(job_id not in visible for job_id in state.job_ids),
        "slowdown": None
        if state.weighted_slowdown is None or state.slowdown_bound is None
        else (100 * state.weighted_slowdown, 100 * state.slowdown_bound),
        "is_largest": state.budget.objective == Objective.MAX_MIN,
        "load_targets": [
            (target.name, target.watts, _minute(target.start_s), _minute(target.end_s), target.best_effort)
            for target in load_targets
        ],
        "chart": _chart(samples),
    }


def price_document(state: PriceState, visible: Collection[str], budgets: Mapping[str, str]) -> dict[str, Any]:
    """A price policy, for the template.

    Args:
        state: Of the policy.
        visible: Names of the jobs that the caller may see.
        budgets: By the names of jobs, the power budget that makes them slower than prices ask for.
    """
    jobs = [job for job in state.jobs if job.job_id in visible]
    return {
        "name": state.policy.name,
        "signal": state.policy.signal,
        "deadline": _minute(state.policy.deadline_s),
        "iterations": state.policy.iterations,
        "trouble": state.trouble,
        "forecast_error": error.text if (error := state.forecast_error) is not None else "",
        "jobs": [
            (job, _minute(job.finish_s) if job.finish_s else "", _why(job, budgets.get(job.job_id, ""))) for job in jobs
        ],
        "num_hidden": len(state.jobs) - len(jobs),
    }


def _minute(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _why(job: PricedJob, budget: str) -> str:
    own = "slower than its target" if job.pace else "at its own target"
    return f"slowed by the budget {budget}" if budget else job.reason or own


def _chart(samples: Sequence[PowerSample]) -> dict[str, Any] | None:
    """Power against time as coordinates of a picture; None before there is anything to draw."""
    if len(samples) < 2:
        return None
    end_s = samples[-1].at_s
    begin_s = min(samples[0].at_s, end_s - _LEAST_SPAN_S)
    high_w = _HEADROOM * max(max(one.cap_w or 0.0, one.planned_w, one.measured_w or 0.0) for one in samples) or 1.0

    def x(at_s: float) -> float:
        return round(LEFT + (at_s - begin_s) / (end_s - begin_s) * (WIDTH - LEFT - RIGHT), 1)

    def y(watts: float) -> float:
        return round(HEIGHT - BOTTOM - watts / high_w * (HEIGHT - TOP - BOTTOM), 1)

    def lines(watts_of: Callable[[PowerSample], float | None]) -> list[str]:
        return [" ".join(f"{x(at_s):g},{y(watts):g}" for at_s, watts in run) for run in _runs(samples, watts_of)]

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "plot": {"left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM},
        "cap": lines(lambda one: one.cap_w),
        "planned": lines(lambda one: one.planned_w),
        "measured": lines(lambda one: one.measured_w),
        "x_ticks": [(x(end_s + 60 * minutes), text) for minutes, text in ticks((begin_s - end_s) / 60, 0.0)],
        "y_ticks": [(y(watts), text) for watts, text in ticks(0.0, high_w)],
        "minutes": (end_s - samples[0].at_s) / 60,
    }


def _runs(
    samples: Iterable[PowerSample], watts_of: Callable[[PowerSample], float | None]
) -> list[list[tuple[float, float]]]:
    """Stretches of time in which a power is known."""
    runs: list[list[tuple[float, float]]] = [[]]
    for one in samples:
        watts = watts_of(one)
        if watts is not None:
            runs[-1].append((one.at_s, watts))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
