"""The audit records of all planners on a database: each sends there what it has recorded, and reads what all have.

A planner's own record stays the first place of a change: it is written without the database. So a record is there some
seconds later for the others, and once the database is back where that was away.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from perseus_dist.planner.access.audit import Audit, AuditRecord
from perseus_dist.planner.runtime.shared.database_thread import Call
from perseus_dist.planner.store.shared_rights import AuditTable, SharedRightsError

_PERIOD_S = 1.0
_AT_ONCE = 500
_LEAVE_S = 2.0

_log = logging.getLogger(__name__)


class SharedAudit:
    """One planner's part. Made and used on the event loop."""

    def __init__(self, audit: Audit, table: AuditTable, call: Call) -> None:
        """Begin.

        Args:
            audit: The planner's own record.
            table: Of the database.
            call: Runs calls on ``table``.
        """
        self._audit = audit
        self._table = table
        self._call = call
        self._one_at_a_time = asyncio.Lock()
        self._sent_id: int | None = None

    async def keep(self) -> None:
        """Send what is recorded, for ever."""
        trouble = ""
        while True:
            try:
                await self._send()
                trouble = ""
            except SharedRightsError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("audit records stay here until the database takes them: %s", error)
            await asyncio.sleep(_PERIOD_S)

    async def leave(self) -> None:
        """Send the last records; within a moment, since the planner keeps them anyway."""
        with suppress(SharedRightsError, TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._send()

    async def read(self, *, after_id: int, since_s: float, job: str, limit: int) -> list[AuditRecord]:
        """Records of all planners, in the order in which they came to the database, this one's of a moment ago too.

        Raises:
            SharedRightsError: They cannot be read.
        """
        await self._send()
        async with self._one_at_a_time:
            read = partial(self._table.read, after_id=after_id, since_s=since_s, job=job, limit=limit)
            records: list[AuditRecord] = await self._call(read)
        return records

    async def _send(self) -> None:
        async with self._one_at_a_time:
            if self._sent_id is not None and not self._own(self._sent_id, 1):
                return
            # Asked each time: the database may have been set back to a state without the latest.
            self._sent_id = self._common_id(await self._call(self._table.newest))
            while records := self._own(self._sent_id, _AT_ONCE):
                await self._call(self._table.append, records)
                self._sent_id = records[-1].record_id

    def _own(self, after_id: int, limit: int) -> list[AuditRecord]:
        try:
            return self._audit.read(after_id=after_id, since_s=0.0, job="", limit=limit)
        except sqlite3.Error as error:
            raise SharedRightsError(f"this planner's own cannot be read: {error}") from error

    def _common_id(self, newest: Sequence[tuple[int, float]]) -> int:
        """Of the newest record that is here and there: a folder that was restored, or lost, counts anew."""
        for record_id, time_s in newest:
            here = self._own(record_id - 1, 1)
            if here and (here[0].record_id, here[0].time_s) == (record_id, time_s):
                return record_id
        return 0
