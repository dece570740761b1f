"""Which user of this machine is at the other end of a loopback connection, as the kernel has it.

The kernel knows both ends of such a connection, and the user who opened the caller's. Nothing has to be sent, so
nothing can be caught by a process that listens on the planner's port while the planner does not. It is asked by
``sock_diag(7)`` for the one connection: ``/proc/net/tcp`` would be read to its end for every rank of a job.
"""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote

from perseus_dist.planner.access.address import Address

_Ip = IPv4Address | IPv6Address
_SOCK_DIAG = 4  # netlink protocol, with the one message type
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_ANY_COOKIE = b"\xff" * 8
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
_QUERY = struct.Struct("=BBBxI")  # inet_diag_req_v2 up to its inet_diag_sockid
_PORTS = struct.Struct(">HH")
_ANSWER = struct.Struct("=BBxx48x12xII")  # inet_diag_msg: family, state, ..., user id, inode
_ESTABLISHED = 1


def peer_uid(peer: str, server: Address) -> int | None:
    """User id of the process that called; None where the kernel of this machine does not know it.

    Args:
        peer: Of the call, as gRPC writes it: ``ipv4:127.0.0.1:40000``, ``ipv6:%5B::1%5D:40000``.
        server: Where it called us, a loopback address.
    """
    family, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        caller, called = ip_address(host.strip("[]")), _ip_of(server, family)
        if caller.version != called.version:
            return None
        return _uid_of_connection((caller, int(port)), (called, server.port))
    except (OSError, ValueError, struct.error):
        return None


def _ip_of(server: Address, family: str) -> _Ip:
    if server.host == "localhost":
        return ip_address("::1" if family == "ipv6" else "127.0.0.1")
    return ip_address(server.host.strip("[]"))


def _uid_of_connection(local: tuple[_Ip, int], remote: tuple[_Ip, int]) -> int | None:
    """Of the socket whose ends these are, the first one its own."""
    family = socket.AF_INET if local[0].version == 4 else socket.AF_INET6
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF)
    query += _PORTS.pack(local[1], remote[1])
    query += local[0].packed.ljust(16, b"\0") + remote[0].packed.ljust(16, b"\0")
    query += bytes(4) + _ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.sendto(header + query, (0, 0))
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:  # an error: there is no such connection
        return None
    _, state, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    # A socket that its process has closed has no owner any more, and the kernel then says 0, which is root.
    return uid if state == _ESTABLISHED and inode else None
