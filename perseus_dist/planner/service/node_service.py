"""Streams of node relays, taken apart: each channel is an agent's session with an outbox of its own.

```
 NodeMessage --> channel 1 --> AgentSession --> job      job --> ChannelOutbox --+
                 channel 2 --> AgentSession --> job      job --> ChannelOutbox --+--> NodeOutbox --> NodeReply
```

A relay has no rights that its ranks could use: the token that its agent has given decides what a channel may do. An
agent without a token is taken for the relay's user, on a planner that knows callers by their user; the relay takes
such agents from its own user alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple, cast

import grpc

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.refusal import RefusalError, invalid
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.nodes import ConnectedNode
from perseus_dist.planner.runtime.outbox import MAX_LARGE_WRITES
from perseus_dist.planner.service.agent_session import ATTACH_TIMEOUT_S, AgentSession, no_attach
from perseus_dist.planner.service.node_outbox import ChannelOutbox, NodeOutbox
from perseus_dist.planner.service.rpc_guard import Context, RpcGuard
from perseus_dist.rpc.limits import MAX_CHANNELS
from perseus_dist.rpc.node_wire import Closed, NodeHello, Opened, decode_node_message
from perseus_dist.rpc.violations import FieldViolation, InvalidMessageError

IDLE_S = 60.0
"""One that keeps a stream open without agents, and without saying which node it is on, is cut off."""

_Arguments = TypeVarTuple("_Arguments")

_log = logging.getLogger(__name__)


class NodeService:
    """Serves ``NodeStream``: one call for each node relay."""

    def __init__(self, jobs: Jobs, guard: RpcGuard) -> None:
        self._jobs = jobs
        self._guard = guard
        self._large_writes = asyncio.Semaphore(MAX_LARGE_WRITES)

    async def serve(self, context: Context) -> None:
        """Serve one stream until either side ends it.

        Raises:
            RefusalError: The planner ended it.
            InvalidMessageError: The relay sent what breaks the contract.
        """
        relay = self._guard.relay(context)
        await context.send_initial_metadata(())
        node = _Node(self._jobs, self._guard, relay, context, self._large_writes)
        try:
            await node.read(context)
        except asyncio.CancelledError:
            if not node.failure:  # not we: the relay or its connection is gone
                raise
            cast("asyncio.Task[None]", asyncio.current_task()).uncancel()
        finally:
            node.close()
        if node.failure:
            raise RefusalError(grpc.StatusCode.UNAVAILABLE, node.failure)


class _Node:
    """One stream.

    Attributes:
        failure: Why the planner ends it; empty while it does not.
    """

    def __init__(
        self, jobs: Jobs, guard: RpcGuard, relay: Caller, context: Context, large_writes: asyncio.Semaphore
    ) -> None:
        self._jobs = jobs
        self._guard = guard
        self._relay = relay
        self._task = cast("asyncio.Task[None]", asyncio.current_task())
        self._outbox = NodeOutbox(context.write, self._fail, large_writes)
        self._channels: dict[int, _Channel] = {}
        self._highest = 0
        self._is_known = False
        self.failure = ""

    async def read(self, context: Context) -> None:
        """Until the relay ends the stream, or has no agents for a while and names no node."""
        while True:
            if self._channels or self._is_known:  # a timer for each message would cost as much as a rank's telemetry
                data = await context.read()
            else:
                try:
                    async with asyncio.timeout(IDLE_S):
                        data = await context.read()
                except TimeoutError:
                    return
            if data is grpc.aio.EOF:
                return
            for channel, frame in decode_node_message(data):
                self._handle_frame(channel, frame)

    def close(self) -> None:
        """The stream is over, and all channels with it."""
        self._outbox.close()
        self._jobs.nodes.remove(id(self))
        for channel in list(self._channels.values()):
            channel.close()

    def _handle_frame(self, number: int, frame: Opened | bytes | Closed | NodeHello) -> None:
        match frame:
            case bytes():
                if (channel := self._channels.get(number)) is not None:  # else it has been ended meanwhile
                    channel.receive(frame)
            case Opened(token):
                self._open(number, token)
            case NodeHello(host, findings):
                node = ConnectedNode(host=host, findings=findings, relay=self._relay)
                self._is_known = self._jobs.nodes.put(id(self), node)
            case Closed():
                if (channel := self._channels.get(number)) is not None:
                    channel.close()

    def _open(self, number: int, token: str) -> None:
        if number <= self._highest:
            raise _violated("channel", f"{number} was seen, expected a number above {self._highest}")
        self._highest = number
        if len(self._channels) >= MAX_CHANNELS:
            raise _violated("channel", f"{MAX_CHANNELS + 1} open channels were seen, expected at most {MAX_CHANNELS}")
        _Channel(number, token, self._jobs, self._guard, self._relay, self._outbox, self._channels)

    def _fail(self, why: str) -> None:
        self.failure = why
        self._task.cancel()


class _Channel:
    """One agent behind the relay. It is in ``channels`` as long as it is open."""

    def __init__(
        self,
        number: int,
        token: str,
        jobs: Jobs,
        guard: RpcGuard,
        relay: Caller,
        node: NodeOutbox,
        channels: "dict[int, _Channel]",
    ) -> None:
        self._number = number
        self._guard = guard
        self._channels = channels
        self._identity = ""
        self._peer = relay.peer
        self._outbox = ChannelOutbox(node, number, self.close)
        self._session: AgentSession | None = None
        self._locating: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []  # while another replica may have the job
        channels[number] = self
        self._timeout = asyncio.get_running_loop().call_later(ATTACH_TIMEOUT_S, self._expect_attach)
        self._guarded(self._begin, jobs, token, relay)

    def receive(self, data: bytes) -> None:
        """A message of the agent has come."""
        if (session := self._session) is not None:
            self._guarded(self._receive, session, data)

    def _receive(self, session: AgentSession, data: bytes) -> None:
        if session.has_attached and self._locating is None:
            session.receive(data)
        elif self._locating is not None:
            self._waiting.append(data)
        elif (locating := session.locating(data)) is not None:
            self._timeout.cancel()  # an attach has come
            self._waiting.append(data)
            self._locating = asyncio.create_task(self._receive_once(locating))
        else:
            session.receive(data)

    async def _receive_once(self, located: Awaitable[None]) -> None:
        """Receive what waits, once the job is known to be here."""
        try:
            await located
        except Exception as error:
            self._end_by(error)
            return
        finally:
            self._locating = None
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            if (session := self._session) is not None:
                self._guarded(session.receive, data)

    def close(self) -> None:
        """The channel is over; again changes nothing."""
        self._timeout.cancel()
        self._waiting.clear()
        self._outbox.close()
        self._channels.pop(self._number, None)
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    def _begin(self, jobs: Jobs, token: str, relay: Caller) -> None:
        caller = self._guard.relayed_caller(token, relay)
        self._identity = caller.identity
        self._session = AgentSession(jobs, self._guard, caller, self._outbox)

    def _expect_attach(self) -> None:
        if self._session is not None and not self._session.has_attached:
            self._refuse(no_attach())

    def _guarded(self, handle: Callable[[*_Arguments], None], *arguments: *_Arguments) -> None:
        """Handle a message of one agent; its failure ends its channel alone."""
        try:
            handle(*arguments)
        except Exception as error:
            self._end_by(error)

    def _end_by(self, error: Exception) -> None:
        match error:
            case RefusalError():
                self._refuse(error)
            case InvalidMessageError():
                self._refuse(invalid(error))
            case _:
                _log.error("a message by way of a node relay failed", exc_info=error)
                why = "the planner failed at this message; its log says how"
                self._refuse(RefusalError(grpc.StatusCode.INTERNAL, why))

    def _refuse(self, refusal: RefusalError) -> None:
        self._guard.record("Attach", self._identity or "unknown", self._peer, refusal)
        self._outbox.refuse(refusal.code, refusal.reason, owner=refusal.owner)
        self.close()


def _violated(field: str, description: str) -> InvalidMessageError:
    return InvalidMessageError([FieldViolation(field, description)])
