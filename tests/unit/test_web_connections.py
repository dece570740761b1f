"""A browser that stops reading: its stream ends, and so does its connection, of which a page has only so many."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from perseus_dist.planner.web import streams
from perseus_dist.planner.web.connections import BoundedProtocol
from perseus_dist.planner.web.streams import _EventStream

_EVENT = b"data: " + (1 << 22) * b"x" + b"\n\n"  # more than sockets take unread


async def _events() -> AsyncGenerator[bytes, None]:
    while True:
        yield _EVENT


@asynccontextmanager
async def _served(ended: asyncio.Event) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _EventStream(_events(), ended.set)(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        yield server, listener.getsockname()[1]
        for one in server.servers:
            one.close()


def test_the_connection_of_a_browser_that_stops_reading_ends_with_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WRITE_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        ended = asyncio.Event()
        async with _served(ended) as (server, port):
            browser = socket.create_connection(("127.0.0.1", port))
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await ended.wait()
            for _ in range(100):
                if not server.server_state.connections:
                    break
                await asyncio.sleep(0.01)
            num_open = len(server.server_state.connections)
            browser.close()
            assert num_open == 0

    asyncio.run(scenario())
