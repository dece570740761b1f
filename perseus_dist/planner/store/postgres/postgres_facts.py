"""Facts in a PostgreSQL database, directly or behind pgbouncer."""

import logging
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psycopg

from perseus_dist import systemd
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.store.database import HeldError, StoreError, beyond, keep_rows
from perseus_dist.planner.store.fact_database import Change, FencedError, WriteError
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row, row_of_fact
from perseus_dist.planner.store.migrations import POSTGRES_SCHEMA
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import (
    ANSWER_TIMEOUT_S,
    Connection,
    FailedError,
    Opened,
    UnreachableError,
)
from perseus_dist.planner.store.postgres.leases import (
    HOLD,
    LABEL,
    LEASE_S,
    LOCK_HELD,
    OPENING_LEASE_S,
    RELEASE,
    RENEWAL_PERIOD_S,
    Other,
    register_for_all,
    renew,
    resign,
)
from perseus_dist.planner.store.postgres.replica_leases import ReplicaLeases, register_replica
from perseus_dist.planner.store.postgres.schema import prepare
from perseus_dist.planner.store.salvaged_facts import consistent_jobs
from perseus_dist.planner.store.state_lock import StateLock

PATIENCE_S = 3.0
"""How long commits wait for a database that restarts before they fail."""

_RECONNECT_PERIOD_S = 1.0
_START_TIMEOUT_S = 60
_SLOWEST_BYTES_PER_S = 1e6
_MAX_STATEMENT_BYTES = 16 << 20
_LIMITS = """
SELECT
    set_config('synchronous_commit', CASE synchronous WHEN 'off' THEN 'on' ELSE synchronous END, true),
    set_config('lock_timeout', '5s', true),
    set_config('statement_timeout', '10s', true),
    set_config('idle_in_transaction_session_timeout', '10s', true)
FROM current_setting('synchronous_commit') AS synchronous
"""
"""For one transaction: durable when it is confirmed, and no lock of a planner that has vanished lasts."""
_DELETE = f"""
DELETE FROM {POSTGRES_SCHEMA}.facts
USING unnest(%(jobs)b::text[], %(epochs)b::bigint[], %(begins)b::text[], %(ends)b::text[])
    AS gone(job, epoch, first, beyond)
JOIN {POSTGRES_SCHEMA}.leases USING (job, epoch)
WHERE facts.job = gone.job AND facts.key >= gone.first AND facts.key < gone.beyond
"""
_INSERT = f"""
INSERT INTO {POSTGRES_SCHEMA}.facts (job, key, kind, body, blob)
SELECT fresh.job, fresh.key, fresh.kind, fresh.body, fresh.blob
FROM unnest(%(jobs)b::text[], %(epochs)b::bigint[], %(keys)b::text[], %(kinds)b::text[], %(bodies)b::text[],
    %(blobs)b::bytea[]) WITH ORDINALITY AS fresh(job, epoch, key, kind, body, blob, place)
JOIN {POSTGRES_SCHEMA}.leases USING (job, epoch)
ORDER BY fresh.place
ON CONFLICT (job, key) DO UPDATE
SET id = excluded.id, kind = excluded.kind, body = excluded.body, blob = excluded.blob
"""
_SELECT = f"SELECT job, key, kind, body, blob FROM {POSTGRES_SCHEMA}.facts ORDER BY id"
_SELECT_OF = f"SELECT job, key, kind, body, blob FROM {POSTGRES_SCHEMA}.facts WHERE job = ANY(%(jobs)s) ORDER BY id"

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


