"""Calls to replicas in virtual time: the real service's handlers, with messages that take time, stall and are lost."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import grpc
from google.protobuf.message_factory import GetMessageClass
from virtual_loop import VirtualLoop, World

from perseus_dist.rpc.connection import SERVICE
from perseus_dist.rpc.v1 import planner_pb2 as pb

KEEPALIVE_S = 10.0
"""How long a connection may be silent until both sides take it for broken."""

LONGEST_WAY_S = 0.02
_METHODS = pb.DESCRIPTOR.services_by_name["Planner"].methods_by_name
_LOST = grpc.StatusCode.UNAVAILABLE, "the connection is lost", ()

Status = tuple[grpc.StatusCode, str, Sequence[tuple[str, str]]]


class Process(Protocol):
    """A replica that may be called."""

    loop: VirtualLoop
    handler: grpc.GenericRpcHandler | None


class Network:
    """Connections between clients and replicas.

    Attributes:
        processes: By address; one that has no handler refuses connections.
        cut: Addresses that no message comes from or goes to.
    """

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.processes: dict[str, Process] = {}
        self.cut: set[str] = set()
        self.calls: dict[Call, None] = {}

    def is_silent(self, address: str) -> bool:
        """Whether messages to a replica are not answered for now."""
        return address in self.cut or self.processes[address].loop.is_stopped

    def heal(self, address: str) -> None:
        """Messages that waited go on."""
        self.cut.discard(address)
        for call in list(self.calls):
            if call.address == address:
                call.up.release()
                call.down.release()

    def break_all(self, address: str) -> None:
        """A process has ended: the kernel closes its connections."""
        for call in [call for call in self.calls if call.address == address]:
            call.end_client(_LOST)

    def stub(self, loop: VirtualLoop, address: str) -> "VirtualStub":
        """Of operators."""
        return VirtualStub(self, loop, address)


class Pipe:
    """Messages one way, in order; those on a link that is cut wait."""

    def __init__(self, network: Network, address: str, loop: Callable[[], VirtualLoop]) -> None:
        self._network = network
        self._address = address
        self._loop = loop
        self._free_s = 0.0
        self._held: list[Callable[[], object]] = []

    def send(self, deliver: Callable[[], object]) -> None:
        """Have something done at the other side."""
        world = self._network.world
        at_s = max(self._free_s, world.now_s + self._network.chance.uniform(0.0, LONGEST_WAY_S))
        self._free_s = at_s
        world.after(at_s - world.now_s, partial(self._arrive, deliver))

    def _arrive(self, deliver: Callable[[], object]) -> None:
        if self._address in self._network.cut or self._held:
            self._held.append(deliver)
        else:
            self._loop().call_soon_threadsafe(deliver)

    def release(self) -> None:
        held, self._held = self._held, []
        for deliver in held:
            self._loop().call_soon_threadsafe(deliver)


class Call:
    """One call: its client side, and the handler's task as the replica has begun it."""

    def __init__(
        self, network: Network, address: str, method: str, metadata: Sequence[tuple[str, str]], client: VirtualLoop
    ) -> None:
        self.address = address
        self.network = network
        self.process = network.processes[address]
        self.server_loop = self.process.loop
        self.client = client
        self.up = Pipe(network, address, lambda: self.server_loop)
        self.down = Pipe(network, address, lambda: self.client)
        self.context = Context(self, metadata)
        self.is_ready = asyncio.Event()
        self._method = method
        self._task: asyncio.Task[None] | None = None
        self._received: deque[bytes] = deque()
        self._status: Status | None = None
        self._news = asyncio.Event()
        self._heard_s = network.world.now_s
        network.calls[self] = None
        if self.process.handler is None or self.server_loop.is_dead:
            self.down.send(partial(self._ended, _LOST))
        else:
            self.up.send(self._begin)
            network.world.after(KEEPALIVE_S, self._look)

    # ---- the client's side -------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send a message; what is written to a call that has ended is lost."""
        if self._status is None:
            self.up.send(partial(self.context.arrive, data))

    async def read(self) -> bytes | None:
        """The next message; None at the end.

        Raises:
            AioRpcError: The call has ended with another status than OK.
        """
        while not self._received:
            if self._status is not None:
                code, reason, trailing = self._status
                if code is grpc.StatusCode.OK:
                    return None
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), reason)
            self._news.clear()
            await self._news.wait()
        return self._received.popleft()

    def cancel(self) -> None:
        """The client leaves."""
        self.end_client((grpc.StatusCode.CANCELLED, "cancelled", ()))

    def end_client(self, status: Status) -> None:
        """The connection is gone: each side learns of it by itself."""
        self.network.calls.pop(self, None)
        self.client.call_soon_threadsafe(self._ended, status)
        self.server_loop.call_soon_threadsafe(self._interrupt)

    def arrive(self, data: bytes) -> None:
        self._received.append(data)
        self._news.set()

    def _ended(self, status: Status) -> None:
        self.network.calls.pop(self, None)
        if self._status is None:
            self._status = status
        self.is_ready.set()
        self._news.set()

    def _look(self) -> None:
        """Keepalive: a connection to a replica that has been silent all the time is broken."""
        world = self.network.world
        if self not in self.network.calls:
            return
        if not self.network.is_silent(self.address):
            self._heard_s = world.now_s
        elif world.now_s - self._heard_s >= KEEPALIVE_S - 1e-6:
            self.end_client(_LOST)
            return
        world.after(1.0, self._look)

    # ---- the replica's side ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self not in self.network.calls:
            return
        if self.process.handler is None:
            self.down.send(partial(self._ended, _LOST))
            return
        self.down.send(self.is_ready.set)
        details = SimpleNamespace(method=f"/{SERVICE}/{self._method}", invocation_metadata=self.context.metadata)
        method: Any = self.process.handler.service(details)
        self._task = self.server_loop.create_task(self._handle(method))

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _handle(self, method: Any) -> None:
        status: Status = grpc.StatusCode.OK, "", ()
        try:
            if method.stream_stream is not None:
                await method.stream_stream(None, self.context)
            else:
                reply = await method.unary_unary(await self.context.read(), self.context)
                self.down.send(partial(self.arrive, reply))
        except grpc.aio.AbortError:
            assert self.context.status is not None
            status = self.context.status
        except asyncio.CancelledError:
            status = _LOST
        self.down.send(partial(self._ended, status))


