"""Places for results: files that are replaced, links that are followed, devices and pipes that are written through."""

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perseus_dist.errors import OutputError
from perseus_dist.planning.output_file import check_writable, move_output, replace_file, write_output

DATA = b"result\n"


def moved(path: Path, data: bytes) -> None:
    staged = path.parent / "staged"
    staged.write_bytes(data)
    try:
        move_output(staged, path)
    finally:
        staged.unlink(missing_ok=True)


WAYS: list[Callable[[Path, bytes], None]] = [write_output, moved]


@pytest.mark.parametrize("write", WAYS)
def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    for name in ("new", "new"):
        check_writable(tmp_path / name)
        write(tmp_path / name, DATA)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"new": DATA}


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("is_there", [True, False])
def test_the_file_that_links_lead_to_is_replaced(
    tmp_path: Path, write: Callable[[Path, bytes], None], *, is_there: bool
) -> None:
    (tmp_path / "real").mkdir()
    if is_there:
        (tmp_path / "real" / "file").write_bytes(b"old")
    (tmp_path / "one").symlink_to(Path("real", "file"))
    (tmp_path / "two").symlink_to(tmp_path / "one")
    check_writable(tmp_path / "two")
    write(tmp_path / "two", DATA)
    assert (tmp_path / "real" / "file").read_bytes() == DATA
    assert (tmp_path / "one").is_symlink()
    assert (tmp_path / "two").is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "one", "real", "two"]


@pytest.mark.parametrize("write", WAYS)
def test_a_pipe_is_written_through(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        seen: list[bytes] = []
        reader = threading.Thread(target=lambda seen=seen: seen.append((tmp_path / "pipe").read_bytes()), daemon=True)
        check_writable(tmp_path / name)  # must not be the writer that the reader waits for
        reader.start()
        write(tmp_path / name, DATA)
        reader.join(30)
        assert seen == [DATA]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("write", WAYS)
def test_a_device_stays_a_device(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    before = Path("/dev/null").stat()
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "full").symlink_to("/dev/full")
    check_writable(Path("/dev/null"))
    write(tmp_path / "null", DATA)
    write_output("/dev/null", DATA, mode=0o600)
    after = Path("/dev/null").stat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    with pytest.raises(OutputError, match="No space left"):
        write(tmp_path / "full", DATA)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("write", WAYS)
def test_what_takes_no_results_is_refused(tmp_path: Path, write: Callable[[Path, bytes], None]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    (tmp_path / "astray").symlink_to("missing/file")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("folder", "to-folder", "loop", "socket", "astray", "x" * 300):
            for attempt in (check_writable, lambda path: write(path, DATA)):
                with pytest.raises(OutputError, match="cannot be written"):
                    attempt(tmp_path / name)
        with pytest.raises(OutputError, match="Not a directory"):
            write_output(tmp_path / "file" / "x", DATA)
    names = {"folder", "to-folder", "loop", "file", "astray", "socket"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_names_of_our_own_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"another user's")
    (tmp_path / "name").symlink_to("secret")
    replace_file(tmp_path / "name", DATA, mode=0o600)
    assert (tmp_path / "secret").read_bytes() == b"another user's"
    assert not (tmp_path / "name").is_symlink()
    assert stat.S_IMODE((tmp_path / "name").stat().st_mode) == 0o600


def test_permissions_are_those_that_were_wanted_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_output(tmp_path / "for-all", DATA, mode=0o644)
        write_output(tmp_path / "usual", DATA)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("for-all", "usual")] == [0o644, 0o600]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_standard_output_is_written_through_wherever_it_goes(tmp_path: Path, name: str, kind: str) -> None:
    """A file that a shell opened keeps what is printed before and after."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = (
        "import sys; from pathlib import Path; from perseus_dist.planning.output_file import *\n"
        "path = Path(sys.argv[1]); print('before', flush=True)\n"
        "check_writable(path); write_output(path, b'result\\n'); print('after')"
    )
    command = [sys.executable, "-c", program, name]
    with (tmp_path / "out").open("wb") as out:
        target = out if kind == "file" else subprocess.PIPE
        done = subprocess.run(command, cwd=tmp_path, stdout=target, timeout=60, check=True)
    said = (tmp_path / "out").read_bytes() if kind == "file" else done.stdout
    assert said == b"before\nresult\nafter\n"
