"""A database's file that another one replaces, while the one of before is kept."""

import glob
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

_COMPANIONS = ("", "-wal", "-shm", "-journal")
_WHOLE = ".whole"


@contextmanager
def replacing(path: Path, fresh: Path) -> Iterator[tuple[Path | None, Callable[[], None]]]:
    """Keep a database under a second name, and yield that and the function that puts another one in its place.

    Unless the function is called in this context, nothing changes. It does no more than rename, so that several
    databases can be prepared before the first of them is replaced.

    Args:
        path: Of a database that no process uses; may be missing, and the name of before is None then.
        fresh: In the same folder.

    Raises:
        OSError: The folder cannot be written to.
    """
    aside = _keep(path)
    is_replaced = False

    def put() -> None:
        nonlocal is_replaced
        for suffix in ("-wal", "-shm"):
            beside(path, suffix).unlink(missing_ok=True)
        fresh.replace(path)
        is_replaced = True
        sync_folder(path.parent)

    try:
        _own_as_folder(fresh)
        yield aside, put
    finally:
        if aside is not None and not is_replaced:
            remove(aside)


def copy_for_owner(source: Path, target: Path) -> None:
    """Copy a database's file, which others may not read at any moment of it, nor what a kill or a full disk leaves.

    Raises:
        OSError: It cannot be read, or the copy cannot be written.
    """
    target.touch(mode=0o600)
    shutil.copy2(source, target)


def replace_whole(path: Path, fresh: Path) -> None:
    """Put a database of one file in the place of one with journals; killed half-way, ``finish_replacing`` ends it.

    Raises:
        OSError: The folder cannot be written to.
    """
    fresh.replace(beside(path, _WHOLE))
    finish_replacing(path)


def finish_replacing(path: Path) -> None:
    """End what ``replace_whole`` has begun, before a database is opened: its journals may be gone already.

    Raises:
        OSError: The folder cannot be written to.
    """
    whole = beside(path, _WHOLE)
    if not whole.exists():
        return
    for suffix in ("-wal", "-shm"):  # they would be taken for the new one's
        beside(path, suffix).unlink(missing_ok=True)
    whole.replace(path)


def fold_journal(path: Path) -> bool:
    """Make a database one file, unless it is damaged or missing; False if a process holds it."""
    if not path.exists():
        return True
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0.5)) as database:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("COMMIT")
            database.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY
    return True


def sync_folder(folder: Path) -> None:
    """Have renames survive a power failure, on file systems that sync folders."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a database with its journals, as far as that is possible."""
    for suffix in _COMPANIONS:
        with suppress(OSError):
            beside(path, suffix).unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """The name of a file while it is written, in the same folder; those that killed processes have left are removed.

    One of this process's number, too: it is of an earlier process, as containers number theirs alike.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        number = left.name.split(".")[-2]
        if number == str(os.getpid()) or (number.isdecimal() and not Path("/proc", number).exists()):
            remove(left)
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


def is_there(path: Path) -> bool:
    """Whether there is such a file, as far as that can be seen."""
    try:
        return path.exists()
    except OSError:
        return False


def beside(path: Path, suffix: str) -> Path:
    """The file of the same name with a suffix; also of a folder that has no name, such as ``.``."""
    return Path(f"{path}{suffix}")


def _keep(path: Path) -> Path | None:
    """Give a database a second name, under which it stays."""
    if not path.exists():
        return None
    aside = path.with_name(f"{path.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}")
    number = 1
    while aside.exists():
        number += 1
        aside = aside.with_name(f"{aside.name.partition('_')[0]}_{number}")
    try:
        for suffix in ("-wal", ""):
            if beside(path, suffix).exists():
                try:
                    os.link(beside(path, suffix), beside(aside, suffix))
                except OSError:  # a file system without links
                    copy_for_owner(beside(path, suffix), beside(aside, suffix))
    except OSError:
        remove(aside)
        raise
    return aside


def _own_as_folder(path: Path) -> None:
    """Root restores for the user that the planner runs as."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)  # that user may have put a link there
