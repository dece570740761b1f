"""Named tokens of all planners on a database: made or revoked at one, they count, or count no more, at all of them.

Each planner has all of them in its state folder, by which it judges calls also while the database is away.
"""

import asyncio
import logging
from contextlib import suppress

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Grant, Role
from perseus_dist.planner.access.refusal import already_exists, not_now
from perseus_dist.planner.store.shared_rights import GrantTable, SharedRightsError

_PERIOD_S = 1.0

_log = logging.getLogger(__name__)


class SharedGrants:
    """One planner's part. Made and used on the event loop."""

    def __init__(self, access: Access, table: GrantTable) -> None:
        """Begin.

        Args:
            access: The planner's own.
            table: Of the database.
        """
        self._access = access
        self._table = table
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
                    await asyncio.to_thread(self._table.put, fresh)
                    await self._read()
                self._put_changes = num_changes

    async def create(
        self,
        caller: Caller,
        *,
        name: str,
        role: Role,
        jobs: tuple[str, ...],
        certificate: str,
        valid_for_s: float | None,
    ) -> tuple[Grant, str]:
        """As ``Access.create``, for all planners on the database.

        Raises:
            RefusalError: Also where the database is away, or another planner has given the name at the same moment.
        """
        try:
            await self.exchange()
        except SharedRightsError as error:
            raise not_now(f"named tokens are for all planners on the database, which is away: {error}") from error
        made, token = self._access.create(
            caller, name=name, role=role, jobs=jobs, certificate=certificate, valid_for_s=valid_for_s
        )
        with suppress(SharedRightsError):  # it counts here, and at the others once the database is back
            await self.exchange()
        if (there := self._there.get(name)) is not None and not _is_same(made, there):
            self._access.revoke(caller, name)
            raise already_exists(f"{name} has just been made at another planner on the database; choose another name")
        return made, token

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

    def close(self) -> None:
        """Disconnect from the table."""
        self._table.close()

    async def _read(self) -> None:
        while True:
            self._read_to, found = await asyncio.to_thread(self._table.read, self._read_to)
            if not found:
                return
            self._there.update((grant.name, grant) for grant in found)
            for other in self._access.merge(found):
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
