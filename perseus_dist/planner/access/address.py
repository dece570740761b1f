"""Where the planner listens."""

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from perseus_dist.errors import PerseusError

DEFAULT_PORT = 50151

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535


class AddressError(PerseusError):
    """An address that cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; an IPv6 host keeps its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than ``localhost`` may be anything."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_unspecified(self) -> bool:
        """Whether it means all addresses of this machine, and none to be called at."""
        try:
            return ip_address(self.host.strip("[]")).is_unspecified
        except ValueError:
            return False


def parse_address(text: str) -> Address:
    """``HOST:PORT``; port 0 is any free one.

    Raises:
        AddressError: It is something else.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise AddressError(f"{text!r} is no address: expected HOST:PORT such as 127.0.0.1:{DEFAULT_PORT} or [::1]:0")
    return Address(match["host"], int(match["port"]))


def parse_host(text: str) -> Address:
    """``HOST`` on any free port, or ``HOST:PORT``; an IPv6 host without a port may lack its brackets.

    Raises:
        AddressError: It is something else.
    """
    with suppress(ValueError):
        text = f"[{IPv6Address(text)}]"
    has_port = text.rpartition("]")[2].count(":") == 1
    try:
        return parse_address(text if has_port else f"{text}:0")
    except AddressError:
        raise AddressError(f"{text!r} is no host: expected HOST or HOST:PORT such as node-0 or [fd00::1]:0") from None


def check_bindable(address: Address) -> None:
    """Bind a socket to the address, or to one of those that its host's name has, and close it again.

    Raises:
        OSError: None of them can be bound, and the first one's reason.
    """
    reasons = []
    for family, kind, number, _, found in socket.getaddrinfo(
        address.host.strip("[]"), address.port, type=socket.SOCK_STREAM
    ):
        try:
            with socket.socket(family, kind, number) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(found)
        except OSError as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]
