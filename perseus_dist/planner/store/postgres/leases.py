"""Which planner a job belongs to: a lease a job, whose epoch is a fencing token that every write names.

Planners register under a number that is never used again, and prolong their registration while they live, by the
database's clock alone. Who finds another's registration lapsed deletes it and takes its leases over, with a greater
epoch. A planner that was stopped meanwhile and wakes up may still believe that it owns a job: its writes name the
epoch of before and change nothing. Time decides when a lease may be taken, the epoch alone who may write.
"""

from dataclasses import dataclass

from perseus_dist.planner.store.migrations import POSTGRES_SCHEMA
from perseus_dist.planner.store.postgres.connection import Opened
from perseus_dist.planner.store.postgres.schema import LOCK

LEASE_S = 15.0
RENEWAL_PERIOD_S = 3.0
OPENING_LEASE_S = 300.0
"""Until a planner has read all facts, which may take long, and begins to renew."""

HOLD = f"""
INSERT INTO {POSTGRES_SCHEMA}.leases (job, planner, epoch)
SELECT wanted.job, planners.number, planners.number
FROM unnest(%(jobs)b::text[]) AS wanted(job) CROSS JOIN {POSTGRES_SCHEMA}.planners
WHERE planners.number = %(number)s
FOR SHARE OF planners
ON CONFLICT (job) DO NOTHING
"""
"""Leases of jobs that are new, for a planner that is registered still."""
LOCK_HELD = f"""
SELECT leases.job
FROM {POSTGRES_SCHEMA}.leases
JOIN unnest(%(jobs)b::text[], %(epochs)b::bigint[]) AS wanted(job, epoch) USING (job, epoch)
ORDER BY leases.job
FOR SHARE OF leases
"""
"""The jobs whose leases are as the writer knows them, which no planner takes over before the transaction has ended."""

LABEL = "SELECT set_config('application_name', 'perseus-dist planner ' || %(number)s::bigint, true)"
"""For one transaction: its connection names the planner's registration, as ``END_LAPSED`` wants it."""
END_LAPSED = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'perseus-dist planner %'
    AND NOT EXISTS (
        SELECT 1 FROM {POSTGRES_SCHEMA}.planners
        WHERE application_name = 'perseus-dist planner ' || number AND alive_until > now()
    )
"""
"""Ends transactions of planners whose registrations have lapsed, and so their locks.

A planner that is stopped, or cut off, between the statements of a pipelined transaction keeps its locks: the server
waits for the next statement, which no timeout of PostgreSQL 15 limits. What is lost was not acknowledged.
"""

RELEASE = f"DELETE FROM {POSTGRES_SCHEMA}.leases WHERE job = ANY(%(jobs)b::text[]) AND epoch = %(number)s"
"""Leases of jobs that are forgotten."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another planner that lives.

    Attributes:
        place: Its host and process.
        lapses_in_s: When it may be taken over, if it is silent from now on, in seconds.
    """

    place: str
    lapses_in_s: float


def register_for_all(opened: Opened, state_id: str, place: str) -> "int | Other":
    """Become the one planner of a database, in a transaction of its own.

    Earlier planners are taken over from: those whose registration has lapsed, and those of the same state folder,
    whose lock this process has. Run again, it takes over from itself.

    Args:
        opened: To the database.
        state_id: Of the state folder.
        place: For people: host and process.

    Returns:
        The planner's number, which is the epoch of all its leases; or another planner that lives.
    """
    with opened.transaction():
        opened.execute(LOCK)
        row = opened.execute(
            f"SELECT place, extract(epoch FROM alive_until - now())::float8 FROM {POSTGRES_SCHEMA}.planners "
            "WHERE state_id <> %s AND alive_until > now() ORDER BY alive_until DESC LIMIT 1",
            (state_id,),
        ).fetchone()
        if row is not None:
            return Other(str(row[0]), float(row[1]))
        row = opened.execute(f"SELECT nextval('{POSTGRES_SCHEMA}.epochs')").fetchone()
        assert row is not None
        number = int(row[0])
        opened.execute(END_LAPSED)
        opened.execute(f"DELETE FROM {POSTGRES_SCHEMA}.planners")
        opened.execute(
            f"INSERT INTO {POSTGRES_SCHEMA}.planners VALUES (%s, %s, %s, now() + make_interval(secs => %s))",
            (number, state_id, place, OPENING_LEASE_S),
        )
        opened.execute(f"UPDATE {POSTGRES_SCHEMA}.leases SET planner = %s, epoch = %s", (number, number))
        return number


def renew(opened: Opened, number: int) -> bool:
    """Prolong a registration; False if it is gone, because another planner has taken over."""
    renewed = opened.execute(
        f"UPDATE {POSTGRES_SCHEMA}.planners SET alive_until = now() + make_interval(secs => %s) WHERE number = %s",
        (LEASE_S, number),
    )
    return renewed.rowcount == 1


def resign(opened: Opened, number: int) -> None:
    """Let another planner take over at once."""
    opened.execute(f"DELETE FROM {POSTGRES_SCHEMA}.planners WHERE number = %s", (number,))
