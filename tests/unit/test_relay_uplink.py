"""The relay's stream to the planner: what comes on it for several agents at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from perseus_dist.relay.uplink import MAX_WAITING, Uplink
from perseus_dist.rpc.node_wire import Ended, encode_node_reply


def test_an_agent_that_does_not_read_loses_its_stream_alone() -> None:
    async def receive() -> None:
        uplink = Uplink("127.0.0.1:1", None)
        hung, well = uplink.open(""), uplink.open("")

        async def replies() -> AsyncIterator[bytes]:
            for _ in range(MAX_WAITING):
                yield encode_node_reply([((1,), b"to one")])
            yield encode_node_reply([((1, 2), b"to both")])
            yield encode_node_reply([((1, 2), b"and more")])

        await uplink._read(cast("Any", replies()))
        waiting = [hung.received.get_nowait() for _ in range(hung.received.qsize())]
        assert waiting[:-1] == [b"to one"] * MAX_WAITING
        assert isinstance(waiting[-1], Ended)
        assert [well.received.get_nowait() for _ in range(well.received.qsize())] == [b"to both", b"and more"]

    asyncio.run(receive())
