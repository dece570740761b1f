"""The relay's side towards agents: the planner's ``Attach`` on a UNIX socket, one call for each rank of the node."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from perseus_dist.relay.uplink import Uplink, UplinkChannel
from perseus_dist.relay.uplink_batch import MAX_MESSAGE_BYTES
from perseus_dist.rpc.connection import ATTACH, OWNER_KEY
from perseus_dist.rpc.limits import MAX_CHANNELS
from perseus_dist.rpc.node_wire import Closed, Ended
from perseus_dist.rpc.relay_contract import FROM_PLANNER, HEARTBEAT, HEARTBEAT_S, PLANNER_KEY

_STREAM_S = 2.5  # that an agent waits for the stream to the planner
_WRITE_S = 30.0
_FIRST_MESSAGE_S = 1.0
_SCHEME = "Bearer "
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Context = grpc.aio.ServicerContext[Any, bytes]


class _RefusedError(Exception):
    """Ends an agent's call, for a reason of the relay's own."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class AgentService(grpc.GenericRpcHandler):
    """Serves ``Attach``.

    Args:
        uplinks: To each planner, by its address as agents name it; those of another planner are refused.
        needs_token: Whether agents of several users come here, so that one without a token would be taken for another.
    """

    def __init__(self, uplinks: Mapping[str, Uplink], *, needs_token: bool) -> None:
        self._uplinks = uplinks
        self._needs_token = needs_token
        self._num_agents = 0
        self._method: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._attach)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """As gRPC wants it."""
        return self._method if handler_call_details.method == ATTACH else None

    async def _attach(self, _: object, context: Context) -> None:
        try:
            ended = await self._serve(context)
        except _RefusedError as error:
            with suppress(TimeoutError):  # an agent whose first message is cut off gets another error from gRPC
                async with asyncio.timeout(_FIRST_MESSAGE_S):
                    await context.read()
            await context.abort(error.code, str(error))
        if ended is not None and ended.code:
            owner = ((OWNER_KEY, ended.owner),) if ended.owner else ()
            await context.abort(_CODES[ended.code], ended.reason, (*FROM_PLANNER, *owner))

    async def _serve(self, context: Context) -> Ended | None:
        """One agent's stream.

        Returns:
            How the planner has ended it; None if the agent has.
        """
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        asked = metadata.get(PLANNER_KEY, "")
        if (uplink := self._uplinks.get(asked)) is None:
            reason = f"this node relay is for the planner at {','.join(self._uplinks)}, and the job's is at {asked}"
            raise _RefusedError(grpc.StatusCode.FAILED_PRECONDITION, reason)
        token = metadata.get("authorization", "").removeprefix(_SCHEME).strip()
        if self._needs_token and not token:
            reason = "this node relay serves several users: a job needs a token here"
            raise _RefusedError(grpc.StatusCode.UNAUTHENTICATED, reason)
        if self._num_agents >= MAX_CHANNELS:
            raise _RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_CHANNELS} agents are served already")
        self._num_agents += 1
        try:
            await context.write(HEARTBEAT)
            if not await uplink.wait_open(_STREAM_S):
                return Ended(grpc.StatusCode.UNAVAILABLE.value[0], uplink.trouble or "no stream yet")
            return await self._move(context, uplink.open(token))
        finally:
            self._num_agents -= 1

    async def _move(self, context: Context, channel: UplinkChannel) -> Ended | None:
        """Move messages until either side ends the stream."""
        upward = asyncio.create_task(self._move_up(context, channel))
        downward = asyncio.create_task(self._move_down(context, channel))
        try:
            await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
            if not downward.done():
                upward.result()
                return None
            return downward.result()
        finally:
            channel.send(Closed())
            for task in (upward, downward):
                task.cancel()
            await asyncio.gather(upward, downward, return_exceptions=True)

    @staticmethod
    async def _move_up(context: Context, channel: UplinkChannel) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            if len(data) > MAX_MESSAGE_BYTES:
                reason = f"a message of {len(data)} bytes was seen, expected at most {MAX_MESSAGE_BYTES}"
                raise _RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
            channel.send(data)

    @staticmethod
    async def _move_down(context: Context, channel: UplinkChannel) -> Ended:
        """Until the planner ends it. Heartbeats between its messages say that this process is alive."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    frame = await channel.received.get()
            except TimeoutError:
                frame = HEARTBEAT
            if isinstance(frame, Ended):
                return frame
            async with asyncio.timeout(_WRITE_S):
                await context.write(frame)
