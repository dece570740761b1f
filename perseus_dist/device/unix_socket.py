"""Addresses of UNIX sockets in folders with long names: under Slurm, CI runners and pytest TMPDIR often is one."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_BYTES = 107  # unix(7): sun_path has 108, with the zero at its end
_LONGEST_NAME_BYTES = 80


@contextmanager
def unix_address(path: str | Path) -> Iterator[str]:
    """An address to bind or connect to for the socket at a path of any length, valid while the block runs.

    Raises:
        OSError: The path is too long, and its folder cannot be opened; or the last part of it alone is too long.
    """
    if len(os.fsencode(path)) <= _LONGEST_BYTES:
        yield str(path)
        return
    if len(os.fsencode(Path(path).name)) > _LONGEST_NAME_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{Path(path).name}"
    finally:
        os.close(folder)
