"""The database of grants and of the audit record; SQLite itself refuses to change, replace or delete a record."""

import logging
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.rights_rows import (
    APPLICATION_ID,
    NOT_REPLACED,
    SCHEMA_VERSION,
    create_schema,
    read_grants,
    salvage_rights,
    write_salvaged,
)
from perseus_dist.planner.sqlite_files.replaced_file import (
    beside,
    copy_for_owner,
    finish_replacing,
    remove,
    replace_whole,
)

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PATIENCE_S = 0.05  # the planner's loop waits for a lock that another program holds

_log = logging.getLogger(__name__)


class RightsDatabaseError(PerseusError):
    """A database of rights that cannot be opened."""


def open_access_database(path: Path | None) -> sqlite3.Connection:
    """Open it, made if it is missing; of one that is damaged, rows that can be read go on.

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
        damage = error
    try:
        _replace_damaged(path, damage)
        return _open(path)
    except (OSError, sqlite3.Error) as error:
        _log.error(
            "%s is damaged (%s), and what can be read of it cannot be copied (%s): named tokens do not count, and the "
            "audit record is kept in memory alone, until the planner starts again; make room in the state folder",
            path,
            damage,
            error,
        )
        return _open(None)


def _open(path: Path | None) -> sqlite3.Connection:
    try:
        if path is not None:
            finish_replacing(path)
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
            create_schema(database)
        check_access_database(path, database)
        with suppress(sqlite3.OperationalError):  # a full disk, on which rights count all the same
            database.execute(NOT_REPLACED)
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
    if (application_id, version) != (APPLICATION_ID, SCHEMA_VERSION):
        raise RightsDatabaseError(
            f"{path}: saw no database of rights of version {SCHEMA_VERSION}; use the perseus-dist that wrote it, or "
            "name another state folder"
        )


def _replace_damaged(path: Path, damage: sqlite3.Error) -> None:
    """Copy a database aside, and put one in its place with what can be read; killed half-way, it is done again."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    fresh = path.with_name(f"{path.name}.salvaged")
    remove(fresh)
    for suffix in ("-wal", ""):
        if beside(path, suffix).exists():
            copy_for_owner(beside(path, suffix), beside(aside, suffix))
    rights = salvage_rights(aside)
    with closing(_open(fresh)) as database:
        write_salvaged(database, rights)
        database.execute("PRAGMA journal_mode = DELETE")  # one file
    replace_whole(path, fresh)
    _log.error(
        "%s is damaged (%s): copied to %s; %d named tokens and %d audit records were saved. Tokens that are missing "
        "in 'perseus-dist token list' count no more, make them again with 'perseus-dist token create'",
        path,
        damage,
        aside,
        len(rights.grants),
        len(rights.records),
    )
