"""Replicas of one planner, as a page shows them: its own jobs live, those of the others as they are stored."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.store.lease_table import MOST_ELSEWHERE, JobElsewhere, LeaseError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FRESH_S = 2.0  # however often the page is loaded
_PATIENCE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherReplica:
    """One that lives.

    Attributes:
        address: Where agents and commands reach it.
        page: URL of its page if that has this one's port; empty where it cannot have, on the same host.
    """

    address: str
    page: str

    def page_of(self, job_id: str) -> str:
        """URL of a job's page there; empty where the page is not known."""
        return f"{self.page}jobs/{quote(job_id, safe='')}" if self.page else ""


class Replicas:
    """The others, and their jobs.

    Args:
        ownership: Of this replica; None for a planner that serves all jobs.
        scheme: Of this replica's page.
        port: Of this replica's page.
    """

    def __init__(self, ownership: Ownership | None, *, scheme: str, port: int) -> None:
        self._ownership = ownership
        self._scheme, self._port = scheme, port
        self._jobs: Sequence[JobElsewhere] = ()
        self._reading: asyncio.Task[None] | None = None
        self._read_at_s = -_FRESH_S

    @property
    def own_address(self) -> str:
        """Empty for a planner that serves all jobs."""
        return "" if self._ownership is None else self._ownership.address

    def others(self) -> list[OtherReplica]:
        """The other replicas that live; an empty list where this planner serves all jobs."""
        return [self.at(address) for address in (self._ownership.replicas if self._ownership is not None else ())]

    @property
    def num_read(self) -> int | None:
        """How many jobs of the others were read, the first by name; None where that was all."""
        return None if len(self._jobs) < MOST_ELSEWHERE else len(self._jobs)

    def at(self, address: str) -> OtherReplica:
        """The replica at an address."""
        page = page_at(address, self.own_address, scheme=self._scheme, port=self._port)
        return OtherReplica(address=address, page=page)

    async def jobs(self, caller: Caller) -> list[tuple[JobElsewhere, OtherReplica]]:
        """Jobs of the others that a caller may see, as of a moment ago; older ones while the database is away."""
        if self._ownership is None or not self._ownership.replicas:
            return []
        if self._reading is None and time.monotonic() >= self._read_at_s + _FRESH_S:
            self._reading = asyncio.create_task(self._read(self._ownership))
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=_PATIENCE_S)
        own = self._ownership.epochs  # by now
        return [
            (job, self.at(job.address))
            for job in self._jobs
            if job.job_id not in own and caller.may(Role.VIEW, job.job_id, job.registered.token_sha256)
        ]

    async def _read(self, ownership: Ownership) -> None:
        try:
            with suppress(LeaseError):
                self._jobs = await ownership.elsewhere()
        finally:
            self._read_at_s, self._reading = time.monotonic(), None


def page_at(address: str, own_address: str, *, scheme: str, port: int) -> str:
    """The page of a replica at an address, by scheme and port of this one's; empty where both are on one host."""
    host = address.rpartition(":")[0]
    return "" if host == own_address.rpartition(":")[0] else f"{scheme}://{host}:{port}/"
