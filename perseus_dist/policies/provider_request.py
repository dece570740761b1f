"""One request to a provider of prices or carbon intensities, over HTTP.

The only module of the policies that leads to the network, imported where a provider is to be asked.
"""

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from perseus_dist.errors import PlanningError
from perseus_dist.policies.provider import MAX_BYTES, Provider, is_loopback
from perseus_dist.policies.signal_text import Piece, signal_from_text
from perseus_dist.policies.tariff import Tariff

_MAX_TOKEN_BYTES = 4096
_CHUNK_BYTES = 1 << 16
_HANDLERS = (urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPErrorProcessor)


def fetch(provider: Provider) -> tuple[Piece, ...] | Tariff:
    """Ask a provider once.

    Raises:
        PlanningError: As ``ask`` and ``read_answer``.
    """
    return read_answer(provider, ask(provider))


def ask(provider: Provider) -> bytes:
    """The text of a provider's answer.

    Raises:
        PlanningError: It gives none; in a line without address and token.
    """
    url, headers = provider.url, {"Accept": "application/json", "User-Agent": "perseus-dist"}
    url = url.replace("{now}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"))
    if provider.token_file is not None:
        token = _token(provider.token_file)
        if provider.token_header:
            headers[provider.token_header] = token
        else:
            url += f"{'&' if urlsplit(url).query else '?'}{provider.token_parameter}={quote(token, safe='')}"
    try:
        return _get(urllib.request.Request(url, headers=headers), provider.timeout_s)
    except urllib.error.HTTPError as error:
        error.close()
        phrase = http.client.responses.get(error.code, "")
        raise PlanningError(f"{provider.host}: answers {error.code} {phrase}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text = f"no answer within {provider.timeout_s:g} s" if isinstance(reason, TimeoutError) else _line(reason)
        raise PlanningError(f"{provider.host}: {text}") from None
    except ValueError as error:
        raise PlanningError(f"{provider.host}: {_line(error)}") from None


def read_answer(provider: Provider, data: bytes) -> tuple[Piece, ...] | Tariff:
    """The signal in an answer.

    Raises:
        PlanningError: It is none; in a line.
    """
    try:
        return signal_from_text(data)
    except ValueError as error:
        raise PlanningError(f"answer of {provider.host}: {error}") from None


def _line(reason: object) -> str:
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return " ".join(str(text).split())[:200]


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise PlanningError(f"{path}: {error.strerror or error}") from None
    token = data.decode("ascii", "replace").strip()
    if not token or len(data) > _MAX_TOKEN_BYTES or not token.isascii() or not token.isprintable():
        raise PlanningError(f"{path}: expected a token in one line of printable ASCII")
    return token


def _get(request: urllib.request.Request, timeout_s: float) -> bytes:
    """The body of an answer, all of it within a time."""
    until_s = time.monotonic() + timeout_s
    chunks: list[bytes] = []
    num_bytes = 0
    opener = urllib.request.OpenerDirector()  # that goes nowhere else: the token would go along
    for handler in (*(kind() for kind in _HANDLERS), _Http(until_s), _Https(until_s)):
        opener.add_handler(handler)
    if not is_loopback(urlsplit(request.full_url).hostname or ""):
        opener.add_handler(urllib.request.ProxyHandler())
    with opener.open(request, timeout=timeout_s) as answer:
        while chunk := answer.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > MAX_BYTES:
                raise ValueError(f"saw more than {MAX_BYTES >> 20} MiB, expected a signal")
        if answer.length:  # of what the header has promised
            raise ValueError("saw the end of the answer too early")
    return b"".join(chunks)


class _TimedReads(io.RawIOBase):
    """A socket's bytes as long as there is time: a socket's own timeout begins anew with each of them."""

    def __init__(self, connected: socket.socket, until_s: float) -> None:
        self._socket = connected
        self._raw = connected.makefile("rb", buffering=0)
        self._until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedAnswer(http.client.HTTPResponse):
    """An answer whose head and body are there in time."""

    def __init__(self, connected: socket.socket, *args: Any, until_s: float, **kwargs: Any) -> None:
        super().__init__(connected, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReads(connected, until_s))


class _TimedHandler(urllib.request.AbstractHTTPHandler):
    """Makes connections whose answers are there in time, those of proxies too."""

    def __init__(self, until_s: float) -> None:
        super().__init__()
        self._until_s = until_s

    def do_open(self, http_class: Any, req: urllib.request.Request, **http_conn_args: Any) -> http.client.HTTPResponse:
        def connect(host: str, **kwargs: Any) -> http.client.HTTPConnection:
            connection: http.client.HTTPConnection = http_class(host, **kwargs)
            connection.response_class = partial(_TimedAnswer, until_s=self._until_s)  # type: ignore[assignment]
            return connection

        return super().do_open(connect, req, **http_conn_args)


class _Http(_TimedHandler, urllib.request.HTTPHandler):
    """As ``HTTPHandler``."""


class _Https(_TimedHandler, urllib.request.HTTPSHandler):
    """As ``HTTPSHandler``."""
