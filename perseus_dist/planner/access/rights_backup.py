"""Backups of named tokens, roles and the audit record, beside that of a planner's jobs."""

import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from perseus_dist.planner.access.access_database import (
    RightsDatabaseError,
    check_access_database,
)
from perseus_dist.planner.access.grants import Grant
from perseus_dist.planner.access.rights_rows import read_grants, salvage_rights, write_grant
from perseus_dist.planner.sqlite_files.replaced_file import (
    beside,
    finish_replacing,
    fold_journal,
    is_there,
    remove,
    replacing,
    sync_folder,
    unfinished,
)

_SUFFIX = ".access"
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """A database of rights that has been read whole.

    Attributes:
        path: Of the backup, or of the state folder's.
        num_tokens: Named tokens and certificates, revoked ones included.
        num_records: In the audit record.
        num_kept_revoked: Tokens that a restore left revoked although the backup has them in use, or has them not.
        lacks_revocations: Whether a restore gives tokens back of which it is not known whether they were revoked since.
    """

    path: Path
    num_tokens: int
    num_records: int
    num_kept_revoked: int = 0
    lacks_revocations: bool = False


def rights_beside(backup: Path) -> Path:
    """The place of the rights that belong to a backup of jobs."""
    return beside(backup, _SUFFIX)


def check_rights_place(backup: Path) -> None:
    """Refuse a backup of jobs beside which there is a file that is no backup of rights, and would be lost.

    Raises:
        RightsDatabaseError: There is one, or it cannot be looked at.
    """
    copy = rights_beside(backup)
    try:
        status = copy.lstat()
        is_ours = stat.S_ISREG(status.st_mode) and (not status.st_size or copy.read_bytes().startswith(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise RightsDatabaseError(
            f"{copy}: cannot be looked at ({error.strerror}); name a file in a folder of yours"
        ) from error
    if not is_ours:
        raise RightsDatabaseError(f"{copy}: is there and is no backup of rights; name another file for the backup")


def inspect_rights(database: Path) -> Rights | None:
    """Read rights whole; the file stays as it is, and None is where there is none.

    Raises:
        RightsDatabaseError: They are damaged, or cannot be read.
    """
    if not is_there(database):
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="perseus-") as folder:
            return _copy(database, Path(folder) / database.name)
    except OSError as error:
        raise RightsDatabaseError(f"{database}: cannot be read ({error.strerror})") from error


@contextmanager
def prepared_rights_backup(database: Path, backup: Path) -> Iterator[tuple[Rights | None, Callable[[], None]]]:
    """Copy the rights of a state folder, verified, and yield the function that puts them beside a backup of its jobs.

    A planner may run meanwhile. The copy is readable by its owner alone.

    Args:
        database: Of the rights. Where there are none, those of an earlier backup are removed.
        backup: Of the jobs.

    Raises:
        RightsDatabaseError: They are damaged, or the copy cannot be written.
    """
    copy = rights_beside(backup)
    fresh = unfinished(copy)
    rights = _copy(database, fresh, copy) if is_there(database) else None

    def put() -> None:
        try:
            if rights is None:
                copy.unlink(missing_ok=True)
            else:
                fresh.replace(copy)
            sync_folder(copy.parent)
        except OSError as error:
            raise RightsDatabaseError(f"{copy}: cannot be replaced ({error.strerror})") from error

    try:
        yield rights, put
    finally:
        remove(fresh)


@contextmanager
def prepared_rights_restore(backup: Path, database: Path) -> Iterator[tuple[Rights | None, Callable[[], None]]]:
    """Copy rights that stand beside a backup, verified, and yield the function that puts them into a state folder.

    Args:
        backup: Of the jobs. Without rights beside it nothing changes.
        database: Of the rights, which no planner uses now. The one that is there is kept as ``.replaced-TIME``. Tokens
            that it has as revoked stay revoked.

    Raises:
        RightsDatabaseError: The copy is damaged, or cannot be put there.
    """
    copy = rights_beside(backup)
    if not is_there(copy):
        yield None, lambda: None
        return
    fresh = unfinished(database)
    try:
        rights = _copy(copy, fresh)
        finish_replacing(database)  # else the next planner would end it, over the backup
        if not fold_journal(database):
            raise RightsDatabaseError(f"{database}: a process uses it; end that one first")
        rights = _without_revoked(rights, database, fresh)
        with replacing(database, fresh) as (_, put):
            yield rights, put
    except (OSError, sqlite3.Error) as error:
        raise RightsDatabaseError(f"{database}: cannot be replaced ({error}); nothing was restored") from error
    finally:
        remove(fresh)


def _without_revoked(rights: Rights, present: Path, fresh: Path) -> Rights:
    """Revoke in a copy what was revoked since: names are given once, so that a name of another time is left alone."""
    with closing(sqlite3.connect(fresh)) as database:
        restored = {grant.name: grant for grant in read_grants(database)}
        lacks_revocations = False
        try:
            grants = _read_present(present)
        except (OSError, ValueError, sqlite3.Error, RightsDatabaseError):
            grants = salvage_rights(present).grants if present.exists() else []
            lacks_revocations = any(grant.revoked_s is None for grant in restored.values())
        num_kept = 0
        with database:
            for grant in grants:
                of_backup = restored.get(grant.name, grant)
                is_same = of_backup.created_s == grant.created_s
                if grant.revoked_s is not None and is_same and restored.get(grant.name) != grant:
                    write_grant(database, grant)
                    num_kept += 1
    return replace(rights, num_kept_revoked=num_kept, lacks_revocations=lacks_revocations)


def _read_present(path: Path) -> list[Grant]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
        check_access_database(path, database)
        return read_grants(database)


def _copy(source: Path, target: Path, named: Path | None = None) -> Rights:
    """Copy a database as its last commit left it, and read it whole."""
    try:
        remove(target)
        target.touch(mode=0o600)
        with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
            read.backup(written)
            written.execute("PRAGMA journal_mode = DELETE")  # one file
            check_access_database(source, written)
            (verdict,) = written.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
            num_tokens = len(read_grants(written))
            num_records = sum(1 for _ in written.execute("SELECT * FROM audit"))
    except (OSError, ValueError, sqlite3.Error, RightsDatabaseError) as error:
        remove(target)
        raise RightsDatabaseError(f"{source}: rights cannot be copied ({error}); nothing was changed") from error
    return Rights(path=named or source, num_tokens=num_tokens, num_records=num_records)
