"""Rows of grants and of the audit record: their tables, and those that a damaged database still gives."""

import math
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.sqlite_files.salvaged_rows import Row, Table, readings
from perseus_dist.rpc.fields import sentence

SCHEMA_VERSION = 1
APPLICATION_ID = 0x50724163  # "PrAc"

CREATE = "CreateToken"
"""Action of the records whose text of after is the grant that was given."""

REVOKE = "RevokeToken"
"""Action of the records whose text of before is the grant that was taken back."""

DONE = "done"
"""Outcome of a change."""

MAX_TEXT = 500
"""Characters of a record's text; refusals quote what callers sent."""

# An id that SQLite is to choose is -1 here. Databases of before have no such trigger.
NOT_REPLACED = """
CREATE TRIGGER IF NOT EXISTS audit_is_not_replaced BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
"""

_GRANT_COLUMNS = (
    "name",
    "role",
    "jobs",
    "token_sha256",
    "certificate",
    "created_s",
    "created_by",
    "expires_s",
    "revoked_s",
    "revoked_by",
)
_RECORD_COLUMNS = ("time_s", "identity", "peer", "action", "job", "before", "after", "outcome")
_MAX_RECORD_ID = 2**53  # larger ones are damage, behind which SQLite has no more to give
_SEPARATOR = ","  # no pattern of job names holds one
_SCHEMA = f"""
BEGIN EXCLUSIVE;
CREATE TABLE grants (
    name TEXT PRIMARY KEY,
    role INTEGER NOT NULL,
    jobs TEXT NOT NULL,
    token_sha256 TEXT NOT NULL,
    certificate TEXT NOT NULL,
    created_s REAL NOT NULL,
    created_by TEXT NOT NULL,
    expires_s REAL,
    revoked_s REAL,
    revoked_by TEXT NOT NULL
);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_s REAL NOT NULL,
    identity TEXT NOT NULL,
    peer TEXT NOT NULL,
    action TEXT NOT NULL,
    job TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    outcome TEXT NOT NULL
);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
{NOT_REPLACED}
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvagedRights:
    """Rights that a damaged database still gives.

    Attributes:
        grants: In no order; one that a record says was taken back is.
        records: Rows of the audit record, ids first.
    """

    grants: list[Grant]
    records: list[Row]


def create_schema(database: sqlite3.Connection) -> None:
    """Give an empty database its tables."""
    database.executescript(_SCHEMA)


def read_grants(database: sqlite3.Connection) -> list[Grant]:
    """All grants, in the order of their names.

    Raises:
        ValueError: A row is damaged.
    """
    rows = database.execute(f"SELECT {', '.join(_GRANT_COLUMNS)} FROM grants ORDER BY name")
    return [_grant_of_row(row) for row in rows]


def write_grant(database: sqlite3.Connection, grant: Grant) -> None:
    """Store a grant, in place of the one of its name."""
    database.execute(
        "INSERT OR REPLACE INTO grants VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            grant.name,
            int(grant.role),
            _SEPARATOR.join(grant.jobs),
            grant.token_sha256,
            grant.certificate,
            grant.created_s,
            grant.created_by,
            grant.expires_s,
            grant.revoked_s,
            grant.revoked_by,
        ),
    )


def write_salvaged(database: sqlite3.Connection, rights: SalvagedRights) -> None:
    """Store what was saved, all of it or nothing, in a database without grants and records."""
    columns = ", ".join(("id", *_RECORD_COLUMNS))
    database.execute("BEGIN IMMEDIATE")
    for grant in rights.grants:
        write_grant(database, grant)
    database.executemany(f"INSERT INTO audit ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rights.records)
    database.execute("COMMIT")


def salvage_rights(path: Path) -> SalvagedRights:
    """Read what can be read.

    Args:
        path: Of the damaged database, with its journal beside it; stays as it is but for what SQLite recovers of that.
    """
    records = _salvaged_records(path)
    revoked = {
        before: (time_s, identity)
        for _, time_s, identity, _, action, _, before, _, outcome in records
        if action == REVOKE and outcome == DONE
    }
    grants = []
    for grant in _salvaged_grants(path):
        revoked_s, revoked_by = revoked.get(sentence(grant.text, MAX_TEXT), (-math.inf, ""))
        if grant.revoked_s is None and revoked_s >= grant.created_s:
            grants.append(replace(grant, revoked_s=revoked_s, revoked_by=revoked_by))
        else:
            grants.append(grant)
    return SalvagedRights(grants=grants, records=records)


def _salvaged_records(path: Path) -> list[Row]:
    audit = Table(name="audit", columns=_RECORD_COLUMNS, create_schema=create_schema, fits=_is_record)
    for rows in readings(path, audit):
        if records := [(number, *row) for number, row in rows if number <= _MAX_RECORD_ID]:
            return records
    return []


def _salvaged_grants(path: Path) -> list[Grant]:
    for rows in readings(
        path, Table(name="grants", columns=_GRANT_COLUMNS, create_schema=create_schema, fits=_is_grant)
    ):
        grants: dict[str, Grant] = {}
        for grant in (_grant_of_row(row) for _, row in rows):
            # A page that is used no more may have a grant as it was before it was taken back.
            if (there := grants.get(grant.name)) is None or there.revoked_s is None:
                grants[grant.name] = grant
        if grants:
            return list(grants.values())
    return []


def _is_record(row: Row) -> bool:
    return _is_time(row[0]) and all(isinstance(text, str) for text in row[1:])


def _is_grant(row: Row) -> bool:
    try:
        _grant_of_row(row)
    except ValueError:
        return False
    return True


def _grant_of_row(row: Row) -> Grant:
    name, role, jobs, token_sha256, certificate, created_s, created_by, expires_s, revoked_s, revoked_by = row
    texts = (name, jobs, token_sha256, certificate, created_by, revoked_by)
    times = (created_s, *(time_s for time_s in (expires_s, revoked_s) if time_s is not None))
    if not all(isinstance(text, str) for text in texts) or not all(map(_is_time, times)):
        raise ValueError(f"the grant {name!r} is damaged")
    return Grant(
        name=name,
        role=Role(role),
        jobs=tuple(filter(None, jobs.split(_SEPARATOR))),
        token_sha256=token_sha256,
        certificate=certificate,
        created_s=created_s,
        created_by=created_by,
        expires_s=expires_s,
        revoked_s=revoked_s,
        revoked_by=revoked_by,
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
