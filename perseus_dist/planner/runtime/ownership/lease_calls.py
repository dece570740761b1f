"""Calls on the table of leases, beside the event loop: renewals never wait for claims, and trouble is said once."""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from perseus_dist.planner.runtime.shared.database_thread import Call, DatabaseThread
from perseus_dist.planner.store.fact_database import FencedError
from perseus_dist.planner.store.lease_table import Claimed, LeaseError, LeaseTable, Survey

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


class LeaseCalls:
    """Calls wait for the database one after the other in a thread; renewals in a thread of their own.

    A claim may wait for another replica's transaction for longer than leases last.

    Args:
        leases: Of this replica.
        call: Runs calls on ``leases``; a thread of its own if None.
        call_beside: Runs renewals, while ``call`` waits; a thread of its own, or ``call``, if None.

    Attributes:
        renewed_s: When the latest renewal was asked for, by the loop's clock. The thread that has the answer sets it if
            no job is lost, since the event loop may handle the answer much later.
        unreleased: Jobs that this replica has given up, and the epochs of the leases that it may still have of them.
        is_over: Done once a planner that serves all jobs has taken over: its result is a sentence.
    """

    def __init__(self, leases: LeaseTable, call: Call | None, call_beside: Call | None) -> None:
        self._leases = leases
        self._threads = [DatabaseThread(name) for name in ("leases", "renewals")] if call is None else []
        self._call = call or self._threads[0]
        self._call_beside = call_beside or call or self._threads[1]
        self.is_over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_leaving = False
        self._in_trouble: set[str] = set()
        self.renewed_s = -math.inf
        self.unreleased: dict[str, int] = {}

    async def run(self, function: Callable[..., _Result], *arguments: object) -> _Result:
        """The answer of the table.

        Raises:
            FencedError: A planner that serves all jobs has taken over.
            LeaseError: There is no answer.
        """
        try:
            answer: _Result = await self._call(function, *arguments)
        except FencedError as error:
            self._end(error)
            raise
        return answer

    async def claim(self, jobs: Collection[str]) -> "dict[str, Claimed | str] | None":
        """Take leases of jobs that have had one; None, with a line in the log once, where the table does not answer."""
        return await self._asked("taken", self._call, partial(self._leases.claim, jobs, known_only=True))

    async def survey(self, held: Mapping[str, int]) -> Survey | None:
        """Renew the registration, and look around; None as for ``claim``."""
        asked_s = asyncio.get_running_loop().time()

        def survey() -> Survey:
            found = self._leases.survey(held)
            if not found.lost:
                self.renewed_s = asked_s
            return found

        answer = await self._asked("renewed", self._call_beside, survey)
        if answer is not None:
            self.renewed_s = asked_s  # the caller gives up what is lost before anything else runs
        return answer

    async def all(self) -> Mapping[str, bool] | None:
        """All jobs that have a lease, and whether a living replica owns it; None as for ``claim``."""
        return await self._asked("listed", self._call, self._leases.all)

    async def release(self) -> None:
        """Let other replicas take the jobs of ``unreleased``, which stay there where the table does not answer."""
        held = dict(self.unreleased)

        def release() -> bool:
            self._leases.release(held)
            return True

        if not held:
            return
        if await self._asked("released", self._call, release):
            for job_id in held:
                del self.unreleased[job_id]

    async def resign(self) -> None:
        """Give the registration up, behind all calls that are under way; none may follow."""
        self._is_leaving = True
        await self._call_beside(lambda: None)  # a renewal under way would find no registration
        with suppress(LeaseError):  # it lapses
            await self._call(self._leases.resign)
        for thread in self._threads:
            thread.close()

    async def _asked(
        self, done: str, call: Call, function: Callable[..., _Result], *arguments: object
    ) -> _Result | None:
        try:
            answer: _Result = await call(function, *arguments)
        except LeaseError as error:
            if done not in self._in_trouble:
                _log.error("leases cannot be %s: %s", done, error)
            self._in_trouble.add(done)
            return None
        except FencedError as error:
            self._end(error)
            return None
        if done in self._in_trouble:
            _log.warning("leases can be %s again", done)
            self._in_trouble.remove(done)
        return answer

    def _end(self, error: FencedError) -> None:
        if not self.is_over.done() and not self._is_leaving:
            self.is_over.set_result(str(error))
