"""A process that reads boundaries as an agent does, for ``hook_cost``: it looks often, or sleeps until the bell rings.

``python -m perseus_dist.measure.proof.ring_reader watch|sleep RING_FD DOORBELL_FD``
"""

import os
import select
import sys
import time

from perseus_dist.boundaries.reader import BoundaryReader

_POLL_S = 0.002


def read_boundaries(mode: str, ring_fd: int, doorbell_fd: int) -> None:
    """Read until the process that started this one has ended."""
    reader = BoundaryReader(ring_fd, doorbell_fd)
    reader.set_watched(mode == "watch")
    parent = os.getppid()
    while os.getppid() == parent:
        if mode == "watch":
            time.sleep(_POLL_S)
        else:
            select.select([doorbell_fd], [], [], 1.0)
        reader.read(time.monotonic_ns())


if __name__ == "__main__":
    read_boundaries(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
