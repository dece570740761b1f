"""The relay's stream to the planner, opened again and again, and the channels on it."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress

import grpc
import grpc.aio

from perseus_dist.errors import PerseusError
from perseus_dist.relay.uplink_batch import UplinkBatch
from perseus_dist.rpc.connection import CHANNEL_OPTIONS, NODE_STREAM, ClientTls, channel_credentials
from perseus_dist.rpc.node_wire import (
    NO_CHANNEL,
    Closed,
    Ended,
    NodeHello,
    Opened,
    decode_node_reply,
    encode_node_message,
)
from perseus_dist.rpc.violations import InvalidMessageError

MAX_WAITING_BYTES = 32 << 20
"""For the planner; a stream that does not take them is taken for dead."""

MAX_WAITING = 128
"""Messages for one agent, which does not read them."""

_READY_S = 3.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 1.5
_IDLE_S = 10.0  # without agents and without a hello, before the stream is ended
_REOPEN_S = (15.0, 45.0)  # without agents: a planner that refuses or is gone is asked rarely, and not by all at once
_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]

_log = logging.getLogger(__name__)


class UplinkChannel:
    """One agent's part of the stream to the planner.

    Args:
        send: Sends a frame on it.
        received: Messages of the planner, and the end at last.
    """

    def __init__(self, send: Callable[[bytes | Closed], None], received: "asyncio.Queue[bytes | Ended]") -> None:
        self.send = send
        self.received = received


class Uplink:
    """Keeps one stream to the planner open.

    Args:
        address: Of the planner.
        tls: Files for TLS; None for plain text.

    Attributes:
        trouble: Why there is no stream, in a sentence; empty while there is one.
    """

    def __init__(self, address: str, tls: ClientTls | None) -> None:
        self._address = address
        self._tls = tls
        self._batch = UplinkBatch()
        self._channels: dict[int, asyncio.Queue[bytes | Ended]] = {}
        self._last_number = 0
        self._hello: NodeHello | None = None
        self._num_asking = 0
        self._is_wanted = asyncio.Event()
        self._is_open = asyncio.Event()
        self._has_frames = asyncio.Event()
        self._call: grpc.aio.StreamStreamCall[bytes, bytes] | None = None
        self.trouble = "no stream has been opened yet"

    async def wait_open(self, timeout_s: float) -> bool:
        """Ask for a stream; whether there is one in time."""
        self._is_wanted.set()
        self._num_asking += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._is_open.wait()
        finally:
            self._num_asking -= 1
        return self._is_open.is_set()

    def announce(self, hello: NodeHello) -> None:
        """Say to the planner, now and on each new stream, which node this is; a stream is kept from now on."""
        if self._hello is None:
            self._is_wanted.set()
        if hello != self._hello:
            self._hello = hello
            self._has_frames.set()

    def open(self, token: str) -> UplinkChannel:
        """Begin an agent's channel on the stream that is open."""
        self._last_number += 1
        number = self._last_number
        received: asyncio.Queue[bytes | Ended] = asyncio.Queue()
        self._channels[number] = received
        self._add(number, Opened(token))

        def send(frame: bytes | Closed) -> None:
            if self._channels.get(number) is received:
                self._add(number, frame)
                if isinstance(frame, Closed):
                    del self._channels[number]

        return UplinkChannel(send, received)

    async def run(self) -> None:
        """Keep a stream to the planner open, until cancelled."""
        delay_s = _FIRST_DELAY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(*_REOPEN_S) if self._hello else None):
                    await self._is_wanted.wait()
            began_s = time.monotonic()
            try:
                trouble = await self._connect()
            except PerseusError as error:  # a certificate that cannot be read, perhaps not yet
                trouble = str(error)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, InvalidMessageError, OSError, ValueError) as error:
                details = error.details() if isinstance(error, grpc.aio.AioRpcError) else None
                trouble = details or str(error) or type(error).__name__
            self._end_all(trouble)
            if trouble and self.trouble != trouble:
                _log.warning("planner at %s: %s; trying again", self._address, trouble)
            self.trouble = trouble
            if self._hello is not None and not self._num_asking:
                self._is_wanted.clear()
            delay_s = _FIRST_DELAY_S if time.monotonic() - began_s > _LONGEST_DELAY_S else delay_s
            if trouble:
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    def _add(self, number: int, frame: Opened | bytes | Closed) -> None:
        self._batch.add(number, frame, time.monotonic())
        self._has_frames.set()
        if self._batch.num_bytes > MAX_WAITING_BYTES and self._call is not None:
            self._call.cancel()

    async def _connect(self) -> str:
        """One stream from its begin to its end.

        Returns:
            Why it ended; empty if it was not needed any more.
        """
        async with self._channel() as channel:
            ready = asyncio.ensure_future(channel.channel_ready())
            await asyncio.wait({ready}, timeout=_READY_S)
            if not ready.done():
                ready.cancel()
                self._is_wanted.clear()  # until the next agent asks
                return "it cannot be reached"
            call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(NODE_STREAM)()
            await call.initial_metadata()  # the planner sends it at once
            self._batch = UplinkBatch(time.time() - time.monotonic())
            self._has_frames.clear()
            self._last_number = 0
            self.trouble = ""
            self._call = call
            self._is_open.set()
            _log.info("the stream to the planner at %s is open", self._address)
            writer = asyncio.create_task(self._write(call))
            reader = asyncio.create_task(self._read(call))
            try:
                await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
                self._is_open.clear()
                for task in (writer, reader):
                    if task.done():
                        task.result()
                return "" if writer.done() or not self._channels else "it has ended the stream"
            finally:
                self._is_open.clear()
                for task in (writer, reader):
                    task.cancel()
                await asyncio.gather(writer, reader, return_exceptions=True)
                call.cancel()

    def _channel(self) -> grpc.aio.Channel:
        options = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))  # benchmarks have many in a process
        if self._tls is None:
            return grpc.aio.insecure_channel(self._address, options=options)
        return grpc.aio.secure_channel(self._address, channel_credentials(self._tls), options=options)

    async def _write(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        """Until no agent has been there for a while, on a node that is not announced."""
        said: NodeHello | None = None
        while True:
            if self._hello is not None and self._hello is not said:
                said = self._hello
                await call.write(encode_node_message([(NO_CHANNEL, said)]))
            due_s = self._batch.due_s
            now_s = time.monotonic()
            if due_s is not None and due_s <= now_s:
                for part in self._batch.take():
                    await call.write(encode_node_message(part))
                continue
            self._has_frames.clear()
            is_kept = self._channels or self._hello is not None
            wait_s = due_s - now_s if due_s is not None else None if is_kept else _IDLE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_frames.wait()
                continue
            if due_s is None and not self._channels and self._hello is None:
                self._is_open.clear()
                self._is_wanted.clear()
                await call.done_writing()
                return

    async def _read(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        async for data in call:
            for numbers, frame in decode_node_reply(data):
                for number in numbers:
                    received = self._channels.get(number)
                    if received is None:  # the agent has gone meanwhile
                        continue
                    own = frame  # the others that it is for may read
                    if received.qsize() >= MAX_WAITING:
                        self._add(number, Closed())
                        own = Ended(_UNAVAILABLE, f"{MAX_WAITING} messages waited for this agent")
                    received.put_nowait(own)
                    if isinstance(own, Ended):
                        del self._channels[number]

    def _end_all(self, trouble: str) -> None:
        channels, self._channels = self._channels, {}
        for received in channels.values():
            received.put_nowait(Ended(_UNAVAILABLE, trouble or "the stream was not needed"))
