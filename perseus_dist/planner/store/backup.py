"""Backups of a planner's database: taken while a planner writes, verified, and put back.

A planner locks its database for itself, so that a backup asks it for nothing: files are copied as they are, database
first and journal second. A checkpoint writes to the database only what stands in the journal already; so a copy is as
the last whole commit in its journal left it, if the journal has not begun anew meanwhile, which its header tells.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.sqlite_files.replaced_file import (
    beside,
    finish_replacing,
    fold_journal,
    remove,
    replacing,
    sync_folder,
    unfinished,
)
from perseus_dist.planner.store.database import DamagedError, check_version, read_facts
from perseus_dist.planner.store.migrations import APPLICATION_ID, POSTGRES_SCHEMA, find_version
from perseus_dist.planner.store.state_dir import DATABASE, STATE_ID, make_state_dir
from perseus_dist.planner.store.state_lock import StateLock

PATIENCE_S = 30.0

_JOURNAL_HEADER_BYTES = 32
_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID_AT = 68
_PAUSE_S = 0.05


class BackupError(PerseusError):
    """A backup that cannot be taken, read or put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A database that has been read whole.

    Attributes:
        schema_version: Of its tables.
        written_by: The perseus-dist that made the schema; empty where that is not known.
        num_bytes: Of the database as one file.
        jobs: Each job's facts, in the order in which they were stored.
    """

    schema_version: int
    written_by: str
    num_bytes: int
    jobs: dict[str, list[Fact]]


def back_up(state_dir: Path, target: Path) -> Contents:
    """Copy a state folder's database into one file, which appears whole and verified or not at all.

    Args:
        state_dir: Of a planner, running or not; stays as it is.
        target: Private to its owner (0600); an earlier backup is replaced, also one that a link leads to.

    Raises:
        BackupError: There is no database, it is damaged, or the target cannot be written or is another file.
        StoreError: The database is another program's, or a newer planner's.
    """
    with prepared_backup(state_dir, target) as (contents, put):
        put()
    return contents


@contextmanager
def prepared_backup(state_dir: Path, target: Path) -> Iterator[tuple[Contents, Callable[[], None]]]:
    """Yield what a backup holds, verified, and the function that gives it its name; without that there is none.

    Args and errors are those of ``back_up``.
    """
    source = state_dir / DATABASE
    _check_target(source, target)
    target = Path(os.path.realpath(target))
    fresh = unfinished(target)

    def put() -> None:
        fresh.replace(target)
        sync_folder(target.parent)

    try:
        yield _copy_whole(source, fresh), put
    except OSError as error:
        raise BackupError(f"{error.filename or target}: {error.strerror}; no backup was written") from error
    finally:
        remove(fresh)


def inspect(path: Path) -> Contents:
    """Read a backup, or a state folder's database, whole; the file stays as it is.

    Raises:
        BackupError: It is missing, damaged, or cannot be read.
        StoreError: It is another program's, or a newer planner's.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="perseus-") as folder:
            return _copy_whole(path, Path(folder) / path.name)
    except OSError as error:
        raise BackupError(
            f"{error.filename or path}: cannot be read ({error.strerror}); name a backup that you may read"
        ) from error


def restore_backup(backup: Path, state_dir: Path) -> tuple[Contents, Path | None]:
    """Put a backup in the place of a state folder's database.

    Args:
        backup: As ``back_up`` wrote it, or any other copy of a planner's database; stays as it is.
        state_dir: Made if it is missing. Killed half-way, it has the database of before or that of the backup.

    Returns:
        The backup's contents, and where the database of before is kept; None if there was none.

    Raises:
        BackupError: A planner uses the folder, the backup is damaged, or the folder cannot be written to.
        StoreError: The backup is another program's, or a newer planner's.
    """
    with taken_over(state_dir, backup), prepared_restore(backup, state_dir) as (contents, aside, put):
        put()
    return contents, aside


@contextmanager
def taken_over(state_dir: Path, backup: Path) -> Iterator[None]:
    """Keep planners out of a state folder while a backup is put there.

    Args:
        state_dir: Made if it is missing, and removed again where nothing is put there.
        backup: Of jobs or of rights.

    Raises:
        BackupError: A planner uses the folder, or the backup cannot be read.
    """
    try:
        with backup.open("rb"):
            pass
    except OSError as error:
        raise BackupError(f"{backup}: cannot be read ({error.strerror}); name a backup that you may read") from error
    is_new = not state_dir.exists()
    make_state_dir(state_dir)
    try:
        lock = StateLock(state_dir)
    except BlockingIOError:
        raise _busy(state_dir) from None
    except OSError as error:
        raise BackupError(f"{state_dir}: cannot be opened ({error.strerror})") from error
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):  # something is there after all
                state_dir.rmdir()
        raise
    finally:
        lock.release()


