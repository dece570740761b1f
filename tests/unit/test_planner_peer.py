"""Whose connection it is, by the kernel's tables, with real sockets."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from perseus_dist.planner.access.address import Address
from perseus_dist.planner.access.peer import peer_uid

CALL = """\
import os, socket, sys
"".encode("idna")  # loaded before the interpreter's folders may be out of reach
os.setuid(int(sys.argv[2]))
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as calling:
    print(calling.getsockname()[1], flush=True)
    calling.recv(1)
"""


@contextmanager
def connected(family: socket.AddressFamily, host: str) -> Iterator[tuple[int, int]]:
    """(port of the caller, port that was called)."""
    with socket.create_server((host, 0), family=family) as listening:
        port = listening.getsockname()[1]
        with socket.socket(family) as calling:
            calling.connect((host, port))
            with listening.accept()[0]:
                yield calling.getsockname()[1], port


def test_our_own_connection_is_ours() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (caller, called):
        for host in ("127.0.0.1", "localhost"):
            assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address(host, called)) == os.getuid()


def test_through_an_ipv6_socket_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket(socket.AF_INET6) as calling:
        port = listening.getsockname()[1]
        try:
            calling.connect(("::ffff:127.0.0.1", port))
        except OSError:
            pytest.skip("this machine has no IPv6")
        with listening.accept()[0] as accepted:
            caller = accepted.getpeername()[1]
            assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address("127.0.0.1", port)) == os.getuid()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_over_ipv6_too() -> None:
    with connected(socket.AF_INET6, "::1") as (caller, called):
        for host in ("[::1]", "localhost"):
            assert peer_uid(f"ipv6:%5B::1%5D:{caller}", Address(host, called)) == os.getuid()
            assert peer_uid(f"ipv6:[::1]:{caller}", Address(host, called)) == os.getuid()
            assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address(host, called)) is None


def test_another_connection_says_nothing() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (caller, called):
        assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address("127.0.0.1", called + 1)) is None
        assert peer_uid(f"ipv4:127.0.0.2:{caller}", Address("127.0.0.1", called)) is None
        assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address("127.0.0.2", called)) is None
    assert peer_uid(f"ipv4:127.0.0.1:{caller}", Address("127.0.0.1", called)) is None


@pytest.mark.parametrize(
    "peer", ["", "unix:", "unix:/run/a.sock", "ipv4:", "ipv4:127.0.0.1", "ipv4:x:1", "ipv4:1.1.1.1:x"]
)
def test_what_is_no_address_is_no_user(peer: str) -> None:
    assert peer_uid(peer, Address("127.0.0.1", 1)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_connection_of_another_user_is_theirs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        port = listening.getsockname()[1]
        server = Address("127.0.0.1", port)
        command = [sys.executable, "-P", "-c", CALL, str(port), "65534"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as calling:
            assert calling.stdout is not None
            with listening.accept()[0]:
                assert peer_uid(f"ipv4:127.0.0.1:{calling.stdout.readline().strip()}", server) == 65534
