"""Calls on power budgets and load targets: rights, the change itself, and its record."""

import time
from datetime import UTC, datetime

from perseus_dist.planner.access.audit import patterns_text
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import not_allowed, not_found, not_now, too_many
from perseus_dist.planner.job.facts import BudgetSet, LoadTargetSet
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service.budget_wire import budget_from_wire, load_target_from_wire
from perseus_dist.planner.service.policy_changes import PolicyChanges, check_rights
from perseus_dist.planner.service.rpc_guard import Context
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_BUDGETS = 256
MAX_LOAD_TARGETS = 1024  # of a budget: a week of them, ten minutes each


class BudgetService:
    """Serves ``GetPolicy``, ``SetBudget``, ``ClearBudget``, ``SetLoadTarget`` and ``ClearLoadTarget``."""

    def __init__(self, jobs: Jobs, changes: PolicyChanges) -> None:
        self._budgets = jobs.budgets
        self._changes = changes

    async def get_policy(self, data: bytes, context: Context) -> bytes:
        """All budgets that the caller may change, or sees a job of."""
        caller = await self._changes.called("GetPolicy", context)
        parse(pb.GetPolicyRequest, data)
        return self._changes.status(caller)

    async def set_budget(self, data: bytes, context: Context) -> bytes:
        """A budget, new or in place of the one of its name."""
        caller = await self._changes.called("SetBudget", context)
        check = Checker()
        budget = budget_from_wire(check, parse(pb.SetBudgetRequest, data).budget)
        check.finish()
        before = self._budgets.get(budget.name)
        check_rights(caller, budget.jobs, *([before.jobs] if before else []))
        if before is None and len(self._budgets.states) >= MAX_BUDGETS:
            raise too_many(f"{MAX_BUDGETS} budgets are set, no more can be")
        covered = patterns_text(budget.jobs, *([before.jobs] if before else []))
        changing = self._budgets.set(budget)
        await self._changes.change(caller, "SetBudget", covered, _text(before), _text(budget), changing)
        return self._changes.status(caller)

    async def clear_budget(self, data: bytes, context: Context) -> bytes:
        """Jobs are back on their own targets, as far as no other budget covers them."""
        caller = await self._changes.called("ClearBudget", context)
        request, check = parse(pb.ClearBudgetRequest, data), Checker()
        check_job_id(check, "name", request.name)
        check.finish()
        budget = self._found(caller, request.name)
        covered, changing = patterns_text(budget.jobs), self._budgets.clear(budget)
        await self._changes.change(caller, "ClearBudget", covered, _text(budget), _text(None), changing)
        return self._changes.status(caller)

    async def set_load_target(self, data: bytes, context: Context) -> bytes:
        """A load target; one that is firm is refused where it cannot be met by what is known now."""
        caller = await self._changes.called("SetLoadTarget", context)
        check = Checker()
        target = load_target_from_wire(check, parse(pb.SetLoadTargetRequest, data).load_target)
        check.finish()
        budget = self._found(caller, target.budget)
        known = self._budgets.load_targets(target.budget)
        before = next((one for one in known if one.name == target.name), None)
        if before is None and len(self._budgets.coming_load_targets(target.budget)) >= MAX_LOAD_TARGETS:
            raise too_many(f"{MAX_LOAD_TARGETS} load targets of budget {budget.name} are set, no more can be")
        if target.end_s <= time.time():
            raise not_now(f"load target {target.name} is over already")
        usable_w = target.watts * (1 - budget.guard_band)
        if not target.best_effort and (least_w := self._budgets.least_w(target)) > usable_w:
            raise not_now(
                f"load target {target.name} cannot be met: the jobs of budget {budget.name} draw {least_w:,.0f} W at "
                f"least, expected {usable_w:,.0f} W or less; a best-effort one is accepted all the same"
            )
        covered, changing = patterns_text(budget.jobs), self._budgets.set(target)
        await self._changes.change(caller, "SetLoadTarget", covered, _text(before), _text(target), changing)
        return self._changes.status(caller)

    async def clear_load_target(self, data: bytes, context: Context) -> bytes:
        """The budget itself, and its other load targets, go on."""
        caller = await self._changes.called("ClearLoadTarget", context)
        request, check = parse(pb.ClearLoadTargetRequest, data), Checker()
        check_job_id(check, "budget", request.budget)
        check_job_id(check, "name", request.name)
        check.finish()
        budget = self._found(caller, request.budget)
        known = self._budgets.load_targets(request.budget)
        target = next((one for one in known if one.name == request.name), None)
        if target is None:
            raise not_found(f"budget {request.budget} has no load target {request.name}; 'policy show' lists them")
        covered, changing = patterns_text(budget.jobs), self._budgets.clear(target)
        await self._changes.change(caller, "ClearLoadTarget", covered, _text(target), _text(None), changing)
        return self._changes.status(caller)

    def _found(self, caller: Caller, name: str) -> BudgetSet:
        """A budget that the caller may change."""
        budget = self._budgets.get(name)
        if budget is None:
            if not caller.may_operate:
                raise not_allowed(caller, Role.OPERATE)
            raise not_found(f"there is no budget {name}; 'perseus-dist policy show' lists those there are")
        check_rights(caller, budget.jobs)
        return budget


def _text(fact: BudgetSet | LoadTargetSet | None) -> str:
    if fact is None:
        return "none"
    if isinstance(fact, LoadTargetSet):
        kind = "best effort" if fact.best_effort else "firm"
        start, end = (datetime.fromtimestamp(time_s, UTC).isoformat() for time_s in (fact.start_s, fact.end_s))
        return f"load target {fact.name} of budget {fact.budget}: {fact.watts:g} W from {start} to {end}, {kind}"
    limits = [f"weight {pattern}={value:g}" for pattern, value in fact.weights]
    limits += [f"max slowdown {pattern}={value:g}" for pattern, value in fact.max_slowdowns]
    rest = "".join(f", {limit}" for limit in limits)
    jobs = " ".join(fact.jobs) or "all jobs"
    return f"budget {fact.name}: {fact.watts:g} W for {jobs}, {fact.objective}, guard band {fact.guard_band:g}{rest}"
