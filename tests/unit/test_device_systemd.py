"""What is said to systemd, on a real socket."""

import os
import socket
from pathlib import Path

import pytest

from perseus_dist.device.systemd import notify, watchdog_interval_s


@pytest.mark.parametrize("abstract", [False, True])
def test_notify(tmp_path: Path, *, abstract: bool) -> None:
    address = f"@perseus-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address.replace("@", "\0"))
        notify("READY=1", {"NOTIFY_SOCKET": address})
        assert receiver.recv(100) == b"READY=1"


def test_nothing_is_said_without_systemd(tmp_path: Path) -> None:
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})


def test_watchdog() -> None:
    assert watchdog_interval_s({}) is None
    assert watchdog_interval_s({"WATCHDOG_USEC": "10000000"}) == 5.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}) == 5.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}) is None