class PostgresFacts:
    """A ``FactDatabase`` that one planner at a time serves from, or several replicas.

    Attributes:
        leases: Of a replica, which has the facts of its jobs from there; None for a planner that serves all jobs.
        state_id: Of the planner's state folder.
    """

    period_s: float | None = RENEWAL_PERIOD_S
    leases: ReplicaLeases | None = None

    def __init__(
        self,
        address: PostgresAddress,
        *,
        state_id: str,
        aside: Path | None = None,
        lock: StateLock | None = None,
        waits: bool = True,
        advertise: str = "",
    ) -> None:
        """Connect, make tables that are missing, and take over from planners before, or become a replica.

        Args:
            address: Of the database.
            state_id: Of the planner's state folder: a planner that is started again there goes on at once.
            aside: Beside it rows are kept that are of no use; None drops them.
            lock: Of the state folder; released when this is closed.
            waits: For a database that cannot be reached yet, and for another planner to end; each is said once.
            advertise: Where agents and commands reach this planner as one of several replicas; empty for the only one.

        Raises:
            StoreError: The address, the user's rights or the database are of no use; or the wait is not wanted.
        """
        self._connection = Connection(address)
        self._aside = aside
        self._lock = lock
        self._unreachable, self._retry_s = "", 0.0
        try:
            self._wait_for(lambda opened: prepare(opened, self._connection.place), waits=waits)
            self.state_id = state_id
            self._number = self._register(state_id, advertise, waits=waits)
            if advertise:
                self.period_s, self._loaded = None, {}
                self.leases = ReplicaLeases(address, self._number, advertise, self.set_aside)
                return
            self._loaded = self._wait_for(self._load, waits=waits)
            with suppress(FencedError):  # the first renewal says so
                self.keep_alive()
        except BaseException:
            self._connection.close()
            raise

    @property
    def name(self) -> str:
        """The database's address, without a password."""
        return str(self._connection.place)

    def load(self) -> dict[str, list[Fact]]:
        """As of the opening."""
        return self._loaded

    def write(self, changes: Mapping[str, Change]) -> None:
        """Make changes durable: of each job, all or none.

        Raises:
            WriteError: Not confirmed.
            FencedError: Some jobs belong to another planner; the others' changes are stored.
        """
        if self._unreachable and time.monotonic() < self._retry_s:
            raise WriteError(self._unreachable, of_all=True)
        num_bytes = sum(len(row.body) + len(row.blob) for change in changes.values() for row in change.rows.values())
        try:
            held = self._connection.run(
                lambda opened: self._write(opened, changes),
                0.0 if self._unreachable else PATIENCE_S,
                ANSWER_TIMEOUT_S + num_bytes / _SLOWEST_BYTES_PER_S,
            )
        except UnreachableError as error:
            self._unreachable, self._retry_s = str(error), time.monotonic() + _RECONNECT_PERIOD_S
            raise WriteError(self._unreachable, of_all=True) from error
        except FailedError as error:
            raise WriteError(str(error)) from error
        self._unreachable = ""
        if fenced := changes.keys() - held:
            raise self._fenced(fenced)

    def keep_alive(self) -> None:
        """Prolong the registration.

        Raises:
            FencedError: It is gone.
        """
        with suppress(UnreachableError, FailedError):  # the next write says so
            if not self._connection.run(lambda opened: renew(opened, self._number)):
                raise self._fenced(self._loaded)

    def set_aside(self, jobs: Mapping[str, Sequence[FactRow]]) -> None:
        """Keep rows in a SQLite database in the state folder."""
        if self._aside is not None:
            keep_rows(self._aside, jobs)

    def close(self) -> None:
        """Let another planner take over at once, unless the leases' thread does, and disconnect."""
        if self.leases is None:
            with suppress(UnreachableError, FailedError):
                self._connection.run(lambda opened: resign(opened, self._number))
        self._connection.close()
        if self._lock is not None:
            self._lock.release()

    # ---- opening -----------------------------------------------------------------------------------------------------

    def _wait_for(self, work: Callable[[Opened], _Result], *, waits: bool) -> _Result:
        is_first = True
        while True:
            try:
                # A pooler answers for a server that is away, until a statement waits for that; work may take long.
                self._connection.run(lambda opened: opened.execute("SELECT 1"), PATIENCE_S)
                return self._connection.run(work, PATIENCE_S, OPENING_LEASE_S)
            except FailedError as error:
                raise HeldError(str(error)) from error
            except UnreachableError as error:
                if not (waits and error.is_passing):
                    raise StoreError(str(error)) from error
                if is_first:
                    _log.warning("%s; until then this planner serves no job", error)
                is_first = False
            self._pause(_RECONNECT_PERIOD_S)

    def _pause(self, duration_s: float) -> None:
        """Wait while opening, without being taken by systemd for a service that hangs."""
        systemd.notify(f"EXTEND_TIMEOUT_USEC={_START_TIMEOUT_S * 1_000_000}\nSTATUS=waiting for {self.name}")
        time.sleep(duration_s)

    def _register(self, state_id: str, advertise: str, *, waits: bool) -> int:
        place = f"process {os.getpid()} on {socket.gethostname()}"

        def register(opened: Opened) -> "int | Other":
            if advertise:
                return register_replica(opened, state_id, place, advertise)
            return register_for_all(opened, state_id, place)

        is_first = True
        while True:
            found = self._wait_for(register, waits=waits)
            if not isinstance(found, Other):
                return found
            sentence = f"{self.name}: another planner holds it ({found.place})"
            if not waits:
                raise HeldError(f"{sentence}; end that one, or name another database")
            if is_first:
                _log.warning("%s: this planner stands by, and takes over once that one ends or is silent", sentence)
            is_first = False
            self._pause(min(max(found.lapses_in_s, 0.1), _RECONNECT_PERIOD_S))

    def _load(self, opened: Opened) -> dict[str, list[Fact]]:
        jobs: defaultdict[str, list[Fact]] = defaultdict(list)
        unreadable: dict[str, None] = {}
        with opened.transaction(), opened.cursor(name="facts", binary=True) as cursor:  # rows come in portions
            for job, *row in cursor.execute(_SELECT):
                try:
                    jobs[job].append(fact_of_row(FactRow(*row)))
                except ValueError as error:
                    if job not in unreadable:
                        _log.error("%s: job %s: %s", self.name, job, error)
                    unreadable[job] = None
        if unreadable:
            self._salvage(opened, jobs, unreadable)
        return dict(jobs)

    def _salvage(self, opened: Opened, jobs: dict[str, list[Fact]], unreadable: Mapping[str, None]) -> None:
        """Go on with what can be read of jobs that have a row that cannot, without their plans."""
        raw: dict[str, list[FactRow]] = {job: [] for job in unreadable}
        rows = opened.execute(_SELECT_OF, {"jobs": list(raw)}, binary=True)
        for job, *row in rows:
            raw[job].append(FactRow(*row))
        self.set_aside(raw)
        kept = consistent_jobs({job: jobs.pop(job, []) for job in raw})
        changes = {job: Change() for job in raw}
        for job, change in changes.items():
            change.add((row_of_fact(fact) for fact in kept.get(job, ())), ("",))
        self._write(opened, changes)
        jobs |= kept
        _log.error("%s: what can be read of %d of %d jobs goes on, without plans", self.name, len(kept), len(raw))

    # ---- writing -----------------------------------------------------------------------------------------------------

    def _write(self, opened: Opened, changes: Mapping[str, Change]) -> frozenset[str]:
        """Write in one round trip; the jobs that were this planner's, whose changes are durable."""
        is_replica = self.leases is not None
        epochs = {job: change.epoch if is_replica else self._number for job, change in changes.items()}
        jobs = {"jobs": list(epochs), "epochs": list(epochs.values()), "number": self._number}
        gone = [(job, prefix) for job, change in changes.items() for prefix in change.drop]
        try:
            with opened.pipeline(), opened.transaction():
                opened.execute(_LIMITS)
                opened.execute(LABEL, jobs)
                if not is_replica:
                    opened.execute(HOLD, jobs)
                locked = opened.execute(LOCK_HELD, jobs)
                if gone:
                    opened.execute(
                        _DELETE,
                        {
                            "jobs": [job for job, _ in gone],
                            "epochs": [epochs[job] for job, _ in gone],
                            "begins": [prefix for _, prefix in gone],
                            "ends": [beyond(prefix) for _, prefix in gone],
                        },
                    )
                for rows in _portions(changes):
                    opened.execute(
                        _INSERT,
                        {
                            "jobs": [job for job, _ in rows],
                            "epochs": [epochs[job] for job, _ in rows],
                            "keys": [row.key for _, row in rows],
                            "kinds": [row.kind for _, row in rows],
                            "bodies": [row.body for _, row in rows],
                            "blobs": [row.blob for _, row in rows],
                        },
                    )
                forgotten = [job for job, change in changes.items() if "" in change.drop and not change.rows]
                if forgotten and not is_replica:  # a replica may have a job of that name again by now
                    opened.execute(RELEASE, {"jobs": forgotten, "number": self._number})
            return frozenset(job for (job,) in locked)
        except psycopg.Error:
            if opened.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    opened.rollback()
            raise

    def _fenced(self, jobs: Collection[str]) -> FencedError:
        if self.leases is not None:
            names = ", ".join(sorted(jobs)[:3])
            return FencedError(f"{self.name}: another replica has {names} now", jobs, is_over=False)
        return FencedError(
            f"{self.name}: another planner has taken over: this one was silent for {LEASE_S:g} s, and ends", jobs
        )


def _portions(changes: Mapping[str, Change]) -> Iterator[list[tuple[str, FactRow]]]:
    """Rows in statements of a size that servers take."""
    portion: list[tuple[str, FactRow]] = []
    num_bytes = 0
    for job, change in changes.items():
        for row in change.rows.values():
            portion.append((job, row))
            num_bytes += len(row.body) + len(row.blob)
            if num_bytes >= _MAX_STATEMENT_BYTES:
                yield portion
                portion, num_bytes = [], 0
    if portion:
        yield portion
