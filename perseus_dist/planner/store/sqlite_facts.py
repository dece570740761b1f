"""Facts in a SQLite database that this process alone has."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.sqlite_files.placed_file import PlacedFile
from perseus_dist.planner.store.database import (
    DamagedError,
    StoreError,
    keep_rows,
    open_database,
    replace_damaged,
    write_facts,
)
from perseus_dist.planner.store.fact_database import Change, WriteError
from perseus_dist.planner.store.fact_rows import FactRow
from perseus_dist.planner.store.state_lock import lock_state_dir


class SqliteFacts:
    """A ``FactDatabase``.

    Attributes:
        connection: To the file, or to memory.
    """

    period_s: float | None = None

    def __init__(self, path: Path | None) -> None:
        """Open or create a database.

        A damaged one is copied aside (``NAME.damaged-TIME``) with a line in the log, and replaced by one with what can
        be read of it.

        Args:
            path: The file, readable by its owner alone; ``None`` keeps everything in memory.

        Raises:
            StoreError: The folder cannot be used, another planner holds the database, or it is not of this version.
        """
        self._path = path
        self._lock = None if path is None else lock_state_dir(path)
        try:
            self.connection, self._loaded = _open_whole(path)
        except BaseException:
            self._release()
            raise
        self._file = PlacedFile(path)

    @property
    def name(self) -> str:
        """The path of the database's file."""
        return str(self._path)

    def load(self) -> dict[str, list[Fact]]:
        """As of the opening."""
        return self._loaded

    def write(self, changes: Mapping[str, Change]) -> None:
        """Make changes durable, all or none.

        Raises:
            WriteError: The disk is full or broken, or the file was replaced or deleted.
        """
        try:
            with self.connection:
                self.connection.execute("BEGIN IMMEDIATE")
                for job_id, change in changes.items():
                    write_facts(self.connection, job_id, change.rows.values(), change.drop)
        except sqlite3.Error as error:
            raise WriteError(
                f"{self._path}: cannot be written ({error}); make room or mend the disk, nothing is lost meanwhile"
            ) from error
        if trouble := self._file.trouble():
            raise WriteError(trouble)

    def keep_alive(self) -> None:
        """Do nothing: the lock on the folder lasts as long as the process."""

    def set_aside(self, jobs: Mapping[str, Sequence[FactRow]]) -> None:
        """Keep rows in ``NAME.unusable-TIME`` beside the database."""
        if self._path is not None:
            keep_rows(self._path, jobs)

    def close(self) -> None:
        """Close the file, and let others have its folder."""
        self.connection.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()


def _open_whole(path: Path | None) -> tuple[sqlite3.Connection, dict[str, list[Fact]]]:
    try:
        return open_database(path)
    except DamagedError as error:
        assert path is not None  # memory does not rot
        replace_damaged(path, error)
    try:
        return open_database(path)
    except DamagedError as again:
        raise StoreError(f"{path}: a fresh database is damaged too ({again}); check the disk") from again
