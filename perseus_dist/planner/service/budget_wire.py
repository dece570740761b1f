"""Power budgets, load targets and price policies, as protobuf."""

from collections.abc import Collection, Iterable, Mapping

from perseus_dist.planner.budget.price_follower import PricedJob
from perseus_dist.planner.budget.price_policies import PriceState
from perseus_dist.planner.budget.sharing import BudgetState, Share
from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.facts.policies import MAX_TIME_S, BudgetSet, LoadTargetSet, PricePolicySet
from perseus_dist.planner.runtime.policy_calls import MAX_BUDGET_W
from perseus_dist.planner.runtime.signals.signal_files import NAME
from perseus_dist.policies.power_budget import Objective
from perseus_dist.rpc import limits
from perseus_dist.rpc.fields import check_job_id, check_job_pattern
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_MAX_WEIGHT = 1e6
_MAX_GUARD_BAND = 0.99
_MAX_ITERATIONS = 10**12


def budget_from_wire(check: Checker, wire: pb.Budget) -> BudgetSet:
    """A power budget from the wire; what is out of its range is reported to the check."""
    _check_patterns(check, "budget.jobs", wire.jobs)
    for name, values, low in (("weights", wire.weights, 1 / _MAX_WEIGHT), ("max_slowdowns", wire.max_slowdowns, 1.0)):
        _check_patterns(check, f"budget.{name}", [one.pattern for one in values])
        for index, one in enumerate(values[: limits.MAX_PATTERNS]):
            check.number(f"budget.{name}[{index}].value", one.value, _MAX_WEIGHT, low=low)
    return BudgetSet(
        name=check_job_id(check, "budget.name", wire.name),
        watts=check.number("budget.watts", wire.watts, MAX_BUDGET_W),
        jobs=tuple(wire.jobs),
        objective=check.choice("budget.objective", wire.objective, [*Objective]),
        guard_band=check.number("budget.guard_band", wire.guard_band, _MAX_GUARD_BAND),
        weights=tuple((one.pattern, one.value) for one in wire.weights),
        max_slowdowns=tuple((one.pattern, one.value) for one in wire.max_slowdowns),
    )


def load_target_from_wire(check: Checker, wire: pb.LoadTarget) -> LoadTargetSet:
    """A checked load target."""
    if not wire.start_s < wire.end_s:
        check.violated("load_target.end_s", wire.end_s, "a time after start_s")
    return LoadTargetSet(
        name=check_job_id(check, "load_target.name", wire.name),
        budget=check_job_id(check, "load_target.budget", wire.budget),
        start_s=check.number("load_target.start_s", wire.start_s, MAX_TIME_S),
        end_s=check.number("load_target.end_s", wire.end_s, MAX_TIME_S),
        watts=check.positive("load_target.watts", wire.watts, MAX_BUDGET_W),
        best_effort=wire.best_effort,
    )


def price_policy_from_wire(check: Checker, wire: pb.PricePolicy) -> PricePolicySet:
    """A checked price policy."""
    if not 1 <= len(wire.jobs) <= limits.MAX_PATTERNS:
        check.violated("policy.jobs", f"{len(wire.jobs)} names", f"1 to {limits.MAX_PATTERNS}")
    if len({*wire.jobs}) < len(wire.jobs):
        check.violated("policy.jobs", "a name twice", "each once")
    if NAME.fullmatch(wire.signal) is None:
        check.violated("policy.signal", wire.signal, "the name of a file, such as day_ahead.csv")
    return PricePolicySet(
        name=check_job_id(check, "policy.name", wire.name),
        jobs=tuple(
            check_job_id(check, f"policy.jobs[{number}]", job_id)
            for number, job_id in enumerate(wire.jobs[: limits.MAX_PATTERNS])
        ),
        signal=wire.signal,
        deadline_s=check.number("policy.deadline_s", wire.deadline_s, MAX_TIME_S),
        iterations=check.integer("policy.iterations", wire.iterations, 1, _MAX_ITERATIONS),
    )


