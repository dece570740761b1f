"""Pages of replicas: where each leads to, and the jobs of the others that it shows."""

import asyncio
import html
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from memory_leases import LEASE_S, Database, MemoryLeases, Registration

from perseus_dist.messages.terms import Target
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.auth import Caller, hash_token
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import OperatorCalls
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.store.lease_table import Claimed, JobElsewhere
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.web.access import WebAccess
from perseus_dist.planner.web.app import Page
from perseus_dist.planner.web.fragments import make_templates
from perseus_dist.planner.web.replicas import Replicas, page_at
from perseus_dist.planner.web.sessions import Sessions
from perseus_dist.planner.web.views.diary import Diary


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


class NoWorker:
    """Plans nothing."""

    def expected_s(self, _request: object) -> None:
        return None


@asynccontextmanager
async def page_beside(database: Database, access: Access) -> AsyncIterator[tuple[httpx.AsyncClient, Jobs]]:
    """The page of the replica ``here.example:1``, asked from this machine."""
    jobs = Jobs(Store(None), NoWorker(), Policy(), Counters())  # type: ignore[arg-type]
    jobs.ownership = Ownership(database.register("here.example:1"), jobs)
    await jobs.ownership.beat()
    page = Page(
        jobs=jobs,
        operators=OperatorCalls(jobs, access.audit),
        policies=PolicyCalls(jobs, access.audit),
        access=WebAccess(
            access=access,
            needs_token=True,
            address=Address("127.0.0.1", 2),
            sessions=Sessions(port=2, is_secure=False),
        ),
        templates=make_templates(asset_revision=""),
        assets={},
        diary=Diary(),
        origin=("http", 2),
    )
    transport = httpx.ASGITransport(page.application(is_loopback=True), client=("127.0.0.1", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:2") as client:
        client.headers["Accept"] = "text/html"
        yield client, jobs
    jobs.ownership.suspend()
    jobs.close()


def test_the_page_says_where_jobs_and_policies_are_that_another_replica_has() -> None:
    database = Database()
    there = database.register("there.example:1")
    there.claim(["", "gpt"])
    database.facts |= {"": [BudgetSet(name="hall", watts=1000.0)], "gpt": [job_of(hash_token("job-secret"))]}
    access = Access("op-secret")
    at_gpt, at_policies = "job gpt is at the replica there.example:1", "the policies are at the replica there.example:1"

    async def play() -> None:
        async with page_beside(database, access) as (client, _):
            operator = {"Authorization": "Bearer op-secret"}
            for address, said in (
                ("/jobs/gpt", at_gpt),
                ("/jobs/gpt/choices", at_gpt),
                ("/jobs/gpt/events", at_gpt),
                ("/budgets", at_policies),
            ):
                answer = await client.get(address, headers=operator)
                assert (answer.status_code, said in answer.text) == (409, True), address
                assert f'href="http://there.example:2{address}"' in answer.text
            for address in ("/jobs/gpt/target", "/budgets/set-load-target"):
                answer = await client.post(address, headers=operator | {"Accept": "application/json"}, content=b"a=b")
                assert answer.status_code == 409
                assert answer.json()["sentence"] == (at_gpt if "gpt" in address else at_policies)
            csrf = csrf_of(await client.get("/login"))
            unknown = await client.post("/login", data={"csrf": csrf, "token": "no-secret"})
            assert "this token opens no job that this replica knows of" in html.unescape(unknown.text)
            known = await client.post("/login", data={"csrf": csrf, "token": "job-secret"})
            assert (known.status_code, known.headers["location"]) == (303, "/")
            assert (await client.post("/logout", data={"csrf": "of another login"})).status_code == 401

    asyncio.run(play())
    records = access.audit.read(after_id=0, since_s=0, job="", limit=10)
    assert [(record.action, record.outcome) for record in records] == [
        ("Login", "refused: unknown token"),
        ("Logout", "refused: this form is of an earlier login or of another site: load the page again"),
    ]


def test_an_open_page_of_budgets_says_that_another_replica_keeps_them_by_now() -> None:
    section = make_templates().get_template("section_budgets.html")
    away = section.render(budgets=[], prices=[], are_here=False, csrf="")
    assert "Another replica keeps power budgets and price policies" in away
    assert "No power budget covers" not in away


def csrf_of(answer: httpx.Response) -> str:
    found = re.search('name="csrf" value="(.*?)"', answer.text)
    assert found is not None
    return found[1]
