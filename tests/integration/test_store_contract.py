"""Every store keeps the same contract: SQLite, PostgreSQL, and PostgreSQL behind pgbouncer in transaction mode."""

import math
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest
from memory_leases import Database, MemoryFacts, MemoryLeases
from postgres_server import PostgresServer
from test_planner_store import FACTS, LARGE, OWN_FACTS, SAMPLE, baseline
from waiting import PATIENCE_S, wait_until

from perseus_dist.messages.from_agent import ProfileSamples
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.decisions import StragglerKnown, TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.facts.sweeps import SamplesReceived
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.fact_database import Change, FactDatabase, FencedError
from perseus_dist.planner.store.fact_rows import row_of_fact
from perseus_dist.planner.store.lease_table import Claimed, LeaseTable
from perseus_dist.planner.store.store import NO_JOB, Store

Open = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres", "pgbouncer"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one database, each time as a planner does that is started again on its state folder."""
    if request.param == "sqlite":
        return lambda: Store(tmp_path / "planner.sqlite")
    server = request.getfixturevalue("pooled" if request.param == "pgbouncer" else "postgres")
    from perseus_dist.planner.store.postgres.address import PostgresAddress
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

    address = PostgresAddress(server.url(server.fresh_database(), pooled=request.param == "pgbouncer"))
    aside = tmp_path / "planner.postgresql"
    return lambda: Store(PostgresFacts(address, state_id="here", aside=aside, waits=False))


def stored(open_store: Open) -> dict[str, list[Fact]]:
    store = open_store()
    try:
        return {**store.load(), **({NO_JOB: store.load_own()} if store.load_own() else {})}
    finally:
        store.close()


def test_facts_come_back_in_the_order_of_storing(open_store: Open) -> None:
    store = open_store()
    assert (store.load(), store.load_own()) == ({}, [])
    store.commit("a", FACTS[:4]).result(10)
    store.commit("b", FACTS).result(10)
    for fact in FACTS[4:]:
        store.commit("a", [fact]).result(10)
    store.commit(NO_JOB, OWN_FACTS).result(10)
    store.close()
    assert stored(open_store) == {"a": list(FACTS), "b": list(FACTS), NO_JOB: list(OWN_FACTS)}


def test_a_fact_replaces_that_of_the_same_key_and_comes_last(open_store: Open) -> None:
    store = open_store()
    store.commit("a", FACTS).result(10)
    newer = baseline(3.0)
    store.commit("a", [newer]).result(10)
    store.commit("a", [newer, *FACTS[:1]]).result(10)
    store.close()
    rest = [fact for fact in FACTS[1:] if fact.key != newer.key]
    assert stored(open_store) == {"a": [*rest, newer, FACTS[0]]}


def test_drops_come_before_the_rows_of_their_commit_and_behind_earlier_commits(open_store: Open) -> None:
    store = open_store()
    store.commit("a", FACTS).result(10)
    first, second = (StragglerKnown(straggler_id=name, degree=2.0, dp_rank=0) for name in ("x", "y"))
    for done in (  # in one transaction or in several
        store.commit("a", [first]),
        store.commit("a", [second], drop=["straggler/"]),
        store.commit("b", FACTS),
        store.commit("b", [first], drop=[""]),
        store.commit("c", FACTS),
        store.forget("c"),
    ):
        done.result(10)
    store.close()
    kept = [fact for fact in FACTS if not isinstance(fact, StragglerKnown)]
    assert stored(open_store) == {"a": [*kept, second], "b": [first]}


NAMES = ("Ü", "x'y", 'x"y', "x\\y", "%s", "x/y", "\U0010fffe", "a" * 1000, "\x7f", "É\u0301")


def test_names_are_kept_as_they_are_and_drops_take_no_neighbour(open_store: Open) -> None:
    store = open_store()
    expected = {}
    for name in NAMES:
        others = (name, name + "z", name[:-1], name.lower(), name.upper(), "Z" + name)
        neighbours = {
            fact.key: fact for fact in (StragglerKnown(straggler_id=o, degree=2.0, dp_rank=0) for o in others)
        }
        store.commit(name, list(neighbours.values())).result(10)
        dropped = next(iter(neighbours))
        store.commit(name, (), [dropped]).result(10)
        expected[name] = [fact for key, fact in neighbours.items() if not key.startswith(dropped)]
    store.close()
    assert stored(open_store) == expected


