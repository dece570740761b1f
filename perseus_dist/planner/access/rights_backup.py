"""Backups of named tokens, roles and the audit record, beside that of a planner's jobs."""

import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from pathlib import Path

from perseus_dist.planner.access.access_database import RightsDatabaseError, check_access_database

_SUFFIX = ".access"
_MAGIC = b"SQLite format 3\0"


def check_rights_place(backup: Path) -> None:
    """Refuse a backup of jobs beside which there is a file that is no backup of rights, and would be lost.

    Raises:
        RightsDatabaseError: There is one, or it cannot be looked at.
    """
    copy = _beside(backup)
    try:
        status = copy.lstat()
        is_ours = stat.S_ISREG(status.st_mode) and (not status.st_size or copy.read_bytes().startswith(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise RightsDatabaseError(f"{copy}: cannot be looked at ({error.strerror})") from error
    if not is_ours:
        raise RightsDatabaseError(f"{copy}: is there and is no backup of rights; name another file for the backup")


def back_up_rights(database: Path, backup: Path) -> Path | None:
    """Copy the rights of a state folder beside a backup of its jobs; a planner may run meanwhile.

    Args:
        database: Of the rights.
        backup: Of the jobs.

    Returns:
        The copy, readable by its owner alone; None where there are no rights.

    Raises:
        RightsDatabaseError: They are damaged, or the copy cannot be written.
    """
    copy = _beside(backup)
    if not database.exists():
        copy.unlink(missing_ok=True)  # of an earlier backup
        return None
    unfinished = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
    _copy(database, unfinished)
    unfinished.replace(copy)
    return copy


def restore_rights(backup: Path, database: Path) -> Path | None:
    """Put rights that stand beside a backup into a state folder; one without any changes nothing.

    Args:
        backup: Of the jobs.
        database: Of the rights, which no planner uses now. What is there is kept as ``.replaced-TIME``.

    Returns:
        The copy that was restored; None where there is none.

    Raises:
        RightsDatabaseError: The copy is damaged, or cannot be put there.
    """
    copy = _beside(backup)
    if not copy.exists():
        return None
    fresh = database.with_name(f".{database.name}.{os.getpid()}.tmp")
    _copy(copy, fresh)
    aside = database.with_name(f"{database.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        for suffix in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                database.with_name(database.name + suffix).rename(aside.with_name(aside.name + suffix))
        if os.geteuid() == 0:  # for the user that the planner runs as
            folder = database.parent.stat()
            os.chown(fresh, folder.st_uid, folder.st_gid)
        fresh.replace(database)
    except OSError as error:
        raise RightsDatabaseError(f"{database}: cannot be replaced ({error.strerror})") from error
    return copy


def _copy(source: Path, target: Path) -> None:
    """Copy a database as its last commit left it, verified."""
    try:
        target.unlink(missing_ok=True)
        target.touch(mode=0o600)
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
            read.backup(written)
            written.execute("PRAGMA journal_mode = DELETE")  # one file
            check_access_database(source, written)
    except (OSError, sqlite3.Error, RightsDatabaseError) as error:
        target.unlink(missing_ok=True)
        raise RightsDatabaseError(f"{source}: rights cannot be copied to {target.parent} ({error})") from error


def _beside(backup: Path) -> Path:
    return backup.with_name(backup.name + _SUFFIX)
