"""The client of a lease daemon that goes away and comes back."""

import json
import socket

import pytest

from perseus_dist.device.lease.client import LeaseClient
from perseus_dist.device.lease.wire import encode

LOST_NS, BACK_NS = 2_000_000, 9_000_000_000


class Daemons:
    """A connector: each connection is to another daemon, which grants at once."""

    answer_s = 10.0

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.sendall(encode({"op": "granted", "clocks_mhz": [1410, 1200], "lease_s": 2.0, "pid": 0}))
        self.ends.append(theirs)
        return ours

    def end_hung(self, pid: int) -> bool:  # noqa: ARG002 - as the protocol wants it
        return False

    def close(self) -> None:
        for end in self.ends:
            end.close()

    def requests(self) -> list[tuple[int, int]]:
        """Clock [MHz] and time [ns] of each that the newest daemon has got."""
        messages = [json.loads(line) for line in self.ends[-1].recv(65_536).splitlines()]
        return [(one["clock_mhz"], one["request_ns"]) for one in messages if one["op"] == "set"]


@pytest.mark.parametrize("wished_mhz", [None, 1410])
def test_the_time_without_a_daemon_is_none_that_a_clock_takes(wished_mhz: int | None) -> None:
    daemons = Daemons()
    client = LeaseClient("clockd", daemons, "GPU-1", own_pids=())
    assert client.open()
    client.request(1200, 1_000_000)
    assert daemons.requests() == [(1200, 1_000_000)]
    daemons.ends[-1].close()
    client.poll(LOST_NS)
    if wished_mhz is not None:
        client.request(wished_mhz, LOST_NS + 1_000_000)
    client.poll(BACK_NS)
    assert daemons.requests() == [(wished_mhz or 1200, BACK_NS)]
    daemons.ends[-1].close()
    client.close()
    daemons.close()
