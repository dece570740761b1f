"""The audit record: who changed what, and who was refused. Records are appended, and never changed or deleted."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from perseus_dist.planner.access.refusal_allowance import RefusalAllowance
from perseus_dist.planner.access.rights_rows import DONE, MAX_TEXT
from perseus_dist.rpc.fields import sentence

_LOOKED_AT_ONCE = 4000
"""Records, in some milliseconds: more would hold up agents' messages."""
_LAST_ID = (1 << 63) - 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One change, or one refusal.

    Attributes:
        record_id: Ascending in the order of storing.
        time_s: Unix time.
        identity: Of the caller, such as ``operator``, ``token ci``, ``certificate login1``, ``user 1000``.
        peer: Address that the call came from.
        action: Method of the service, ``StartJob``, or ``Login`` and ``Logout`` of the page.
        job: Its name, or patterns with blanks between of those that a policy covers; empty where it concerns none.
        before, after: What was changed, from and to; empty where there is no such thing.
        outcome: ``done``, or why it was refused.
        replica: Address of the planner that has recorded it; empty for the only one, and in a planner's own record.
    """

    record_id: int
    time_s: float
    identity: str
    peer: str
    action: str
    job: str
    before: str
    after: str
    outcome: str
    replica: str = ""


class Audit:
    """Writes the record, and reads it. A caller who is refused again and again cannot fill the disk."""

    def __init__(
        self, database: sqlite3.Connection, clock: Callable[[], float], check_place: Callable[[], None]
    ) -> None:
        """Go on with what a database holds.

        Args:
            database: Of :mod:`perseus_dist.planner.access.access_database`.
            clock: Unix time in seconds.
            check_place: Raises a ``sqlite3.Error`` if what is stored now would be lost.
        """
        self._database = database
        self._clock = clock
        self._check_place = check_place
        self._allowance = RefusalAllowance(clock)
        database.create_function("concerns", 2, concerns, deterministic=True)

    def done(self, identity: str, peer: str, action: str, *, job: str = "", before: str = "", after: str = "") -> None:
        """Record a change.

        Raises:
            sqlite3.Error: It cannot be stored.
        """
        self._append((identity, peer, action, job, before, after, DONE))

    def refused(self, identity: str, peer: str, action: str, *, job: str, reason: str) -> None:
        """Record a refusal: sixty at once and one a second of each caller, and the number of those left out."""
        left_out = self._allowance.take(identity, peer)
        if left_out is None:
            return
        after = f"{left_out} refusals before this one are not recorded" if left_out else ""
        try:
            self._append((identity, peer, action, job, "", after, f"refused: {reason}"))
        except sqlite3.Error as error:  # the caller is refused all the same
            _log.error("a refusal of %s cannot be recorded (%s)", identity, error)

    async def search(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        """As ``read``, of however many records, between which the event loop goes on."""
        (newest,) = self._database.execute("SELECT coalesce(max(id), 0) FROM audit").fetchone()
        found: list[AuditRecord] = []
        while after_id < newest and len(found) < limit:
            until_id = min(after_id + _LOOKED_AT_ONCE, newest)
            found += self.read(after_id=after_id, since_s=since_s, job=job, limit=limit - len(found), until_id=until_id)
            after_id = until_id
            await asyncio.sleep(0)
        return found

    def read(
        self, *, after_id: int, since_s: float, job: str, limit: int, until_id: int = _LAST_ID
    ) -> list[AuditRecord]:
        """Records in their order, at once.

        Args:
            after_id: Only those with a greater number.
            since_s: Only those from this Unix time on.
            job: Only those of this job, and of policies that cover it; empty for all.
            limit: At most this many.
            until_id: Only those with no greater number.
        """
        rows = self._database.execute(
            "SELECT id, time_s, identity, peer, action, job, before, after, outcome FROM audit "
            "WHERE id > ? AND id <= ? AND time_s >= ? "
            "AND (? = '' OR job = ? OR job GLOB '*[*? ]*' AND concerns(job, ?)) ORDER BY id LIMIT ?",
            (after_id, until_id, since_s, job, job, job, limit),
        )
        return [AuditRecord(**dict(zip(AuditRecord.__slots__, row, strict=False))) for row in rows]

    def _append(self, texts: tuple[str, ...]) -> None:
        self._check_place()
        self._database.execute(
            "INSERT INTO audit (time_s, identity, peer, action, job, before, after, outcome) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self._clock(), *(sentence(text, MAX_TEXT) for text in texts)),
        )


def patterns_text(*groups: Sequence[str]) -> str:
    """Patterns as a record's ``job`` has them: of all groups, or ``*`` where one is empty or they are too many.

    Args:
        groups: Patterns of the jobs that a policy covers, before and after a change; an empty group is all jobs.
    """
    text = " ".join(dict.fromkeys(pattern for group in groups for pattern in group))
    return text if all(groups) and len(text) <= MAX_TEXT else "*"


def concerns(patterns: str, job: str) -> bool:
    """Whether one of the patterns, with blanks between, is of a job."""
    return any(fnmatchcase(job, pattern) for pattern in patterns.split())
