"""Bounds on the page's connections, so that idle or hostile ones take no file descriptor that agents need."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 256
FIRST_REQUEST_S = 10.0


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, which is closed if too many are open or its request does not come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def on_response_complete(self) -> None:
        """The answer has been sent; the next request may be there already."""
        super().on_response_complete()
        self._await_request()

    def _await_request(self) -> None:
        before = self.cycle
        self.loop.call_later(FIRST_REQUEST_S, self._close_if_silent, before)

    def _close_if_silent(self, before: Any) -> None:
        """Whole headers must have come by now. Uvicorn's own time-out ends with the first byte of a request."""
        if self.cycle is before and (before is None or before.response_complete):
            self.transport.abort()
