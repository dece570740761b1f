"""Facts of jobs in a database, each durable before its future is done.

One thread owns the database. It takes whatever commits are waiting into one transaction, so that a thousand ranks share
a disk flush: commits wait for the flush before theirs, and for no timer.

A commit that fails, because the disk is full or the database cannot be reached, stays first in line of its job: later
ones succeed with it or not at all. So a job's commits are durable in order and without a gap, and all is made up for
once there is room. Of failed commits the store keeps the net effect alone, so that a long outage costs no memory.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.stored_facts import is_policy
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.fact_database import Change, FactDatabase, FencedError, WriteError
from perseus_dist.planner.store.fact_rows import FactRow, row_of_fact
from perseus_dist.planner.store.job_cache import JobCache
from perseus_dist.planner.store.sqlite_facts import SqliteFacts

MAX_COMMITS_PER_TRANSACTION = 1024
NO_JOB = ""
"""The name that the planner's own facts are stored in."""
RETRY_PERIOD_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Facts that wait to be stored."""

    job_id: str
    rows: Sequence[FactRow]
    drop: Sequence[str]
    epoch: int
    done: "Future[None]" = field(default_factory=Future)


def sound_policies(own: Sequence[Fact]) -> list[Fact]:
    """The planner's own facts but for damaged ones, which the log names."""
    if damaged := [fact.key for fact in own if not is_policy(fact)]:
        _log.error("policies that no operator has set so are left out: %s; set them again", ", ".join(damaged))
    return [fact for fact in own if is_policy(fact)]


