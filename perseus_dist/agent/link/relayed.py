"""Calls by way of the node's relay: who is asked, what silence means, and whether the relay is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from perseus_dist.rpc.relay_contract import FROM_PLANNER, PLANNER_KEY, SILENCE_S

if TYPE_CHECKING:
    import grpc.aio

_CHECK_S = 4.0  # longer than a relay waits for its own stream


class SilentRelayError(OSError):
    """The relay has said nothing for too long: it hangs."""


def relay_metadata(planner: str, token: str) -> tuple[tuple[str, str], ...]:
    """Metadata of ``Attach`` by way of the relay."""
    from perseus_dist.rpc.connection import authorization

    return ((PLANNER_KEY, planner), *authorization(token))


async def received(call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> AsyncIterator[bytes]:
    """Messages of the planner; heartbeats are left out.

    Raises:
        SilentRelayError: There were not even heartbeats.
    """
    import grpc.aio

    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                data = await call.read()
        except TimeoutError:
            raise SilentRelayError(f"it has said nothing for {SILENCE_S:g} s") from None
        if data is grpc.aio.EOF:
            return
        if isinstance(data, bytes) and data:
            yield data


def is_planner_gone(error: "grpc.aio.AioRpcError") -> bool:
    """Whether a relay that is well has no way to the planner, or has lost it."""
    import grpc

    trailing = tuple((str(key), value) for key, value in error.trailing_metadata() or ())
    return error.code() is grpc.StatusCode.UNAVAILABLE and FROM_PLANNER[0] in trailing


def owner_of_job(error: "grpc.aio.AioRpcError") -> str:
    """Address of the replica that has the job, by another one's word; empty where that is not what has gone wrong."""
    from perseus_dist.rpc.connection import OWNER_KEY

    found = (value for key, value in error.trailing_metadata() or () if key == OWNER_KEY)
    return next((value for value in found if isinstance(value, str)), "")


async def is_relay_back(socket: str, metadata: tuple[tuple[str, str], ...]) -> bool:
    """Whether the relay at a socket would carry this rank's stream: asked for one, it keeps it open."""
    import grpc.aio

    from perseus_dist.rpc.connection import ATTACH, CHANNEL_OPTIONS

    options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(ATTACH)(metadata=metadata)
        is_alive = False
        with suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(_CHECK_S):
                while await call.read() is not grpc.aio.EOF:
                    is_alive = True
        is_alive = is_alive and not call.done()
        call.cancel()
    return is_alive
