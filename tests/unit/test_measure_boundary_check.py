"""When an end counts as seen, in ``perseus-dist measure``'s check of boundaries in device order."""

import os
import struct
import time

import pytest

from perseus_dist.boundaries.reader import TimedBoundary
from perseus_dist.boundaries.record import Event, encode_record
from perseus_dist.boundaries.ring import PROGRESS_OFFSET, RingWriter
from perseus_dist.measure.proof.boundary_check import _Seen


def test_a_look_that_is_held_up_sees_nothing_before_the_device_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ring, doorbell_fd = RingWriter(), os.eventfd(0, os.EFD_NONBLOCK)
    ring.set_device_ordered(True)
    ring.write(encode_record(1, Event.END, b"F", 0, 3, 2, time.monotonic_ns()))
    seen = _Seen(ring, doorbell_fd)
    read, reached_ns = seen.reader.read, []

    def held_up(now_ns: int) -> list[TimedBoundary]:
        """The device gets there once the reader has looked at its clock."""
        time.sleep(0.001)
        reached_ns.append(time.monotonic_ns())
        struct.pack_into("<I", ring.memory, PROGRESS_OFFSET, 1)
        return read(now_ns)

    seen.look()
    assert not seen.end_seen_ns
    monkeypatch.setattr(seen.reader, "read", held_up)
    seen.look()
    assert seen.end_seen_ns[2, 3] >= reached_ns[0]
    seen.reader.close()
    ring.close()
    os.close(doorbell_fd)
