"""Facts of jobs in a SQLite database, each durable before its future is done.

One thread owns the database. It takes whatever commits are waiting into one transaction, so that a thousand ranks share
a disk flush: commits wait for the flush before theirs, and for no timer.

A commit that fails, because the disk is full, stays first in line of its job: later ones succeed with it or not at all.
So a job's commits are durable in order and without a gap, and all is made up for once there is room.
"""

import logging
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from perseus_dist.planner.job.facts import Fact
from perseus_dist.planner.store.database import (
    DamagedError,
    StoreError,
    open_database,
    replace_damaged,
    write_facts,
)
from perseus_dist.planner.store.fact_rows import FactRow, row_of_fact
from perseus_dist.planner.store.job_cache import JobCache
from perseus_dist.planner.store.state_lock import StateLock

MAX_COMMITS_PER_TRANSACTION = 1024
NO_JOB = ""
"""The name that the planner's own facts are stored in."""
RETRY_PERIOD_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    job_id: str
    rows: Sequence[FactRow]
    drop: Sequence[str]
    done: "Future[None]" = field(default_factory=Future)


class Store:
    """The database and its thread. Any thread may call; only opening and closing wait for the disk."""

    def __init__(self, path: Path | None, cache: JobCache | None = None) -> None:
        """Open or create a database.

        A damaged one is copied aside (``NAME.damaged-TIME``) with a line in the log, and replaced by one with what can
        be read of it.

        Args:
            path: The file, readable by its owner alone; ``None`` keeps everything in memory.
            cache: Told of each commit, and what a database begins with that holds no job.

        Raises:
            StoreError: The folder cannot be used, another planner holds the database, or it is not of this version.
        """
        self._path = path
        self._trouble = ""
        self._failed: defaultdict[str, list[_Commit]] = defaultdict(list)  # by job, oldest first
        self._queue: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._lock = _lock(path)
        try:
            self._database, self._loaded = _open_whole(path)
        except BaseException:
            self._release()
            raise
        self._cache = cache
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()
        if cache is not None:
            self._take_up(cache)

    def load(self) -> dict[str, list[Fact]]:
        """The facts of every job as they stood when the database was opened, in the order in which they were stored."""
        return {job_id: facts for job_id, facts in self._loaded.items() if job_id != NO_JOB}

    def load_own(self) -> list[Fact]:
        """The planner's own facts then: budgets and load targets."""
        return self._loaded.get(NO_JOB, [])

    def commit(self, job_id: str, facts: Sequence[Fact], drop: Sequence[str] = ()) -> "Future[None]":
        """Make facts durable, all of them or none.

        Args:
            job_id: Whose; ``NO_JOB`` for the planner's own.
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
        self._release()

    def set_aside(self, jobs: Mapping[str, Sequence[Fact]]) -> None:
        """Forget jobs whose facts are of no use, but keep those beside the database, and the cache's beside that.

        Args:
            jobs: What ``load`` gave of them.
        """
        if self._path is not None:
            aside = self._path.with_name(f"{self._path.name}.unusable-{time.strftime('%Y%m%dT%H%M%S')}")
            try:
                database, _ = open_database(aside)
                with closing(database), database:
                    database.execute("BEGIN IMMEDIATE")
                    for job_id, facts in jobs.items():
                        write_facts(database, job_id, map(row_of_fact, facts))
            except (OSError, sqlite3.Error, StoreError, DamagedError) as error:
                _log.error("%s: cannot be written (%s); these jobs start afresh without a copy", aside, error)
        if self._cache is not None and self._cache.job_id in jobs:
            self._cache.discard()
        for job_id in jobs:
            self.forget(job_id)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _take_up(self, cache: JobCache) -> None:
        """Begin with the cache's job where there is none, and let it know of that which there is."""
        known = self._loaded.get(cache.job_id)
        if known is not None:
            cache.note(cache.job_id, [*map(row_of_fact, known)], ())
        elif facts := cache.read():
            self._loaded[cache.job_id] = facts
            self.commit(cache.job_id, facts)

    def _put(self, commit: _Commit) -> "Future[None]":
        if self._cache is not None:
            self._cache.note(commit.job_id, commit.rows, commit.drop)
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
                        write_facts(self._database, job_id, commit.rows, commit.drop)
                for commit in commits:
                    write_facts(self._database, commit.job_id, commit.rows, commit.drop)
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


def _lock(path: Path | None) -> StateLock | None:
    if path is None:
        return None
    try:
        return StateLock(path.parent)
    except BlockingIOError:
        raise StoreError(f"{path}: another planner holds it; end that one, or name another state folder") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened ({error}); name a writable folder as state folder") from error


def _open_whole(path: Path | None) -> tuple[sqlite3.Connection, dict[str, list[Fact]]]:
    try:
        return open_database(path)
    except DamagedError as error:
        assert path is not None  # memory does not rot
        replace_damaged(path, error)
    try:
        return open_database(path)
    except DamagedError as again:
        raise StoreError(f"{path}: a fresh database is damaged too ({again}); check the disk") from again
