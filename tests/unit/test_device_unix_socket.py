"""Sockets in folders with names longer than a socket's address can be."""

import socket
from pathlib import Path

import pytest

from perseus_dist.device.unix_socket import unix_address


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    return folder / "a.sock"


def test_two_processes_meet_at_a_path_of_any_length(long_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as calling:
        with pytest.raises(OSError, match="too long"):
            listening.bind(str(long_path))
        with unix_address(long_path) as address:
            listening.bind(address)
        listening.listen()
        assert long_path.is_socket()
        with unix_address(long_path) as address:
            calling.connect(address)
        listening.accept()[0].close()


def test_a_short_path_is_its_own_address() -> None:
    with unix_address("/run/perseus-dist/clockd.sock") as address:
        assert address == "/run/perseus-dist/clockd.sock"


def test_where_no_one_listens_it_fails_as_a_short_one_does(long_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as calling:
        with pytest.raises(FileNotFoundError), unix_address(long_path) as address:
            calling.connect(address)
        with pytest.raises(FileNotFoundError), unix_address(long_path.parent / "none" / "a.sock") as address:
            calling.connect(address)


def test_a_name_that_is_too_long_by_itself_is_refused_with_its_reason(long_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"), unix_address(long_path.with_name("a" * 150)):
        pass
