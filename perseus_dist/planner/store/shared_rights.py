"""Protocols of the tables of all planners' audit records and named tokens on a database."""

from collections.abc import Sequence
from typing import Protocol

from perseus_dist.planner.access.audit import AuditRecord
from perseus_dist.planner.access.grants import Grant


class SharedRightsError(Exception):
    """The database cannot be reached, or refuses. Its text is a sentence for users."""


class AuditTable(Protocol):
    """Records in the database. Used by one thread at a time; each call may wait, and raises ``SharedRightsError``."""

    def newest(self) -> Sequence[tuple[int, float]]:
        """Id and time of this planner's newest records there, the newest first."""

    def append(self, records: Sequence[AuditRecord]) -> None:
        """Add this planner's records, but those that are there."""

    def read(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        """Records of all planners, as ``Audit.read``, with ids of the table's own."""

    def close(self) -> None:
        """Disconnect from the database."""


class GrantTable(Protocol):
    """Named tokens in the database, one of each name. Used as ``AuditTable`` is."""

    def put(self, grants: Sequence[Grant]) -> None:
        """Add grants whose names are free, and take those back that are there and were taken back since."""

    def read(self, after: int) -> tuple[int, list[Grant]]:
        """Some of the grants that were changed after a number, and the number to go on with; none at the end.

        A number before ``after`` says that the database was restored to an earlier state.
        """

    def close(self) -> None:
        """Disconnect from the database."""
