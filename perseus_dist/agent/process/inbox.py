"""Messages from other threads to the main one, in order."""

import os
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Many threads put, one takes; ``fileno`` is readable while something waits."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Descriptor that a selector finds readable while items wait."""
        return self._bell

    def put(self, item: T) -> None:
        """Never blocks; also fit for signal handlers."""
        self._waiting.append(item)
        with suppress(BlockingIOError):  # it rings already
            os.eventfd_write(self._bell, 1)

    def take(self) -> list[T]:
        """Remove and return all items that wait, oldest first, without blocking."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        items = []
        while self._waiting:
            items.append(self._waiting.popleft())
        return items
