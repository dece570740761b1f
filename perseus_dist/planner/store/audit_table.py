"""Protocol of the table of all planners' audit records on a database."""

from collections.abc import Sequence
from typing import Protocol

from perseus_dist.planner.access.audit import AuditRecord


class AuditTableError(Exception):
    """The database cannot be reached, or refuses. Its text is a sentence for users."""


class AuditTable(Protocol):
    """Records in the database. Used by one thread at a time; each call may wait, and raises ``AuditTableError``."""

    def newest(self) -> Sequence[tuple[int, float]]:
        """Id and time of this planner's newest records there, the newest first."""

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Add this planner's records, but those that are there."""

    def read(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        """Records of all planners, as ``Audit.read``, with ids of the table's own."""

    def close(self) -> None:
        """Disconnect."""
