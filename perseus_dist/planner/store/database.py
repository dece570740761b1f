"""The database of a planner's facts: its schema, who may open it, and a damaged one's replacement."""

import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from perseus_dist.errors import PerseusError, TransientError
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.sqlite_files.replaced_file import copy_for_owner, finish_replacing, replace_whole
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.store.migrations import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    create_schema,
    find_version,
    holds_facts,
    migrate,
)
from perseus_dist.planner.store.salvaged_facts import salvage

_COMPANIONS = ("", "-wal", "-shm")
_DAMAGED = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_ERROR,  # a file format that SQLite does not know, a table that is not there
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_TOOBIG,
    }
)
_READ_ONLY_FORMAT_AT = 18  # in the header; larger than 2: a format that SQLite may only read
_log = logging.getLogger(__name__)


class StoreError(PerseusError):
    """A state database that cannot be opened or written to."""


class HeldError(StoreError, TransientError):
    """A database that another planner has, or whose disk or server refuses for now."""


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
            check_version(path, database)
            return read_facts(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:
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
        database.execute("DELETE FROM facts WHERE job = ? AND key >= ? AND key < ?", (job_id, prefix, beyond(prefix)))
    database.executemany(
        "INSERT OR REPLACE INTO facts (job, key, kind, body, blob) VALUES (?, ?, ?, ?, ?)",
        [(job_id, *row) for row in rows],
    )


def beyond(prefix: str) -> str:
    """The first text, by code points, behind all that begin so."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"


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
            finish_replacing(path)
            path.touch(mode=0o600)
        database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False, timeout=1.0)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: cannot be opened ({error}); name a writable folder as state folder") from error
    try:
        _prepare(path, database)
        return database, read_facts(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        database.close()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # text that is no UTF-8 has none
        if code in _DAMAGED or (code == sqlite3.SQLITE_READONLY and _is_read_only_format(path)):
            raise DamagedError(error) from error
        if code == sqlite3.SQLITE_BUSY:
            raise HeldError(f"{path}: another planner holds it; end that one, or name another state folder") from error
        raise HeldError(f"{path}: cannot be opened ({error}); check the state folder and its disk") from error
    except BaseException:
        database.close()
        raise


def _prepare(path: Path | None, database: sqlite3.Connection) -> None:
    """Lock it, check it, and give it the present schema."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("BEGIN EXCLUSIVE")
    (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (num_pages,) = database.execute("PRAGMA page_count").fetchone()
    if num_tables == 0 and num_pages <= 1:
        create_schema(database)
    elif (version := check_version(path, database)) != SCHEMA_VERSION:
        database.execute("COMMIT")  # the lock stays
        _keep_older(path, database, version)
        database.execute("BEGIN EXCLUSIVE")
        migrate(database, version)
        _log.info("%s: schema version %d becomes %d", path, version, SCHEMA_VERSION)
    database.execute("COMMIT")


def _is_read_only_format(path: Path | None) -> bool:
    if path is None:
        return False
    with path.open("rb") as file:
        header = file.read(_READ_ONLY_FORMAT_AT + 1)
    return header[_READ_ONLY_FORMAT_AT:] > b"\2"


def _keep_older(path: Path | None, database: sqlite3.Connection, version: int) -> None:
    """Copy a database before it is migrated, for a return to the perseus-dist before this one."""
    if path is None:
        return
    copy, unfinished = _beside(path, f".version-{version}"), _beside(path, f".version-{version}.tmp")
    try:
        unfinished.unlink(missing_ok=True)
        unfinished.touch(mode=0o600)
        with closing(sqlite3.connect(unfinished)) as target:
            database.backup(target)
        unfinished.replace(copy)
    except (OSError, sqlite3.Error) as error:
        _log.warning("%s: no copy is kept of schema version %d (%s)", path, version, error)
    else:
        _log.info("%s: what it was is kept as %s", path, copy)


def check_version(path: Path | None, database: sqlite3.Connection) -> int:
    """The version of a database that can be read.

    Raises:
        StoreError: It is another program's, or a newer planner's.
        DamagedError: It is damaged.
    """
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise DamagedError(verdict)
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        if holds_facts(database):
            raise DamagedError("its header is not a planner's")
        raise StoreError(f"{path}: saw a database of another program, expected a planner's; name another state folder")
    version, program = find_version(database)
    if version < 1:
        raise DamagedError("its header names another schema version than its tables")
    if version > SCHEMA_VERSION:
        by = f" (perseus-dist {program})" if program else ""
        raise StoreError(
            f"{path}: saw schema version {version}{by}, expected 1 to {SCHEMA_VERSION}; use the perseus-dist that "
            "wrote it, or name another state folder"
        )
    if not holds_facts(database):
        raise DamagedError("its table of facts is missing")
    return version


def read_facts(database: sqlite3.Connection) -> dict[str, list[Fact]]:
    """Each job's facts, in the order in which they were stored.

    Raises:
        DamagedError: A row cannot be read.
    """
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
                copy_for_owner(_beside(path, suffix), _beside(aside, suffix))
        kept = salvage(aside)
        for suffix in _COMPANIONS:
            _beside(fresh, suffix).unlink(missing_ok=True)
        database, _ = open_database(fresh)
        with closing(database):
            with database:
                database.execute("BEGIN IMMEDIATE")
                for job, facts in kept.items():
                    write_facts(database, job, map(row_of_fact, facts))
            database.execute("PRAGMA journal_mode = DELETE")  # one file; closing alone would not tell of a full disk
        replace_whole(path, fresh)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{path} is damaged ({damage}), and what can be read of it cannot be copied ({error}); make room in the "
            "state folder, or name another one"
        ) from error
    rest = f"what can be read of {len(kept)} jobs goes on, without plans" if kept else "all jobs start afresh"
    _log.error("%s is damaged (%s): copied to %s, and %s", path, damage, aside, rest)


def keep_rows(path: Path, jobs: Mapping[str, Iterable[FactRow]]) -> None:
    """Write rows that are of no use into ``NAME.unusable-TIME``, a database beside a path; a failure is logged."""
    aside = path.with_name(f"{path.name}.unusable-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        database, _ = open_database(aside)
        with closing(database), database:
            database.execute("BEGIN IMMEDIATE")
            for job_id, rows in jobs.items():
                write_facts(database, job_id, rows)
    except (OSError, sqlite3.Error, StoreError, DamagedError) as error:
        _log.error("%s: cannot be written (%s); these jobs start afresh without a copy", aside, error)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
