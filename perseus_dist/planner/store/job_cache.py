"""A job's profile and plans in a file that outlives the job: its next start, planned by another process, goes on there.

The file is a planner's database that holds one job, without what belongs to a run. It is written as samples and plans
arrive, whole or not at all, by a thread of its own: a folder that hangs delays neither the planner nor the job. Of two
jobs of the same work at once, the one that has measured less leaves the other's file as it is.
"""

import logging
import os
import re
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.store.database import DamagedError, open_database, read_serialized, write_facts
from perseus_dist.planner.store.fact_rows import FactRow
from perseus_dist.planning.output_file import locked_folder

MAX_FILES = 100
PERIOD_S = 5.0
RETRY_PERIOD_S = 30.0

_KEPT = ("job", "fingerprint/", "schedule", "sweep/", "ended/", "samples/", "table", "ahead/")
_MEASURED = ("samples/", "table")
_NAME = re.compile(r"(simulated-)?[0-9a-f]{8}-[0-9a-f]{16}\.job")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}\.[0-9]+\.tmp")
_MAX_BYTES = 1 << 30
_MAX_OTHER_SHAPES = 3  # that are read, newest first, where one is of no use
_LAST_WRITE_S = 3.0
_UNFINISHED_S = 3600.0  # a file that is unfinished for so long is of a process that was killed
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

_Version = tuple[int, int, int]  # number, time of the last change [ns], size

_log = logging.getLogger(__name__)


