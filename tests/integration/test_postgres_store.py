"""PostgreSQL as the planner's store: what goes wrong, is said in one line, and loses nothing that was acknowledged."""

import logging
import os
import random
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from planner_process import planner
from postgres_server import CAREFUL, PostgresServer
from test_planner_store import FACTS, baseline
from waiting import PATIENCE_S, wait_until

from perseus_dist.planner.job.facts.decisions import StragglerKnown, SwitchDecided
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import StragglerPlanReady, TableMade
from perseus_dist.planner.job.facts.runs import JobRegistered, ScheduleReceived
from perseus_dist.planner.store import migrations
from perseus_dist.planner.store.backup import BackupError, back_up
from perseus_dist.planner.store.database import StoreError, open_database
from perseus_dist.planner.store.migrations import SCHEMA_VERSION, Step
from perseus_dist.planner.store.store import Store

pytest.importorskip("psycopg", reason="no psycopg: pip install 'perseus-dist[postgres]'")

from perseus_dist.planner.store.postgres import connection, postgres_facts, schema
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.postgres_facts import PostgresFacts

if TYPE_CHECKING:
    from concurrent.futures import Future

pytestmark = pytest.mark.stress

Open = Callable[..., Store]


@pytest.fixture
def fresh(postgres: PostgresServer) -> str:
    """An empty database's URL."""
    return postgres.url(postgres.fresh_database())


@pytest.fixture(params=["direct", "pgbouncer"])
def either(request: pytest.FixtureRequest, postgres: PostgresServer, fresh: str) -> str:
    """The same, and the URL by pgbouncer: it stays while the server behind it is away."""
    if request.param == "direct":
        return fresh
    request.getfixturevalue("pooled")
    return postgres.url("fresh", pooled=True)


@pytest.fixture
def opened(fresh: str, tmp_path: Path) -> Iterator[Open]:
    """Opens stores on one database, and closes them."""
    stores = []

    def open_store(state_id: str = "here", url: str = fresh, *, waits: bool = False) -> Store:
        address = PostgresAddress(url)
        stores.append(Store(PostgresFacts(address, state_id=state_id, aside=tmp_path / "aside", waits=waits)))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def numbered(number: int) -> Fact:
    return StragglerKnown(straggler_id=f"{number:06}", degree=2.0, dp_rank=0)


# ---- connections that end --------------------------------------------------------------------------------------------


def test_killed_connections_are_not_noticed(opened: Open, postgres: PostgresServer, either: str) -> None:
    store = opened(url=either)
    for number in range(30):
        done = store.commit("a", [numbered(number)])
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'fresh'")
        done.result(30)
    store.close()
    assert opened().load() == {"a": [numbered(number) for number in range(30)]}


@pytest.mark.parametrize("crashes", [False, True], ids=["restart", "crash"])
def test_a_restart_of_the_database_loses_nothing_that_was_acknowledged(
    opened: Open, postgres: PostgresServer, either: str, *, crashes: bool
) -> None:
    store = opened(url=either)
    done: list[Future[None]] = []
    is_over = threading.Event()

    def commit() -> None:
        while not is_over.wait(0.002):
            done.append(store.commit(f"job {len(done) % 3}", [numbered(len(done))]))

    committing = threading.Thread(target=commit)
    committing.start()
    for _ in range(2):
        acknowledged = sum(each.done() for each in done)
        postgres.stop(signal.SIGQUIT if crashes else signal.SIGINT)
        postgres.start()
        wait_until(lambda before=acknowledged: sum(each.done() for each in done) > before)  # type: ignore[misc]
    is_over.set()
    committing.join()
    wait_until(lambda: all(each.done() for each in done) and not store.trouble)
    store.close()
    found = opened().load()
    expected = [numbered(number) for number in range(len(done))]
    assert found == {f"job {number}": expected[number::3] for number in range(min(3, len(done)))}


