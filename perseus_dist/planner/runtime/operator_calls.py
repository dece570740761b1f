"""Operators' calls on a job: rights, the change itself, and its record."""

import asyncio
import logging
import sqlite3

import grpc

from perseus_dist.messages.target_text import format_target
from perseus_dist.planner.access.audit import Audit
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import RefusalError, check_rights, not_found, not_now
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_history import MAX_EVENTS
from perseus_dist.planner.lifecycle.events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.planner.runtime.changes_under_way import ChangesUnderWay
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.jobs import Jobs

ANSWER_TIMEOUT_S = 30.0

_log = logging.getLogger(__name__)

Change = TargetSet | StragglerReported | StragglerCleared

_ACTIONS = {TargetSet: "SetTarget", StragglerReported: "ReportStraggler", StragglerCleared: "ClearStraggler"}


class OperatorCalls:
    """The same rules for every way in."""

    def __init__(self, jobs: Jobs, audit: Audit) -> None:
        self._jobs = jobs
        self._audit = audit
        self._changes = ChangesUnderWay()

    async def locate(self, job_id: str) -> None:
        """Where other replicas may have a job: own it, or say which of them does.

        Raises:
            RefusalError: Another one is to be called.
        """
        if self._jobs.ownership is not None:
            await self._jobs.ownership.ensure(job_id, known_only=True)

    def opened(self, caller: Caller, role: Role, job_id: str) -> JobActor:
        """A job for a call.

        Args:
            caller: Who makes it.
            role: That includes the call.
            job_id: Of the job.

        Raises:
            RefusalError: There is none, or the caller may not.
        """
        actor = self._jobs.get(job_id)
        if actor is None:
            raise not_found(f"there is no job {job_id}; 'perseus-dist jobs' lists those there are", job_id)
        check_rights(caller, role, job_id, owner_of(actor))
        return actor

    async def change(self, caller: Caller, job_id: str, change: Change) -> JobActor:
        """Change something of a job; it is durable, and recorded, when this returns.

        A caller who leaves meanwhile, or does not wait, changes nothing of that.

        Raises:
            RefusalError: There is no such job, the caller may not, the job's state does not allow it, or there is no
                answer in time: the store is slow, or the planner was stopped.
        """
        await self.locate(job_id)
        actor = self.opened(caller, Role.OPERATE, job_id)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._changes.make(self._make(actor, caller, change))
        except TimeoutError:
            reason = f"job {job_id} has not answered within {ANSWER_TIMEOUT_S:g} s; look at it before you try again"
            raise RefusalError(grpc.StatusCode.DEADLINE_EXCEEDED, reason, job_id=job_id) from None
        return actor

    async def _make(self, actor: JobActor, caller: Caller, change: Change) -> None:
        job, action = actor.job, _ACTIONS[type(change)]
        before, num_events, chosen = _text(job, change), job.history.num_events, job.chosen_target
        answering = actor.begin(change)
        if isinstance(change, TargetSet):
            if job.chosen_target is not chosen:  # else it is refused, and another operator's stays
                actor.target_set_by = caller.identity
        else:
            actor.reported_by |= dict.fromkeys(range(num_events + 1, job.history.num_events + 1), caller.identity)
            actor.reported_by = dict(list(actor.reported_by.items())[-MAX_EVENTS:])
        after = _text(job, change)
        answer = await answering
        if not answer.accepted:
            raise not_now(answer.reason, job.job_id)
        try:
            self._audit.done(caller.identity, caller.peer, action, job=job.job_id, before=before, after=after)
        except sqlite3.Error as error:  # the change is in force all the same
            changed = f"{action} of job {job.job_id} from {before} to {after} by {caller.identity} at {caller.peer}"
            _log.error("the audit record cannot be written (%s): %s", error, changed)


def owner_of(actor: JobActor) -> str:
    """Whom a job belongs to, as ``auth.Caller`` has it; empty for anybody."""
    return actor.job.spec.token_sha256 if actor.job.spec else ""


def _text(job: Job, change: Change) -> str:
    """The state of what a change is about."""
    if isinstance(change, TargetSet):
        return format_target(job.target)
    known = job.stragglers.get(change.straggler_id)
    if known is None:
        return f"no straggler {change.straggler_id}"
    return f"straggler {change.straggler_id}: dp_rank {known.dp_rank}, degree {known.degree:g}"
