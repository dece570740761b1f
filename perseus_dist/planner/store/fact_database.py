"""Protocol of a database of facts: SQLite's and PostgreSQL's implement it, and ``Store`` drives either."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.store.fact_rows import FactRow


class Change:
    """The net effect of commits of one job.

    Attributes:
        drop: Stored facts whose keys begin so are deleted first; in order, each once.
        rows: By key, in the order of storing; each replaces the stored row of its key.
        epoch: Of the lease that the job was held by when they were made; 0 where one planner holds all jobs.
    """

    __slots__ = ("drop", "epoch", "rows")

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.drop: dict[str, None] = {}
        self.rows: dict[str, FactRow] = {}

    def add(self, rows: Iterable[FactRow], drop: Iterable[str]) -> None:
        """Append a commit: its drops, then its rows."""
        if prefixes := tuple(drop):
            for key in [key for key in self.rows if key.startswith(prefixes)]:
                del self.rows[key]
            self.drop |= dict.fromkeys(prefixes)
        for row in rows:
            self.rows.pop(row.key, None)  # stored anew, a fact comes last
            self.rows[row.key] = row

    def append(self, later: "Change") -> None:
        """Append another change of the same job."""
        self.add(later.rows.values(), later.drop)


class WriteError(Exception):
    """A transaction that the database has not confirmed. Its text is a sentence for users.

    Attributes:
        of_all: Whether every other transaction fails alike for now, as where the database cannot be reached.
    """

    def __init__(self, sentence: str, *, of_all: bool = False) -> None:
        super().__init__(sentence)
        self.of_all = of_all


class FencedError(Exception):
    """Jobs of a transaction belong to another planner now; nothing of theirs is stored.

    Attributes:
        jobs: Their names.
        is_over: Whether this planner must end; one of several replicas goes on with its other jobs.
    """

    def __init__(self, sentence: str, jobs: Collection[str], *, is_over: bool = True) -> None:
        super().__init__(sentence)
        self.jobs = frozenset(jobs)
        self.is_over = is_over


class FactDatabase(Protocol):
    """Durable facts. ``set_aside`` may be called by any thread, all else by one thread at a time."""

    @property
    def name(self) -> str:
        """For users: a path, or an address without a password."""

    @property
    def period_s(self) -> float | None:
        """How often ``keep_alive`` is due, in seconds; None for never."""

    def load(self) -> dict[str, list[Fact]]:
        """Each job's facts as they stood when the database was opened, in the order in which they were stored."""

    def write(self, changes: Mapping[str, Change]) -> None:
        """Make changes durable in one transaction, all or none of those of this planner's jobs.

        Writing a change again changes nothing more.

        Args:
            changes: By job.

        Raises:
            WriteError: Not confirmed, so that they may be stored or not; write them again.
            FencedError: Some jobs belong to another planner; write the others' changes again.
        """

    def keep_alive(self) -> None:
        """Renew what others may take over from a process that is silent.

        Raises:
            FencedError: Another planner has taken over, all of these jobs.
        """

    def set_aside(self, jobs: Mapping[str, Sequence[FactRow]]) -> None:
        """Keep rows that no job can be made of where a person finds them; a failure is logged."""

    def close(self) -> None:
        """Give the database up for the next planner."""
