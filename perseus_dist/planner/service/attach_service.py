"""Agents' streams: bytes from gRPC to a job's actor, and from the stream's outbox back."""

import asyncio
import logging
import sqlite3
from typing import cast

import grpc

from perseus_dist.messages.from_agent import Attach
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.outbox import MAX_LARGE_WRITES, Outbox
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.rpc.codec import decode_agent_message
from perseus_dist.rpc.violations import FieldViolation, InvalidMessageError

ATTACH_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


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
            await self._serve(context, caller, outbox)
        except asyncio.CancelledError:
            if outbox.ending is None:  # not we: the agent or its connection is gone
                raise
            task.uncancel()
        finally:
            outbox.close()
        if outbox.ending is not None and not outbox.ending.orderly:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, outbox.ending.reason)

    async def _serve(self, context: Context, caller: Caller, outbox: Outbox) -> None:
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                first = await context.read()
        except TimeoutError:
            reason = f"no attach within {ATTACH_TIMEOUT_S:g} s; it is an agent's first message"
            raise RefusalError(grpc.StatusCode.DEADLINE_EXCEEDED, reason) from None
        if first is grpc.aio.EOF:
            return
        attach = decode_agent_message(first)
        if not isinstance(attach, Attach):
            raise _out_of_place("saw another message first", "attach first")
        job_id = attach.rank.job_id
        is_new = self._jobs.get(job_id) is None
        stream = self._jobs.attach(attach, caller, outbox)
        if is_new and self._jobs.get(job_id) is not None:  # else it was refused
            self._record_start(caller, job_id)
        received = self._jobs.counters.received
        received["Attach"] += 1
        try:
            while (data := await context.read()) is not grpc.aio.EOF:
                message = decode_agent_message(data)
                if isinstance(message, Attach):
                    raise _out_of_place("saw a second attach", "one in a stream; begin another stream")
                received[type(message).__name__] += 1
                stream.receive(message)
        finally:
            stream.close()

    def _record_start(self, caller: Caller, job_id: str) -> None:
        try:
            self._guard.access.audit.done(caller.identity, caller.peer, "StartJob", job=job_id)
        except sqlite3.Error as error:  # the job trains all the same
            _log.error("job %s: its start cannot be recorded (%s)", job_id, error)


def _out_of_place(seen: str, expected: str) -> InvalidMessageError:
    return InvalidMessageError([FieldViolation("message", f"{seen}, expected {expected}")])