def test_a_database_that_is_away_is_said_once_and_made_up_for_in_order(
    opened: Open, postgres: PostgresServer, either: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(url=either)
    store.commit("a", FACTS).result(30)
    postgres.stop()
    try:
        with caplog.at_level(logging.WARNING):
            failed = [store.commit("ab"[number % 2], [numbered(number)]) for number in range(2000)]
            for each in failed:
                with pytest.raises(StoreError, match=r"check that|check the"):
                    each.result(60)
            assert store.trouble
            forgotten = store.forget("b")
            with pytest.raises(StoreError):
                forgotten.result(60)
            later = store.commit("b", [baseline(9.0)])
            with pytest.raises(StoreError):
                later.result(60)
    finally:
        postgres.start()
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: not store.trouble)
    assert [record.levelname for record in caplog.records if "fsync" not in record.message] == ["ERROR", "WARNING"]
    store.close()
    assert opened().load() == {"a": [*FACTS, *(numbered(number) for number in range(0, 2000, 2))], "b": [baseline(9.0)]}


def test_a_planner_waits_for_a_database_that_is_away_at_its_start(
    opened: Open, postgres: PostgresServer, either: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened().close()
    postgres.stop()
    stores: list[Store] = []
    try:
        with caplog.at_level(logging.WARNING):
            starting = threading.Thread(target=lambda: stores.append(opened(url=either, waits=True)))
            starting.start()
            wait_until(lambda: "this planner serves no job" in caplog.text)
    finally:
        postgres.start()
    starting.join(60)
    assert stores[0].load() == {}
    assert caplog.text.count("this planner serves no job") == 1


def test_a_server_that_hangs_is_given_up(
    opened: Open, postgres: PostgresServer, either: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(url=either)
    store.commit("a", FACTS).result(30)
    monkeypatch.setattr(postgres_facts, "ANSWER_TIMEOUT_S", 0.3)
    monkeypatch.setitem(connection._DEFAULTS, "connect_timeout", "2")
    postgres.pause()
    try:
        hanging = store.commit("a", [numbered(1)])
        with pytest.raises(StoreError):
            hanging.result(60)
    finally:
        postgres.resume()
    monkeypatch.setattr(postgres_facts, "ANSWER_TIMEOUT_S", 60.0)
    wait_until(lambda: not store.trouble)
    store.close()
    assert opened().load() == {"a": [*FACTS, numbered(1)]}


# ---- transactions that fail ------------------------------------------------------------------------------------------


def fail(postgres: PostgresServer, sqlstate: str, times: int, condition: str = "true") -> None:
    """Have the server refuse rows of facts so many times, as it does by itself in this trouble."""
    postgres.execute("CREATE SEQUENCE failures", "fresh")
    postgres.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF {condition} AND nextval('public.failures') <= {times} THEN "
        f"RAISE 'in a test' USING errcode = '{sqlstate}'; END IF; RETURN new; END $$",
        "fresh",
    )
    postgres.execute(
        "CREATE TRIGGER fail BEFORE INSERT ON perseus_dist.facts FOR EACH ROW EXECUTE FUNCTION fail()", "fresh"
    )


@pytest.fixture
def _mended(postgres: PostgresServer) -> Iterator[None]:
    yield
    postgres.execute("DROP FUNCTION IF EXISTS fail() CASCADE; DROP SEQUENCE IF EXISTS failures", "fresh")


@pytest.mark.usefixtures("_mended")
@pytest.mark.parametrize("sqlstate", ["40001", "40P01", "57014", "57P01"])
def test_what_the_server_asks_to_repeat_is_repeated(opened: Open, postgres: PostgresServer, sqlstate: str) -> None:
    store = opened()
    fail(postgres, sqlstate, times=3)
    store.commit("a", FACTS).result(30)
    assert not store.trouble
    assert postgres.execute("SELECT last_value > 3 FROM failures", "fresh") == [(True,)]


@pytest.mark.usefixtures("_mended")
def test_a_full_disk_is_said_and_other_jobs_go_on(
    opened: Open, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    fail(postgres, "53100", times=3, condition="new.job = 'a'")
    together = [store.commit(job, FACTS) for job in "ab"]
    with pytest.raises(StoreError, match="make room on the database's disk"):
        together[0].result(30)
    together[1].result(30)
    assert "make room" in store.trouble
    wait_until(lambda: not store.trouble)
    store.close()
    assert opened().load() == {"a": list(FACTS), "b": list(FACTS)}
    assert "can be written again" in caplog.text


@pytest.fixture
def small_disk(postgres: PostgresServer) -> Iterator[Path]:
    """A disk of 24 MB for the server."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own is mounted by root alone")
    folder = postgres.folder / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0777", "small", str(folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("this container mounts no disk")
    shutil.chown(folder, postgres.folder.owner())
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_real_disk_that_is_full_loses_nothing(opened: Open, postgres: PostgresServer, small_disk: Path) -> None:
    postgres.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    postgres.execute("CREATE DATABASE tiny TABLESPACE small")
    rng = random.Random(1)
    store = opened(url=postgres.url("tiny"))
    try:
        facts: dict[str, Fact] = {}
        while not store.trouble:
            job, text = f"job {len(facts)}", rng.randbytes(200_000).hex()  # which the server cannot compress much
            facts[job] = ScheduleReceived(text=text)
            wait([store.commit(job, [facts[job]])], 30)
        assert "make room on the database's disk" in store.trouble
        store.commit("little", FACTS[3:4]).exception(30)
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        wait_until(lambda: not store.trouble)
        store.close()
        again = opened(url=postgres.url("tiny"))
        assert again.load() == {**{job: [fact] for job, fact in facts.items()}, "little": list(FACTS[3:4])}
        again.close()
    finally:
        postgres.execute("DROP DATABASE tiny WITH (FORCE)")
        postgres.execute("DROP TABLESPACE small")


# ---- addresses, passwords, rights ------------------------------------------------------------------------------------


def refusal(url: str, password_file: Path | None = None) -> str:
    with pytest.raises(StoreError) as refused:
        PostgresFacts(PostgresAddress(url, password_file), state_id="here", waits=False)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_refusal_names_what_is_wrong(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.fresh_database()
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    postgres.execute(
        f"CREATE ROLE {CAREFUL}; CREATE ROLE alice LOGIN PASSWORD 'right' IN ROLE {CAREFUL}; CREATE ROLE bob LOGIN"
    )
    try:
        secret = tmp_path / "password"
        secret.write_text("wr0ng-secret\n")
        secret.chmod(0o600)
        alice = postgres.url("fresh", user="alice")
        assert "check the host, nosuch.invalid" in refusal("postgresql://u@nosuch.invalid/d")
        assert "check the host, /nowhere" in refusal("postgresql://u@/d?host=/nowhere")
        assert "check the port, 1, and that" in refusal("postgresql://u@127.0.0.1:1/d")
        assert "check the user, carol" in refusal(postgres.url("fresh", user="carol"))
        assert "check the database's name, gone" in refusal(postgres.url("gone"))
        assert "give user refused the right to connect" in refusal(postgres.url("fresh", user="refused"))
        assert "check the user, alice, and the password" in refusal(alice)
        wrong = refusal(alice, secret)
        assert "check the user, alice, and the password" in wrong
        assert "secret" not in wrong.replace("--store-password-file", "")
        secret.write_text("right\n")
        denied = refusal(alice, secret)
        assert (
            "user alice lacks rights: let the database's owner run 'CREATE SCHEMA perseus_dist AUTHORIZATION \"alice\""
            in denied
        )
        postgres.execute('CREATE SCHEMA perseus_dist AUTHORIZATION "alice"', "fresh")
        store = Store(PostgresFacts(PostgresAddress(alice, secret), state_id="here", waits=False))
        store.commit("a", FACTS).result(30)
        store.close()
        assert "user bob lacks rights" in refusal(postgres.url("fresh", user="bob"))
        secret.chmod(0o644)
        assert f"chmod 600 {secret}" in refusal(alice, secret)
        secret.unlink()
        assert f"{secret}: cannot be read" in refusal(alice, secret)
        (tmp_path / "pgpass").write_text("*:*:*:alice:right\n")
        (tmp_path / "pgpass").chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
        PostgresFacts(PostgresAddress(alice), state_id="here", waits=False).close()
    finally:
        postgres.execute("DROP OWNED BY alice", "fresh")
        postgres.execute(f"DROP ROLE alice; DROP ROLE bob; DROP ROLE {CAREFUL}")


def test_a_standby_is_refused_as_one(postgres: PostgresServer, fresh: str) -> None:
    postgres.execute("ALTER DATABASE fresh SET default_transaction_read_only = on")
    try:
        assert "this one is a standby" in refusal(fresh)
    finally:
        postgres.execute("ALTER DATABASE fresh RESET default_transaction_read_only")


# ---- schemas ---------------------------------------------------------------------------------------------------------


def test_foreign_tables_newer_versions_and_other_encodings_are_left_alone(
    opened: Open, postgres: PostgresServer, fresh: str
) -> None:
    postgres.execute("CREATE SCHEMA perseus_dist; CREATE TABLE perseus_dist.photos ()", "fresh")
    assert "saw a schema perseus_dist that is not a planner's" in refusal(fresh)
    postgres.execute("DROP TABLE perseus_dist.photos", "fresh")
    opened().close()
    postgres.execute("INSERT INTO perseus_dist.versions VALUES (99, '7.0.1')", "fresh")
    assert f"saw schema version 99 (perseus-dist 7.0.1), expected at most {SCHEMA_VERSION}" in refusal(fresh)
    postgres.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "saw encoding LATIN1, expected UTF8" in refusal(postgres.url("latin"))
    postgres.execute("DROP DATABASE latin")


def test_a_database_of_the_version_before_is_taken_over_in_one_transaction(
    opened: Open, postgres: PostgresServer, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    first.commit("a", FACTS).result(30)
    first.close()
    monkeypatch.setattr(schema, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    grow = "ALTER TABLE perseus_dist.facts ADD COLUMN more TEXT NOT NULL DEFAULT ''"
    monkeypatch.setitem(migrations.STEPS, SCHEMA_VERSION, Step(postgres=(grow, "SELECT 1/0")))
    assert "division by zero" in refusal(fresh)
    columns = (
        "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'perseus_dist' AND column_name = 'more'"
    )
    assert postgres.execute(columns, "fresh") == [(0,)]
    monkeypatch.setitem(migrations.STEPS, SCHEMA_VERSION, Step(postgres=(grow,)))
    for _ in range(2):
        again = opened()
        assert again.load() == {"a": list(FACTS)}
        again.close()
    assert postgres.execute("SELECT max(schema_version) FROM perseus_dist.versions", "fresh") == [(SCHEMA_VERSION + 1,)]


@pytest.mark.parametrize("version", range(4, SCHEMA_VERSION))
def test_every_version_before_grows_to_the_present_tables(version: int, opened: Open, postgres: PostgresServer) -> None:
    columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'perseus_dist'"
    first = opened()
    first.commit("a", FACTS).result(30)
    first.close()
    made = set(postgres.execute(columns, "fresh"))
    for newer, statement in {
        5: "ALTER TABLE {}.planners DROP COLUMN address",
        8: "DROP TABLE {}.planning_requests",
        9: "DROP TABLE {0}.audit; DROP FUNCTION {0}.refuse_change",
        10: "DROP TABLE {0}.planning_workers; DROP TABLE {0}.grants",
    }.items():
        if newer > version:
            postgres.execute(statement.format("perseus_dist"), "fresh")
    postgres.execute(f"UPDATE perseus_dist.versions SET schema_version = {version}", "fresh")
    again = opened()
    assert again.load() == {"a": list(FACTS)}
    again.close()
    assert set(postgres.execute(columns, "fresh")) == made


def test_two_planners_that_start_at_once_make_one_schema(opened: Open) -> None:
    stores: list[Store] = []
    threads = [threading.Thread(target=lambda: stores.append(opened("here"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.load() for store in stores] == [{}] * 4


def test_both_dialects_have_the_same_tables(opened: Open, postgres: PostgresServer) -> None:
    opened().close()
    there = postgres.execute(
        "SELECT table_name, column_name, is_nullable FROM information_schema.columns "
        "WHERE table_schema = 'perseus_dist' ORDER BY table_name, ordinal_position",
        "fresh",
    )
    tables: dict[str, list[str]] = {}
    for table, column, _ in there:
        tables.setdefault(table, []).append(column)
    here, _ = open_database(None)
    for (name,) in here.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        assert tables.pop(name) == [column for _, column, *_ in here.execute(f"PRAGMA table_info({name})")]
    here.close()
    postgres_alone = {"planners", "leases", "planning_requests", "planning_workers", "audit", "grants"}
    assert set(tables) == postgres_alone
    nullable = {(table, column) for table, column, is_nullable in there if is_nullable == "YES"}
    assert nullable == {("grants", "expires_s"), ("grants", "revoked_s")}


def test_a_row_that_cannot_be_read_costs_its_jobs_plans_alone(
    opened: Open, postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = opened()
    for job in "abc":
        first.commit(job, FACTS).result(30)
    first.close()
    postgres.execute("UPDATE perseus_dist.facts SET body = 'x' WHERE job = 'b' AND kind = 'TargetChosen'", "fresh")
    postgres.execute("UPDATE perseus_dist.facts SET body = 'x' WHERE job = 'c' AND kind = 'JobRegistered'", "fresh")
    for _ in range(2):
        again = opened()
        jobs = again.load()
        again.close()
        assert (set(jobs), jobs["a"]) == ({"a", "b"}, list(FACTS))
        registered = next(fact for fact in jobs["b"] if isinstance(fact, JobRegistered))
        assert (registered.held_revision, registered.held_switch_revision) == (3, 9)
        assert not any(isinstance(fact, TableMade | StragglerPlanReady | SwitchDecided) for fact in jobs["b"])
    assert "what can be read of 1 of 2 jobs goes on" in caplog.text
    assert len(list(tmp_path.glob("aside.unusable-*"))) == 1


# ---- planners as processes -------------------------------------------------------------------------------------------


def test_a_stopped_planner_is_taken_over_from_and_ends_when_it_wakes_up(
    postgres: PostgresServer, fresh: str, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with planner(folders[0], "--store", fresh) as first:
        first.process.send_signal(signal.SIGSTOP)
        with planner(folders[1], "--store", fresh):
            first.process.send_signal(signal.SIGCONT)
            assert first.process.wait(PATIENCE_S) == 1  # systemd starts it again, and it stands by
            assert first.process.stderr is not None
            *_, last = first.process.stderr.read().splitlines()
            assert "another planner has taken over" in last
            assert postgres.execute("SELECT count(*) FROM perseus_dist.planners", "fresh") == [(1,)]


def test_a_killed_planner_goes_on_at_once_where_it_is_started_again(
    postgres: PostgresServer, fresh: str, tmp_path: Path
) -> None:
    for _ in range(2):
        with planner(tmp_path, "--store", fresh) as running:
            alive = "SELECT count(*) FROM perseus_dist.planners WHERE alive_until > now()"
            assert postgres.execute(alive, "fresh") == [(1,)]
            running.end(signal.SIGKILL)
    names = {path.name for path in (tmp_path / "state").iterdir()}
    assert "planner.sqlite" not in names
    with pytest.raises(BackupError, match="pg_dump"):
        back_up(tmp_path / "state", tmp_path / "backup")
