"""The database of grants and of the audit record; SQLite itself refuses to change, replace or delete a record."""

import logging
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.grants import Grant, Role

SCHEMA_VERSION = 1

_APPLICATION_ID = 0x50724163  # "PrAc"
_COMPANIONS = ("", "-wal", "-shm")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PATIENCE_S = 0.05  # the planner's loop waits for a lock that another program holds
_SEPARATOR = ","  # no pattern of job names holds one
# An id that SQLite is to choose is -1 here. Databases of before have no such trigger.
_NOT_REPLACED = """
CREATE TRIGGER IF NOT EXISTS audit_is_not_replaced BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'the audit record is append-only'); END;
"""
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
{_NOT_REPLACED}
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

_log = logging.getLogger(__name__)


class RightsDatabaseError(PerseusError):
    """A database of rights that cannot be opened."""


def open_access_database(path: Path | None) -> sqlite3.Connection:
    """Open it, made if it is missing; one that cannot be read is set aside, and rights have to be given again.

    A planner serves its jobs without it: where the disk does not let it be opened, it is one in memory.

    Args:
        path: None is one in memory.

    Raises:
        RightsDatabaseError: It is of another version, or another program's.
    """
    try:
        return _open(path)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if path is not None and code not in _DAMAGED:
            _log.error(
                "%s: cannot be opened (%s): named tokens do not count, and the audit record is kept in memory alone, "
                "until the planner starts again; check the state folder and its disk",
                path,
                error,
            )
            return _open(None)
        if path is None:
            raise RightsDatabaseError(f"rights cannot be kept ({error})") from error
        aside = _set_aside(path)
        _log.error(
            "%s is damaged (%s): moved to %s; named tokens count no more, make them again with "
            "'perseus-dist token create'",
            path,
            error,
            aside,
        )
    try:
        return _open(path)
    except sqlite3.Error as error:
        raise RightsDatabaseError(f"{path}: cannot be made ({error}); check the state folder and its disk") from error


def read_grants(database: sqlite3.Connection) -> list[Grant]:
    """All grants, in the order of their names."""
    rows = database.execute(
        "SELECT name, role, jobs, token_sha256, certificate, created_s, created_by, expires_s, revoked_s, revoked_by "
        "FROM grants ORDER BY name"
    )
    return [
        Grant(
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
        for name, role, jobs, token_sha256, certificate, created_s, created_by, expires_s, revoked_s, revoked_by in rows
    ]


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


def _open(path: Path | None) -> sqlite3.Connection:
    try:
        if path is not None:
            path.touch(mode=0o600)
    except OSError as error:
        unopened = sqlite3.OperationalError(str(error))
        unopened.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise unopened from error
    name = path or ":memory:"
    database = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # Without a flush at each commit, which would hold up the planner's loop: the planner's end loses nothing.
        database.execute("PRAGMA synchronous = NORMAL")
        (num_tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if num_tables == 0:
            database.executescript(_SCHEMA)
        check_access_database(path, database)
        with suppress(sqlite3.OperationalError):  # a full disk, on which rights count all the same
            database.execute(_NOT_REPLACED)
        read_grants(database)
    except (ValueError, sqlite3.Error, RightsDatabaseError) as error:
        with suppress(sqlite3.Error):
            database.close()
        if isinstance(error, ValueError):  # a role or a text that is none
            raise sqlite3.DatabaseError(str(error)) from error
        raise
    return database


def check_access_database(path: Path | None, database: sqlite3.Connection) -> None:
    """Refuse what this version cannot use.

    Raises:
        RightsDatabaseError: It is another program's, or of another version.
        sqlite3.Error: It is damaged.
    """
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if (application_id, version) != (_APPLICATION_ID, SCHEMA_VERSION):
        raise RightsDatabaseError(
            f"{path}: saw no database of rights of version {SCHEMA_VERSION}; use the perseus-dist that wrote it, or "
            "name another state folder"
        )


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        for suffix in _COMPANIONS:
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise RightsDatabaseError(
            f"{path}: damaged, and cannot be moved aside ({error}); name another state folder"
        ) from error
    return aside
