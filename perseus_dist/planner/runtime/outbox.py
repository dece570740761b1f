"""Messages waiting to be sent to one agent: bounded, in order, never in the way of other agents."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

MAX_WAITING = 64
"""Messages. Tables are shared between ranks, so that a count bounds the memory too."""

WRITE_TIMEOUT_S = 30.0
LARGE_BYTES = 256 << 10
MAX_LARGE_WRITES = 4
"""Large messages on their way at a time, of all streams: gRPC copies each, and small ones are to overtake them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the planner ends a stream.

    Attributes:
        reason: A sentence.
        orderly: Whether what waits is still sent; its last message says all, and the status is OK.
        owner: Address of the replica that has the job from now on; empty where that is not known.
        may_return: Whether this planner may have the job again within seconds.
    """

    reason: str
    orderly: bool = False
    owner: str = ""
    may_return: bool = False


class AgentOutbox(Protocol):
    """The sending side of one agent's stream."""

    def put(self, encoded: bytes) -> None:
        """Send this after what waits already. An agent that does not keep up is cut off: it attaches again."""

    def end(self, ending: Ending) -> None:
        """End the stream: an orderly end after what waits, any other at once."""

    def close(self) -> None:
        """The stream is over: forget what waits."""


class Outbox:
    """The sending side of one stream. Its task lives only while there is something to send."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        interrupt: Callable[[], object],
        large_writes: asyncio.Semaphore,
    ) -> None:
        """Begin.

        Args:
            write: Sends one message.
            interrupt: Called once, when the planner ends the stream and all that was to be sent has been.
            large_writes: Shared by all streams.
        """
        self._write = write
        self._interrupt = interrupt
        self._large_writes = large_writes
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.ending: Ending | None = None

    def put(self, encoded: bytes) -> None:
        """Send this after what waits already. An agent that does not keep up is cut off: it attaches again."""
        if self._closed or self.ending is not None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.end(Ending(reason=f"{MAX_WAITING} messages were waiting for this agent, which did not read them"))
            return
        self._waiting.append(encoded)
        if self._task is None:
            self._begin()

    def end(self, ending: Ending) -> None:
        """End the stream: an orderly end after what waits, any other at once."""
        if self._closed or self.ending is not None:
            return
        self.ending = ending
        if self._task is None:
            self._interrupt()
        elif not ending.orderly:
            self._waiting.clear()
            self._task.cancel()

    def close(self) -> None:
        """The stream is over: forget what waits."""
        self._closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._drain())
        self._task.add_done_callback(self._drained)

    def _drained(self, _: asyncio.Task[None]) -> None:
        """The task is over; it never ran where the stream was ended in the same turn of the event loop."""
        self._task = None
        if self._closed:
            self._waiting.clear()
        elif self._waiting:
            self._begin()
        elif self.ending is not None:
            self._interrupt()

    async def _drain(self) -> None:
        try:
            while self._waiting:
                encoded = self._waiting.popleft()
                if len(encoded) < LARGE_BYTES:
                    await self._send(encoded)
                else:
                    async with self._large_writes:
                        await self._send(encoded)
        except TimeoutError:
            self.ending = Ending(reason=f"the agent has read nothing for {WRITE_TIMEOUT_S:g} s")
            self._waiting.clear()
        except Exception:  # the stream is dead, and gRPC tells its handler
            self._closed = True

    async def _send(self, encoded: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._write(encoded)
