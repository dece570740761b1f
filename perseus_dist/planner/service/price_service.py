"""Calls on price policies: rights, the change itself, and its record."""

from datetime import UTC, datetime

from perseus_dist.planner.access.audit import patterns_text
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import not_allowed, not_found, not_now, too_many
from perseus_dist.planner.job.facts.policies import PricePolicySet
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.policy_calls import check_rights
from perseus_dist.planner.service.budget_wire import price_policy_from_wire
from perseus_dist.planner.service.policy_changes import PolicyChanges
from perseus_dist.planner.service.rpc_guard import Context
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_PRICE_POLICIES = 256
MAX_AHEAD_S = 366 * 86_400.0


class PriceService:
    """Serves ``SetPricePolicy`` and ``ClearPricePolicy``."""

    def __init__(self, jobs: Jobs, changes: PolicyChanges) -> None:
        self._budgets = jobs.budgets
        self._prices = jobs.budgets.prices
        self._changes = changes

    async def set_policy(self, data: bytes, context: Context) -> bytes:
        """A policy, new or in place of the one of its name; refused where its signal cannot be read now."""
        caller = await self._changes.called("SetPricePolicy", context)
        check = Checker()
        policy = price_policy_from_wire(check, parse(pb.SetPricePolicyRequest, data).policy)
        check.finish()
        self._check(policy)
        before = self._prices.get(policy.name)
        check_rights(caller, policy.jobs, *([before.jobs] if before else []))
        signal = await self._prices.read(policy.signal)
        if signal.content is None:
            raise not_now(signal.trouble)
        self._check_jobs(policy)  # after the file was read: another call may have come between
        before = self._prices.get(policy.name)
        check_rights(caller, *([before.jobs] if before else []))
        covered = patterns_text(policy.jobs, *([before.jobs] if before else []))
        changing = self._budgets.set_price(policy)
        await self._changes.calls.change(caller, "SetPricePolicy", covered, _text(before), _text(policy), changing)
        return self._changes.status(caller)

    async def clear_policy(self, data: bytes, context: Context) -> bytes:
        """Jobs are back on their own targets, as far as no budget covers them."""
        caller = await self._changes.called("ClearPricePolicy", context)
        request, check = parse(pb.ClearPricePolicyRequest, data), Checker()
        check_job_id(check, "name", request.name)
        check.finish()
        policy = self._prices.get(request.name)
        if policy is None:
            if not caller.may_operate:
                raise not_allowed(caller, Role.OPERATE)
            raise not_found(f"there is no price policy {request.name}; 'policy show' lists those there are")
        check_rights(caller, policy.jobs)
        covered, changing = patterns_text(policy.jobs), self._budgets.clear_price(policy)
        await self._changes.calls.change(caller, "ClearPricePolicy", covered, _text(policy), "none", changing)
        return self._changes.status(caller)

    def _check(self, policy: PricePolicySet) -> None:
        now_s = self._budgets.wall()
        if policy.deadline_s <= now_s:
            raise not_now("the deadline has passed already")
        if policy.deadline_s > now_s + MAX_AHEAD_S:
            raise not_now(f"the deadline is far away, expected one within {MAX_AHEAD_S / 86_400:.0f} days")

    def _check_jobs(self, policy: PricePolicySet) -> None:
        for job_id in policy.jobs:
            other = self._prices.of_job(job_id, self._budgets.wall())
            if other is not None and other.name != policy.name:
                raise not_now(f"job {job_id} is under the price policy {other.name} already; clear that one first")
        if self._prices.get(policy.name) is None and len(self._prices.states) >= MAX_PRICE_POLICIES:
            raise too_many(f"{MAX_PRICE_POLICIES} price policies are set, no more can be")


def _text(policy: PricePolicySet | None) -> str:
    if policy is None:
        return "none"
    deadline = datetime.fromtimestamp(policy.deadline_s, UTC).isoformat()
    jobs = " ".join(policy.jobs)
    return f"price policy {policy.name}: {policy.iterations} iterations of {jobs} by {deadline}, signal {policy.signal}"
