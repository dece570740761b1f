"""A job's status and frontier, followed for agents: each change of status, and the plans of each table."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perseus_dist.messages.job_status import JobFrontier, JobProfile, JobStatus

if TYPE_CHECKING:
    import grpc.aio

_log = logging.getLogger(__name__)

_CALL_S = 10.0
_RETRY_S = 2.0
_DONE = "done"


@dataclass(frozen=True, slots=True)
class JobSeen:
    """The job's status has changed."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class TableSeen:
    """The planner has a new table."""

    frontier: JobFrontier
    profile: JobProfile


class JobWatch:
    """Watches one job, on whichever channel is open.

    Args:
        job_id: The job.
        tell: Called with everything new.

    Attributes:
        is_done: Whether the job is over, by its newest status.
    """

    def __init__(self, job_id: str, tell: Callable[[JobSeen | TableSeen], None]) -> None:
        self._job_id = job_id
        self._tell = tell
        self._table_revision = 0
        self.is_done = asyncio.Event()

    async def follow(self, channel: "grpc.aio.Channel", token: str) -> None:
        """Until it is cancelled. What fails is tried again: training and clocks do not depend on it."""
        import grpc.aio

        from perseus_dist.rpc.violations import InvalidMessageError

        while True:
            try:
                await self._watch(channel, token)
            except grpc.aio.AioRpcError as error:
                _log.debug("the job cannot be watched: %s", error.details() or error.code())
            except (asyncio.InvalidStateError, InvalidMessageError) as error:
                _log.debug("the job cannot be watched: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def _watch(self, channel: "grpc.aio.Channel", token: str) -> None:
        from perseus_dist.rpc.connection import WATCH_JOB, authorization
        from perseus_dist.rpc.job_status_wire import decode_job_status
        from perseus_dist.rpc.job_wire import watch_request

        metadata = authorization(token)
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(WATCH_JOB)
        async for data in method(watch_request(self._job_id), metadata=metadata):
            status = decode_job_status(data)
            if status.table_revision and status.table_revision != self._table_revision:
                await self._fetch(channel, metadata)
            self._tell(JobSeen(status))
            if status.phase == _DONE:
                self.is_done.set()
            else:
                self.is_done.clear()

    async def _fetch(self, channel: "grpc.aio.Channel", metadata: tuple[tuple[str, str], ...]) -> None:
        from perseus_dist.rpc.connection import GET_FRONTIER, GET_PROFILE
        from perseus_dist.rpc.job_wire import decode_frontier, decode_profile, frontier_request, profile_request

        get_frontier: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(GET_FRONTIER)
        get_profile: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(GET_PROFILE)
        frontier = await get_frontier(frontier_request(self._job_id), metadata=metadata, timeout=_CALL_S)
        profile = await get_profile(profile_request(self._job_id), metadata=metadata, timeout=_CALL_S)
        seen = TableSeen(decode_frontier(frontier), decode_profile(profile))
        self._tell(seen)
        self._table_revision = seen.frontier.table_revision
