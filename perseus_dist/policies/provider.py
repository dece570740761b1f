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

import tomllib
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perseus_dist.errors import PlanningError

MAX_BYTES = 64 << 20
"""Of a signal."""
_MAX_CONFIG_BYTES = 64 << 10
_BOUNDS = {"every_s": (1.0, 86_400.0), "stale_s": (1.0, 31 * 86_400.0), "timeout_s": (0.1, 10.0)}
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
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("url: saw http and a token, which others could read on the way; expected https")
    return provider


def is_loopback(host: str) -> bool:
    """Whether a host of an address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
