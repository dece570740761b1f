"""Guard in front of the page: whose requests are heard at all, and which headers every answer carries."""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perseus_dist.planner.access.address import Address

MAX_BODY_BYTES = 8 << 10
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_READING = ("GET", "HEAD")


class Protection:
    """An ASGI application around the page's."""

    def __init__(self, app: ASGIApp, *, is_loopback: bool) -> None:
        """Begin.

        Args:
            app: The page's.
            is_loopback: Whether it is served to this machine alone: then it has no other name, and one that another
                site's name server has made up for it is refused (DNS rebinding).
        """
        self._app = app
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        refusal = self._refusal(str(scope["method"]), Headers(scope=scope))
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if self._is_loopback and not Address(_host_of(f"//{host}") or "", 0).is_loopback:
            return _refused(421, "this page is served to this machine: open it as localhost, or by its address")
        if method in _READING:
            return None
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site not in (None, "same-origin") or (origin is not None and urlsplit(origin).netloc != host):
            return _refused(403, "a request of another site was seen, expected one of this page")
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not (
            length.isascii() and length.isdigit() and int(length) <= MAX_BODY_BYTES
        ):
            return _refused(413, f"a form of a stated length up to {MAX_BODY_BYTES} bytes is expected")
        return None


def _host_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # a port that is none is refused
        return parts.hostname
    except ValueError:
        return None


def _refused(status: int, reason: str) -> PlainTextResponse:
    return PlainTextResponse(f"{reason}\n", status, headers={"Connection": "close"})


def _add_headers(message: MutableMapping[str, Any]) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    message["headers"] = [*message.get("headers", ()), *headers]
