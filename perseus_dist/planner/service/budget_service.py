"""Calls on power budgets and load targets: rights, the change itself, and its record."""

from perseus_dist.planner.access.audit import patterns_text
from perseus_dist.planner.access.refusal import too_many
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.policy_calls import check_rights, policy_text
from perseus_dist.planner.service.budget_wire import budget_from_wire, load_target_from_wire
from perseus_dist.planner.service.policy_changes import PolicyChanges
from perseus_dist.planner.service.rpc_guard import Context
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_BUDGETS = 256


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
        await self._changes.calls.change(
            caller, "SetBudget", covered, policy_text(before), policy_text(budget), changing
        )
        return self._changes.status(caller)

    async def clear_budget(self, data: bytes, context: Context) -> bytes:
        """Jobs are back on their own targets, as far as no other budget covers them."""
        caller = await self._changes.called("ClearBudget", context)
        request, check = parse(pb.ClearBudgetRequest, data), Checker()
        check_job_id(check, "name", request.name)
        check.finish()
        budget = self._changes.calls.found_budget(caller, request.name)
        covered, changing = patterns_text(budget.jobs), self._budgets.clear(budget)
        await self._changes.calls.change(
            caller, "ClearBudget", covered, policy_text(budget), policy_text(None), changing
        )
        return self._changes.status(caller)

    async def set_load_target(self, data: bytes, context: Context) -> bytes:
        """A load target; one that is firm is refused where it cannot be met by what is known now."""
        caller = await self._changes.called("SetLoadTarget", context)
        check = Checker()
        target = load_target_from_wire(check, parse(pb.SetLoadTargetRequest, data).load_target)
        check.finish()
        await self._changes.calls.set_load_target(caller, target)
        return self._changes.status(caller)

    async def clear_load_target(self, data: bytes, context: Context) -> bytes:
        """The budget itself, and its other load targets, go on."""
        caller = await self._changes.called("ClearLoadTarget", context)
        request, check = parse(pb.ClearLoadTargetRequest, data), Checker()
        check_job_id(check, "budget", request.budget)
        check_job_id(check, "name", request.name)
        check.finish()
        await self._changes.calls.clear_load_target(caller, request.budget, request.name)
        return self._changes.status(caller)
