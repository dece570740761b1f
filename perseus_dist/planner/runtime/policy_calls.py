"""Operators' calls on policies: the change itself and its record, and the rules of load targets for every way in."""

import logging
import sqlite3
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

from perseus_dist.planner.access.audit import Audit, patterns_text
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import ending, not_allowed, not_covered, not_found, not_now, too_many
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet
from perseus_dist.planner.runtime.budgets import ClearedError
from perseus_dist.planner.runtime.changes_under_way import ChangesUnderWay
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.store import NO_JOB

MAX_BUDGET_W = 1e12
MAX_LOAD_TARGETS = 1024  # of a budget: a week of them, ten minutes each

_log = logging.getLogger(__name__)


class PolicyCalls:
    """Changes to policies of a planner, each recorded."""

    def __init__(self, jobs: Jobs, audit: Audit) -> None:
        self._jobs = jobs
        self._audit = audit
        self._changes = ChangesUnderWay()

    @property
    def are_here(self) -> bool:
        """Whether this replica keeps the policies."""
        return self._jobs.ownership is None or self._jobs.ownership.owns(NO_JOB)

    async def locate(self) -> None:
        """Return only at the replica that keeps the policies; it takes them if none does.

        Raises:
            RefusalError: Another one is to be called.
        """
        if self._jobs.ownership is not None:
            await self._jobs.ownership.ensure(NO_JOB)

    def found_budget(self, caller: Caller, name: str) -> BudgetSet:
        """A budget that the caller may change.

        Raises:
            RefusalError: There is none, or the caller may not.
        """
        budget = self._jobs.budgets.get(name)
        if budget is None:
            if not caller.may_operate:
                raise not_allowed(caller, Role.OPERATE)
            raise not_found(f"there is no budget {name}; 'perseus-dist policy show' lists those there are")
        check_rights(caller, budget.jobs)
        return budget

    async def set_load_target(self, caller: Caller, target: LoadTargetSet) -> None:
        """Set a load target; one that is firm is refused where it cannot be met by what is known now.

        Raises:
            RefusalError: That; or the caller may not, there is no such budget, it has too many, or it is not stored.
        """
        budgets, budget = self._jobs.budgets, self.found_budget(caller, target.budget)
        before = next((one for one in budgets.load_targets(target.budget) if one.name == target.name), None)
        if before is None and len(budgets.coming_load_targets(target.budget)) >= MAX_LOAD_TARGETS:
            raise too_many(f"{MAX_LOAD_TARGETS} load targets of budget {budget.name} are set, no more can be")
        if target.end_s <= budgets.wall():
            ended = datetime.fromtimestamp(target.end_s, UTC).isoformat(timespec="seconds")
            raise not_now(f"load target {target.name} ended at {ended}; give it an end that is to come")
        usable_w = target.watts * (1 - budget.guard_band)
        if not target.best_effort and (least_w := budgets.least_w(target)) > usable_w:
            raise not_now(
                f"load target {target.name} cannot be met: the jobs of budget {budget.name} draw {least_w:,.0f} W at "
                f"least, expected {usable_w:,.0f} W or less; a best-effort one is accepted all the same"
            )
        changing = budgets.set(target)
        covered, texts = patterns_text(budget.jobs), (policy_text(before), policy_text(target))
        await self.change(caller, "SetLoadTarget", covered, *texts, changing)

    async def clear_load_target(self, caller: Caller, budget_name: str, name: str) -> None:
        """Forget a load target; the budget itself, and its other load targets, go on.

        Raises:
            RefusalError: There is none, the caller may not, or that is not stored.
        """
        budgets, budget = self._jobs.budgets, self.found_budget(caller, budget_name)
        target = next((one for one in budgets.load_targets(budget_name) if one.name == name), None)
        if target is None:
            raise not_found(f"budget {budget_name} has no load target {name}; 'policy show' lists them")
        changing = budgets.clear(target)
        covered, texts = patterns_text(budget.jobs), (policy_text(target), policy_text(None))
        await self.change(caller, "ClearLoadTarget", covered, *texts, changing)

    async def change(
        self, caller: Caller, action: str, covered: str, before: str, after: str, changing: Coroutine[Any, Any, None]
    ) -> None:
        """Make a change, and record it; a caller who leaves meanwhile changes nothing of that.

        Args:
            caller: Who asked for it.
            action: Method of the service.
            covered: Patterns of the jobs that the policy covers, before or after.
            before: What was set, in words.
            after: What is set now, in words.
            changing: The change.

        Raises:
            RefusalError: It is in force, and not stored; or the load target's budget has been cleared, or another
                replica keeps the policies, by now.
        """
        await self._changes.make(self._make(caller, action, covered, before, after, changing))

    async def _make(
        self, caller: Caller, action: str, covered: str, before: str, after: str, changing: Coroutine[Any, Any, None]
    ) -> None:
        if not self.are_here:
            changing.close()
            raise ending("the policies have moved to another replica meanwhile; call again")
        try:
            await changing
        except ClearedError as error:
            raise not_found(str(error)) from None
        except StoreError as error:
            raise not_now(f"in force until the planner restarts, not stored: {error}") from error
        try:
            self._audit.done(caller.identity, caller.peer, action, job=covered, before=before, after=after)
        except sqlite3.Error as error:  # the change is in force all the same
            changed = f"{action} from {before} to {after} by {caller.identity} at {caller.peer}"
            _log.error("the audit record cannot be written (%s): %s", error, changed)


def check_rights(caller: Caller, *groups: tuple[str, ...]) -> None:
    """Check that a caller may change policies of these jobs.

    Args:
        caller: Who calls.
        groups: Patterns of job names; an empty group is all jobs.

    Raises:
        RefusalError: It may not.
    """
    for jobs in groups:
        if not caller.may_limit(jobs):
            raise not_covered(caller, jobs)


def policy_text(fact: BudgetSet | LoadTargetSet | None) -> str:
    """A budget or a load target as the audit record has it."""
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
