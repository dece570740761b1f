"""Leases of replicas in PostgreSQL, on connections of their own: neither a long write nor a claim holds up a renewal.

Claims and registrations take one advisory lock, one after the other: a job's lease is looked at and taken in one step.
A claim changes the lease's row, for which it waits until a write under the epoch before has ended; so the facts that
it reads are all that the owner before has stored, and will ever store. Where that takes longer than a moment, the
transactions of replicas whose registrations have lapsed are ended: they may have been stopped within them.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from psycopg import errors, pq

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, PricePolicySet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.store.fact_database import FencedError
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row
from perseus_dist.planner.store.lease_table import (
    MOST_ELSEWHERE,
    Claimed,
    JobElsewhere,
    LeaseError,
    Survey,
    job_elsewhere,
)
from perseus_dist.planner.store.migrations import POSTGRES_SCHEMA
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Connection, FailedError, Opened, UnreachableError
from perseus_dist.planner.store.postgres.leases import END_LAPSED, LABEL, Other
from perseus_dist.planner.store.postgres.schema import LOCK
from perseus_dist.planner.store.salvaged_facts import consistent_jobs

LEASE_S = 2.0
OPENING_LEASE_S = 15.0
"""Until a replica that starts begins to renew."""

_MAX_ORPHANS = 256
_TIMEOUT_S, _CLAIM_TIMEOUT_S = 3.0, 30.0
_PATIENCE_S = 1.0  # of claims and releases
_NO_JOB = ""  # the owner of the planner's own facts holds the policies

_LIVING = f"SELECT 1 FROM {POSTGRES_SCHEMA}.planners AS owner WHERE owner.number = leases.planner AND {{}}"
_IS_FREE = f"""(leases.planner = %(number)s OR NOT EXISTS ({_LIVING.format("owner.alive_until > now()")}))"""
_RENEW = f"""
UPDATE {POSTGRES_SCHEMA}.planners SET alive_until = now() + make_interval(secs => %(lease_s)s)
FROM (SELECT number, alive_until FROM {POSTGRES_SCHEMA}.planners WHERE number = %(number)s FOR UPDATE) AS before
WHERE planners.number = before.number
RETURNING before.alive_until <= now()
"""
_ORPHANS = f"""
SELECT job FROM {POSTGRES_SCHEMA}.leases WHERE NOT EXISTS ({_LIVING.format("owner.alive_until > now()")})
ORDER BY job <> '{_NO_JOB}', md5(job || %(number)s::text) LIMIT {_MAX_ORPHANS}
"""
_LIVING_REPLICAS = f"""
SELECT number, address, extract(epoch FROM alive_until - now()) FROM {POSTGRES_SCHEMA}.planners
WHERE alive_until > now() AND address <> ''
"""
_CLAIM = f"""
INSERT INTO {POSTGRES_SCHEMA}.leases (job, planner, epoch)
SELECT wanted.job, planners.number, nextval('{POSTGRES_SCHEMA}.epochs')
FROM unnest(%(jobs)b::text[]) AS wanted(job) CROSS JOIN {POSTGRES_SCHEMA}.planners
WHERE planners.number = %(number)s AND planners.alive_until > now()
    AND (NOT %(known_only)s::bool OR wanted.job IN (SELECT job FROM {POSTGRES_SCHEMA}.leases))
