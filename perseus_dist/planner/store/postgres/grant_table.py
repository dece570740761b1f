"""Named tokens of all planners in a PostgreSQL database: of each name the first, and its end once it is taken back."""

from collections.abc import Sequence
from typing import Any

from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.store.migrations import APPLICATION_ID, POSTGRES_SCHEMA
from perseus_dist.planner.store.postgres.address import PostgresAddress
from perseus_dist.planner.store.postgres.connection import Opened
from perseus_dist.planner.store.postgres.rights_connection import RightsConnection

_AT_ONCE = 500
_LOCK = f"SELECT pg_advisory_xact_lock({APPLICATION_ID + 2})"
"""One writer at a time: numbers appear in order, so a reader that goes on behind one misses none."""
_COLUMNS = tuple(Grant.__slots__)
_TABLE = f"{POSTGRES_SCHEMA}.grants"
_PUT = f"""
INSERT INTO {_TABLE} AS there ({", ".join(_COLUMNS)}) VALUES ({", ".join(f"%({name})s" for name in _COLUMNS)})
ON CONFLICT (name) DO UPDATE
SET revoked_s = excluded.revoked_s, revoked_by = excluded.revoked_by, number = excluded.number
WHERE there.revoked_s IS NULL AND excluded.revoked_s IS NOT NULL
    AND (there.token_sha256, there.created_s) = (excluded.token_sha256, excluded.created_s)
"""
_READ = f"SELECT number, {', '.join(_COLUMNS)} FROM {_TABLE} WHERE number > %s ORDER BY number LIMIT {_AT_ONCE}"
_NEWEST = f"SELECT coalesce(max(number), 0) FROM {_TABLE}"


class PostgresGrantTable:
    """A ``GrantTable``.

    Args:
        address: Of the database, whose schema is the present one.
    """

    def __init__(self, address: PostgresAddress) -> None:
        self._connection = RightsConnection(address)

    def put(self, grants: Sequence[Grant]) -> None:
        """See ``GrantTable``."""

        def write(opened: Opened) -> None:
            with opened.transaction():
                opened.execute(_LOCK)
                for grant in grants:
                    values = {name: getattr(grant, name) for name in _COLUMNS}
                    opened.execute(_PUT.encode(), {**values, "role": int(grant.role), "jobs": list(grant.jobs)})

        self._connection.run(write)

    def read(self, after: int) -> tuple[int, list[Grant]]:
        """See ``GrantTable``."""

        def look(opened: Opened) -> tuple[list[tuple[Any, ...]], int]:
            rows = opened.execute(_READ.encode(), (after,)).fetchall()
            newest = opened.execute(_NEWEST.encode()).fetchone() if not rows else None
            return rows, int(newest[0]) if newest else after

        rows, newest = self._connection.run(look)
        grants = []
        for _, *row in rows:
            values = dict(zip(_COLUMNS, row, strict=True))
            grants.append(Grant(**{**values, "role": Role(values["role"]), "jobs": tuple(values["jobs"])}))
        return (int(rows[-1][0]) if rows else min(after, newest)), grants

    def close(self) -> None:
        """See ``GrantTable``."""
        self._connection.close()
