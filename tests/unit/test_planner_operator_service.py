"""Operators' calls over gRPC: what is listed of jobs at rest, and what watchers hear when their job moves."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from memory_leases import Database, MemoryLeases
from test_planner_lifecycle import Fleet

from perseus_dist.messages.terms import Target
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import TargetSet, Tick
from perseus_dist.planner.lifecycle.lifecycle import step
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import OperatorCalls
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.service import operator_service
from perseus_dist.planner.service.operator_service import OperatorService
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.web.views.diary import Diary
from perseus_dist.rpc.v1 import planner_pb2 as pb

REGISTERED = JobRegistered(schedule_digest="ab" * 32, pp_size=2, dp_size=1, tp_size=1, token_sha256="")
OPERATOR = Caller(token_sha256="", is_operator=True)
OPERATE = Grant(name="ci", role=Role.OPERATE, created_s=0.0, created_by="operator")


def serving() -> tuple[Jobs, OperatorService]:
    worker: Any = SimpleNamespace(expected_s=lambda _request: None)
    jobs = Jobs(Store(None), worker, Policy(), Counters())
    guard: Any = SimpleNamespace(access=Access("op"), caller=lambda _context: OPERATOR)
    return jobs, OperatorService(jobs, guard)


def test_events_of_a_job_without_ranks_are_listed_as_old_as_they_are() -> None:
    async def play() -> None:
        jobs, service = serving()
        jobs.restore_jobs({"gpt": [REGISTERED]})
        (actor,) = jobs.all()
        step(actor.job, Tick(), 100.0)
        actor.job.history.add("reported", "pipeline 0 is slow", now_s=100.0, iteration=3, dp_rank=0, degree=1.2)
        for now_s in (110.0, 111.0, 200.0, 500.0):
            step(actor.job, Tick(), now_s)
            listed = pb.ListJobsResponse.FromString(await service.list_jobs(b"", None))  # type: ignore[arg-type]
            assert [event.age_s for event in listed.jobs[0].events] == [now_s - 100.0]
        jobs.close()

    asyncio.run(play())


Then = Callable[[Jobs, MemoryLeases, int], Awaitable[None]]


class Watch:
    """The context of a call that watches."""

    def __init__(self, then: Callable[[int], Awaitable[None]]) -> None:
        self._then = then
        self._num_statuses = 0

    async def write(self, _: bytes) -> None:
        self._num_statuses += 1
        await self._then(self._num_statuses)


def refusal_of_watch(monkeypatch: pytest.MonkeyPatch, then: Then) -> RefusalError | None:
    """How a watch of the job ``gpt`` at the replica ``here:1`` ends.

    Args:
        monkeypatch: Of the test.
        then: Called behind each status, with its number.
    """
    monkeypatch.setattr(operator_service, "WATCH_INTERVAL_S", 0.0)

    async def play() -> RefusalError | None:
        database = Database()
        here, there = database.register("here:1"), database.register("there:1")
        here.claim(["gpt"])
        database.facts["gpt"] = [REGISTERED]
        jobs, service = serving()
        jobs.ownership = Ownership(here, jobs)
        await jobs.ownership.ensure("gpt", known_only=True)
        watch: Any = Watch(lambda number: then(jobs, there, number))
        try:
            await service.watch_job(pb.WatchJobRequest(job_id="gpt").SerializeToString(), watch)
        except RefusalError as error:
            return error
        finally:
            jobs.ownership.suspend()
            jobs.close()
        return None

    return asyncio.run(play())


def test_a_watcher_hears_at_which_replica_its_job_is_from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hand_over(jobs: Jobs, there: MemoryLeases, _: int) -> None:
        there.claim([""])
        there.database.facts[""] = [BudgetSet(name="hall", watts=100.0)]
        assert jobs.ownership is not None
        await jobs.ownership.beat()
        assert not jobs.ownership.owns("gpt")

    refusal = refusal_of_watch(monkeypatch, hand_over)
    assert refusal is not None
    assert (refusal.owner, refusal.reason) == ("there:1", "job gpt is at the replica there:1")


def test_a_watcher_goes_on_where_its_job_comes_back_and_ends_with_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    async def cut_off_and_forget(jobs: Jobs, _: MemoryLeases, number: int) -> None:
        seen.append(number)
        assert jobs.ownership is not None
        if number == 1:
            jobs.ownership.suspend()
        else:
            jobs.give_up("gpt", Ending(reason="it is over"))

    assert refusal_of_watch(monkeypatch, cut_off_and_forget) is None
    assert seen == [1, 2]


def test_a_watcher_hears_that_the_planner_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(jobs: Jobs, _: MemoryLeases, __: int) -> None:
        jobs.end_streams(Ending(reason="the planner ends"))

    refusal = refusal_of_watch(monkeypatch, end)
    assert refusal is not None
    assert refusal.reason == "the planner ends; watch again once it is back"


def test_a_target_that_is_refused_does_not_make_its_caller_the_one_who_set_the_target() -> None:
    async def play() -> None:
        jobs, _ = serving()
        jobs.restore_jobs({"gpt": [REGISTERED]})
        (actor,) = jobs.all()
        actor.job = Fleet().to_enforcing().job
        diary, calls = Diary(), OperatorCalls(jobs, Access("op").audit)
        diary.look(actor)
        await calls.change(OPERATOR, "gpt", TargetSet(target=Target(slowdown=1.2)))
        other = Caller(token_sha256="ab" * 32, is_operator=False, grants=(OPERATE,))
        with pytest.raises(RefusalError):
            await calls.change(other, "gpt", TargetSet(target=Target(deadline_s=1e-6)))
        diary.look(actor)
        assert [entry.who for entry in diary.entries(actor) if entry.kind == "target"] == ["operator"]
        jobs.close()

    asyncio.run(play())