ON CONFLICT (job) DO UPDATE SET planner = excluded.planner, epoch = excluded.epoch WHERE {_IS_FREE}
RETURNING job, epoch
"""
_LIMITS = """
SELECT set_config('lock_timeout', %(lock_timeout)s, true), set_config('idle_in_transaction_session_timeout', '1s', true)
"""
"""For one transaction: a process that is stopped between its round trips holds up others no longer than that."""
_MOMENT, _LONG = {"lock_timeout": "300ms"}, {"lock_timeout": "10s"}
_KNOWN = f"SELECT job FROM {POSTGRES_SCHEMA}.leases WHERE job = ANY(%(jobs)b::text[])"
_OWNERS = f"""
SELECT leases.job, planners.address
FROM {POSTGRES_SCHEMA}.leases JOIN {POSTGRES_SCHEMA}.planners ON planners.number = leases.planner
WHERE leases.job = ANY(%(jobs)b::text[]) AND leases.planner <> %(number)s AND planners.alive_until > now()
"""
_FACTS = f"""
SELECT job, key, kind, body, blob FROM {POSTGRES_SCHEMA}.facts WHERE job = ANY(%(jobs)b::text[]) ORDER BY id
"""
_ALL = f"""
SELECT job, EXISTS ({_LIVING.format("owner.alive_until > now()")})
FROM {POSTGRES_SCHEMA}.leases WHERE job <> '{_NO_JOB}'
"""
_ELSEWHERE = f"""
SELECT leases.job, planners.address, facts.key, facts.kind, facts.body, facts.blob
FROM (
    SELECT job, planner FROM {POSTGRES_SCHEMA}.leases
    WHERE planner IN (SELECT number FROM {POSTGRES_SCHEMA}.planners WHERE number <> %(number)s AND alive_until > now())
        AND job <> '{_NO_JOB}' AND EXISTS (
            SELECT 1 FROM {POSTGRES_SCHEMA}.facts WHERE facts.job = leases.job AND facts.key = '{JobRegistered.KEY}'
        )
    ORDER BY job LIMIT %(most)s
) AS leases JOIN {POSTGRES_SCHEMA}.planners ON planners.number = leases.planner
    JOIN {POSTGRES_SCHEMA}.facts ON facts.job = leases.job AND facts.key = ANY(%(keys)b::text[])
ORDER BY leases.job
"""
_HELD = "unnest(%(jobs)b::text[], %(epochs)b::bigint[]) AS held(job, epoch)"
_RELEASE = f"""
UPDATE {POSTGRES_SCHEMA}.leases SET planner = 0 FROM {_HELD}
WHERE leases.job = held.job AND leases.epoch = held.epoch AND leases.planner = %(number)s
"""
_DELETE = f"""
DELETE FROM {POSTGRES_SCHEMA}.leases USING {_HELD}
WHERE leases.job = held.job AND leases.epoch = held.epoch AND leases.planner = %(number)s
    AND NOT EXISTS (SELECT 1 FROM {POSTGRES_SCHEMA}.facts WHERE facts.job = leases.job)
