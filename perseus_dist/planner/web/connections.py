"""The page's connections: their number and silence have bounds, and requests know their clients' certificates.

Idle or hostile connections take no file descriptor that agents need.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 256
FIRST_REQUEST_S = 10.0

_NAMES, _ABORT = "certificate_names", "abort_connection"
_NAMED_BY = ("DNS", "email", "URI", "IP Address")


def certificate_names(request: HTTPConnection) -> tuple[str, ...]:
    """Names in the certificate that a request's client has shown, and an authority has signed; none without one."""
    return tuple(request.scope.get("state", {}).get(_NAMES, ()))


def abort_connection(scope: Scope) -> None:
    """Drop a request's connection, and what its peer has not read: closed in order, it would wait for that for ever."""
    abort = scope.get("state", {}).get(_ABORT)
    if abort is not None:
        abort()


def _names_in(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Common and alternative names of a verified certificate, as ``ssl.SSLSocket.getpeercert`` has it."""
    subject = (pair for parts in certificate.get("subject", ()) for pair in parts)
    common = tuple(value for key, value in subject if key == "commonName")
    return common + tuple(value for key, value in certificate.get("subjectAltName", ()) if key in _NAMED_BY)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, which is closed if too many are open or its request does not come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        names = _names_in(transport.get_extra_info("peercert") or {})
        self.app_state = {**self.app_state, _NAMES: names, _ABORT: transport.abort}
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
