"""Result files that appear whole or not at all, and other places that results may be written to.

``write_output`` writes to a place that a person has named, and alone decides what is done with what is there: bytes go
into a character device, a pipe or a descriptor of this process (``/dev/stdout``), the file that a symbolic link leads
to is replaced, and a folder, a socket or a disk is refused. ``replace_file`` is for names of our own in a folder: it
follows no link, which another user may have put there.
"""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perseus_dist.errors import NoRoomError, OutputError

_MAX_LINKS = 40
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LONGEST_LOCKED_S = 2.0


def check_writable(path: Path) -> None:
    """Refuse a place that ``write_output`` could not write to, before anything is done for it.

    Raises:
        OutputError: As ``write_output``.
    """
    with _refusing(path):
        file = _file_to_replace(path)
        if file is not None:
            temporary = _temporary(file)
            os.close(_create(temporary, None))
            temporary.unlink()
        elif _own_descriptor(path) is None and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_output(path: str | os.PathLike[str], data: bytes, *, mode: int | None = None) -> None:
    """Write to a place that a person has named.

    Args:
        path: What is there decides what is done, as above.
        data: A file has all of it or stays as it was.
        mode: Permissions of a file, from its first moment on; None for those of any new file.

    Raises:
        OutputError: The folder is missing or cannot be written to, or something is there that takes no results.
    """
    target = Path(path)
    with _refusing(target):
        file = _file_to_replace(target)
        if file is None:
            _pour(target, data)
        else:
            _replace(file, data, mode)


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file under a name of our own, in place of whatever but a folder is there; links are not followed.

    Args:
        path: Of the file.
        data: The file has all of it or stays as it was.
        mode: Permissions, from its first moment on; None for those of any new file.

    Raises:
        OutputError: The folder is missing or cannot be written to, or the path is a folder.
    """
    with _refusing(path):
        _replace(path, data, mode)


def remove_file(path: Path) -> None:
    """Remove a file under a name of our own, if one is there; links are not followed.

    Raises:
        OutputError: The folder cannot be written to, or the path is a folder.
    """
    with _refusing(path):
        path.unlink(missing_ok=True)


def move_output(staged: Path, path: Path) -> None:
    """Move a file that is written to where a person wants it, as ``write_output`` would have written it there.

    Raises:
        OutputError: As ``write_output``.
    """
    with _refusing(path):
        file = _file_to_replace(path)
        if file is None:
            _pour(path, staged.read_bytes())
        elif file.parent.samefile(path.parent):
            staged.replace(file)
        else:  # a link leads elsewhere, maybe to another file system
            _replace(file, staged.read_bytes(), None)


def no_folder_in(path: Path) -> Path | None:
    """The part of the path that exists and is no folder, which prevents making the folder; None if none does."""
    for place in (path, *path.parents):
        if os.path.lexists(place):
            return None if os.path.isdir(place) else place  # noqa: PTH112 - Path.is_dir raises where it may not look
    return None


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Have processes that compare a file in a folder with another, and then replace it, take turns.

    Goes on without where the file system has no locks, or another process holds this one for 2 s.

    Raises:
        OSError: The folder cannot be opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until_s = time.monotonic() + _LONGEST_LOCKED_S
        while not _is_locked(descriptor) and time.monotonic() < until_s:
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoomError(f"{path}: cannot be written ({error.strerror}); make room there") from error
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); expected a file name in an existing, writable folder"
        ) from error


def _file_to_replace(path: Path) -> Path | None:
    """The file behind links, whether it is there or not; None for what bytes are poured into.

    Raises:
        OSError: What is there takes no results, or cannot be looked at.
    """
    if _own_descriptor(path) is not None:
        return None
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # also a link to a file that is to come
        return Path(os.path.realpath(path))
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Is a socket or a disk")
    return Path(os.path.realpath(path))


def _own_descriptor(path: Path) -> int | None:
    """The number that ``/dev/stdout``, ``/dev/fd/N`` or a link to them names; None for all other paths.

    A file that a shell has opened for us must not be replaced: what is printed would go to the one of before.
    """
    own = os.path.realpath("/proc/self/fd")
    for _ in range(_MAX_LINKS):
        if path.name.isdecimal() and os.path.realpath(path.parent) == own:
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _pour(path: Path, data: bytes) -> None:
    number = _own_descriptor(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC) if number is None else os.dup(number)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _replace(file: Path, data: bytes, mode: int | None) -> None:
    temporary = _temporary(file)
    try:
        with os.fdopen(_create(temporary, mode), "wb") as opened:
            opened.write(data)
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _create(temporary: Path, mode: int | None) -> int:
    """A descriptor of a file that was not there before."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    if mode is not None:
        os.fchmod(descriptor, mode)  # whatever the umask is
    return descriptor


def _temporary(file: Path) -> Path:
    """A name that no other process uses: in a folder that nodes or containers share, one there may have our number."""
    return file.with_name(f".{file.name}.{os.getpid()}{int.from_bytes(os.urandom(4)):010}.tmp")
