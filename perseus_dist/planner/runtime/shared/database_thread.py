"""Calls that wait for the database, beside the event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Call = Callable[..., Awaitable[Any]]
"""Runs a function that waits for the database, with its arguments, behind those before."""


class DatabaseThread:
    """Runs calls one after the other in a thread of its own, those included whose caller has left.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)

    async def __call__(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Run a call behind those before, and give its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: function(*arguments))

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """End behind the calls that are under way, with a last one; none may follow."""
        self._thread.submit(last)
        self._thread.shutdown(wait=False)