def test_a_forgotten_job_begins_anew(open_store: Open) -> None:
    store = open_store()
    for _ in range(3):
        store.commit("a", FACTS).result(10)
        store.forget("a").result(10)
    store.commit("a", FACTS[:2]).result(10)
    store.close()
    assert stored(open_store) == {"a": list(FACTS[:2])}


def test_a_thousand_ranks_commit_at_once(open_store: Open) -> None:
    store = open_store()
    facts = {
        rank: SamplesReceived(
            rank=rank,
            pp_rank=0,
            dp_rank=rank,
            tp_rank=0,
            incarnation=2**64 - 1,
            series=3,
            clock_mhz=1410,
            samples=ProfileSamples(sequence=5, sweep_id=4, step=0, samples=(SAMPLE,), last=True),
        )
        for rank in range(1000)
    }
    done = [store.commit(f"job {rank % 7}", [fact]) for rank, fact in facts.items()]
    assert not wait(done, 60).not_done
    assert all(each.exception() is None for each in done)
    store.close()
    found = stored(open_store)
    assert found == {f"job {number}": list(facts.values())[number::7] for number in range(7)}


def test_large_facts_go_in_several_statements(open_store: Open) -> None:
    store = open_store()
    done = [store.commit(f"job {number}", [LARGE, FACTS[0]]) for number in range(100)]
    assert not wait(done, 60).not_done
    store.close()
    assert stored(open_store) == {f"job {number}": [LARGE, FACTS[0]] for number in range(100)}


