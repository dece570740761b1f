"""Operators' calls: what is known of jobs, and what operators want of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from statistics import fmean
from weakref import WeakKeyDictionary

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import RefusalError, check_rights, ending, not_now, too_many
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.planner.lifecycle.plan import planning_request
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import Change, OperatorCalls, owner_of
from perseus_dist.planner.service.operator_wire import (
    frontier_to_wire,
    profile_to_wire,
    straggler_cleared,
    straggler_reported,
    target_set,
)
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.planner.worker.measured_profile import csv_of_request
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import check_job_id
from perseus_dist.rpc.job_status_wire import status_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

MAX_WATCHERS = 4096  # each job's rank 0 is one; a status takes some 0.1 ms, twice a second at most
WATCH_INTERVAL_S = 0.5
_LISTED_AT_ONCE = 64  # a status takes 0.03 to 0.1 ms


class OperatorService:
    """Serves the calls that show jobs, set targets, and report or clear stragglers."""

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._guard = guard
        self._operators = OperatorCalls(jobs, guard.access.audit)
        self._num_watchers = 0
        self._idle: WeakKeyDictionary[JobActor, tuple[int, float, pb.JobStatus]] = WeakKeyDictionary()

    async def list_jobs(self, data: bytes, context: Context) -> bytes:
        """All jobs that the caller may open; other calls go on meanwhile."""
        caller = self._called("ListJobs", context)
        parse(pb.ListJobsRequest, data)
        if self._jobs.ownership is not None:
            self._jobs.ownership.check()
        statuses: list[pb.JobStatus] = []
        for actor in self._jobs.all():
            if caller.may(Role.VIEW, actor.job.job_id, owner_of(actor)):
                statuses.append(self._listed(actor))
                if len(statuses) % _LISTED_AT_ONCE == 0:
                    await asyncio.sleep(0)
        replicas = () if self._jobs.ownership is None else self._jobs.ownership.replicas
        queue = None if (shared := self._jobs.shared_planning) is None else shared.queue
        return pb.ListJobsResponse(
            jobs=statuses,
            replicas=replicas,
            is_admin=caller.is_admin,
            planning_queue=None if queue is None else pb.PlanningQueue(**asdict(queue)),
        ).SerializeToString()

    async def watch_job(self, data: bytes, context: Context) -> None:
        """A job's status now and whenever it has changed, at most twice a second, as long as the caller may see it.

        Raises:
            RefusalError: The planner ends, the caller may no longer see the job, or the job is at another replica from
                now on, which the refusal names, or at none until it can be stored.
        """
        caller = self._called("WatchJob", context)
        request = parse(pb.WatchJobRequest, data)
        check = Checker()
        actor = await self._opened(check, caller, request.job_id)
        if self._num_watchers >= MAX_WATCHERS:
            raise too_many(f"{MAX_WATCHERS} are watching already")
        self._num_watchers += 1
        try:
            while True:
                async for status in _changes(self._jobs, actor):
                    if caller.grants:  # one may have been revoked, or have expired
                        check_rights(self._guard.caller(context), Role.VIEW, request.job_id, owner_of(actor))
                    await context.write(status)
                if self._jobs.is_ending:
                    raise ending("the planner ends; watch again once it is back")
                await self._operators.locate(request.job_id)
                if self._jobs.get(request.job_id) is None:  # it is over, and forgotten
                    return
                actor = self._operators.opened(self._guard.caller(context), Role.VIEW, request.job_id)
        finally:
            self._num_watchers -= 1

    async def get_frontier(self, data: bytes, context: Context) -> bytes:
        """The points of a job's newest table."""
        caller = self._called("GetFrontier", context)
        actor = await self._opened(Checker(), caller, parse(pb.GetFrontierRequest, data).job_id)
        return frontier_to_wire(_plan(actor)).SerializeToString()

    async def get_profile(self, data: bytes, context: Context) -> bytes:
        """The profile behind a job's newest table; before there is one, what has been measured."""
        caller = self._called("GetProfile", context)
        actor = await self._opened(Checker(), caller, parse(pb.GetProfileRequest, data).job_id)
        job = actor.job
        if job.plan is not None:
            return profile_to_wire(job.plan, job.ranks_per_pipeline).SerializeToString()
        request = planning_request(job) if job.schedule_text else None
        if request is None or not request.contributions:
            raise _no_plan(actor)
        try:
            csv = await asyncio.to_thread(csv_of_request, request)
        except PerseusError as error:
            raise not_now(str(error)) from error
        blocking_power_w = fmean(request.blocking_power_w)
        return pb.GetProfileResponse(csv=csv.decode(), blocking_power_w=blocking_power_w).SerializeToString()

    async def set_target(self, data: bytes, context: Context) -> bytes:
        """``SetTarget``: give a job another target."""
        caller = self._called("SetTarget", context)
        request, check = parse(pb.SetTargetRequest, data), Checker()
        change = target_set(check, request)
        return await self._change(check, caller, request.job_id, change)

    async def report_straggler(self, data: bytes, context: Context) -> bytes:
        """A pipeline is slow."""
        caller = self._called("ReportStraggler", context)
        request, check = parse(pb.ReportStragglerRequest, data), Checker()
        change = straggler_reported(check, request)
        return await self._change(check, caller, request.job_id, change)

    async def clear_straggler(self, data: bytes, context: Context) -> bytes:
        """Clear an operator's report of a straggler."""
        caller = self._called("ClearStraggler", context)
        request, check = parse(pb.ClearStragglerRequest, data), Checker()
        change = straggler_cleared(check, request)
        return await self._change(check, caller, request.job_id, change)

    def _listed(self, actor: JobActor) -> pb.JobStatus:
        """As of now. A job that no rank is attached to changes seldom: most of thousands are over."""
        job = actor.job
        num_changes, at_s, status = self._idle.get(actor, (-1, 0.0, None))
        is_idle = not job.members.rank_of_stream and job.phase is not Phase.PLANNING and not job.is_refining
        if status is None or num_changes != job.num_changes or not is_idle:
            status = _status(actor)
        else:
            for event in status.events:
                event.age_s += job.now_s - at_s
            for verdict in status.verdicts:
                verdict.age_s += job.now_s - at_s
        self._idle[actor] = (job.num_changes, job.now_s, status)
        return status

    def _called(self, method: str, context: Context) -> Caller:
        self._jobs.counters.calls[method] += 1
        return self._guard.caller(context)

    async def _opened(self, check: Checker, caller: Caller, job_id: str) -> JobActor:
        """The job that a request wants to see; its checks end here."""
        check_job_id(check, "job_id", job_id)
        check.finish()
        await self._operators.locate(job_id)
        return self._operators.opened(caller, Role.VIEW, job_id)

    async def _change(self, check: Checker, caller: Caller, job_id: str, change: Change) -> bytes:
        """Make the change that a request wants; its checks end here."""
        check_job_id(check, "job_id", job_id)
        check.finish()
        return _status(await self._operators.change(caller, job_id, change)).SerializeToString()


async def _changes(jobs: Jobs, actor: JobActor) -> AsyncIterator[bytes]:
    seen = -1
    while jobs.get(actor.job.job_id) is actor and not jobs.is_ending:
        if seen != actor.job.num_changes:
            seen = actor.job.num_changes
            yield _status(actor).SerializeToString()
        await asyncio.sleep(WATCH_INTERVAL_S)


def _status(actor: JobActor) -> pb.JobStatus:
    return status_to_wire(job_status(actor.job))


def _plan(actor: JobActor) -> JobPlan:
    if actor.job.plan is None:
        raise _no_plan(actor)
    return actor.job.plan


def _no_plan(actor: JobActor) -> RefusalError:
    return not_now(f"job {actor.job.job_id} has no plan yet: it is {actor.job.phase}, {actor.job.reason}")