def price_state_to_wire(
    state: PriceState, shown: Collection[str], paces: Mapping[str, PaceChosen | None]
) -> pb.PriceStatus:
    """A price policy's state.

    Args:
        state: Of the policy.
        shown: Names of the jobs that the caller may see.
        paces: Of jobs, what they are asked for, by name.
    """
    policy = state.policy
    return pb.PriceStatus(
        policy=pb.PricePolicy(
            name=policy.name,
            jobs=[job_id for job_id in policy.jobs if job_id in shown],
            signal=policy.signal,
            deadline_s=policy.deadline_s,
            iterations=policy.iterations,
        ),
        trouble=state.trouble,
        jobs=[_priced_to_wire(job, paces.get(job.job_id)) for job in state.jobs if job.job_id in shown],
        forecast_error=None
        if (error := state.forecast_error) is None
        else pb.ForecastError(mean_kwh=error.mean_kwh, percent=error.percent, hours=error.hours),
    )


def _priced_to_wire(job: PricedJob, asked: PaceChosen | None) -> pb.PricedJob:
    return pb.PricedJob(
        job_id=job.job_id,
        iterations_done=job.done,
        slowdown=job.slowdown or 0.0,
        is_paced=job.pace > 0,
        price_kwh=job.price_kwh,
        finish_s=job.finish_s or 0.0,
        is_on_time=job.is_on_time,
        is_over=job.is_over,
        reason=job.reason,
        budget=asked.budget if asked is not None else "",
    )


def state_to_wire(state: BudgetState, shown: Collection[str], load_targets: Iterable[LoadTargetSet]) -> pb.BudgetStatus:
    """A budget's state.

    Args:
        state: Of the budget.
        shown: Names of the jobs that the caller may see.
        load_targets: Of the budget.
    """
    budget = state.budget
    return pb.BudgetStatus(
        budget=pb.Budget(
            name=budget.name,
            watts=budget.watts,
            jobs=budget.jobs,
            objective=budget.objective,
            guard_band=budget.guard_band,
            weights=[pb.PatternValue(pattern=pattern, value=value) for pattern, value in budget.weights],
            max_slowdowns=[pb.PatternValue(pattern=pattern, value=value) for pattern, value in budget.max_slowdowns],
        ),
        cap_w=state.cap_w or 0.0,
        load_target=state.load_target,
        planned_w=state.planned_w,
        measured_w=state.measured_w or 0.0,
        least_w=state.least_w,
        is_met=state.is_met,
        troubles=state.troubles_for(shown),
        shares=[_share_to_wire(share) for share in state.shares if share.demand.job_id in shown],
        load_targets=[
            pb.LoadTarget(
                name=target.name,
                budget=target.budget,
                start_s=target.start_s,
                end_s=target.end_s,
                watts=target.watts,
                best_effort=target.best_effort,
            )
            for target in load_targets
        ],
        weighted_slowdown=state.weighted_slowdown,
        weighted_slowdown_bound=state.slowdown_bound,
    )


def _share_to_wire(share: Share) -> pb.BudgetShare:
    demand = share.demand
    return pb.BudgetShare(
        job_id=demand.job_id,
        planned_w=share.power_w,
        full_w=demand.points.full_power_w,
        measured_w=demand.measured_w or 0.0,
        slowdown=demand.points.slowdown(share.point),
        is_paced=share.point > 0,
        reason=demand.reason,
        holds_probes=share.holds_probes,
    )


def _check_patterns(check: Checker, field: str, patterns: Collection[str]) -> None:
    if len(patterns) > limits.MAX_PATTERNS:
        check.violated(field, f"{len(patterns)} patterns", f"up to {limits.MAX_PATTERNS}")
        return
    if twice := next((pattern for pattern in patterns if [*patterns].count(pattern) > 1), None):
        check.violated(field, f"{twice} twice", "each once")
    for index, pattern in enumerate(patterns):
        check_job_pattern(check, f"{field}[{index}]", pattern)
