"""Named tokens of all planners on a database: made or revoked at one, they count, or count no more, at all of them.

Each planner has all of them in its state folder, by which it judges calls also while the database is away.
"""

import asyncio
import logging
import sqlite3
from contextlib import suppress

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Grant
from perseus_dist.planner.access.refusal import already_exists, not_now
from perseus_dist.planner.runtime.shared.database_thread import Call
from perseus_dist.planner.store.shared_rights import GrantTable, SharedRightsError

_PERIOD_S = 1.0

_log = logging.getLogger(__name__)


class SharedGrants:
    """One planner's part. Made and used on the event loop."""

    def __init__(self, access: Access, table: GrantTable, call: Call) -> None:
        """Begin.

        Args:
            access: The planner's own.
            table: Of the database.
            call: Runs calls on ``table``.
        """
        self._access = access
        self._table = table
        self._call = call
        self._one_at_a_time = asyncio.Lock()
        self._there: dict[str, Grant] = {}
        self._read_to = 0
        self._put_changes = -1
        self._others: set[str] = set()

    async def keep(self) -> None:
        """Exchange grants with the database, for ever."""
        trouble = ""
        while True:
            try:
                await self.exchange()
                trouble = ""
            except SharedRightsError as error:
                if str(error) != trouble:
                    trouble = str(error)
                    _log.warning("named tokens of other planners are not known until the database is back: %s", error)
            except Exception:  # a defect must not keep revocations away for ever
                _log.exception("named tokens could not be exchanged with other planners")
            await asyncio.sleep(_PERIOD_S)

    async def exchange(self) -> None:
        """Put what is new here, and take over what is new there.

        Raises:
            SharedRightsError: The database is away; the next exchange makes up for it.
        """
        async with self._one_at_a_time:
            await self._read()
            if self._put_changes != (num_changes := self._access.num_changes):
                fresh = [
                    grant
                    for grant in self._access.grants()
                    if grant != (there := self._there.get(grant.name)) and (there is None or _is_same(grant, there))
                ]
                if fresh:
                    await self._call(self._table.put, fresh)
                self._put_changes = num_changes
                await self._read()

    async def add(self, caller: Caller, grant: Grant) -> None:
        """As ``Access.add``, for all planners on the database.

        The database comes before the planner's own folder: a planner that ends half-way leaves no token there whose
        name another planner may still give. The record comes first.

        Raises:
            RefusalError: Also where another planner has given the name, or the database is away: where the answer
                alone was lost, the grant counts from the next exchange on.
        """
        try:
            await self.exchange()
        except SharedRightsError as error:
            raise not_now(f"named tokens are for all planners on the database, which is away: {error}") from error
        self._check_free(grant)
        self._access.record_added(caller, grant)
        try:
            async with self._one_at_a_time:
                await self._call(self._table.put, [grant])
                await self._read()
        except SharedRightsError as error:
            raise not_now(
                f"{grant.name} is made at all planners or at none, which the database did not confirm: {error}; "
                "'perseus-dist token list' tells once it is back"
            ) from error
        self._check_free(grant)

    async def revoke(self, caller: Caller, name: str) -> Grant:
        """As ``Access.revoke``, for all planners on the database.

        Raises:
            RefusalError: Also where the database is away: then it counts no more here, and later at the others.
        """
        with suppress(SharedRightsError):  # it may have been made at another planner a moment ago
            await self.exchange()
        revoked = self._access.revoke(caller, name)
        try:
            await self.exchange()
        except SharedRightsError as error:
            raise not_now(
                f"{name} counts no more at this planner; at others on the database once that is back: {error}"
            ) from error
        return revoked

    async def grants(self) -> list[Grant]:
        """All that were ever given, by any planner, as far as that is known here."""
        with suppress(SharedRightsError):
            await self.exchange()
        return self._access.grants()

    def _check_free(self, grant: Grant) -> None:
        if (there := self._there.get(grant.name)) is not None and not _is_same(grant, there):
            raise already_exists(f"{grant.name} was made at another planner on the database; choose another name")

    async def _read(self) -> None:
        while True:
            number, found = await self._call(self._table.read, self._read_to)
            if number < self._read_to:  # restored to an earlier state: numbers are given again
                _log.warning("the database lacks named tokens that it had: those that are known here are put back")
                self._read_to, self._put_changes = 0, -1
                self._there.clear()
                continue
            self._read_to = number
            if not found:
                return
            self._there.update((grant.name, grant) for grant in found)
            try:
                others = self._access.merge(found)
            except sqlite3.Error as error:  # they count, and a restart reads them from the database
                _log.error("named tokens from the database cannot be stored here: %s", error)
                continue
            for other in others:
                if other.name not in self._others:
                    self._others.add(other.name)
                    _log.warning(
                        "token %s: other planners on the database know another one of that name; the one made here "
                        "counts here alone: revoke it, and make one of another name",
                        other.name,
                    )


def _is_same(one: Grant, other: Grant) -> bool:
    """Whether two are one grant, whatever became of it."""
    return (one.token_sha256, one.created_s) == (other.token_sha256, other.created_s)
