"""One agent's messages, from its attach on: the same whether they come on a stream of its own or by a node relay."""

import logging
import sqlite3
from collections.abc import Awaitable

import grpc

from perseus_dist.messages.from_agent import Attach
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.runtime.jobs import AgentStream, Jobs
from perseus_dist.planner.runtime.outbox import AgentOutbox
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.rpc.codec import decode_agent_message
from perseus_dist.rpc.violations import FieldViolation, InvalidMessageError

ATTACH_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


class AgentSession:
    """Puts an agent's messages to its job.

    Args:
        jobs: All of them.
        guard: The planner's.
        caller: The agent.
        outbox: Where answers go.
    """

    __slots__ = ("_caller", "_guard", "_jobs", "_outbox", "_stream")

    def __init__(self, jobs: Jobs, guard: RpcGuard, caller: Caller, outbox: AgentOutbox) -> None:
        self._jobs = jobs
        self._guard = guard
        self._caller = caller
        self._outbox = outbox
        self._stream: AgentStream | None = None

    @property
    def has_attached(self) -> bool:
        """Whether the first message has come."""
        return self._stream is not None

    def locating(self, data: bytes) -> Awaitable[None] | None:
        """Look for the job where another replica may have it: await this before the first message is received.

        Args:
            data: The first message.

        Returns:
            None where the job is here, or the message is no attach; else it takes the job for this replica, or raises
            ``RefusalError`` where another one has it.

        Raises:
            InvalidMessageError: The message breaks the contract.
        """
        ownership = self._jobs.ownership
        if ownership is None:
            return None
        message = decode_agent_message(data)
        if not isinstance(message, Attach) or ownership.owns(message.rank.job_id):
            return None
        return ownership.ensure(message.rank.job_id)

    def receive(self, data: bytes) -> None:
        """A message has come.

        Raises:
            RefusalError: The agent may not attach to that job.
            InvalidMessageError: The message breaks the contract, or is not due.
        """
        message = decode_agent_message(data)
        if self._stream is None:
            if not isinstance(message, Attach):
                raise _out_of_place("saw another message first", "attach first")
            self._stream = self._begin(message)
        elif isinstance(message, Attach):
            raise _out_of_place("saw a second attach", "one in a stream; begin another stream")
        else:
            self._jobs.counters.received[type(message).__name__] += 1
            self._stream.receive(message)

    def close(self) -> None:
        """The agent's stream has ended; again changes nothing."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _begin(self, attach: Attach) -> AgentStream:
        job_id = attach.rank.job_id
        is_new = self._jobs.get(job_id) is None
        stream = self._jobs.attach(attach, self._caller, self._outbox)
        if is_new and self._jobs.get(job_id) is not None:  # else it was refused
            self._record_start(job_id)
        self._jobs.counters.received["Attach"] += 1
        return stream

    def _record_start(self, job_id: str) -> None:
        try:
            self._guard.access.audit.done(self._caller.identity, self._caller.peer, "StartJob", job=job_id)
        except sqlite3.Error as error:  # the job trains all the same
            _log.error("job %s: its start cannot be recorded (%s)", job_id, error)


def no_attach() -> RefusalError:
    """A stream on which no attach has come in time."""
    reason = f"no attach within {ATTACH_TIMEOUT_S:g} s; it is an agent's first message"
    return RefusalError(grpc.StatusCode.DEADLINE_EXCEEDED, reason)


def _out_of_place(seen: str, expected: str) -> InvalidMessageError:
    return InvalidMessageError([FieldViolation("message", f"{seen}, expected {expected}")])
