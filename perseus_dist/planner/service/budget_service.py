"""Calls on power budgets and load targets: rights, the change itself, and its record."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import not_allowed, not_found, not_now, too_many
from perseus_dist.planner.job.facts import BudgetSet, LoadTargetSet
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import owner_of
from perseus_dist.planner.service.budget_wire import budget_from_wire, load_target_from_wire, state_to_wire
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.store import NO_JOB
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_BUDGETS = 256
MAX_LOAD_TARGETS = 1024  # of a budget: a week of them, ten minutes each

_log = logging.getLogger(__name__)


class BudgetService:
    """Serves ``GetPolicy``, ``SetBudget``, ``ClearBudget``, ``SetLoadTarget`` and ``ClearLoadTarget``."""

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._budgets = jobs.budgets
        self._guard = guard
        self._making: set[asyncio.Task[None]] = set()

    async def get_policy(self, data: bytes, context: Context) -> bytes:
        """All budgets that the caller may change, or sees a job of."""
        caller = await self._called("GetPolicy", context)
        parse(pb.GetPolicyRequest, data)
        return self._status(caller)

    async def set_budget(self, data: bytes, context: Context) -> bytes:
        """A budget, new or in place of the one of its name."""
        caller = await self._called("SetBudget", context)
        check = Checker()
        budget = budget_from_wire(check, parse(pb.SetBudgetRequest, data).budget)
        check.finish()
        before = self._budgets.get(budget.name)
        _check_rights(caller, budget, *([before] if before else []))
        if before is None and len(self._budgets.states) >= MAX_BUDGETS:
            raise too_many(f"{MAX_BUDGETS} budgets are set, no more can be")
        await self._change(caller, "SetBudget", before, budget, self._budgets.set(budget))
        return self._status(caller)

    async def clear_budget(self, data: bytes, context: Context) -> bytes:
        """Jobs are back on their own targets, as far as no other budget covers them."""
        caller = await self._called("ClearBudget", context)
        request, check = parse(pb.ClearBudgetRequest, data), Checker()
        check_job_id(check, "name", request.name)
        check.finish()
        budget = self._found(caller, request.name)
        await self._change(caller, "ClearBudget", budget, None, self._budgets.clear(budget))
        return self._status(caller)

    async def set_load_target(self, data: bytes, context: Context) -> bytes:
        """A load target; one that is firm is refused where it cannot be met by what is known now."""
        caller = await self._called("SetLoadTarget", context)
        check = Checker()
        target = load_target_from_wire(check, parse(pb.SetLoadTargetRequest, data).load_target)
        check.finish()
        budget = self._found(caller, target.budget)
        known = self._budgets.load_targets(target.budget)
        before = next((one for one in known if one.name == target.name), None)
        if before is None and len(known) >= MAX_LOAD_TARGETS:
            raise too_many(f"{MAX_LOAD_TARGETS} load targets of budget {budget.name} are set, no more can be")
        if target.end_s <= time.time():
            raise not_now(f"load target {target.name} is over already")
        usable_w = target.watts * (1 - budget.guard_band)
        if not target.best_effort and (least_w := self._budgets.least_w(target)) > usable_w:
            raise not_now(
                f"load target {target.name} cannot be met: the jobs of budget {budget.name} draw {least_w:,.0f} W at "
                f"least, expected {usable_w:,.0f} W or less; a best-effort one is accepted all the same"
            )
        await self._change(caller, "SetLoadTarget", before, target, self._budgets.set(target))
        return self._status(caller)

    async def clear_load_target(self, data: bytes, context: Context) -> bytes:
        """The budget itself, and its other load targets, go on."""
        caller = await self._called("ClearLoadTarget", context)
        request, check = parse(pb.ClearLoadTargetRequest, data), Checker()
        check_job_id(check, "budget", request.budget)
        check_job_id(check, "name", request.name)
        check.finish()
        self._found(caller, request.budget)
        known = self._budgets.load_targets(request.budget)
        target = next((one for one in known if one.name == request.name), None)
        if target is None:
            raise not_found(f"budget {request.budget} has no load target {request.name}; 'policy show' lists them")
        await self._change(caller, "ClearLoadTarget", target, None, self._budgets.clear(target))
        return self._status(caller)

    async def _change(
        self,
        caller: Caller,
        action: str,
        before: BudgetSet | LoadTargetSet | None,
        after: BudgetSet | LoadTargetSet | None,
        changing: Coroutine[Any, Any, None],
    ) -> None:
        """Make a change, and record it; a caller who leaves meanwhile changes nothing of that."""
        making = asyncio.create_task(self._make(caller, action, before, after, changing))
        self._making.add(making)
        making.add_done_callback(self._end)
        await asyncio.shield(making)

    def _end(self, making: "asyncio.Task[None]") -> None:
        self._making.discard(making)
        if not making.cancelled():
            making.exception()  # of a caller who has left: seen

    async def _make(
        self,
        caller: Caller,
        action: str,
        before: BudgetSet | LoadTargetSet | None,
        after: BudgetSet | LoadTargetSet | None,
        changing: Coroutine[Any, Any, None],
    ) -> None:
        try:
            await changing
        except StoreError as error:
            raise not_now(f"in force until the planner restarts, not stored: {error}") from error
        texts = [_text(fact) if fact else "none" for fact in (before, after)]
        try:
            self._guard.access.audit.done(caller.identity, caller.peer, action, before=texts[0], after=texts[1])
        except sqlite3.Error as error:  # the change is in force all the same
            changed = f"{action} from {texts[0]} to {texts[1]} by {caller.identity} at {caller.peer}"
            _log.error("the audit record cannot be written (%s): %s", error, changed)

    def _found(self, caller: Caller, name: str) -> BudgetSet:
        """A budget that the caller may change."""
        budget = self._budgets.get(name)
        if budget is None:
            if not caller.may_operate:
                raise not_allowed(caller, Role.OPERATE)
            raise not_found(f"there is no budget {name}; 'perseus-dist policy show' lists those there are")
        _check_rights(caller, budget)
        return budget

    def _status(self, caller: Caller) -> bytes:
        visible = {
            actor.job.job_id for actor in self._jobs.all() if caller.may(Role.VIEW, actor.job.job_id, owner_of(actor))
        }
        return pb.PolicyStatus(
            budgets=[
                state_to_wire(state, visible, self._budgets.load_targets(state.budget.name))
                for state in self._budgets.seen_by(caller, visible)
            ]
        ).SerializeToString()

    async def _called(self, method: str, context: Context) -> Caller:
        self._jobs.counters.calls[method] += 1
        caller = self._guard.caller(context)
        if self._jobs.ownership is not None:
            await self._jobs.ownership.ensure(NO_JOB)
        return caller


def _check_rights(caller: Caller, *budgets: BudgetSet) -> None:
    for budget in budgets:
        if not caller.may_limit(budget.jobs):
            raise not_allowed(caller, Role.OPERATE, ", ".join(budget.jobs) or "*")


def _text(fact: BudgetSet | LoadTargetSet) -> str:
    if isinstance(fact, LoadTargetSet):
        kind = "best effort" if fact.best_effort else "firm"
        start, end = (datetime.fromtimestamp(time_s, UTC).isoformat() for time_s in (fact.start_s, fact.end_s))
        return f"load target {fact.name} of budget {fact.budget}: {fact.watts:g} W from {start} to {end}, {kind}"
    limits = [f"weight {pattern}={value:g}" for pattern, value in fact.weights]
    limits += [f"max slowdown {pattern}={value:g}" for pattern, value in fact.max_slowdowns]
    rest = "".join(f", {limit}" for limit in limits)
    jobs = " ".join(fact.jobs) or "all jobs"
    return f"budget {fact.name}: {fact.watts:g} W for {jobs}, {fact.objective}, guard band {fact.guard_band:g}{rest}"
