"""Messages that wait for the ranks behind one node relay: put together, so that one to many ranks travels once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator

import grpc

from perseus_dist.planner.runtime.outbox import LARGE_BYTES, MAX_WAITING, WRITE_TIMEOUT_S, Ending
from perseus_dist.rpc.limits import MAX_FRAMING_BYTES, MAX_PLANNER_MESSAGE_BYTES
from perseus_dist.rpc.node_wire import Ended, NodeReplyFrame, encode_node_reply

_MOST_BYTES = MAX_PLANNER_MESSAGE_BYTES - MAX_FRAMING_BYTES


class ReplyBatch:
    """Frames that wait, in order on each channel. Pure.

    A message joins the frame that holds it already, unless that would bring it before another of the same channel.
    """

    def __init__(self) -> None:
        self._frames: list[tuple[list[int], bytes | Ended]] = []
        self._index_of: dict[bytes | Ended, int] = {}
        self._last_of: dict[int, int] = {}  # by channel, index of its newest frame
        self._num_waiting: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._frames)

    def num_waiting(self, channel: int) -> int:
        """How many frames wait for a channel."""
        return self._num_waiting[channel]

    def add(self, channel: int, frame: bytes | Ended) -> None:
        """Put a frame behind what waits for its channel."""
        index = self._index_of.get(frame, -1)
        if index <= self._last_of.get(channel, -1):
            index = self._index_of[frame] = len(self._frames)
            self._frames.append(([], frame))
        self._frames[index][0].append(channel)
        self._last_of[channel] = index
        self._num_waiting[channel] += 1

    def drop(self, channel: int) -> None:
        """Forget what waits for a channel."""
        if self._num_waiting.pop(channel, 0):
            for channels, _ in self._frames:
                if channel in channels:
                    channels.remove(channel)

    def take(self) -> list[NodeReplyFrame]:
        """All frames that wait, which wait no more."""
        frames: list[NodeReplyFrame] = [(tuple(channels), frame) for channels, frame in self._frames if channels]
        self._frames, self._index_of, self._last_of, self._num_waiting = [], {}, {}, Counter()
        return frames


class NodeOutbox:
    """The sending side of a node stream. Its task lives only while there is something to send.

    Args:
        write: Sends one message.
        fail: Called once, with a sentence, when the relay does not read.
        large_writes: Shared by all streams.
    """

    def __init__(
        self, write: Callable[[bytes], Awaitable[None]], fail: Callable[[str], object], large_writes: asyncio.Semaphore
    ) -> None:
        self._write = write
        self._fail = fail
        self._large_writes = large_writes
        self._batch = ReplyBatch()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, channel: int, frame: bytes | Ended) -> None:
        """Send this after what waits for the channel already."""
        if self._closed:
            return
        self._batch.add(channel, frame)
        if self._task is None:
            self._task = asyncio.create_task(self._drain())

    def drop(self, channel: int) -> None:
        """Forget what waits for a channel."""
        self._batch.drop(channel)

    def is_full(self, channel: int) -> bool:
        """Whether so much waits for a channel that its agent cannot be reading."""
        return self._batch.num_waiting(channel) >= MAX_WAITING

    async def flush(self) -> None:
        """Wait until all that waits has been sent, or cannot be."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def close(self) -> None:
        """The stream is over: forget what waits."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def _drain(self) -> None:
        try:
            while self._batch:
                for part in split(self._batch.take(), _MOST_BYTES):
                    encoded = encode_node_reply(part)
                    if len(encoded) < LARGE_BYTES:
                        await self._send(encoded)
                    else:
                        async with self._large_writes:
                            await self._send(encoded)
        except TimeoutError:
            self._closed = True
            self._fail(f"the node relay has read nothing for {WRITE_TIMEOUT_S:g} s")
        except Exception:  # the stream is dead, and gRPC tells its handler
            self._closed = True
        finally:
            self._task = None

    async def _send(self, encoded: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._write(encoded)


class ChannelOutbox:
    """The sending side of one agent's channel.

    Args:
        node: Of its node stream.
        channel: Its number.
        interrupt: Called once, soon, when the planner ends the channel.
    """

    __slots__ = ("_channel", "_interrupt", "_is_over", "_node")

    def __init__(self, node: NodeOutbox, channel: int, interrupt: Callable[[], object]) -> None:
        self._node = node
        self._channel = channel
        self._interrupt = interrupt
        self._is_over = False

    def put(self, encoded: bytes) -> None:
        """As ``AgentOutbox``; what the wire cannot carry ends the channel, and its agent takes a stream of its own."""
        if self._is_over:
            return
        if self._node.is_full(self._channel):
            self.end(Ending(reason=f"{MAX_WAITING} messages were waiting for this agent, which did not read them"))
        elif len(encoded) > _MOST_BYTES:
            self.end(Ending(reason=f"{len(encoded)} bytes are too many for a node stream; attach without a node relay"))
        else:
            self._node.add(self._channel, encoded)

    def end(self, ending: Ending) -> None:
        """As ``AgentOutbox``."""
        if ending.orderly:
            self.refuse(grpc.StatusCode.OK, "", keeps_waiting=True)
        elif ending.owner:
            self.refuse(grpc.StatusCode.FAILED_PRECONDITION, ending.reason, owner=ending.owner)
        else:
            self.refuse(grpc.StatusCode.UNAVAILABLE, ending.reason)

    def refuse(self, code: grpc.StatusCode, reason: str, *, keeps_waiting: bool = False, owner: str = "") -> None:
        """End the channel with a status, or for another replica; what waits goes before it if it is kept."""
        if self._is_over:
            return
        self._is_over = True
        if not keeps_waiting:
            self._node.drop(self._channel)
        self._node.add(self._channel, Ended(code.value[0], reason, owner))
        asyncio.get_running_loop().call_soon(self._interrupt)  # not while the job is at work

    def close(self) -> None:
        """As ``AgentOutbox``."""
        if not self._is_over:
            self._is_over = True
            self._node.drop(self._channel)


def split(frames: Iterable[NodeReplyFrame], max_bytes: int) -> Iterator[list[NodeReplyFrame]]:
    """Frames in parts, in order, whose messages are so long together at most; a longer one stands alone."""
    part: list[NodeReplyFrame] = []
    num_bytes = 0
    for frame in frames:
        size = MAX_FRAMING_BYTES + 5 * len(frame[0]) + (len(frame[1]) if isinstance(frame[1], bytes) else 0)
        if part and num_bytes + size > max_bytes:
            yield part
            part, num_bytes = [], 0
        part.append(frame)
        num_bytes += size
    if part:
        yield part
