"""Changes that operators have asked for: they go on when their callers leave."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class ChangesUnderWay:
    """Tasks that are kept until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def make(self, change: Coroutine[Any, Any, None]) -> None:
        """Make a change; a caller who is cancelled meanwhile stops nothing of it."""
        making = asyncio.create_task(change)
        self._tasks.add(making)
        making.add_done_callback(self._end)
        await asyncio.shield(making)

    def _end(self, making: "asyncio.Task[None]") -> None:
        self._tasks.discard(making)
        if not making.cancelled():
            making.exception()  # of a caller who has left: seen
