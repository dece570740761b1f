"""What is said to systemd, on a real socket."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from perseus_dist.systemd import keep_watchdog_quiet, notify, watchdog_interval_s


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


def test_the_watchdog_is_kept_quiet_by_progress_alone(tmp_path: Path) -> None:
    done = iter([0, 1, 1, 1, 2, 2])

    async def main(environ: dict[str, str]) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):  # after the last of them
            await keep_watchdog_quiet(lambda: next(done), environ)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        asyncio.run(main({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000"}))
        receiver.settimeout(0)
        assert [receiver.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        with pytest.raises(BlockingIOError):
            receiver.recv(100)


def test_without_a_watchdog_nothing_is_kept_quiet() -> None:
    asyncio.run(keep_watchdog_quiet(int, {}))
