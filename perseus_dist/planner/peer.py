"""Which user of this machine is at the other end of a loopback connection, as the kernel has it.

``/proc/net/tcp`` lists both ends of such a connection; the caller's end belongs to the user who opened it. Nothing has
to be sent, so nothing can be caught by whoever listens on the planner's port while the planner does not.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = 1
_End = tuple[IPv4Address | IPv6Address, int]


def peer_uid(peer: str, port: int) -> int | None:
    """User id of the process that called; None where the kernel of this machine does not know it.

    Args:
        peer: Of the call, as gRPC writes it: ``ipv4:127.0.0.1:40000``, ``ipv6:%5B::1%5D:40000``.
        port: Of ours that it called.
    """
    caller = _parse_peer(peer)
    if caller is None:
        return None
    return next((uid for local, remote, uid in _connections() if local == caller and remote[1] == port), None)


def _parse_peer(peer: str) -> _End | None:
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    try:
        return _plain(ip_address(host.strip("[]"))), int(port)
    except ValueError:
        return None


def _connections() -> Iterator[tuple[_End, _End, int]]:
    """(local end, remote end, user id) of each that is established in our network namespace."""
    for table in _TABLES:
        with suppress(OSError), table.open() as lines:
            next(lines, None)  # names of columns
            for line in lines:
                columns = line.split()
                if len(columns) > 7 and int(columns[3], 16) == _ESTABLISHED:
                    yield _end(columns[1]), _end(columns[2]), int(columns[7])


def _end(text: str) -> _End:
    """``0100007F:9C40``: words of the address in the machine's byte order, and the port."""
    address, _, port = text.partition(":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return _plain(ip_address(socket.inet_ntop(family, packed))), int(port, 16)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """IPv4 addresses as such, also where they came through an IPv6 socket."""
    return getattr(address, "ipv4_mapped", None) or address
