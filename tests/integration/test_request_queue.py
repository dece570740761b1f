"""The queue of planning requests, on PostgreSQL and behind pgbouncer, and the planners and workers that share it."""

import asyncio
import json
import os
import random
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from commands import run_command
from memory_requests import MemoryRequests, RequestRows
from plan_requests import LONG, planning_worker, request
from planner_process import planner
from postgres_server import PostgresServer
from virtual_loop import World
from waiting import wait_until

from perseus_dist.errors import ProfileError
from perseus_dist.messages.planning_queue import PlanningQueue
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.planning_requests import MAX_TRIES, PlanningRequests
from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts
from perseus_dist.planner.store.request_queue import (
    PATIENT,
    URGENT,
    QueuedRequest,
    QueueError,
    RequestQueue,
    TakenRequest,
)
from perseus_dist.planner.worker.plan_request import PlanResult
from perseus_dist.planner.worker.planning_worker import PlanningWorker, WorkerDiedError
from perseus_dist.planner.worker.shared.queue_process import shared_queue
from perseus_dist.planner.worker.shared.queued_request import queued, request_of, result_of, text_of_answer
from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning

PATIENCE_S = 180.0
LAPSE = "UPDATE perseus_dist.planning_requests SET taken_until = now() - interval '1 s' WHERE done_at = 'infinity'"

NEVER_LAPSE = """
CREATE FUNCTION perseus_dist.never_lapse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.taken_until > now() THEN NEW.taken_until := now() + interval '1 day'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER never_lapse BEFORE UPDATE ON perseus_dist.planning_requests
    FOR EACH ROW EXECUTE FUNCTION perseus_dist.never_lapse();
"""

MOSTLY_WITHOUT_POOLER = pytest.mark.parametrize(
    "address", ["postgres", pytest.param("pgbouncer", marks=pytest.mark.soak)], indirect=True
)