class Store:
    """A database and its thread. Any thread may call; only opening and closing wait for the database.

    A store that is given ``wake`` has no thread: its owner calls ``take`` and ``store`` in turn, as the thread does.

    Attributes:
        lost: Done once another planner has taken jobs over: its result is a sentence, and this planner must end.
        epochs: Of a replica: by job, that of the lease that it holds, which a commit keeps from the moment that it is
            made. None where this planner holds all jobs.
        fenced: Of a replica: called by the thread with a job and the epoch of a commit that was refused, because
            another replica has taken the job over.
    """

    def __init__(
        self,
        database: FactDatabase | Path | None,
        cache: JobCache | None = None,
        *,
        wake: Callable[[], object] | None = None,
    ) -> None:
        """Begin with what is in a database.

        Args:
            database: Open; the store closes it. A path is that of a SQLite database, made if it is missing, and
                ``None`` is one in memory.
            cache: Told of each commit, and what a database begins with that holds no job.
            wake: Called whenever a commit waits; None for a thread.

        Raises:
            StoreError: The SQLite database cannot be used.
        """
        self.lost: Future[str] = Future()
        self.epochs: Mapping[str, int] | None = None
        self.fenced: Callable[[str, int], object] = lambda _job_id, _epoch: None
        self._database = SqliteFacts(database) if database is None or isinstance(database, Path) else database
        self._loaded = self._database.load()
        self._trouble = ""
        self._failed: dict[str, Change] = {}  # by job
        self._queue: queue.SimpleQueue[Commit | None] = queue.SimpleQueue()
        self._alive_s = time.monotonic()
        self._cache = cache
        self._wake = wake
        self._thread = None if wake else threading.Thread(target=self._run, name="store", daemon=True)
        if self._thread is not None:
            self._thread.start()
        if cache is not None:
            self._restore_from_cache(cache)

    def load(self) -> dict[str, list[Fact]]:
        """The facts of every job as they stood when the database was opened, in the order in which they were stored."""
        return {job_id: facts for job_id, facts in self._loaded.items() if job_id != NO_JOB}

    def load_own(self) -> list[Fact]:
        """The planner's own facts then: budgets, load targets and price policies, but for damaged ones."""
        self._loaded[NO_JOB] = kept = sound_policies(self._loaded.get(NO_JOB, []))
        return kept

    def commit(self, job_id: str, facts: Sequence[Fact], drop: Sequence[str] = ()) -> "Future[None]":
        """Make facts durable, all of them or none.

        Args:
            job_id: Whose; ``NO_JOB`` for the planner's own.
            facts: Each replaces the fact of the same key.
            drop: Facts whose keys begin so are deleted first.

        Returns:
            Done once they are durable, and all that was committed of the job before. Fails with ``StoreError`` if the
            disk is full or broken, or the database cannot be reached; they are tried again with the job's next commit,
            and every few seconds.
        """
        return self._put(job_id, [row_of_fact(fact) for fact in facts], drop)

    def forget(self, job_id: str) -> "Future[None]":
        """Delete a job."""
        return self._put(job_id, (), ("",))

    @property
    def trouble(self) -> str:
        """Why commits have failed; empty once everything has been made up for."""
        return self._trouble

    def close(self) -> None:
        """Commit what is waiting, then close. Nothing may be committed afterwards."""
        if self._thread is None:
            self.store(self.take())
            self._database.close()
            return
        self._queue.put(None)
        self._thread.join()

    @property
    def has_waiting(self) -> bool:
        """Whether commits wait that were not taken yet."""
        return not self._queue.empty()

    def take(self) -> "list[Commit]":
        """The commits that wait, in order: of a store without a thread."""
        waiting: list[Commit] = []
        with suppress(queue.Empty):
            while len(waiting) < MAX_COMMITS_PER_TRANSACTION:
                commit = self._queue.get_nowait()
                assert commit is not None, "only a thread is asked to end"
                waiting.append(commit)
        return waiting

    def store(self, waiting: "Sequence[Commit]") -> None:
        """Write commits as one transaction, and what has failed before of their jobs; without any, all that has failed.

        Of a store without a thread: called every ``RETRY_PERIOD_S`` as well while there is ``trouble``.
        """
        commits = self._without_stale(waiting)
        if not commits:
            self._make_up()
        # Where they cannot be stored together, one job's may still fit, and those before a large one.
        elif not self._try(commits):
            for commit in commits:
                self._try([commit])
                self._keep_alive()

    def set_aside(self, jobs: Mapping[str, Sequence[Fact]]) -> None:
        """Forget jobs whose facts are of no use, but keep those beside the database, and the cache's beside that.

        Args:
            jobs: What ``load`` gave of them.
        """
        self._database.set_aside({job_id: [*map(row_of_fact, facts)] for job_id, facts in jobs.items()})
        if self._cache is not None and self._cache.job_id in jobs:
            self._cache.discard()
        for job_id in jobs:
            self.forget(job_id)

    def _restore_from_cache(self, cache: JobCache) -> None:
        """Begin with the cache's job where there is none, and let it know of that which there is."""
        known = self._loaded.get(cache.job_id)
        if known is not None:
            cache.note(cache.job_id, [*map(row_of_fact, known)], ())
        elif facts := cache.read():
            self._loaded[cache.job_id] = facts
            self.commit(cache.job_id, facts)

    def _put(self, job_id: str, rows: Sequence[FactRow], drop: Sequence[str]) -> "Future[None]":
        epoch = 0 if self.epochs is None else self.epochs.get(job_id, 0)
        commit = Commit(job_id=job_id, rows=rows, drop=drop, epoch=epoch)
        if self._cache is not None:
            self._cache.note(job_id, rows, drop)
        self._queue.put(commit)
        if self._wake is not None:
            self._wake()
        return commit.done

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        while not closing:
            waiting = self._wait()
            closing = None in waiting
            self.store([commit for commit in waiting if commit is not None])
            self._keep_alive()
        self._database.close()

    def _wait(self) -> list[Commit | None]:
        """The commits that wait, at least one unless something else is due; None asks to close."""
        due_s = RETRY_PERIOD_S if self._failed else None
        if (period_s := self._database.period_s) is not None:
            alive_in_s = max(self._alive_s + period_s - time.monotonic(), 0.0)
            due_s = alive_in_s if due_s is None else min(due_s, alive_in_s)
        waiting: list[Commit | None] = []
        try:
            waiting.append(self._queue.get(timeout=due_s))
            while len(waiting) < MAX_COMMITS_PER_TRANSACTION:
                waiting.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return waiting

    def _without_stale(self, commits: Sequence[Commit]) -> list[Commit]:
        """Fail commits of an earlier lease of a job that is held anew: others may have changed the job in between."""
        newest: dict[str, int] = {}
        for commit in commits:
            newest[commit.job_id] = max(commit.epoch, newest.get(commit.job_id, 0))
        for job_id, epoch in newest.items():
            if job_id in self._failed and self._failed[job_id].epoch < epoch:
                del self._failed[job_id]
        stale = [commit for commit in commits if commit.epoch < newest[commit.job_id]]
        _fail(stale, StoreError("another replica had the job since then"))
        return [commit for commit in commits if commit.epoch == newest[commit.job_id]]

    def _try(self, commits: Sequence[Commit]) -> bool:
        """Commit together, behind what has failed before of these jobs; False if each is to be tried alone."""
        changes = {commit.job_id: Change(commit.epoch) for commit in commits}
        for job_id, change in changes.items():
            if job_id in self._failed:
                change.append(self._failed[job_id])
        for commit in commits:
            changes[commit.job_id].add(commit.rows, commit.drop)
        try:
            self._write(changes)
        except FencedError as error:
            self._lose(error, changes)
            _fail([commit for commit in commits if commit.job_id in error.jobs], error)
            rest = [commit for commit in commits if commit.job_id not in error.jobs]
            return not rest or self._try(rest)
        except WriteError as error:
            if len(commits) > 1 and not error.of_all:
                return False
            if not self._trouble:
                _log.error("%s", error)
            self._trouble = str(error)
            self._failed |= changes
            _fail(commits, error)
            return True
        for commit in commits:
            if not commit.done.done():
                commit.done.set_result(None)
        return True

    def _write(self, changes: Mapping[str, Change]) -> None:
        self._database.write(changes)
        for job_id in changes:
            self._failed.pop(job_id, None)
        if self._trouble and not self._failed:
            _log.warning("%s can be written again", self._database.name)
            self._trouble = ""

    def _make_up(self) -> None:
        """Try again what has failed: together, and then job by job if it does not fit together."""
        if not self._failed or self._make_up_for(tuple(self._failed)):
            return
        for job_id in tuple(self._failed):
            self._make_up_for((job_id,))
            self._keep_alive()

    def _make_up_for(self, job_ids: Sequence[str]) -> bool:
        """False if each job is to be tried alone."""
        changes = {job_id: self._failed[job_id] for job_id in job_ids if job_id in self._failed}
        try:
            self._write(changes)
        except FencedError as error:
            self._lose(error, changes)
            return False
        except WriteError as error:
            self._trouble = str(error)
            return error.of_all
        return True

    def _keep_alive(self) -> None:
        period_s = self._database.period_s
        if period_s is not None and time.monotonic() >= self._alive_s + period_s:
            self._alive_s = time.monotonic()
            try:
                self._database.keep_alive()
            except FencedError as error:
                self._lose(error, {})

    def _lose(self, error: FencedError, changes: Mapping[str, Change]) -> None:
        """Another planner has these jobs: what failed of them is its to decide."""
        for job_id in error.jobs:
            self._failed.pop(job_id, None)
            if not error.is_over:
                self.fenced(job_id, changes[job_id].epoch)
        if self._trouble and not self._failed:
            self._trouble = ""
        if error.is_over and not self.lost.done():
            _log.error("%s", error)
            self.lost.set_result(str(error))


def _fail(commits: Sequence[Commit], error: Exception) -> None:
    for commit in commits:
        if not commit.done.done():
            commit.done.set_exception(StoreError(str(error)))