@contextmanager
def prepared_restore(backup: Path, state_dir: Path) -> Iterator[tuple[Contents, Path | None, Callable[[], None]]]:
    """Yield what ``restore_backup`` returns, and the function that puts the backup there; without it nothing changes.

    Args:
        backup: Stays as it is.
        state_dir: Taken over.

    Raises:
        BackupError: A planner uses the folder, the backup is damaged, or the folder cannot be written to.
        StoreError: The backup is another program's, or a newer planner's.
    """
    path = state_dir / DATABASE
    fresh = state_dir / f".{DATABASE}.restoring"
    try:
        if path.exists() and backup.exists() and path.samefile(backup):
            raise BackupError(f"{backup}: is the database in use itself; name a backup of it")
        remove(fresh)
        contents = _copy_whole(backup, fresh)
        finish_replacing(path)  # else the next planner would end it, over the backup
        if not fold_journal(path):
            raise _busy(state_dir)
        with replacing(path, fresh) as (aside, put):
            yield contents, aside, put
    except OSError as error:
        raise BackupError(f"{error.filename or state_dir}: {error.strerror}; nothing was restored") from error
    finally:
        remove(fresh)


def _busy(state_dir: Path) -> BackupError:
    return BackupError(f"{state_dir}: a planner uses it; end that one first, as by 'systemctl stop perseus-planner'")


def _copy_whole(source: Path, target: Path) -> Contents:
    """Copy a database and its journal, which may be written to meanwhile, into one file, verified and durable."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        before = _generation(source)
        for suffix in ("", "-wal"):
            _copy_private(beside(source, suffix), beside(target, suffix), may_lack=bool(suffix))
        if before == _generation(source):
            break
        remove(target)
        if time.monotonic() > until_s:
            raise BackupError(f"{source}: is written to faster than it can be copied; try again when jobs are fewer")
        time.sleep(_PAUSE_S)
    return _verify(source, target)


def _verify(source: Path, copy: Path) -> Contents:
    try:
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = DELETE")  # one file from here on
            schema_version = check_version(source, database)
            (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise DamagedError(verdict)
            _, written_by = find_version(database)
            jobs = read_facts(database)
    except (DamagedError, sqlite3.Error, UnicodeDecodeError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise BackupError(f"{copy.parent}: has no room for a copy of {source}; make room") from error
        raise BackupError(
            f"{source}: is damaged, or no planner's database ({error}); name a whole one. A planner that starts on a "
            "damaged one rescues what can be read"
        ) from error
    descriptor = os.open(copy, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        num_bytes = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    return Contents(schema_version=schema_version, written_by=written_by, num_bytes=num_bytes, jobs=jobs)


def _generation(source: Path) -> tuple[int, int, bytes]:
    """Device, inode and journal header: they change where a copy would mix two states."""
    found = source.stat()
    try:
        with beside(source, "-wal").open("rb") as journal:
            return found.st_dev, found.st_ino, journal.read(_JOURNAL_HEADER_BYTES)
    except FileNotFoundError:
        return found.st_dev, found.st_ino, b""


def _copy_private(source: Path, target: Path, *, may_lack: bool) -> None:
    try:
        with source.open("rb") as reader:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
    except FileNotFoundError:
        if not may_lack:
            raise


def _check_target(source: Path, target: Path) -> None:
    """Refuse to replace what is no backup."""
    try:
        if not target.parent.is_dir():
            raise BackupError(f"{target}: its folder is missing; name a file in one that is there")
        if target.is_dir():
            raise BackupError(f"{target}: is a folder; name a file in it")
        if target.exists() and not target.is_file():
            raise BackupError(f"{target}: is a device, a pipe or a socket, which keeps no backup; name a file")
        is_there = target.exists() and target.stat().st_size > 0
        if not source.exists():
            raise BackupError(_why_missing(source))
        if not is_there:
            return
        with target.open("rb") as file:
            header = file.read(_APPLICATION_ID_AT + 4)
    except OSError as error:
        raise BackupError(
            f"{error.filename or target}: cannot be looked at ({error.strerror}); name a file in a folder of yours"
        ) from error
    is_database = header.startswith(_MAGIC) and header[_APPLICATION_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")
    if not is_database or target.samefile(source):
        raise BackupError(f"{target}: is there and is no backup; name another file")


def _why_missing(source: Path) -> str:
    if source.with_name(STATE_ID).exists():
        return (
            f"{source}: is missing, since this folder's planner keeps its jobs in PostgreSQL; use pg_dump "
            f"--schema={POSTGRES_SCHEMA} and pg_restore"
        )
    return f"{source}: is missing; name a planner's state folder with --state-dir"
