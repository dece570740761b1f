"""Whatever has happened to its database's file, a planner starts, goes on with what can be read, and says so."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from test_malformed_facts import good_facts
from test_planner_store import PLANS
from waiting import PATIENCE_S

from perseus_dist.planner.access.private_file import write_private
from perseus_dist.planner.job.facts.decisions import SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import TableMade
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.job.stored_facts import StoredFactError
from perseus_dist.planner.lifecycle.events import Tick
from perseus_dist.planner.lifecycle.lifecycle import restore, step
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.store.backup import inspect
from perseus_dist.planner.store.database import open_database, write_facts
from perseus_dist.planner.store.fact_rows import row_of_fact
from perseus_dist.planner.store.job_cache import JobCache
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorkers

FACTS = good_facts()
WITHOUT_PLANS = tuple(fact for fact in FACTS if not isinstance(fact, PLANS))
NUM_JOBS = 12
PER_KIND = 25
PAGE = 4096

Damage = Callable[[random.Random, bytearray], bytearray]


def truncated(rng: random.Random, data: bytearray) -> bytearray:
    return data[: rng.choice([rng.randrange(200), rng.randrange(len(data)), rng.randrange(len(data)) // PAGE * PAGE])]


def flipped(rng: random.Random, data: bytearray) -> bytearray:
    for _ in range(rng.choice([1, 1, 3, 30])):
        within = rng.choice([100, PAGE, len(data), len(data)])
        data[rng.randrange(within)] ^= 1 << rng.randrange(8)
    return data


def zeroed(rng: random.Random, data: bytearray) -> bytearray:
    begin = rng.choice([0, rng.randrange(100), rng.randrange(len(data)), rng.randrange(len(data)) // PAGE * PAGE])
    length = min(rng.choice([1, 4, 100, PAGE, 3 * PAGE, len(data)]), len(data) - begin)
    data[begin : begin + length] = bytes(length)
    return data


def swapped(rng: random.Random, data: bytearray) -> bytearray:
    one, other = (rng.randrange(len(data) // PAGE) * PAGE for _ in range(2))
    data[one : one + PAGE], data[other : other + PAGE] = data[other : other + PAGE], data[one : one + PAGE]
    return data


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "planner.sqlite"
    store = Store(path)
    for number in range(NUM_JOBS):
        store.commit(f"job {number}", FACTS).result(PATIENCE_S)
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(number, marks=pytest.mark.stress) for number in (25, 50, 75, 100))]
)
@pytest.mark.parametrize("damage", [truncated, flipped, zeroed, swapped], ids=lambda damage: damage.__name__)
def test_a_damaged_file_keeps_no_planner_from_starting(
    damage: Damage, first: int, whole: bytes, tmp_path: Path
) -> None:
    """As a first start, and as the next one, which must find nothing more to mend."""
    rescued = 0
    for seed in range(first, first + PER_KIND):
        path = tmp_path / str(seed) / "planner.sqlite"
        path.parent.mkdir()
        path.write_bytes(damage(random.Random(seed), bytearray(whole)))
        store = Store(path)
        for job_id, facts in store.load().items():
            try:
                job = restore(job_id, facts, Policy())
            except StoredFactError:  # it is set aside
                continue
            rescued += 1
            step(job, Tick(), 1.0)
            job_status(job)
        store.commit("new", FACTS).result(PATIENCE_S)
        store.close()
        aside = sorted(path.parent.glob("*damaged*"))
        again = Store(path)
        assert list(again.load()) == [*store.load(), "new"], f"seed {seed}"
        again.close()
        assert sorted(path.parent.glob("*damaged*")) == aside, f"seed {seed}"
    assert rescued > NUM_JOBS


@pytest.mark.parametrize("damage", [truncated, flipped, zeroed], ids=lambda damage: damage.__name__)
def test_a_damaged_journal_costs_at_most_its_own_commits(damage: Damage, tmp_path: Path) -> None:
    """As a killed planner leaves it: a journal beside a database."""
    path = tmp_path / "planner.sqlite"
    store = Store(path)
    store.commit("before", FACTS).result(PATIENCE_S)
    store.close()
    store = Store(path)
    store.commit("after", FACTS).result(PATIENCE_S)
    database, journal = path.read_bytes(), path.with_name("planner.sqlite-wal").read_bytes()
    store.close()
    for seed in range(PER_KIND // 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "planner.sqlite").write_bytes(database)
        (folder / "planner.sqlite-wal").write_bytes(damage(random.Random(seed), bytearray(journal)))
        again = Store(folder / "planner.sqlite")
        assert again.load()["before"] == list(FACTS), f"seed {seed}"
        assert again.load().get("after", list(FACTS)) == list(FACTS), f"seed {seed}"
        again.close()


@pytest.mark.parametrize(("begin", "end"), [(0, PAGE), (16, PAGE), (PAGE, 2 * PAGE), (0, 3 * PAGE)])
def test_where_the_first_pages_are_lost_all_profiles_are_rescued(
    begin: int, end: int, whole: bytes, tmp_path: Path
) -> None:
    """Those that say where all others are: the header, the root of the table of facts, that of its index."""
    path = tmp_path / "planner.sqlite"
    path.write_bytes(whole[:begin] + bytes(end - begin) + whole[end:])
    store = Store(path)
    assert len(store.load()) == NUM_JOBS
    assert [fact for fact in store.load()["job 3"] if not isinstance(fact, JobRegistered)] == [
        fact for fact in FACTS if not isinstance(fact, (JobRegistered, *PLANS))
    ]
    store.close()


@pytest.mark.parametrize("pragma", ["user_version = 258", "user_version = 0", "user_version = 2", "application_id = 7"])
def test_a_header_that_its_tables_contradict_is_damage_and_no_newer_planners(pragma: str, tmp_path: Path) -> None:
    path = tmp_path / "planner.sqlite"
    store = Store(path)
    store.commit("job", FACTS).result(PATIENCE_S)
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA {pragma}")
    database.close()
    store = Store(path)
    assert list(store.load()) == ["job"]
    store.close()
    assert list(tmp_path.glob("*damaged*"))


(JOB,) = (fact for fact in FACTS if isinstance(fact, JobRegistered))
(TABLE,) = (fact for fact in FACTS if isinstance(fact, TableMade))
(SWITCH,) = (fact for fact in FACTS if isinstance(fact, SwitchDecided))
UNUSABLE: dict[str, list[Fact]] = {
    "no such plan": [JOB, TABLE, replace(SWITCH, points=(9999, 9999))],
    "fewer points than pipelines": [JOB, TABLE, replace(SWITCH, points=())],
    "an empty frontier": [JOB, replace(TABLE, summary=replace(TABLE.summary, time_ps=(), total_uj=())), SWITCH],
}
"""Each fact can be read; together they make no job."""


async def taken_up(store: Store) -> list[str]:
    workers = PlanningWorkers()
    try:
        return [actor.job.job_id for actor in Jobs(store, workers, Policy(), Counters()).all()]
    finally:
        await workers.close()
        store.close()


@pytest.mark.parametrize("why", UNUSABLE)
def test_facts_that_make_no_job_are_set_aside_once(why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "planner.sqlite"
    store = Store(path)
    store.commit("bad", UNUSABLE[why]).result(PATIENCE_S)
    store.commit("good", WITHOUT_PLANS).result(PATIENCE_S)
    store.close()
    assert asyncio.run(taken_up(Store(path))) == ["good"]
    (told,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert "job bad: starts afresh" in told
    (aside,) = tmp_path.glob("planner.sqlite.unusable-*[0-9]")
    assert inspect(aside).jobs == {"bad": UNUSABLE[why]}
    caplog.clear()
    assert asyncio.run(taken_up(Store(path))) == ["good"]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("why", UNUSABLE)
def test_a_cache_that_makes_no_job_ends_no_embedded_planner(
    why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "01234567-0123456789abcdef.job"
    with closing(open_database(None)[0]) as database:
        with database:
            write_facts(database, "bad", map(row_of_fact, UNUSABLE[why]))
        write_private(path, database.serialize())
    for expected in (1, 0):
        caplog.clear()
        cache = JobCache(path, "bad")
        try:
            assert asyncio.run(taken_up(Store(None, cache))) == []
        finally:
            cache.close()
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert ["job bad: starts afresh" in line for line in told] == [True] * expected
    assert [file.suffix for file in tmp_path.iterdir()] == [".unusable"]
