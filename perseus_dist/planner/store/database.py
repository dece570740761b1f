"""The database of a planner's facts: its schema, who may open it, and a damaged one's replacement."""

import logging
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.job.facts import Fact
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.store.salvaged_facts import salvage

SCHEMA_VERSION = 2

_OLDER_VERSIONS = frozenset({1})
"""Their facts are read as they are: what these lack is not known. Such planners cannot read the newer kinds."""

_APPLICATION_ID = 0x50727364  # "Prsd", so that no other program's database is written to
_COMPANIONS = ("", "-wal", "-shm")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SCHEMA = """
CREATE TABLE facts (
    id INTEGER PRIMARY KEY,  -- ascending in the order of storing
    job TEXT NOT NULL,
    key TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    blob BLOB NOT NULL,
    UNIQUE (job, key)
);
"""

_log = logging.getLogger(__name__)


class StoreError(PerseusError):
    """A state database that cannot be opened or written to."""


class DamagedError(Exception):
    """The database has to be replaced."""


def read_serialized(path: Path, data: bytes) -> dict[str, list[Fact]]:
    """Each job's facts in a database that ``sqlite3.Connection.serialize`` made.

    Args:
        path: Where the data is from, for refusals.
        data: All of it.

    Raises:
        StoreError: It is none of ours, or of another version.
        DamagedError: It cannot be read.
    """
    if not data:  # SQLite says that memory is short
        raise DamagedError("it is empty")
    try:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(data)
            _check(path, database)
            return _read(database)
    except sqlite3.Error as error:
        raise DamagedError(error) from error


def write_facts(database: sqlite3.Connection, job_id: str, rows: Iterable[FactRow], drop: Iterable[str] = ()) -> None:
    """Write a job's facts in the present transaction.

    Args:
        database: Open.
        job_id: Whose.
        rows: Each replaces the row of the same key.
        drop: Facts whose keys begin so are deleted first.
    """
    for prefix in drop:
        beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
        database.execute("DELETE FROM facts WHERE job = ? AND key >= ? AND key < ?", (job_id, prefix, beyond))
    database.executemany(
        "INSERT OR REPLACE INTO facts (job, key, kind, body, blob) VALUES (?, ?, ?, ?, ?)",
        [(job_id, *row) for row in rows],
    )


def open_database(path: Path | None) -> tuple[sqlite3.Connection, dict[str, list[Fact]]]:
    """A database that this process alone has, and each job's facts in the order in which they were stored.

    Args:
        path: Made if it is missing; None is one in memory.

    Raises:
        StoreError: The folder cannot be used, another planner holds the database, or it is not of this version.
        DamagedError: It has to be replaced.
    """
    try:
        if path is not None:
            path.touch(mode=0o600)
        database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False, timeout=1.0)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot be opened ({error}); name a writable folder as state folder") from error
    try:
        _prepare(path, database)
        return database, _read(database)
    except sqlite3.Error as error:
        database.close()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # text that is no UTF-8 has none
        if code in _DAMAGED:
            raise DamagedError(error) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreError(f"{path}: another planner holds it; end that one, or name another state folder") from error
        raise StoreError(f"{path}: cannot be opened ({error}); check the state folder and its disk") from error
    except (DamagedError, StoreError):
        database.close()
        raise


def _prepare(path: Path | None, database: sqlite3.Connection) -> None:
    """Lock it, check it, and give it a schema if it is new."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("BEGIN EXCLUSIVE")
    (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if num_tables == 0:
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    elif (version := _check(path, database)) != SCHEMA_VERSION:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        _log.info("%s: schema version %d becomes %d", path, version, SCHEMA_VERSION)
    database.execute("COMMIT")


def _check(path: Path | None, database: sqlite3.Connection) -> int:
    """The version of a database that can be read; others are refused."""
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise DamagedError(verdict)
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if application_id != _APPLICATION_ID:
        raise StoreError(f"{path}: saw a database of another program, expected a planner's; name another state folder")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version not in {*_OLDER_VERSIONS, SCHEMA_VERSION}:
        raise StoreError(
            f"{path}: saw schema version {version}, expected 1 to {SCHEMA_VERSION}; use the perseus-dist that wrote "
            "it, or name another state folder"
        )
    return int(version)


def _read(database: sqlite3.Connection) -> dict[str, list[Fact]]:
    jobs: defaultdict[str, list[Fact]] = defaultdict(list)
    try:
        for job, *row in database.execute("SELECT job, key, kind, body, blob FROM facts ORDER BY id"):
            jobs[job].append(fact_of_row(FactRow(*row)))
    except ValueError as error:
        raise DamagedError(error) from error
    return dict(jobs)


def replace_damaged(path: Path, damage: DamagedError) -> None:
    """Copy a database aside, and put one in its place with what can be read; killed half-way, it is done again.

    Raises:
        StoreError: The folder cannot be written to; the database stays as it is.
    """
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    fresh = path.with_name(f"{path.name}.salvaged")
    try:
        for suffix in ("-wal", ""):
            if _beside(path, suffix).exists():
                shutil.copy2(_beside(path, suffix), _beside(aside, suffix))
        kept = salvage(aside)
        for suffix in _COMPANIONS:
            _beside(fresh, suffix).unlink(missing_ok=True)
        database, _ = open_database(fresh)
        with closing(database), database:
            database.execute("BEGIN IMMEDIATE")
            for job, facts in kept.items():
                write_facts(database, job, map(row_of_fact, facts))
        for suffix in _COMPANIONS[1:]:  # they would be taken for the new one's
            _beside(path, suffix).unlink(missing_ok=True)
        fresh.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{path} is damaged ({damage}), and what can be read of it cannot be copied ({error}); make room in the "
            "state folder, or name another one"
        ) from error
    rest = f"what can be read of {len(kept)} jobs goes on, without plans" if kept else "all jobs start afresh"
    _log.error("%s is damaged (%s): copied to %s, and %s", path, damage, aside, rest)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