class Context:
    """What the service's handlers use of ``grpc.aio.ServicerContext``."""

    def __init__(self, call: Call, metadata: Sequence[tuple[str, str]]) -> None:
        self.metadata = metadata
        self.status: Status | None = None
        self._call = call
        self._received: deque[bytes] = deque()
        self._news = asyncio.Event()

    def arrive(self, data: bytes) -> None:
        self._received.append(data)
        self._news.set()

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return self.metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return {}

    async def send_initial_metadata(self, _: object) -> None:
        await asyncio.sleep(0)

    async def read(self) -> bytes:
        while not self._received:
            self._news.clear()
            await self._news.wait()
        return self._received.popleft()

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self._call.down.send(partial(self._call.arrive, data))

    async def abort(self, code: grpc.StatusCode, reason: str, trailing: Sequence[tuple[str, str]] = ()) -> None:
        self.status = code, reason, trailing
        raise grpc.aio.AbortError(reason)


class VirtualStub:
    """Has those methods of ``PlannerStub`` that are answered once."""

    def __init__(self, network: Network, loop: VirtualLoop, address: str) -> None:
        self._network = network
        self._loop = loop
        self._address = address

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(self._call, method)

    async def _call(
        self, method: str, request: Any, *, timeout: float, metadata: Any = (), wait_for_ready: bool = False
    ) -> Any:
        until_s = self._loop.time() + timeout
        while True:
            call = Call(self._network, self._address, method, tuple(metadata), self._loop)
            call.write(request.SerializeToString())
            try:
                async with asyncio.timeout(timeout):
                    reply = await call.read()
            except TimeoutError:
                reason = "no answer in time"
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), reason
                ) from None
            except grpc.aio.AioRpcError:
                if not wait_for_ready or self._loop.time() > until_s:
                    raise
                await asyncio.sleep(0.2)
                continue
            finally:
                with suppress(KeyError):
                    if call in self._network.calls:
                        call.cancel()
            assert reply is not None
            return GetMessageClass(_METHODS[method].output_type).FromString(reply)
