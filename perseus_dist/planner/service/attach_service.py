"""Agents' streams: bytes from gRPC to a job's actor, and from the stream's outbox back."""

import asyncio
from typing import cast

import grpc

from perseus_dist.planner.access.refusal import RefusalError, moved
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.outbox import MAX_LARGE_WRITES, Outbox
from perseus_dist.planner.service.agent_session import ATTACH_TIMEOUT_S, AgentSession, no_attach
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard


class AttachService:
    """Serves ``Attach``: one call for each agent as long as it lives."""

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._guard = guard
        self._large_writes = asyncio.Semaphore(MAX_LARGE_WRITES)

    async def attach(self, context: Context) -> None:
        """Serve one stream until either side ends it.

        Raises:
            RefusalError: The planner ended it.
            InvalidMessageError: The agent sent what breaks the contract.
        """
        caller = self._guard.caller(context)
        # At once, and not along with the first message: a status that overtakes that message could not be sent.
        await context.send_initial_metadata(())
        task = cast("asyncio.Task[None]", asyncio.current_task())
        outbox = Outbox(context.write, task.cancel, self._large_writes)
        try:
            await self._serve(context, AgentSession(self._jobs, self._guard, caller, outbox))
        except asyncio.CancelledError:
            if outbox.ending is None:  # not we: the agent or its connection is gone
                raise
            task.uncancel()
        finally:
            outbox.close()
        if outbox.ending is not None and not outbox.ending.orderly:
            if outbox.ending.owner:
                raise moved(outbox.ending.reason, outbox.ending.owner)
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, outbox.ending.reason)

    @staticmethod
    async def _serve(context: Context, session: AgentSession) -> None:
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                first = await context.read()
        except TimeoutError:
            raise no_attach() from None
        if first is grpc.aio.EOF:
            return
        if (locating := session.locating(first)) is not None:
            await locating
        try:
            session.receive(first)
            while (data := await context.read()) is not grpc.aio.EOF:
                session.receive(data)
        finally:
            session.close()
