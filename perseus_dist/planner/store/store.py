"""Facts of jobs in a SQLite database, each durable before its future is done.

One thread owns the database. It takes whatever commits are waiting into one transaction, so that a thousand ranks share
a disk flush: commits wait for the flush before theirs, and for no timer.

A commit that fails, because the disk is full, stays first in line of its job: later ones succeed with it or not at all.
So a job's commits are durable in order and without a gap, and all is made up for once there is room.
"""

import logging
import queue
import shutil
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.job.facts import Fact
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.store.salvaged_facts import salvage

SCHEMA_VERSION = 2
MAX_COMMITS_PER_TRANSACTION = 1024
RETRY_PERIOD_S = 5.0

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


class _DamagedError(Exception):
    """The database has to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    job_id: str
    rows: Sequence[FactRow]
    drop: Sequence[str]
    done: "Future[None]" = field(default_factory=Future)


class Store:
    """The database and its thread. Any thread may call; only opening and closing wait for the disk."""

    def __init__(self, path: Path | None) -> None:
        """Open or create a database.

        A damaged one is copied aside (``NAME.damaged-TIME``) with a line in the log, and replaced by one with what can
        be read of it.

        Args:
            path: The file, readable by its owner alone; ``None`` keeps everything in memory.

        Raises:
            StoreError: The folder cannot be used, another planner holds the database, or it is not of this version.
        """
        self._path = path
        self._trouble = ""
        self._failed: defaultdict[str, list[_Commit]] = defaultdict(list)  # by job, oldest first
        self._queue: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        try:
            self._database, self._loaded = _open(path)
        except _DamagedError as error:
            assert path is not None  # memory does not rot
            _replace_damaged(path, error)
            try:
                self._database, self._loaded = _open(path)
            except _DamagedError as again:
                raise StoreError(f"{path}: a fresh database is damaged too ({again}); check the disk") from again
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def load(self) -> dict[str, list[Fact]]:
        """The facts of every job as they stood when the database was opened, in the order in which they were stored."""
        return self._loaded

    def commit(self, job_id: str, facts: Sequence[Fact], drop: Sequence[str] = ()) -> "Future[None]":
        """Make facts durable, all of them or none.

        Args:
            job_id: Whose.
            facts: Each replaces the fact of the same key.
            drop: Facts whose keys begin so are deleted first.

        Returns:
            Done once they are durable, and all that was committed of the job before. Fails with ``StoreError`` if the
            disk is full or broken; they are tried again with the job's next commit, and every few seconds.
        """
        return self._put(_Commit(job_id=job_id, rows=[row_of_fact(fact) for fact in facts], drop=drop))

    def forget(self, job_id: str) -> "Future[None]":
        """Delete a job."""
        return self._put(_Commit(job_id=job_id, rows=(), drop=("",)))

    @property
    def trouble(self) -> str:
        """Why commits have failed; empty once everything has been made up for."""
        return self._trouble

    def close(self) -> None:
        """Commit what is waiting, then close. Nothing may be committed afterwards."""
        self._queue.put(None)
        self._thread.join()

    def _put(self, commit: _Commit) -> "Future[None]":
        self._queue.put(commit)
        return commit.done

    def _run(self) -> None:
        closing = False
        while not closing:
            waiting = self._wait()
            closing = None in waiting
            commits = [commit for commit in waiting if commit is not None]
            # Where they cannot be stored together, one job's may still fit, and those before a large one.
            if not self._try(commits):
                for commit in commits:
                    self._try([commit])
            if self._failed and not commits:
                self._make_up()
        self._database.close()

    def _wait(self) -> list[_Commit | None]:
        """The commits that wait, at least one unless failed commits are due again; None asks to close."""
        waiting: list[_Commit | None] = []
        try:
            waiting.append(self._queue.get(timeout=RETRY_PERIOD_S if self._failed else None))
            while len(waiting) < MAX_COMMITS_PER_TRANSACTION:
                waiting.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return waiting

    def _try(self, commits: Sequence[_Commit]) -> bool:
        """Commit together, behind what has failed before of these jobs. Alone, a failing commit gets its own error."""
        if not commits:
            return True
        jobs = dict.fromkeys(commit.job_id for commit in commits)
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                for job_id in jobs:
                    for commit in self._failed.get(job_id, ()):
                        _write(self._database, commit)
                for commit in commits:
                    _write(self._database, commit)
        except sqlite3.Error as error:
            trouble = (
                f"{self._path}: cannot be written ({error}); make room or mend the disk, nothing is lost meanwhile"
            )
            if len(commits) == 1:
                if not self._trouble:
                    _log.error("%s", trouble)
                self._trouble = trouble
                self._failed[commits[0].job_id].append(commits[0])
                if not commits[0].done.done():
                    commits[0].done.set_exception(StoreError(trouble))
            return False
        for job_id in jobs:
            self._failed.pop(job_id, None)
        if self._trouble and not self._failed:
            _log.warning("%s can be written again", self._path)
            self._trouble = ""
        for commit in commits:
            if not commit.done.done():
                commit.done.set_result(None)
        return True

    def _make_up(self) -> None:
        """Try again what has failed, job by job."""
        for job_id, commits in list(self._failed.items()):
            *earlier, latest = commits
            self._failed[job_id] = earlier
            self._try([latest])


def _write(database: sqlite3.Connection, commit: _Commit) -> None:
    for prefix in commit.drop:
        beyond = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
        database.execute("DELETE FROM facts WHERE job = ? AND key >= ? AND key < ?", (commit.job_id, prefix, beyond))
    database.executemany(
        "INSERT OR REPLACE INTO facts (job, key, kind, body, blob) VALUES (?, ?, ?, ?, ?)",
        [(commit.job_id, *row) for row in commit.rows],
    )


def _open(path: Path | None) -> tuple[sqlite3.Connection, dict[str, list[Fact]]]:
    """A database that this process alone has, and what is in it."""
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
            raise _DamagedError(error) from error
        if code == sqlite3.SQLITE_BUSY:
            raise StoreError(f"{path}: another planner holds it; end that one, or name another state folder") from error
        raise StoreError(f"{path}: cannot be opened ({error}); check the state folder and its disk") from error
    except (_DamagedError, StoreError):
        database.close()
        raise


def _prepare(path: Path | None, database: sqlite3.Connection) -> None:
    """Lock it, check it, and give it a schema if it is new."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("BEGIN EXCLUSIVE")
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _DamagedError(verdict)
    (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if num_tables == 0:
        database.execute(_SCHEMA)
        database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    elif application_id != _APPLICATION_ID:
        raise StoreError(f"{path}: saw a database of another program, expected a planner's; name another state folder")
    elif version in _OLDER_VERSIONS:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        _log.info("%s: schema version %d becomes %d", path, version, SCHEMA_VERSION)
    elif version != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: saw schema version {version}, expected 1 to {SCHEMA_VERSION}; use the perseus-dist that wrote "
            "it, or name another state folder"
        )
    database.execute("COMMIT")


def _read(database: sqlite3.Connection) -> dict[str, list[Fact]]:
    jobs: defaultdict[str, list[Fact]] = defaultdict(list)
    try:
        for job, *row in database.execute("SELECT job, key, kind, body, blob FROM facts ORDER BY id"):
            jobs[job].append(fact_of_row(FactRow(*row)))
    except ValueError as error:
        raise _DamagedError(error) from error
    return dict(jobs)


def _replace_damaged(path: Path, damage: _DamagedError) -> None:
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
        database, _ = _open(fresh)
        with closing(database), database:
            database.execute("BEGIN IMMEDIATE")
            for job, facts in kept.items():
                _write(database, _Commit(job_id=job, rows=[*map(row_of_fact, facts)], drop=()))
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