"""

_Result = TypeVar("_Result")


def register_replica(opened: Opened, state_id: str, place: str, address: str) -> "int | Other":
    """Become one of the planners of a database, in a transaction of its own; run again, the later number counts.

    Args:
        opened: To the database.
        state_id: Of the state folder, whose earlier planner has ended.
        place: For people: host and process.
        address: Where agents and commands reach it.

    Returns:
        The replica's number; or a planner that lives and serves all jobs.
    """
    with opened.transaction():
        opened.execute(_LIMITS, _LONG)
        opened.execute(LOCK)
        row = opened.execute(
            f"SELECT place, extract(epoch FROM alive_until - now())::float8 FROM {POSTGRES_SCHEMA}.planners "
            "WHERE state_id <> %s AND address = '' AND alive_until > now() LIMIT 1",
            (state_id,),
        ).fetchone()
        if row is not None:
            return Other(str(row[0]), float(row[1]))
        row = opened.execute(f"SELECT nextval('{POSTGRES_SCHEMA}.epochs')").fetchone()
        assert row is not None
        number = int(row[0])
        opened.execute(
            f"DELETE FROM {POSTGRES_SCHEMA}.planners WHERE state_id = %s OR address = '' "
            "OR alive_until < now() - interval '1 day'",
            (state_id,),
        )
        opened.execute(
            f"INSERT INTO {POSTGRES_SCHEMA}.planners (number, state_id, place, alive_until, address) "
            "VALUES (%s, %s, %s, now() + make_interval(secs => %s), %s)",
            (number, state_id, place, OPENING_LEASE_S, address),
        )
        return number


class ReplicaLeases:
    """A ``LeaseTable``.

    Args:
        address: Of the database.
        number: Of the registration.
        advertised: Where agents and commands reach this replica.
        set_aside: Keeps rows that cannot be read where a person finds them; called in the thread that claims.
    """

    lease_s = LEASE_S

    def __init__(
        self,
        address: PostgresAddress,
        number: int,
        advertised: str,
        set_aside: Callable[[Mapping[str, Sequence[FactRow]]], None],
    ) -> None:
        self._connection, self._renewing = Connection(address), Connection(address)
        self._number = number
        self._set_aside = set_aside
        self.address = advertised

    def survey(self, held: Mapping[str, int]) -> Survey:
        """As ``LeaseTable``."""
        return self._run(lambda opened: self._survey(opened, held), _TIMEOUT_S, of=self._renewing)

    def claim(self, jobs: Collection[str], *, known_only: bool = False) -> "dict[str, Claimed | str]":
        """As ``LeaseTable``."""
        return self._run(
            lambda opened: self._claim(opened, list(jobs), known_only=known_only), _CLAIM_TIMEOUT_S, _PATIENCE_S
        )

    def all(self) -> Mapping[str, bool]:
        """As ``LeaseTable``."""
        return dict(self._run(lambda opened: opened.execute(_ALL).fetchall(), _TIMEOUT_S))

    def elsewhere(self) -> Sequence[JobElsewhere]:
        """As ``LeaseTable``."""
        keys = [kind.KEY for kind in JobElsewhere.SHOWN]
        wanted = {"number": self._number, "keys": keys, "most": MOST_ELSEWHERE}
        rows = self._run(lambda opened: opened.execute(_ELSEWHERE, wanted, binary=True).fetchall(), _TIMEOUT_S)
        jobs = []
        for (job, address), of_job in groupby(rows, key=lambda row: row[:2]):
            with suppress(ValueError):  # its own replica says so
                jobs.append(job_elsewhere(job, address, [fact_of_row(FactRow(*row[2:])) for row in of_job]))
        return [job for job in jobs if job is not None]

    def release(self, held: Mapping[str, int]) -> None:
        """As ``LeaseTable``."""
        parameters = {"jobs": list(held), "epochs": list(held.values()), "number": self._number}

        def run(opened: Opened) -> None:
            with opened.pipeline(), opened.transaction():
                opened.execute(_LIMITS, _LONG)
                opened.execute(LABEL, parameters)
                opened.execute(_DELETE, parameters)
                opened.execute(_RELEASE, parameters)

        self._run(run, _TIMEOUT_S, _PATIENCE_S)

    def resign(self) -> None:
        """As ``LeaseTable``; disconnects."""

        def run(opened: Opened) -> None:
            opened.execute(f"DELETE FROM {POSTGRES_SCHEMA}.planners WHERE number = %s", (self._number,))

        try:
            self._run(run, _TIMEOUT_S)
        finally:
            self._connection.close()
            self._renewing.close()

    def _run(
        self,
        work: Callable[[Opened], _Result],
        timeout_s: float,
        patience_s: float = 0.0,
        of: Connection | None = None,
    ) -> _Result:
        try:
            return (of or self._connection).run(work, patience_s, timeout_s)
        except (UnreachableError, FailedError) as error:
            raise LeaseError(str(error)) from error

    def _survey(self, opened: Opened, held: Mapping[str, int]) -> Survey:
        number = {"number": self._number}
        with opened.pipeline(), opened.transaction():
            renewed = opened.execute(_RENEW, {**number, "lease_s": LEASE_S})
        row = renewed.fetchone()
        if row is None:
            raise self._gone(held)
        lost: frozenset[str] = frozenset()
        if row[0]:
            mine = opened.execute(f"SELECT job, epoch FROM {POSTGRES_SCHEMA}.leases WHERE planner = %(number)s", number)
            still = {job for job, epoch in mine if held.get(job) == epoch}
            lost = frozenset(held.keys() - still)
        orphans = [job for (job,) in opened.execute(_ORPHANS, number)]
        living = opened.execute(_LIVING_REPLICAS).fetchall()
        owner = opened.execute(
            f"SELECT address FROM {POSTGRES_SCHEMA}.leases JOIN {POSTGRES_SCHEMA}.planners ON number = planner "
            "WHERE job = '' AND alive_until > now()"
        ).fetchone()
        policies = opened.execute(
            f"SELECT key, kind, body, blob FROM {POSTGRES_SCHEMA}.facts "
            "WHERE job = '' AND kind IN ('BudgetSet', 'PricePolicySet')",
            binary=True,
        ).fetchall()
        return Survey(
            lost=lost,
            orphans=orphans,
            replicas=sorted({address for _, address, _ in living}),
            policies="" if owner is None else owner[0],
            patterns=_patterns(policies),
            next_lapse_s=min((float(left_s) for of, _, left_s in living if of != self._number), default=math.inf),
        )

    def _claim(self, opened: Opened, jobs: list[str], *, known_only: bool) -> "dict[str, Claimed | str]":
        found: dict[str, Claimed | str] = {}
        wanted = {"number": self._number, "jobs": sorted(jobs), "known_only": known_only}
        found.update(opened.execute(_OWNERS, wanted).fetchall())
        if len(found) == len(jobs):
            return found  # without the lock: ranks of thousands of jobs may come here
        try:
            taking = self._claim_in_transaction(opened, {**wanted, **_MOMENT})
        except errors.LockNotAvailable:
            opened.execute(END_LAPSED)
            taking = self._claim_in_transaction(opened, {**wanted, **_LONG})
        if taking is None:
            raise self._gone(jobs)
        known, epochs, owners = taking
        found.update(owners)
        # From here on the owner before can store nothing more; a process that is stopped here holds no lock.
        rows: dict[str, list[FactRow]] = {job: [] for job in epochs}
        for job, *row in opened.execute(_FACTS, {"jobs": list(epochs)}, binary=True):
            rows[job].append(FactRow(*row))
        for job, epoch in epochs.items():
            facts, is_salvaged = self._read(job, rows[job])
            found[job] = Claimed(
                epoch=epoch, facts=facts, has_predecessor=job in known and job != _NO_JOB, is_salvaged=is_salvaged
            )
        if missing := [job for job in jobs if job not in found and (job in known or not known_only)]:
            raise LeaseError(f"{self._connection.place}: the lease of {missing[0]!r} cannot be taken at the moment")
        return found

    def _claim_in_transaction(
        self, opened: Opened, wanted: Mapping[str, object]
    ) -> "tuple[frozenset[str], dict[str, int], dict[str, str]] | None":
        """Change leases: jobs that had one before, epochs of those taken, owners of others; None if unregistered."""
        try:
            with opened.pipeline(), opened.transaction():
                opened.execute(_LIMITS, wanted)
                opened.execute(LABEL, wanted)
                opened.execute(LOCK)
                before = opened.execute(_KNOWN, wanted)
                taken = opened.execute(_CLAIM, wanted)
                owners = opened.execute(_OWNERS, wanted)
                registered = opened.execute(
                    f"SELECT 1 FROM {POSTGRES_SCHEMA}.planners WHERE number = %(number)s", wanted
                )
        except errors.LockNotAvailable:
            if opened.info.transaction_status != pq.TransactionStatus.IDLE:
                opened.rollback()
            raise
        if registered.fetchone() is None:
            return None
        return frozenset(job for (job,) in before), dict(taken.fetchall()), dict(owners.fetchall())

    def _read(self, job: str, rows: Sequence[FactRow]) -> tuple[Sequence[Fact], bool]:
        """The facts of a job, without its plans where rows cannot be read, and whether that is so."""
        facts, is_whole = [], True
        for row in rows:
            try:
                facts.append(fact_of_row(row))
            except ValueError:
                is_whole = False
        if is_whole:
            return facts, False
        self._set_aside({job: rows})
        return consistent_jobs({job: facts}).get(job, ()), True

    def _gone(self, jobs: Collection[str]) -> FencedError:
        return FencedError(
            f"{self._connection.place}: another planner has taken over, which serves all jobs, and this one ends", jobs
        )


def _patterns(rows: Sequence[Sequence[object]]) -> list[tuple[str, ...]]:
    patterns = []
    for row in rows:
        try:
            fact = fact_of_row(FactRow(*row))  # type: ignore[arg-type]
        except ValueError:  # the replica that holds the policies says so
            continue
        if isinstance(fact, (BudgetSet, PricePolicySet)):
            patterns.append(tuple(fact.jobs))
    return patterns
