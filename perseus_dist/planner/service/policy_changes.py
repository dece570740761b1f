"""The common part of calls on power budgets and price policies: the change itself, its record, and the answer."""

import asyncio
import logging
import sqlite3
from collections.abc import Coroutine
from typing import Any

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import not_allowed, not_now
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import owner_of
from perseus_dist.planner.service.budget_wire import price_state_to_wire, state_to_wire
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.store import NO_JOB
from perseus_dist.rpc.v1 import planner_pb2 as pb

_log = logging.getLogger(__name__)


class PolicyChanges:
    """Changes to policies of a planner, each recorded."""

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._guard = guard
        self._making: set[asyncio.Task[None]] = set()

    async def called(self, method: str, context: Context) -> Caller:
        """Count a call; who calls. Of several replicas the one that keeps the policies goes on.

        Raises:
            RefusalError: A token is needed and there is none, or it counts no more; or another replica keeps policies.
        """
        self._jobs.counters.calls[method] += 1
        caller = self._guard.caller(context)
        if self._jobs.ownership is not None:
            await self._jobs.ownership.ensure(NO_JOB)
        return caller

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
            RefusalError: It is in force, and not stored.
        """
        making = asyncio.create_task(self._make(caller, action, covered, before, after, changing))
        self._making.add(making)
        making.add_done_callback(self._end)
        await asyncio.shield(making)

    def status(self, caller: Caller) -> bytes:
        """All policies that the caller may change, or sees a job of."""
        actors = {actor.job.job_id: actor for actor in self._jobs.all()}
        visible = {job_id for job_id, actor in actors.items() if caller.may(Role.VIEW, job_id, owner_of(actor))}
        budgets = self._jobs.budgets
        return pb.PolicyStatus(
            budgets=[
                state_to_wire(state, visible, budgets.coming_load_targets(state.budget.name))
                for state in budgets.seen_by(caller, visible)
            ],
            prices=[
                price_state_to_wire(
                    state,
                    # Those that have not come yet are named to callers who may change the policy.
                    {*visible, *(state.policy.jobs if caller.may_limit(state.policy.jobs) else ())},
                    {job_id: actor.job.chosen_pace for job_id, actor in actors.items()},
                )
                for state in budgets.prices.seen_by(caller, visible)
            ],
        ).SerializeToString()

    def _end(self, making: "asyncio.Task[None]") -> None:
        self._making.discard(making)
        if not making.cancelled():
            making.exception()  # of a caller who has left: seen

    async def _make(
        self, caller: Caller, action: str, covered: str, before: str, after: str, changing: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await changing
        except StoreError as error:
            raise not_now(f"in force until the planner restarts, not stored: {error}") from error
        try:
            audit = self._guard.access.audit
            audit.done(caller.identity, caller.peer, action, job=covered, before=before, after=after)
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
            raise not_allowed(caller, Role.OPERATE, ", ".join(jobs) or "*")
