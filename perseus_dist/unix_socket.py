"""UNIX sockets of services: addresses in folders with long names, what a killed service left, and who may connect.

Under Slurm, CI runners and pytest TMPDIR often is a folder with a long name.
"""

import errno
import grp
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_ADDRESS_BYTES = 107  # unix(7): sun_path has 108, with the zero at its end

_LONGEST_NAME_BYTES = 80
_MAX_GROUP_ID = 2**32 - 2  # all ones says "unchanged" to chown(2)
_PROBE_S = 1.0


@contextmanager
def unix_address(path: str | Path) -> Iterator[str]:
    """An address to bind or connect to for the socket at a path of any length, valid while the block runs.

    Raises:
        OSError: The path is too long, and its folder cannot be opened; or the last part of it alone is too long.
    """
    if len(os.fsencode(path)) <= LONGEST_ADDRESS_BYTES:
        yield str(path)
        return
    if len(os.fsencode(Path(path).name)) > _LONGEST_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{Path(path).name}"
    finally:
        os.close(folder)


def is_socket_taken(path: Path) -> bool:
    """Whether a process listens at a path, whatever program it is. A socket that refuses connections is removed.

    Raises:
        FileExistsError: Something else than a socket is there; it stays.
        OSError: The path cannot be looked at, or a socket of another type than a stream is there.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "something else than a socket is there", str(path))
        with socket.socket(socket.AF_UNIX) as probe, unix_address(path) as address:
            probe.settimeout(_PROBE_S)
            probe.connect(address)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return False
    except (BlockingIOError, TimeoutError):  # its queue is full
        return True
    return True


def group_number(group: str) -> int:
    """A group by name, else by number, as chown(1) has it: an image need not know the names of a node's groups.

    Raises:
        KeyError: There is no group of that name, and it is no number of a group.
    """
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        is_short = len(group) <= len(str(_MAX_GROUP_ID))
        if not (is_short and group.isascii() and group.isdecimal() and int(group) <= _MAX_GROUP_ID):
            raise
        return int(group)
