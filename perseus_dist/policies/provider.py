"""Providers of prices and carbon intensities over HTTP: a file names the address, and only then is it asked.

```toml
url = "https://api.electricitymap.org/v3/carbon-intensity/forecast?zone=US-MIDW-MISO"
token_file = "/etc/perseus-dist/electricity-maps.token"
token_header = "auth-token"  # or token_parameter = "api_key", for one that goes into the address
every_s = 900                # between two requests
stale_s = 7200               # for which an answer is used where no other comes
timeout_s = 10               # for an answer
```

Only ``url`` is required. ``{now}`` in it stands for the time of the request, as 2026-11-24T12:00Z. Answers are in the
forms of ``signal_text``.
"""

import http.client
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from perseus_dist.errors import PlanningError
from perseus_dist.policies.signal_text import Piece, signal_from_text
from perseus_dist.policies.tariff import Tariff

MAX_BYTES = 64 << 20
"""Of a signal."""
_MAX_CONFIG_BYTES = 64 << 10
_MAX_TOKEN_BYTES = 4096
_CHUNK_BYTES = 1 << 16
_BOUNDS = {"every_s": (1.0, 86_400.0), "stale_s": (1.0, 31 * 86_400.0), "timeout_s": (0.1, 10.0)}
_HANDLERS = (
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
)
_TEXTS = ("url", "token_file", "token_header", "token_parameter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where and how often a signal is asked for.

    Attributes:
        url: Address, in which ``{now}`` stands for the time of the request.
        token_file: That holds the token; None where the provider wants none.
        token_header: Name of the header that carries the token; empty where a parameter does.
        token_parameter: Name of the parameter of the address that carries it.
        every_s: [s] between two requests.
        stale_s: [s] for which an answer is used where no other comes.
        timeout_s: [s] for an answer.
    """

    url: str
    token_file: Path | None = None
    token_header: str = ""
    token_parameter: str = ""
    every_s: float = 900.0
    stale_s: float = 7200.0
    timeout_s: float = 10.0

    @property
    def host(self) -> str:
        """Whom messages name: an address may hold a key."""
        return urlsplit(self.url).hostname or ""


def is_provider(path: Path) -> bool:
    """Whether a file names a provider, by its ending."""
    return path.suffix == ".toml"


def read_provider(path: Path) -> Provider:
    """A provider's file.

    Raises:
        PlanningError: It cannot be read, or says something else than a provider.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_CONFIG_BYTES + 1).decode()
        if len(text) > _MAX_CONFIG_BYTES:
            raise ValueError(f"saw more than {_MAX_CONFIG_BYTES >> 10} KiB, expected a provider")
        return _checked(path, tomllib.loads(text))
    except OSError as error:
        raise PlanningError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise PlanningError(f"{path}: {' '.join(str(error).split())[:200]}") from None


def _checked(path: Path, table: dict[str, Any]) -> Provider:
    for name, value in table.items():
        if name in _TEXTS:
            if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
                raise ValueError(f"{name}: expected a text of printable ASCII")  # and not said: it may hold a key
        elif name not in _BOUNDS:
            raise ValueError(f"saw {name[:80]!r}, expected {', '.join((*_TEXTS, *_BOUNDS))}")
        elif type(value) not in (int, float) or not _BOUNDS[name][0] <= value <= _BOUNDS[name][1]:
            low, high = _BOUNDS[name]
            raise ValueError(f"{name}: saw {str(value)[:80]}, expected a number from {low:g} to {high:g}")
    if "url" not in table:
        raise ValueError("saw no url, expected the provider's address")
    provider = Provider(**{**table, "token_file": Path(table["token_file"]) if "token_file" in table else None})
    parts = urlsplit(provider.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or " " in provider.url:
        raise ValueError("url: saw no address, expected http://HOST/... or https://HOST/... without a user's name")
    _ = parts.port  # refused with ValueError where it is none
    if provider.stale_s < provider.every_s:
        raise ValueError(f"stale_s: saw {provider.stale_s:g}, expected every_s, {provider.every_s:g}, or more")
    if provider.token_file is None:
        if provider.token_header or provider.token_parameter:
            raise ValueError("saw no token_file, expected the file with the token")
        return provider
    if bool(provider.token_header) == bool(provider.token_parameter):
        raise ValueError("saw a token_file, expected either token_header or token_parameter with it")
    if any(not (sign.isalnum() or sign in "-_") for sign in provider.token_header + provider.token_parameter):
        raise ValueError("saw a name for the token with other signs, expected A-Z a-z 0-9 - _")
    if not provider.token_file.is_absolute() or provider.token_file.parent.resolve() == path.parent.resolve():
        raise ValueError("token_file: expected an absolute path in another folder, as files here are read as signals")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("url: saw http and a token, which others could read on the way; expected https")
    return provider


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def fetch(provider: Provider) -> tuple[Piece, ...] | Tariff:
    """Ask a provider once.

    Raises:
        PlanningError: It gives no answer, or one that is no signal; in a line without address and token.
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
        data = _get(urllib.request.Request(url, headers=headers), provider.timeout_s)
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
    for handler in _HANDLERS:
        opener.add_handler(handler())
    if not _is_loopback(urlsplit(request.full_url).hostname or ""):
        opener.add_handler(urllib.request.ProxyHandler())
    with opener.open(request, timeout=timeout_s) as answer:
        while chunk := answer.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            num_bytes += len(chunk)
            if num_bytes > MAX_BYTES:
                raise ValueError(f"saw more than {MAX_BYTES >> 20} MiB, expected a signal")
            if time.monotonic() > until_s:
                raise TimeoutError
        if answer.length:  # of what the header has promised
            raise ValueError("saw the end of the answer too early")
    return b"".join(chunks)
