"""Audit records of all planners in a PostgreSQL database, which refuses to change or delete one."""

from collections.abc import Sequence

from perseus_dist.planner.access.audit import AuditRecord, concerns
from perseus_dist.planner.store.migrations import APPLICATION_ID, POSTGRES_SCHEMA
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Opened
from perseus_dist.planner.store.postgres.rights_connection import RightsConnection

_NUM_NEWEST = 1000
_LOCK = f"SELECT pg_advisory_xact_lock({APPLICATION_ID + 1})"
"""One writer at a time: numbers appear in order, so a reader that goes on behind one misses none."""
_TEXTS = ("identity", "peer", "action", "job", "before", "after", "outcome")
_APPEND = f"""
INSERT INTO {POSTGRES_SCHEMA}.audit (state_id, id, replica, time_s, {", ".join(_TEXTS)})
SELECT %(state_id)s, fresh.id, %(replica)s, fresh.time_s, {", ".join(f"fresh.{name}" for name in _TEXTS)}
FROM unnest(%(id)s::bigint[], %(time_s)s::float8[], {", ".join(f"%({name})s::text[]" for name in _TEXTS)})
    AS fresh(id, time_s, {", ".join(_TEXTS)})
WHERE NOT EXISTS (SELECT 1 FROM {POSTGRES_SCHEMA}.audit AS there
    WHERE there.state_id = %(state_id)s AND there.id = fresh.id AND there.time_s = fresh.time_s)
ORDER BY fresh.id
"""
_READ = f"""
SELECT number, time_s, {", ".join(_TEXTS)}, replica FROM {POSTGRES_SCHEMA}.audit
WHERE number > %(after_id)s AND time_s >= %(since_s)s AND (%(job)s = '' OR job = %(job)s OR job ~ '[*? []')
ORDER BY number LIMIT %(limit)s
"""
_NEWEST = f"""
SELECT id, time_s FROM {POSTGRES_SCHEMA}.audit WHERE state_id = %s ORDER BY number DESC LIMIT {_NUM_NEWEST}
"""


class PostgresAuditTable:
    """An ``AuditTable``.

    Args:
        address: Of the database, whose schema is the present one.
        state_id: Of the planner's state folder.
        replica: The planner's address as one of several; empty for the only one.
    """

    def __init__(self, address: PostgresAddress, state_id: str, replica: str) -> None:
        self._connection = RightsConnection(address)
        self._state_id = state_id
        self._replica = replica

    def newest(self) -> Sequence[tuple[int, float]]:
        """See ``AuditTable``."""
        return self._connection.run(
            lambda opened: [(int(row[0]), float(row[1])) for row in opened.execute(_NEWEST, (self._state_id,))]
        )

    def append(self, records: Sequence[AuditRecord]) -> None:
        """See ``AuditTable``."""
        columns = {name: [getattr(record, name) for record in records] for name in ("time_s", *_TEXTS)}
        ids = [record.record_id for record in records]
        values = {**columns, "id": ids, "state_id": self._state_id, "replica": self._replica}

        def write(opened: Opened) -> None:
            with opened.transaction():
                opened.execute(_LOCK)
                opened.execute(_APPEND.encode(), values)

        self._connection.run(write)

    def read(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        """See ``AuditTable``."""
        found: list[AuditRecord] = []
        while True:
            values = {"after_id": after_id, "since_s": since_s, "job": job, "limit": limit}
            rows = self._connection.run(lambda opened, values=values: opened.execute(_READ.encode(), values).fetchall())  # type: ignore[misc]
            records = [AuditRecord(**dict(zip(AuditRecord.__slots__, row, strict=True))) for row in rows]
            found += [one for one in records if job in ("", one.job) or concerns(one.job, job)]
            if len(records) < limit or len(found) >= limit:
                return found[:limit]
            after_id = records[-1].record_id

    def close(self) -> None:
        """See ``AuditTable``."""
        self._connection.close()
