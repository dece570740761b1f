"""Pages of replicas: where each leads to, and the jobs of the others that it shows."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from memory_leases import LEASE_S, Database, MemoryLeases, Registration

from perseus_dist.messages.terms import Target
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership import Ownership
from perseus_dist.planner.store.lease_table import Claimed, JobElsewhere
from perseus_dist.planner.web.replicas import Replicas, page_at


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("planner-1.example:50151", "https://planner-1.example:50152/"),
        ("[2001:db8::1]:50151", "https://[2001:db8::1]:50152/"),
        ("planner-0.example:60151", ""),  # on this host its page has another port, which is not known
    ],
)
def test_the_page_of_another_host_has_this_ones_port(address: str, page: str) -> None:
    assert page_at(address, "planner-0.example:50151", scheme="https", port=50152) == page


class Holder:
    """Of no jobs."""

    def has(self, job_id: str) -> bool:
        return bool(job_id)

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        pass

    def give_up(self, job_id: str, ending: Ending) -> None:
        pass


class CountedLeases(MemoryLeases):
    num_reads = 0

    def elsewhere(self) -> list[JobElsewhere]:
        self.num_reads += 1
        return super().elsewhere()


def job_of(token: str) -> JobRegistered:
    return JobRegistered(schedule_digest="", pp_size=4, dp_size=2, tp_size=1, token_sha256=token)


def test_a_caller_sees_the_jobs_of_other_replicas_that_it_may_see_and_the_database_is_spared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Database()
    here, there = CountedLeases(database, 1, "one.example:50151"), MemoryLeases(database, 2, "two.example:50151")
    database.replicas = {one.number: Registration(one.address, LEASE_S) for one in (here, there)}
    target = TargetChosen(target=Target(slowdown=1.1), by_operator=True)

    async def call(function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)

    async def play() -> None:
        ownership = Ownership(here, Holder(), call)
        replicas = Replicas(ownership, scheme="https", port=50152)
        for name, leases, facts in (
            ("ours/1", there, (job_of("hash"), target)),
            ("theirs", there, (job_of("another"),)),
            ("not yet", there, ()),
            ("own", here, (job_of("hash"),)),
        ):
            leases.claim([name])
            database.facts[name] = list(facts)
        caller = Caller(token_sha256="hash", is_operator=False)
        assert await replicas.jobs(caller) == []
        assert here.num_reads == 0
        await ownership.beat()
        ((job, replica),) = await replicas.jobs(caller)
        assert (job.job_id, job.target, job.saved) == ("ours/1", target, None)
        assert replica.page_of(job.job_id) == "https://two.example:50152/jobs/ours%2F1"
        operator = Caller(token_sha256="", is_operator=True)
        assert [job.job_id for job, _ in await replicas.jobs(operator)] == ["ours/1", "theirs"]
        assert here.num_reads == 1
        assert replicas.num_read is None
        monkeypatch.setattr("perseus_dist.planner.web.replicas.MOST_ELSEWHERE", 2)
        assert replicas.num_read == 2, "there may be others"
        here.is_away = True
        replicas._read_at_s = -math.inf
        assert len(await replicas.jobs(operator)) == 2, "as they were"
        ownership.suspend()

    asyncio.run(play())
