"""A job's profile and plans in a file that outlives the job: its next start, planned by another process, goes on there.

The file is a planner's database that holds one job, without what belongs to a run. It is written as samples and plans
arrive, whole or not at all, by a thread of its own: a folder that hangs delays neither the planner nor the job.
"""

import logging
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from perseus_dist.errors import PerseusError
from perseus_dist.planner.access.private_file import write_private
from perseus_dist.planner.job.facts import Fact
from perseus_dist.planner.store.database import DamagedError, open_database, read_serialized, write_facts
from perseus_dist.planner.store.fact_rows import FactRow

MAX_FILES = 100
PERIOD_S = 5.0

_KEPT = ("job", "fingerprint/", "schedule", "sweep/", "ended/", "samples/", "table", "ahead/")
_MEASURED = ("samples/", "table")
_NAME = re.compile(r"(simulated-)?[0-9a-f]{8}-[0-9a-f]{16}\.job")
_MAX_BYTES = 1 << 30
_LAST_WRITE_S = 3.0

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
        self._thread = threading.Thread(target=self._run, name="job cache", daemon=True)
        self._thread.start()

    def read(self) -> list[Fact]:
        """Facts of an earlier run, in the order of storing; none, with a line in the log, of a file of no use.

        Where the job was never here in this shape, they are those of the shape that was here last.
        """
        path = self._path if self._path.exists() else self._newest_of_family()
        if path is None:
            return []
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    _log.warning("%s is not used: it is another user's, or others can write it", path)
                    return []
                data = file.read(_MAX_BYTES)
            jobs = read_serialized(path, data)
        except FileNotFoundError:
            return []
        except (OSError, PerseusError, DamagedError) as error:
            _log.warning("%s is not used%s: %s", path, ", and will be replaced" if path == self._path else "", error)
            return []
        if path != self._path:
            _log.info("%s: the job was never here in this shape: taking up what %s says of another", self._path, path)
        return next(iter(jobs.values()), [])

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

    def _newest_of_family(self) -> Path | None:
        family, separator, _ = self._path.name.rpartition("-")
        with suppress(OSError):
            ours = [path for path in self._path.parent.iterdir() if _NAME.fullmatch(path.name)]
            shapes = [path for path in ours if separator and path.name.startswith(family + separator)]
            return max(shapes, key=lambda path: path.stat().st_mtime, default=None)
        return None

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            with self._changed:
                self._changed.wait_for(lambda: self._has_news or self._is_closing)
                rows, self._has_news = list(self._rows.values()) if self._has_news else [], False
                is_unusable, self._is_unusable = self._is_unusable, False
            if is_unusable:
                with suppress(OSError):
                    self._path.replace(self._path.with_suffix(".unusable"))
            if any(row.key.startswith(_MEASURED) for row in rows):
                self._write(rows)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, PERIOD_S)
                is_closing = self._is_closing and not self._has_news

    def _write(self, rows: Sequence[FactRow]) -> None:
        try:
            with closing(open_database(None)[0]) as database:
                with database:
                    write_facts(database, self.job_id, rows)
                data = database.serialize()
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._path, data)
            _remove_oldest(self._path.parent)
        except (OSError, sqlite3.Error, PerseusError) as error:
            if not self._is_trouble_told:
                _log.warning("the job's next start will profile again: %s", error)
            self._is_trouble_told = True


def _remove_oldest(folder: Path) -> None:
    """Of many files of ours, keep the newest."""
    with suppress(OSError):
        ours = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        for path in sorted(ours, key=lambda path: path.stat().st_mtime)[:-MAX_FILES]:
            path.unlink()
