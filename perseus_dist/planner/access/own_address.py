"""The address at which other hosts of a job reach this one."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address

from perseus_dist.planner.access.address import AddressError

_ANY_PORT = 9


def own_address(host: str) -> str:
    """An address of this host, a number: the host's, where it is this one, and else the one on the way there.

    Args:
        host: Name or address where the job's ranks have met.

    Raises:
        AddressError: There is none that other hosts could reach.
    """
    for family, address in _addresses(host):
        if _is_here(family, address):
            return address
        if (found := _way_to(family, address)) is not None:
            return found
    raise AddressError(f"{host} is no address of this host, and none leads there, but for its loopback interface")


def _addresses(host: str) -> Iterator[tuple[socket.AddressFamily, str]]:
    """Of a name, IPv4 first; those that stand for this host wherever they are read are left out."""
    found: dict[tuple[socket.AddressFamily, str], None] = {}
    with suppress(OSError, UnicodeError):
        for family, _, _, _, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
            found[family, str(address[0])] = None
    for version, number in sorted(found, key=lambda one: one[0] is not socket.AF_INET):
        usable = version in (socket.AF_INET, socket.AF_INET6) and "%" not in number
        if usable and not (ip_address(number).is_loopback or ip_address(number).is_unspecified):
            yield version, number


def _is_here(family: socket.AddressFamily, address: str) -> bool:
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def _way_to(family: socket.AddressFamily, address: str) -> str | None:
    """This host's address on the way there; nothing is sent."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, _ANY_PORT))
        own = str(probe.getsockname()[0])
        return None if ip_address(own).is_loopback else own
    return None
