"""Boundaries as the agent takes them: in the order in which they are passed, each with the time of its passing."""

import os
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from perseus_dist.boundaries.agent_status import AgentStatus
from perseus_dist.boundaries.record import Boundary, Event
from perseus_dist.boundaries.ring import RingReader

_PASSED_AT_ONCE = (Event.TIMING, Event.CLOSE, Event.WORK)


class TimedBoundary(NamedTuple):
    """A boundary that was passed.

    Attributes:
        time_ns: [ns] CLOCK_MONOTONIC. In host order when the trainer wrote it; in device order when ``read`` saw that
            the device had passed it, late by the polling.
    """

    boundary: Boundary
    time_ns: int


class BoundaryReader:
    """Reads one trainer's boundaries.

    Args:
        ring_fd: Of the memory.
        doorbell_fd: Of the eventfd.
        from_now: Pass over what was written before, all but the newest: another agent has read it.

    Attributes:
        doorbell_fileno: Readable once records were written, unless ``set_watched`` said that none is needed. ``read``
            silences it.

    Raises:
        RingFormatError: The memory is not a ring of this version.
        OSError: The descriptor cannot be mapped.
    """

    def __init__(self, ring_fd: int, doorbell_fd: int, *, from_now: bool = False) -> None:
        self._ring = RingReader(ring_fd, from_now=from_now)
        self._waiting: deque[Boundary] = deque()
        self._glance = b""  # at the last ``read``
        self.doorbell_fileno = doorbell_fd

    @property
    def device_ordered(self) -> bool:
        """Whether boundaries are passed when the device reaches them. Changes at most once each way."""
        return self._ring.is_device_ordered

    @property
    def pending(self) -> int:
        """Boundaries recorded by the trainer that the device has not reached, as of the last ``read``."""
        return len(self._waiting)

    @property
    def lost(self) -> int:
        """Boundaries that never arrive: overwritten before they were read, or refused by the hook."""
        return self._ring.lost

    def set_watched(self, is_watched: bool) -> None:  # noqa: FBT001 - reads as an assignment
        """Promise to ``read`` every few milliseconds, which spares the trainer the doorbell, or take it back.

        After taking it back, ``read`` once before sleeping.
        """
        self._ring.set_watched(is_watched)

    def set_status(self, status: AgentStatus) -> None:
        """Set what ``Hook.status`` returns from now on."""
        self._ring.set_status(status)

    def has_news(self) -> bool:
        """Whether ``read`` may find something; a look at a few words, at a small part of what ``read`` costs."""
        return self._ring.is_behind or self._ring.glance() != self._glance

    def read(self, now_ns: int) -> list[TimedBoundary]:
        """Boundaries passed since the last call, oldest first. Never blocks.

        While ``pending``, read again every few milliseconds: the device does not ring.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self.doorbell_fileno)
        self._glance = self._ring.glance()
        # Once order changes to the host's, what the device will never confirm is let go.
        device_ordered = self.device_ordered
        reached = self._ring.reached if device_ordered else 0
        self._waiting.extend(self._ring.read())
        passed: list[TimedBoundary] = []
        while self._waiting:
            boundary = self._waiting[0]
            is_host_timed = not device_ordered or boundary.event in _PASSED_AT_ONCE
            if not is_host_timed and boundary.sequence > reached:
                break
            passed.append(TimedBoundary(boundary, boundary.host_ns if is_host_timed else now_ns))
            self._waiting.popleft()
        return passed

    def close(self) -> None:
        """Unmap the memory; the descriptors stay the caller's."""
        self._ring.close()
