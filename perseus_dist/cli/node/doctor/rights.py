"""The database of named tokens and the audit record of a planner on this node: whether it can be read."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from perseus_dist.cli.node.doctor.backup import planner_state_dir
from perseus_dist.cli.settings.effective import Setting
from perseus_dist.messages.finding import Finding, Level
from perseus_dist.planner.access.access_database import RightsDatabaseError, check_access_database
from perseus_dist.planner.store.state_dir import RIGHTS

_MAX_BYTES = 256 << 20  # larger ones are for 'state check'
_ATTEMPTS = 3


def inspect_rights(settings: Sequence[Setting]) -> Iterator[Finding]:
    """Look at that of the state folder in the settings, else of the default one; nothing where there is none.

    A copy is checked: SQLite would make files beside a database that it opens, which the planner could not use.
    """
    path = planner_state_dir(settings) / RIGHTS
    try:
        is_checked = path.stat().st_size <= _MAX_BYTES and os.access(path, os.R_OK)
        trouble = _trouble(path) if is_checked else None
    except OSError:  # none, or it cannot be looked at
        return
    if trouble is not None:
        yield Finding(
            level=Level.FAIL,
            subject="tokens",
            what=f"{path}: {trouble}",
            remedy="restart the planner, which goes on with what can be read, or end it and run 'perseus-dist state "
            "restore' with a backup",
        )
    elif is_checked:
        yield Finding(level=Level.OK, subject="tokens", what=f"{path} can be read")


def _trouble(path: Path) -> str | None:
    """Why the database is of no use; None if it is, or where a planner writes it all the time."""
    for _ in range(_ATTEMPTS):
        before = _state(path)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            for source in _files(path):
                if source.exists():
                    shutil.copyfile(source, copy.with_name(source.name))
            if _state(path) != before:
                continue
            try:
                with closing(sqlite3.connect(copy)) as database:
                    check_access_database(path, database)
            except RightsDatabaseError as error:
                return str(error).removeprefix(f"{path}: ").partition("; ")[0]
            except sqlite3.Error as error:
                return f"damaged ({error})"
        return None
    return None


def _files(path: Path) -> tuple[Path, Path]:
    return path, path.with_name(f"{path.name}-wal")


def _state(path: Path) -> list[tuple[int, int] | None]:
    found = []
    for file in _files(path):
        status = file.stat() if file.exists() else None
        found.append(None if status is None else (status.st_size, status.st_mtime_ns))
    return found