def test_jobs_that_are_of_no_use_are_kept_aside(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    store.commit("a", FACTS).result(10)
    store.commit("b", FACTS).result(10)
    store.set_aside({"a": FACTS})
    store.close()
    assert stored(open_store) == {"b": list(FACTS)}
    (aside,) = tmp_path.glob("*.unusable-*")
    kept = Store(aside)
    assert kept.load() == {"a": list(FACTS)}
    kept.close()


# ---- two planners ----------------------------------------------------------------------------------------------------


def test_a_second_planner_of_a_state_folder_is_refused(tmp_path: Path) -> None:
    first = Store(tmp_path / "planner.sqlite")
    with pytest.raises(StoreError, match="another planner holds it"):
        Store(tmp_path / "planner.sqlite")
    first.close()


@pytest.fixture(params=["postgres", "pgbouncer"])
def open_as(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Store]]:
    """Opens one database as planners of several state folders, and closes it."""
    server = request.getfixturevalue("pooled" if request.param == "pgbouncer" else "postgres")
    from perseus_dist.planner.store.postgres.address import PostgresAddress
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

    address = PostgresAddress(server.url(server.fresh_database(), pooled=request.param == "pgbouncer"))
    stores = []

    def open_store(state_id: str) -> Store:
        stores.append(Store(PostgresFacts(address, state_id=state_id, waits=False)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


OpenAs = Callable[[str], Store]


def test_a_second_planner_is_refused_until_the_first_ends(open_as: OpenAs) -> None:
    first = open_as("here")
    first.commit("a", FACTS).result(10)
    with pytest.raises(StoreError, match="another planner holds it"):
        open_as("elsewhere")
    first.commit("b", FACTS).result(10)
    first.close()
    assert open_as("elsewhere").load() == {"a": list(FACTS), "b": list(FACTS)}


def numbered(number: int) -> Fact:
    return StragglerKnown(straggler_id=f"{number:06}", degree=2.0, dp_rank=0)


def lapse(postgres: PostgresServer) -> None:
    """As if the planners had been silent for long."""
    postgres.execute("UPDATE perseus_dist.planners SET alive_until = now() - interval '1 s'", "fresh")


@contextmanager
def silent(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its planner does not say meanwhile that it is alive, however long this takes."""
    may_speak, keep_alive = threading.Event(), store._database.keep_alive

    def keep_alive_later() -> None:
        may_speak.wait(PATIENCE_S)
        keep_alive()

    monkeypatch.setattr(store._database, "keep_alive", keep_alive_later)
    try:
        yield
    finally:
        may_speak.set()


def test_a_planner_that_was_taken_over_from_writes_nothing_more(
    open_as: OpenAs, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = open_as("here")
    old.commit("a", FACTS).result(30)
    lapse(postgres)
    old.commit("a", [numbered(1)]).result(30)  # late is not lost: the epoch decides
    with silent(old, monkeypatch):
        lapse(postgres)
        new = open_as("elsewhere")
    assert new.load() == {"a": [*FACTS, numbered(1)]}
    new.commit("a", [numbered(2)]).result(30)
    for job, facts in (("a", [numbered(1)]), ("a", ()), ("new", FACTS)):
        refused = old.commit(job, facts, ["straggler/"])
        with pytest.raises(StoreError, match="another planner has taken over"):
            refused.result(30)
    with pytest.raises(StoreError, match="another planner has taken over"):
        old.forget("a").result(30)
    assert "another planner has taken over" in old.lost.result(30)
    new.commit("b", FACTS).result(30)
    assert not new.lost.done()
    new.close()
    old.close()
    assert open_as("here").load() == {"a": [*FACTS, numbered(1), numbered(2)], "b": list(FACTS)}


def test_a_silent_planner_learns_that_it_was_taken_over_from(
    open_as: OpenAs, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

    old = open_as("here")
    with silent(old, monkeypatch):
        lapse(postgres)
        monkeypatch.setattr(PostgresFacts, "period_s", 0.1)
        open_as("elsewhere")
    assert "another planner has taken over" in old.lost.result(60)


def test_epochs_only_grow(open_as: OpenAs, postgres: PostgresServer) -> None:
    seen = []
    for _ in range(3):
        store = open_as("here")
        store.commit("a", FACTS).result(30)
        seen += postgres.execute("SELECT epoch FROM perseus_dist.leases WHERE job = 'a'", "fresh")
        store.forget("a").result(30)
        store.close()
    assert seen == sorted(set(seen))


# ---- replicas --------------------------------------------------------------------------------------------------------


class Replicas(Protocol):
    """One database, and what its replicas do."""

    def register(self, address: str) -> LeaseTable: ...
    def facts(self, leases: LeaseTable) -> FactDatabase: ...
    def lapse(self) -> None: ...


def stores(replicas: Replicas, leases: LeaseTable, job: str, epoch: int, fact: Fact) -> bool:
    """Whether a fact is stored under an epoch."""
    change = Change(epoch)
    change.add([row_of_fact(fact)], ())
    try:
        replicas.facts(leases).write({job: change})
    except FencedError:
        return False
    return True


class InMemory:
    def __init__(self) -> None:
        self.database = Database()

    def register(self, address: str) -> LeaseTable:
        return self.database.register(address)

    def facts(self, leases: LeaseTable) -> FactDatabase:
        assert isinstance(leases, MemoryLeases)
        return MemoryFacts(leases)

    def lapse(self) -> None:
        self.database.now_s += 60.0


class InPostgres:
    def __init__(self, server: PostgresServer, *, pooled: bool) -> None:
        from perseus_dist.planner.store.postgres.address import PostgresAddress

        self.server = server
        self.address = PostgresAddress(server.url(server.fresh_database(), pooled=pooled))
        self.opened: dict[str, Any] = {}

    def register(self, address: str) -> LeaseTable:
        from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

        facts = PostgresFacts(self.address, state_id=address, waits=False, advertise=address)
        self.opened[address] = facts
        assert facts.leases is not None
        return facts.leases

    def facts(self, leases: LeaseTable) -> FactDatabase:
        facts: FactDatabase = self.opened[leases.address]
        return facts

    def lapse(self) -> None:
        lapse(self.server)

    def close(self) -> None:
        for facts in self.opened.values():
            facts.leases.resign()
            facts.close()


@pytest.fixture(params=["memory", "postgres", "pgbouncer"])
def replicas(request: pytest.FixtureRequest) -> Iterator[Replicas]:
    if request.param == "memory":
        yield InMemory()
        return
    pooled = request.param == "pgbouncer"
    shared = InPostgres(request.getfixturevalue("pooled" if pooled else "postgres"), pooled=pooled)
    yield shared
    shared.close()


def claimed(leases: LeaseTable, job: str, *, known_only: bool = False) -> Claimed:
    found = leases.claim([job], known_only=known_only)[job]
    assert isinstance(found, Claimed)
    return found


def test_a_job_has_one_owner_that_alone_writes_it(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    mine = claimed(first, "a")
    assert (mine.facts, mine.has_predecessor) in (((), False), ([], False))
    assert second.claim(["a", "b"], known_only=True) == {"a": "first"}
    assert stores(replicas, first, "a", mine.epoch, numbered(1))
    assert not stores(replicas, second, "a", mine.epoch + 1, numbered(2))
    assert not stores(replicas, second, "b", 0, numbered(2))
    again = claimed(first, "a")
    assert again.epoch > mine.epoch
    assert list(again.facts) == [numbered(1)]
    assert not stores(replicas, first, "a", mine.epoch, numbered(3))
    assert sorted(first.survey({}).replicas) == ["first", "second"]


def test_jobs_of_the_others_are_the_first_by_name_with_all_that_is_shown(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("memory_leases", "perseus_dist.planner.store.postgres.replica_leases"):
        monkeypatch.setattr(f"{module}.MOST_ELSEWHERE", 2)
    first, second = (replicas.register(name) for name in ("first", "second"))
    registered = JobRegistered(schedule_digest="", pp_size=4, dp_size=2, tp_size=1, token_sha256="hash")
    target = TargetChosen(target=Target(slowdown=1.1), by_operator=True)
    for job in ("d", "b", "a", "c"):
        epoch = claimed(second, job).epoch
        for fact in (registered, target, numbered(1)):
            assert stores(replicas, second, job, epoch, fact)
    stores(replicas, first, "own", claimed(first, "own").epoch, registered)
    claimed(second, "0, not registered yet")
    seen = first.elsewhere()
    assert [(job.job_id, job.address, job.registered, job.target) for job in seen] == [
        (job, "second", registered, target) for job in ("a", "b")
    ]
    assert [job.job_id for job in second.elsewhere()] == ["own"]
    replicas.lapse()
    first.survey({})
    assert first.elsewhere() == [], "no replica serves them"


def test_a_lapsed_lease_is_taken_over_with_all_that_was_stored(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    mine = {job: claimed(first, job).epoch for job in ("a", "b", "c")}
    for job, epoch in mine.items():
        assert stores(replicas, first, job, epoch, numbered(1))
    assert second.survey({}).orphans == []
    replicas.lapse()
    assert second.survey({}).lost == frozenset()
    assert sorted(second.survey({}).orphans) == ["a", "b", "c"]
    assert stores(replicas, first, "a", mine["a"], numbered(2)), "late is not lost: the epoch decides"
    theirs = claimed(second, "a", known_only=True)
    assert list(theirs.facts) == [numbered(1), numbered(2)]
    assert theirs.has_predecessor
    assert theirs.epoch > mine["a"]
    assert not stores(replicas, first, "a", mine["a"], numbered(3))
    assert stores(replicas, second, "a", theirs.epoch, numbered(4))
    assert first.survey(mine).lost == {"a"}
    assert first.survey(mine).lost == frozenset(), "said once"
    assert second.claim(["b"]) == {"b": "first"}, "it lives again"


def test_a_write_of_several_jobs_stores_those_that_are_owned_and_names_the_others(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    epochs = {job: claimed(first, job).epoch for job in ("a", "b", "c")}

    def change(job: str, *facts: Fact, drop: Collection[str] = ()) -> Change:
        made = Change(epochs[job])
        made.add([row_of_fact(fact) for fact in facts], drop)
        return made

    kept = BudgetSet(name="kept", watts=1.0, jobs=("*",))
    replicas.facts(first).write({job: change(job, numbered(1), numbered(2), kept) for job in epochs})
    replicas.lapse()
    second.survey({})
    assert list(claimed(second, "b", known_only=True).facts) == [numbered(1), numbered(2), kept]
    newer = change("c", numbered(3), drop=["straggler/"])
    newer.add([row_of_fact(numbered(4))], ())
    changes = {"a": change("a", numbered(1)), "b": change("b", numbered(3)), "c": newer}
    with pytest.raises(FencedError) as refused:
        replicas.facts(first).write(changes)
    assert list(refused.value.jobs) == ["b"]
    replicas.lapse()
    second.survey({})
    assert list(claimed(second, "a", known_only=True).facts) == [numbered(2), kept, numbered(1)], (
        "the newest comes last"
    )
    assert list(claimed(second, "b").facts) == [numbered(1), numbered(2), kept]
    assert list(claimed(second, "c", known_only=True).facts) == [kept, numbered(3), numbered(4)]


def test_policies_are_the_first_of_the_orphans_however_many_jobs_there_are(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    first.claim([NO_JOB, *(f"job-{number}" for number in range(1000))])
    replicas.lapse()
    orphans = second.survey({}).orphans
    assert orphans[0] == NO_JOB
    assert len(orphans) < 1000, "a survey is short"


def test_all_leases_are_listed_and_whether_a_replica_that_lives_has_them(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    assert second.all() == {}
    jobs = [f"job-{number}" for number in range(1000)]
    first.claim([NO_JOB, *jobs])
    assert second.all() == first.all() == dict.fromkeys(jobs, True)
    replicas.lapse()
    second.survey({})
    mine = claimed(second, "job-0")
    assert second.all() == dict.fromkeys(jobs, False) | {"job-0": True}
    assert stores(replicas, second, "job-0", mine.epoch, numbered(1))
    second.release({"job-0": mine.epoch})
    assert second.all() == dict.fromkeys(jobs, False)


def test_the_next_lapse_is_that_of_another_replica_that_lives(replicas: Replicas) -> None:
    first = replicas.register("first")
    assert first.survey({}).next_lapse_s == math.inf, "there is no other"
    second = replicas.register("second")
    second.survey({})
    assert 0.0 < first.survey({}).next_lapse_s <= 2.0, "what a renewal gives it"
    replicas.lapse()
    assert first.survey({}).next_lapse_s == math.inf, "it is none of those that live"


@pytest.mark.parametrize("server_name", ["postgres", "pooled"])
@pytest.mark.parametrize("holds", ["claims", "job"])
def test_locks_of_a_replica_that_is_stopped_within_a_transaction_hold_up_no_takeover(
    server_name: str, holds: str, request: pytest.FixtureRequest
) -> None:
    import psycopg

    from perseus_dist.planner.store.postgres.leases import LABEL, LOCK_HELD
    from perseus_dist.planner.store.postgres.schema import LOCK

    server = request.getfixturevalue(server_name)
    shared = InPostgres(server, pooled=server_name == "pooled")
    first, second = (shared.register(name) for name in ("first", "second"))
    mine = claimed(first, "a")
    assert stores(shared, first, "a", mine.epoch, numbered(1))
    ((number,),) = server.execute("SELECT planner FROM perseus_dist.leases", "fresh")
    held = {"number": number, "jobs": ["a"], "epochs": [mine.epoch]}
    stopped = psycopg.connect(shared.address.url, autocommit=True, prepare_threshold=None)
    with suppress(psycopg.Error), stopped.pipeline(), stopped.transaction():
        stopped.execute(LABEL, held)
        stopped.execute(LOCK if holds == "claims" else LOCK_HELD, held)
        locks = "locktype = 'advisory'" if holds == "claims" else "mode = 'RowShareLock'"
        count = f"SELECT count(*) FROM pg_locks WHERE granted AND {locks}"
        wait_until(lambda: server.execute(count, "fresh") != [(0,)])
        shared.lapse()
        second.survey({})
        theirs = claimed(second, "a")
        assert server.execute(count, "fresh") == [(0,)], "the server has ended the transaction that held locks"
        assert theirs.epoch > mine.epoch
        assert list(theirs.facts) == [numbered(1)]
    stopped.close()
    assert stores(shared, second, "a", theirs.epoch, numbered(2)), "of replicas that live nothing is ended"
    shared.close()


def test_a_released_lease_is_free_at_once_and_one_without_facts_is_gone(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    mine = {job: claimed(first, job).epoch for job in ("a", "empty")}
    assert stores(replicas, first, "a", mine["a"], numbered(1))
    first.release({job: epoch + 1 for job, epoch in mine.items()})
    assert second.claim(["a", "empty"]) == {"a": "first", "empty": "first"}
    first.release(mine)
    assert list(second.survey({}).orphans) == ["a"]
    assert not claimed(second, "empty").has_predecessor
    assert list(claimed(second, "a").facts) == [numbered(1)]
    second.resign()
    assert sorted(first.survey({}).orphans) == ["a", "empty"]
    with pytest.raises(FencedError):
        second.survey({})


def test_the_replica_that_keeps_the_policies_is_known_and_their_patterns(replicas: Replicas) -> None:
    first, second = (replicas.register(name) for name in ("first", "second"))
    assert second.survey({}).policies == ""
    epoch = claimed(first, NO_JOB).epoch
    budget = next(fact for fact in OWN_FACTS if isinstance(fact, BudgetSet))
    assert stores(replicas, first, NO_JOB, epoch, budget)
    survey = second.survey({})
    assert survey.policies == "first"
    assert [tuple(patterns) for patterns in survey.patterns] == [tuple(budget.jobs)]


def test_one_planner_for_all_jobs_and_replicas_wait_for_each_other(postgres: PostgresServer) -> None:
    shared = InPostgres(postgres, pooled=False)
    from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

    leases = shared.register("replica")
    epoch = claimed(leases, "a").epoch
    assert stores(shared, leases, "a", epoch, numbered(1))
    with pytest.raises(StoreError, match="another planner holds it"):
        PostgresFacts(shared.address, state_id="alone", waits=False)
    shared.lapse()
    alone = Store(PostgresFacts(shared.address, state_id="alone", waits=False))
    assert alone.load() == {"a": [numbered(1)]}
    with pytest.raises(FencedError, match="another planner has taken over"):
        leases.survey({"a": epoch})
    assert not stores(shared, leases, "a", epoch, numbered(2))
    with pytest.raises(StoreError, match="another planner holds it"):
        shared.register("another")
    alone.commit("a", [numbered(3)]).result(30)
    alone.close()
    after = shared.register("another")
    assert list(claimed(after, "a").facts) == [numbered(1), numbered(3)]
    shared.close()


def test_a_commit_of_an_earlier_lease_never_counts_under_a_later_one(postgres: PostgresServer) -> None:
    shared = InPostgres(postgres, pooled=False)
    first, second = (shared.register(name) for name in ("first", "second"))
    store = Store(shared.opened["first"])
    epochs = {"a": claimed(first, "a").epoch}
    refused: list[tuple[str, int]] = []
    store.epochs, store.fenced = epochs, lambda job, epoch: refused.append((job, epoch))
    store.commit("a", [numbered(1)]).result(30)
    shared.lapse()
    second.survey({})
    theirs = claimed(second, "a").epoch
    lost = epochs["a"]
    for _ in range(2):
        with pytest.raises(StoreError, match="another replica has a now"):
            store.commit("a", [numbered(2)]).result(30)
    assert refused == [("a", lost)] * 2
    second.release({"a": theirs})
    first.survey({})
    before = store.commit("a", [numbered(3)])
    epochs["a"] = claimed(first, "a").epoch
    after = store.commit("a", [numbered(4)])
    assert isinstance(before.exception(30), StoreError)
    after.result(30)
    assert list(claimed(first, "a").facts) == [numbered(1), numbered(4)]
    assert not store.lost.done()
    store.close()
    shared.opened.pop("first")
    first.resign()
    shared.close()


def test_sqlite_planners_import_no_psycopg() -> None:
    code = "import sys, perseus_dist.planner.service.server; print('psycopg' in sys.modules)"
    told = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert told.stdout == "False\n"
