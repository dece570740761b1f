"""Sockets in folders with long names, what is found at their paths, and the groups that may connect."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from perseus_dist.unix_socket import group_number, is_socket_taken, unix_address


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


def test_the_socket_of_a_killed_service_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert not is_socket_taken(path)
    assert not path.exists()
    assert not is_socket_taken(path)


def test_a_socket_on_which_a_process_listens_stays_even_while_its_queue_is_full(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(path))
        listening.listen(0)
        assert is_socket_taken(path)  # and waits in its queue from now on
        first.settimeout(0)
        with suppress(BlockingIOError):
            first.connect(str(path))
        assert is_socket_taken(path)
        assert path.is_socket()


def test_a_file_a_folder_and_a_link_at_the_path_stay_as_they_are(tmp_path: Path) -> None:
    file, folder, link = tmp_path / "results.txt", tmp_path / "folder", tmp_path / "link"
    file.write_text("results")
    folder.mkdir()
    link.symlink_to(file)
    for path in (file, folder, link):
        with pytest.raises(FileExistsError, match="something else than a socket"):
            is_socket_taken(path)
    assert file.read_text() == "results"
    assert folder.is_dir()
    assert link.is_symlink()


@pytest.mark.parametrize("group", ["99999999999", "4294967295", "9" * 5000, "-1", "+1", "\N{SUPERSCRIPT TWO}", ""])
def test_what_is_no_number_of_a_group_is_no_group(group: str) -> None:
    with pytest.raises(KeyError):
        group_number(group)


def test_a_group_without_a_name_on_this_node_is_taken_by_its_number() -> None:
    assert group_number("4294967294") == 4_294_967_294
