"""Descriptors that no standard stream can be taken for."""

import fcntl
import os

_LEAST = 3


def above_standard(fd: int) -> int:
    """The descriptor, or a copy in its place where it has the number of a standard stream that the trainer has closed.

    What anything writes to that stream would land in it, and the agent has streams of its own there.

    Raises:
        OSError: No copy could be made; the descriptor is closed.
    """
    if fd >= _LEAST:
        return fd
    try:
        return copy_above_standard(fd)
    finally:
        os.close(fd)


def copy_above_standard(fd: int) -> int:
    """As ``os.dup``, with the number of no standard stream."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LEAST)