class JobCache:
    """The file and the thread that writes it.

    Args:
        path: ``<family>-<key>.job``; its folder is made with the first write. Files of one family are of one work in
            several shapes.
        job_id: The job's name in this run; the file may be of a run with another one.
    """

    def __init__(self, path: Path, job_id: str) -> None:
        self._path = path
        self.job_id = job_id
        self._rows: dict[str, FactRow] = {}  # in the order of storing
        self._changed = threading.Condition()
        self._has_news = False
        self._is_closing = False
        self._is_trouble_told = False
        self._is_unusable = False
        self._seen: _Version | None = None  # of the file, as this job has last read or written it
        self._is_other_told = False
        self._thread = threading.Thread(target=self._run, name="job cache", daemon=True)
        self._thread.start()

    def read(self) -> list[Fact]:
        """Facts of an earlier run, in the order of storing; none, with a line in the log, of a file of no use.

        Where the job was never here in this shape, they are those of the shape that was here last.
        """
        if facts := self._read(self._path):
            return facts
        for path in self._other_shapes():
            if facts := self._read(path):
                _log.info(
                    "%s: the job was never here in this shape: taking up what %s says of another", self._path, path
                )
                return facts
        return []

    def note(self, job_id: str, rows: Sequence[FactRow], drop: Sequence[str]) -> None:
        """Take note of a commit, as in ``Store.commit``; it is in the file some seconds later."""
        if job_id != self.job_id:
            return
        with self._changed:
            gone = [key for key in self._rows if key.startswith(tuple(drop))]
            for key in gone:
                del self._rows[key]
            kept = [row for row in rows if row.key.startswith(_KEPT)]
            for row in kept:
                self._rows.pop(row.key, None)
                self._rows[row.key] = row
            if gone or kept:
                self._has_news = True
                self._changed.notify()

    def discard(self) -> None:
        """Give up the facts of the earlier run, which no job can be made of; the file stays as ``<key>.unusable``."""
        with self._changed:
            self._rows.clear()
            self._is_unusable = self._has_news = True
            self._changed.notify()

    def close(self) -> None:
        """Write what is left; a folder that hangs is not waited for."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(_LAST_WRITE_S)

    def _read(self, path: Path) -> list[Fact]:
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                found = os.fstat(file.fileno())
                if path == self._path:
                    self._seen = _version(found)
                if not _is_ours(found, path.parent):
                    _log.warning("%s is not used: it is another user's, or others can write it", path)
                    return []
                data = file.read(_MAX_BYTES)
            jobs = read_serialized(path, data)
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("%s is not used: %s", path, error.strerror)
            return []
        except (PerseusError, DamagedError) as error:
            _log.warning("%s is not used%s: %s", path, ", and will be replaced" if path == self._path else "", error)
            return []
        return next(iter(jobs.values()), [])

    def _other_shapes(self) -> list[Path]:
        """Files of the same work in other shapes, some of the newest, newest first."""
        family, separator, _ = self._path.name.rpartition("-")
        found = _files_in(self._path.parent) if separator else ()
        shapes = [(made_s, path) for made_s, path in found if path.name.startswith(family + separator)]
        return [path for _, path in sorted(shapes, reverse=True) if path != self._path][:_MAX_OTHER_SHAPES]

    def _run(self) -> None:
        is_closing = is_behind = False
        while not is_closing:
            with self._changed:
                retry_s = RETRY_PERIOD_S if is_behind else None
                self._changed.wait_for(lambda: self._has_news or self._is_closing, retry_s)
                rows = list(self._rows.values()) if self._has_news or is_behind else []
                self._has_news = False
                is_unusable, self._is_unusable = self._is_unusable, False
            if is_unusable:
                with suppress(OSError):
                    self._path.replace(self._path.with_suffix(".unusable"))
            is_behind = any(row.key.startswith(_MEASURED) for row in rows) and not self._write(rows)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, PERIOD_S)
                is_closing = self._is_closing and not self._has_news
        if is_behind:
            self._write(rows)  # there may be room by now

    def _write(self, rows: Sequence[FactRow]) -> bool:
        """False if there is no room, or no right; it is tried again."""
        try:
            with closing(open_database(None)[0]) as database:
                with database:
                    write_facts(database, self.job_id, rows)
                data = database.serialize()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked_folder(self._path.parent):
                if self._is_others_better(rows):
                    return True
                write_private(self._path, data)
                self._seen = _version(self._path.stat())
        except (OSError, sqlite3.Error, PerseusError) as error:
            if not self._is_trouble_told:
                _log.warning(
                    "the job's next start will profile again: %s; PERSEUS_CACHE names another folder, or off", error
                )
            self._is_trouble_told = True
            return False
        if self._is_trouble_told:
            _log.warning("%s can be written again", self._path)
            self._is_trouble_told = False
        _remove_oldest(self._path)
        return True

    def _is_others_better(self, rows: Sequence[FactRow]) -> bool:
        """Whether another job of the same work has written the file meanwhile, and measured more than these rows."""
        try:
            with open(self._path, "rb", opener=_open_at_once) as file:
                found = os.fstat(file.fileno())
                if _version(found) == self._seen or not _is_ours(found, self._path.parent):
                    return False
                jobs = read_serialized(self._path, file.read(_MAX_BYTES))
        except (OSError, PerseusError, DamagedError):
            return False
        is_better = _extent(fact.key for facts in jobs.values() for fact in facts) > _extent(row.key for row in rows)
        if is_better and not self._is_other_told:
            _log.info("%s stays as it is for now: another job of the same work has measured more", self._path)
            self._is_other_told = True
        return is_better


def _version(found: os.stat_result) -> _Version:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _extent(keys: Iterable[str]) -> tuple[bool, int]:
    """(whether there is a plan, how many messages of samples)."""
    known = list(keys)
    return "table" in known, sum(key.startswith("samples/") for key in known)


def _open_at_once(path: str, flags: int) -> int:
    """Not waiting for who writes, where another user has put a pipe there."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_ours(found: os.stat_result, folder: Path) -> bool:
    """Whether a file has the owner and the rights of one that we make.

    Network file systems may give each file of ours to one user of theirs (NFS that squashes root) or let all users
    write it (SMB): a file that is made there now looks the same then.
    """
    if found.st_uid == os.geteuid() and not found.st_mode & _WRITABLE_BY_OTHERS:
        return True
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            made = os.fstat(file.fileno())
    except OSError:
        return False
    return found.st_uid == made.st_uid and not found.st_mode & ~made.st_mode & _WRITABLE_BY_OTHERS


def _files_in(folder: Path) -> Iterator[tuple[float, Path]]:
    """(time of its last change [s], path) of each file of ours."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                with suppress(OSError):  # another job has removed it
                    yield path.stat().st_mtime, path


def _remove_oldest(written: Path) -> None:
    """Of many files of ours, keep the newest; remove what processes that were killed have not finished.

    Args:
        written: The newest; others of its owner are ours.
    """
    with suppress(OSError):
        owner = written.stat().st_uid
        ours = [(made_s, path) for made_s, path in _files_in(written.parent) if path.stat().st_uid == owner]
        for _, path in sorted(ours)[:-MAX_FILES]:
            path.unlink()
        for path in written.parent.iterdir():
            if _UNFINISHED.fullmatch(path.name) and path.stat().st_mtime < time.time() - _UNFINISHED_S:
                path.unlink()