@pytest.fixture(params=["postgres", "pgbouncer"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> PostgresAddress:
    """A database with a planner's tables."""
    pooled = request.param == "pgbouncer"
    server = request.getfixturevalue("pooled" if pooled else "postgres")
    name = server.fresh_database()
    PostgresFacts(PostgresAddress(server.url(name)), state_id="here", aside=tmp_path, waits=False).close()
    return PostgresAddress(server.url(name, pooled=pooled))


@pytest.fixture
def queue(address: PostgresAddress) -> Iterator[PlanningRequests]:
    opened = PlanningRequests(address)
    yield opened
    opened.close()


def asked(digest: str, urgency: int = PATIENT) -> QueuedRequest:
    return QueuedRequest(digest=digest, urgency=urgency, body=f'"body of {digest}"')


def test_a_request_is_taken_by_one_worker_and_its_answer_is_kept(queue: PlanningRequests) -> None:
    queue.ask(asked("a"))
    assert queue.look(["a", "b"])["a"].is_free
    assert queue.look(["b"]) == {}
    taken = queue.take()
    assert taken is not None
    assert (taken.digest, taken.body, queue.take(), queue.take(digest="a")) == ("a", '"body of a"', None, None)
    assert queue.state().num_waiting == 0
    assert queue.renew(taken, 30.0)
    state = queue.look(["a"])["a"]
    assert (state.is_free, state.is_done) == (False, False)
    assert state.left_s == pytest.approx(30, abs=10)
    queue.answer(taken, "answer", b"\0tables")
    for _ in range(2):  # a request that is repeated has its answer at once
        state = queue.look(["a"])["a"]
        assert (state.is_done, state.is_free, state.error, state.left_s) == (True, False, "", None)
        assert queue.read("a") == ("answer", b"\0tables")
        queue.ask(asked("a"))
    assert queue.take() is None


def test_urgent_requests_come_first_and_each_has_one_worker_of_many(
    queue: PlanningRequests, address: PostgresAddress
) -> None:
    for number in range(20):
        queue.ask(asked(f"{number:02}", URGENT if number % 2 else PATIENT))
    assert queue.state().num_waiting == 20
    first = [queue.take(least_urgency=URGENT) for _ in range(2)]
    assert [taken and taken.digest for taken in first] == ["01", "03"]
    found: list[str] = []

    def work() -> None:
        own = PlanningRequests(address)
        while (taken := own.take()) is not None:
            found.append(taken.digest)
        own.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 18


def test_a_worker_that_is_silent_loses_its_request_and_its_late_answer_is_as_good(
    queue: PlanningRequests, postgres: PostgresServer
) -> None:
    queue.ask(asked("a"))
    first = queue.take()
    assert first is not None
    postgres.execute(LAPSE, "fresh")
    assert queue.look(["a"])["a"].is_free
    second = queue.take()
    assert second is not None
    assert second.token > first.token
    assert not queue.renew(first, None)
    assert queue.renew(second, None)
    queue.fail(first, "of one that has lost it")
    queue.give_back(first, was_tried=False)
    assert not queue.look(["a"])["a"].is_done
    queue.answer(first, "answer", b"")
    assert not queue.renew(second, None)
    queue.fail(second, "too late")
    queue.answer(second, "the same, made again", b"")
    assert queue.read("a") == ("answer", b"")
    assert queue.look(["a"])["a"].error == ""


def test_a_request_over_which_workers_die_is_tried_a_few_times(
    queue: PlanningRequests, postgres: PostgresServer
) -> None:
    queue.ask(asked("a"))
    for number in range(MAX_TRIES):
        assert queue.look(["a"])["a"].is_free
        taken = queue.take()
        assert taken is not None
        if number % 2:
            queue.give_back(taken, was_tried=True)
        postgres.execute(LAPSE, "fresh")
    state = queue.look(["a"])["a"]
    assert (state.is_done, state.is_free, state.is_transient, queue.take()) == (True, False, True, None)
    assert re.search(f"ended over the request {MAX_TRIES} times", state.error)
    queue.ask(asked("a"))  # the planner tries again, as it does after any transient error
    taken = queue.take()
    assert taken is not None
    for _ in range(MAX_TRIES + 1):  # workers that end in order count for nothing
        queue.give_back(taken, was_tried=False)
        taken = queue.take()
        assert taken is not None
    queue.fail(taken, "saw a \0, expected none")
    state = queue.look(["a"])["a"]
    assert (state.is_done, state.is_transient, state.error) == (True, False, "saw a , expected none")
    queue.ask(asked("a"))
    assert queue.look(["a"])["a"].is_free


def test_what_no_planner_wants_is_left_alone_and_forgotten(queue: PlanningRequests, postgres: PostgresServer) -> None:
    queue.ask(asked("a"))
    taken = queue.take()
    assert taken is not None
    postgres.execute("UPDATE perseus_dist.planning_requests SET wanted_until = now() - interval '1 s'", "fresh")
    assert not queue.renew(taken, None)
    queue.give_back(taken, was_tried=False)
    assert queue.take() is None
    assert queue.state().num_waiting == 0
    assert queue.look(["a"])["a"].is_free, "and is wanted again"
    assert queue.state().num_waiting == 1
    postgres.execute("UPDATE perseus_dist.planning_requests SET program = 'another'", "fresh")
    assert (queue.take(), queue.look(["a"])) == (None, {})
    postgres.execute("UPDATE perseus_dist.planning_requests SET wanted_until = now() - interval '1 day'", "fresh")
    queue.state()
    assert postgres.execute("SELECT count(*) FROM perseus_dist.planning_requests", "fresh") == [(0,)]


def test_requests_and_workers_of_other_versions_are_counted_apart(
    queue: PlanningRequests, postgres: PostgresServer
) -> None:
    assert queue.state() == PlanningQueue()
    queue.report("worker", 4)
    queue.report("worker", 4)
    queue.report("other", 2)
    queue.report("old", 1)
    for digest in "abc":
        queue.ask(asked(digest))
    for statement in (
        "UPDATE perseus_dist.planning_requests SET asked_at = now() - interval '90 s'",
        "UPDATE perseus_dist.planning_requests SET program = '0.0.1', asked_at = now() - interval '7 min' "
        "WHERE digest = 'c'",
        "UPDATE perseus_dist.planning_workers SET program = '0.0.1' WHERE id = 'old'",
    ):
        postgres.execute(statement, "fresh")
    state = queue.state()
    assert state.oldest_s == pytest.approx(90, abs=60)
    assert state.oldest_others_s == pytest.approx(420, abs=60)
    assert replace(state, oldest_s=0.0, oldest_others_s=0.0) == PlanningQueue(
        num_waiting=2, num_waiting_others=1, num_workers=2, num_at_once=6, num_workers_others=1
    )
    assert len(state.troubles) == 3
    # Neither one over which workers have died waits, nor one that a worker has; nor is a silent worker seen.
    postgres.execute(f"UPDATE perseus_dist.planning_requests SET num_tries = {MAX_TRIES} WHERE digest = 'a'", "fresh")
    assert queue.state().num_waiting == 1
    assert queue.take() is not None
    postgres.execute("UPDATE perseus_dist.planning_workers SET alive_until = now() WHERE id = 'other'", "fresh")
    queue.report("worker", 0)
    assert replace(queue.state(), oldest_others_s=0.0) == PlanningQueue(num_waiting_others=1, num_workers_others=1)


def test_the_queue_in_memory_does_what_the_database_does(queue: PlanningRequests, postgres: PostgresServer) -> None:
    """So that histories in virtual time count. Lapses apart, which the tests above move the database's clock for.

    The queue in memory has virtual time: on a busy machine requests would lapse in the database alone.
    """
    postgres.execute(NEVER_LAPSE, "fresh")
    chance = random.Random(1)
    weights = dict.fromkeys(("ask", "look", "take", "take one", "give back"), 5)
    weights |= dict.fromkeys(("read", "renew"), 3) | dict.fromkeys(("answer", "fail"), 1)
    both: tuple[RequestQueue, ...] = (queue, MemoryRequests(RequestRows(World())))
    taken: defaultdict[str, list[tuple[TakenRequest, ...]]] = defaultdict(list)
    for number in range(1500):
        digest = f"{number // 100} {chance.choice('ab')}"  # answers stay: new requests from time to time
        worker = chance.choice(taken[digest][-2:] or [()])  # the one that has it, or has lost it
        match chance.choices(*zip(*weights.items(), strict=True))[0]:
            case "ask":
                row = asked(digest, chance.choice((URGENT, PATIENT)))
                for one in both:
                    one.ask(row)
            case "look":
                states = [one.look([digest]).get(digest) for one in both]
                first, second = (s and (s.is_free, s.is_done, s.is_transient, bool(s.error)) for s in states)
                assert first == second
            case "read":
                assert queue.read(digest) == both[1].read(digest)
            case "take" | "take one" as how:
                urgency, of = chance.choice((URGENT, PATIENT)), digest if how == "take one" else ""
                found = [one.take(least_urgency=urgency, digest=of) for one in both]
                assert len({(held.digest, held.body) if held else None for held in found}) == 1
                if now := tuple(held for held in found if held):
                    taken[now[0].digest].append(now)
            case how if worker:
                answers = set()
                was_tried = chance.random() < 0.5
                for one, held in zip(both, worker, strict=True):
                    if how == "renew":
                        answers.add(one.renew(held, None))
                    elif how == "answer":
                        one.answer(held, f"answer {number}", b"\1")
                    elif how == "fail":
                        one.fail(held, "it cannot be planned")
                    else:
                        one.give_back(held, was_tried=was_tried)
                assert len(answers) <= 1


def test_a_database_without_tables_or_away_is_said(postgres: PostgresServer, tmp_path: Path) -> None:
    queue = PlanningRequests(PostgresAddress(postgres.url(postgres.fresh_database())))
    for _ in range(2):
        with pytest.raises(QueueError, match=r"no queue of planning requests yet") as found:
            queue.take()
        assert found.value.is_passing
    queue.close()
    nowhere = PlanningRequests(PostgresAddress(f"postgresql://u@/d?host={tmp_path}"))
    with pytest.raises(QueueError, match="cannot be connected to"):
        nowhere.ask(asked("a"))


def test_requests_and_answers_survive_their_text() -> None:
    one = replace(request(), snapshots=((((0, "F", 0.001),),),), menu_mhz=(1400, 1350), is_first=True)
    row = queued(one)
    assert (row.digest, row.urgency) == (one.digest, URGENT)

    async def plan() -> PlanResult:
        worker = PlanningWorker()
        try:
            return await worker.plan(replace(one, snapshots=()))
        finally:
            await worker.close()

    made = asyncio.run(plan())
    assert request_of(TakenRequest(digest=row.digest, body=row.body, token=1)) == one
    assert result_of(replace(one, snapshots=()), *text_of_answer("9f", made)) == made
    for damaged in ("", "[]", '{"request_id": 1}', row.body.replace("instruction", "whim")):
        with pytest.raises(ValueError, match="cannot be read"):
            request_of(TakenRequest(digest=row.digest, body=damaged, token=1))


# ---- planners that share ---------------------------------------------------------------------------------------------


def with_planners(address: PostgresAddress, number: int, test: Callable[..., Awaitable[None]], *more: object) -> None:
    async def run() -> None:
        planners = [SharedPlanning(shared_queue(address)) for _ in range(number)]
        try:
            async with asyncio.timeout(2 * PATIENCE_S):
                await test(*planners, *more)
        finally:
            for planner in planners:
                await planner.close()

    asyncio.run(run())


async def busy(planner: SharedPlanning) -> "asyncio.Task[PlanResult]":
    """Let a planner's worker plan for minutes; it is stopped, so that those who work have the processor."""
    task = asyncio.create_task(planner.plan(LONG))
    while (process := planner._own._patient._process) is None:
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)
    return task


async def given_up(*tasks: "asyncio.Task[PlanResult]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def num_rows(postgres: PostgresServer, condition: str = "true") -> int:
    ((number,),) = postgres.execute(f"SELECT count(*) FROM perseus_dist.planning_requests WHERE {condition}", "fresh")
    return int(number)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


@MOSTLY_WITHOUT_POOLER
def test_a_planner_whose_worker_is_free_asks_no_queue(address: PostgresAddress, postgres: PostgresServer) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        first = await planner.plan(replace(request(request_id=2), is_first=True))
        assert (first.request_id, num_rows(postgres)) == (2, 0)
        await given_up(long)
        assert (await planner.plan(request(request_id=3))).request_id == 3
        assert num_rows(postgres) == 0

    with_planners(address, 1, test)


@pytest.mark.stress
@MOSTLY_WITHOUT_POOLER
def test_what_waits_for_its_planners_worker_is_planned_by_another_planner(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    async def test(owner: SharedPlanning, helper: SharedPlanning) -> None:
        long = await busy(owner)
        waiting = replace(request(request_id=7, microbatches=3), revision=11)
        result = await owner.plan(waiting)
        assert (result.request_id, result.revision, long.done()) == (7, 11, False)
        assert (owner.num_from_others, helper.num_for_others) == (1, 1)
        again = await owner.plan(replace(waiting, request_id=8, revision=12))
        assert (again.request_id, again.summary, num_rows(postgres)) == (8, result.summary, 1)
        assert helper.num_for_others == 1, "a repeated request has the answer that is there"
        with pytest.raises(ValueError, match="not measured") as refused:
            await owner.plan(replace(waiting, contributions=()))
        assert not isinstance(refused.value, (ProfileError, WorkerDiedError)), "said by the other planner"
        await given_up(long)
        here = await owner.plan(replace(waiting, request_id=9))
        assert (here.tables, here.profile_csv) == (result.tables, result.profile_csv)

    with_planners(address, 2, test)


@MOSTLY_WITHOUT_POOLER
def test_a_request_goes_back_into_the_own_line_when_its_own_worker_is_free_first(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        waiting = [
            asyncio.create_task(planner.plan(request(request_id=number, microbatches=number))) for number in (3, 4)
        ]
        await until(lambda: num_rows(postgres) == 2)
        await given_up(long)
        assert [(await task).request_id for task in waiting] == [3, 4]
        await until(lambda: num_rows(postgres, "answer <> ''") == 2)

    with_planners(address, 1, test)


@MOSTLY_WITHOUT_POOLER
def test_without_its_database_a_planner_plans_by_itself(address: PostgresAddress, postgres: PostgresServer) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        postgres.pause()
        try:
            waiting = asyncio.create_task(planner.plan(request(request_id=3)))
            await asyncio.sleep(0.2)
            await given_up(long)
            assert (await waiting).request_id == 3
        finally:
            postgres.resume()

    with_planners(address, 1, test)


@pytest.mark.stress
@MOSTLY_WITHOUT_POOLER
def test_a_job_that_is_given_up_and_comes_back_goes_on_with_its_planning(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    """In this planner's own process, and in the queue."""

    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        process = planner._own._patient._process
        waiting = asyncio.create_task(planner.plan(replace(request(request_id=3), job_id="waits")))
        await until(lambda: num_rows(postgres) == 1)
        for job_id in ("job", "waits"):
            planner.keep(job_id)
        await given_up(long, waiting)
        long = asyncio.create_task(planner.plan(replace(LONG, request_id=10, revision=7)))
        waiting = asyncio.create_task(planner.plan(replace(request(request_id=4), job_id="waits", revision=7)))
        with planning_worker(address.url):
            result = await waiting
        assert (result.request_id, result.revision) == (4, 7)
        assert planner.num_from_others == 1
        assert process is planner._own._patient._process
        await given_up(long)
        assert planner._own._patient._process is None

    with_planners(address, 1, test)


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.mark.stress
@MOSTLY_WITHOUT_POOLER
def test_the_request_of_a_killed_worker_is_taken_by_the_next(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    held = "taken_until > now() AND done_at = 'infinity'"

    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        small = request(request_id=3, pp=8, microbatches=48, latency_s=0.012)  # a second
        waiting = asyncio.create_task(planner.plan(small))
        with planning_worker(address.url, "--workers", "1") as dying:
            await until(lambda: num_rows(postgres, held) == 1)
            dying.send_signal(signal.SIGKILL)
        with planning_worker(address.url) as second:
            assert (await waiting).request_id == 3
            assert planner.num_from_others == 1
            assert postgres.execute("SELECT num_tries FROM perseus_dist.planning_requests", "fresh") == [(2,)]
            second.send_signal(signal.SIGTERM)
            assert second.wait(PATIENCE_S) == 0
            assert second.stderr is not None
            assert b"1 requests were answered" in second.stderr.read()
        await given_up(long)

    with_planners(address, 1, test)


@MOSTLY_WITHOUT_POOLER
def test_a_worker_that_is_ended_gives_its_request_back_at_once(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        waiting = asyncio.create_task(planner.plan(replace(LONG, request_id=3, tp_size=2)))
        with planning_worker(address.url) as ending:
            await until(lambda: num_rows(postgres, "token > 0") == 1)
            ending.send_signal(signal.SIGTERM)
            assert ending.wait(PATIENCE_S) == 0
        assert num_rows(postgres, "token = 0 AND num_tries = 0 AND taken_until < now()") == 1
        await given_up(waiting, long)

    with_planners(address, 1, test)


@pytest.mark.stress
@MOSTLY_WITHOUT_POOLER
def test_a_request_that_kills_every_worker_fails_and_others_go_on(
    address: PostgresAddress, postgres: PostgresServer
) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        poisoned = asyncio.create_task(planner.plan(replace(LONG, request_id=3, tp_size=2)))
        with planning_worker(address.url, "--workers", "1") as worker:
            killed = set()
            while not poisoned.done():
                if num_rows(postgres, "taken_until > now() AND done_at = 'infinity'"):
                    for pid in children(worker.pid):
                        killed.add(pid)
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.2)
            with pytest.raises(WorkerDiedError, match=f"ended over the request {MAX_TRIES} times"):
                await poisoned
            assert len(killed) >= MAX_TRIES
            assert (await planner.plan(request(request_id=4))).request_id == 4
        await given_up(long)

    with_planners(address, 1, test)


@MOSTLY_WITHOUT_POOLER
def test_a_request_that_is_given_up_is_left_by_its_worker(address: PostgresAddress, postgres: PostgresServer) -> None:
    async def test(planner: SharedPlanning) -> None:
        long = await busy(planner)
        waiting = asyncio.create_task(planner.plan(replace(LONG, request_id=3, tp_size=2)))
        with planning_worker(address.url) as worker:
            await until(lambda: any(map(children, [worker.pid])))
            await given_up(waiting)
            await until(lambda: num_rows(postgres, "token = 0 AND num_tries = 0 AND wanted_until < now()") == 1)
            assert children(worker.pid) == []
        await given_up(long)

    with_planners(address, 1, test)


@pytest.mark.stress
def test_processes_that_only_plan_are_seen_while_they_live_at_doctor_page_and_metrics(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.url(postgres.fresh_database())
    options = ("--store", url, "--metrics", "127.0.0.1:0", "--web", "127.0.0.1:0")
    with planner(tmp_path, *options) as running, httpx.Client(trust_env=False, timeout=PATIENCE_S) as client:

        def told() -> tuple[str, str, list[str]]:
            page = client.get(running.told["web_url"], headers={"accept": "text/html"}).text
            (sentence,) = re.findall(r'id="planning"[^>]*>([^<]*)<', page)
            metrics = client.get(f"http://{running.told['metrics_address']}/metrics").text
            token = ("--token-file", str(running.folder / "state/operator-token"))
            findings = json.loads(run_command("doctor", "--json", "--planner", running.address, *token).stdout)[
                "findings"
            ]
            of_queue = [f"{one['level']} {one['what']}" for one in findings if one["subject"] == "planning queue"]
            return sentence, metrics, of_queue

        def seen(words: str) -> bool:
            return words in client.get(running.told["web_url"], headers={"accept": "text/html"}).text

        wait_until(lambda: seen("no request waits; no planning workers but the planners&#39; own"))
        with planning_worker(url, "--workers", "3") as first, planning_worker(url, "--workers", "2"):
            wait_until(lambda: seen("2 planning workers, 5 at once"))
            sentence, metrics, findings = told()
            assert f"ok {running.address}: no request waits; 2 planning workers, 5 at once" in findings
            assert 'perseus_planning_workers{version="this"} 2.0' in metrics
            assert "perseus_planning_workers_at_once 5.0" in metrics
            assert "perseus_queued_planning_requests_others 0.0" in metrics
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE_S) == 0
            wait_until(lambda: seen("1 planning worker, 2 at once"))
        wait_until(lambda: seen("no planning workers"))  # one that was killed
        postgres.execute(
            "INSERT INTO perseus_dist.planning_requests (program, digest, urgency, body, asked_at, wanted_until) "
            "VALUES ('0.0.1', 'a', 1, '', now() - interval '1 h', now() + interval '1 h')",
            "fresh",
        )
        wait_until(lambda: seen("of other versions: 1 request waits"))
        sentence, metrics, findings = told()
        assert "no request waits" in sentence
        assert "perseus_queued_planning_requests 0.0" in metrics
        assert "perseus_queued_planning_requests_others 1.0" in metrics
        assert any(one.startswith("warn") and "another version has waited" in one for one in findings)
        postgres.stop()
        try:
            wait_until(lambda: seen("not known now"))
            assert not re.search("^perseus_queued_planning_requests", told()[1], re.MULTILINE)
        finally:
            postgres.start()
