"""The stream to the planner, in a thread of its own: opened again and again for as long as the agent lives.

main thread:  send() ---> outbox ---> asyncio + gRPC ---> planner, itself or by way of the node's relay
              inbox <--- Connected, Received, Disconnected, Unreachable; also what is seen of a watched job
"""

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.agent.link.job_watch import JobSeen, JobWatch, TableSeen
from perseus_dist.agent.link.planner_route import PlannerRoute
from perseus_dist.agent.link.relay_route import RelayRoute, why_not
from perseus_dist.agent.link.relayed import is_planner_gone, is_relay_back, owner_of_job, received, relay_metadata
from perseus_dist.errors import PerseusError
from perseus_dist.messages.from_agent import AgentMessage
from perseus_dist.messages.from_planner import Attached, PlannerMessage

if TYPE_CHECKING:
    import grpc
    import grpc.aio

    from perseus_dist.rpc.connection import ClientTls

_log = logging.getLogger(__name__)

_ANY_METHOD = "/grpc.health.v1.Health/Check"
_READY_S = 3.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 1.5
_LAST_WORD_S = 3.5
_LARGEST_OUTBOX = 512  # messages; a stream that does not take these is taken for dead


@dataclass(frozen=True, slots=True)
class PlannerAddress:
    """Where a planner listens, and the token that it wants; empty for none."""

    address: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """A stream is open."""


@dataclass(frozen=True, slots=True)
class Received:
    """The planner said something."""

    message: PlannerMessage


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream is gone."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """There is no stream, and why: a sentence, which is logged once until there was one."""

    reason: str


LinkEvent = Connected | Received | Disconnected | Unreachable | JobSeen | TableSeen


class PlannerLink(threading.Thread):
    """Moves messages. Never raises; every trouble is logged once until it is over.

    Args:
        find: The planner, each time anew; None while it is not known.
        tls: Files for TLS; None for plain text.
        tell: Called with every event, from this thread.
        watched_job: Whose status is passed on, too; None for none. At the end its last status is waited for.
        relay: Socket of the node's relay, which is used while it works; None for none.
    """

    def __init__(
        self,
        find: Callable[[], PlannerAddress | None],
        tls: "ClientTls | None",
        tell: Callable[[LinkEvent], None],
        *,
        watched_job: str | None = None,
        relay: str | None = None,
    ) -> None:
        super().__init__(name="planner link", daemon=True)
        self._find = find
        self._tls = tls
        self._tell = tell
        self._loop = asyncio.new_event_loop()
        self._outbox: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        self._leaving = asyncio.Event()
        self._watch = None if watched_job is None else JobWatch(watched_job, tell)
        self._is_trouble_told = False
        self._relay = relay
        self._route = RelayRoute()
        self._planners = PlannerRoute()
        self._is_relay_trouble_told = False

    def send(self, message: AgentMessage) -> None:
        """Send on the stream that is open; dropped if there is none."""
        self._call(self._outbox.put_nowait, message)

    def leave(self) -> None:
        """Send what is in the outbox, close the stream, and end the thread; ``join`` it.

        Where a job is watched, the thread goes on for some seconds, until all other ranks have left too.
        """
        self._call(self._outbox.put_nowait, None)
        self._call(self._leaving.set)

    def run(self) -> None:
        """Serve the connection to the planner in this thread, until ``leave``."""
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # what gRPC would print, we say ourselves
        try:
            self._loop.run_until_complete(self._keep_connected())
        except Exception:
            _log.exception("the link to the planner has failed; training goes on without")

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *arguments)

    async def _keep_connected(self) -> None:
        delays = _delays()
        while not self._leaving.is_set():
            try:
                if (planner := self._find()) is not None:
                    planner = replace(planner, address=self._planners.choose(planner.address))
                if planner is not None and self._relay_for(planner) is not None:
                    if await self._attach(planner, self._relay):
                        delays = _delays()
                    if not self._route.is_relayed(time.monotonic()):
                        continue  # at once, by the direct way
                elif planner is not None and await self._attach(planner):
                    delays = _delays()
                elif planner is not None:
                    self._route.note_no_direct_way()
                if self._planners.take_redirect():
                    continue
            except PerseusError as error:  # a token or certificate that cannot be read, perhaps not yet
                self._tell_trouble(str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(next(delays)):
                    await self._leaving.wait()

    def _relay_for(self, planner: PlannerAddress) -> str | None:
        """The relay's socket, if the next stream is to go by way of it."""
        now_s = time.monotonic()
        if self._relay is None or not self._planners.is_named or not self._route.is_relayed(now_s):
            return None  # a relay knows the planners that are named, and no other replica
        if why := why_not(Path(self._relay), has_token=bool(planner.token)):
            self._give_up_relay(why)
            return None
        return self._relay

    def _give_up_relay(self, why: str) -> None:
        self._route.note_failure(time.monotonic())
        if not self._is_relay_trouble_told and not self._leaving.is_set():
            self._is_relay_trouble_told = True
            _log.warning("node relay at %s: %s; the stream goes to the planner directly", self._relay, why)

    async def _attach(self, planner: PlannerAddress, relay: str | None = None) -> bool:
        """One stream from its begin to its end; whether the planner accepted it."""
        import grpc

        session = _Session(self._tell, self._outbox, is_relayed=relay is not None)
        is_planner_at_fault = relay is None
        try:
            async with self._channel(planner.address if relay is None else f"unix:{relay}") as channel:
                ready = asyncio.ensure_future(channel.channel_ready())
                leaving = asyncio.ensure_future(self._leaving.wait())
                await asyncio.wait({ready, leaving}, timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
                leaving.cancel()
                if not ready.done():
                    ready.cancel()
                    if relay is not None:
                        self._give_up_relay(f"it cannot be reached ({await _why(channel)})")
                    else:
                        self._planners.note_end()
                        if not self._is_trouble_told:
                            why = await _why(channel)
                            self._tell_trouble(f"planner at {planner.address} cannot be reached ({why})")
                    return False
                async with self._watching(channel, planner, session):
                    if relay is None:
                        await session.run(channel, planner.token, until=self._until_relay_is_back(planner))
                    else:
                        await session.run(channel, planner.token, planner=planner.address)
                reason, is_planner_at_fault = "ended the stream", True
        except grpc.aio.AioRpcError as error:
            if owner := owner_of_job(error):
                self._planners.note_redirect(owner)
                return False
            reason = error.details() or str(error.code())
            is_planner_at_fault |= is_planner_gone(error)
        except (asyncio.InvalidStateError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
        finally:
            self._tell(Disconnected())
        if relay is not None and session.was_accepted:
            self._route.note_accepted()
            self._is_relay_trouble_told = False
        if not is_planner_at_fault:
            self._give_up_relay(reason)
        elif not self._leaving.is_set() and not session.is_moving:
            self._planners.note_end()
            if relay is not None:
                self._route.note_planner_gone(time.monotonic())
            self._is_trouble_told = self._is_trouble_told and not session.was_accepted
            self._tell_trouble(f"planner at {planner.address}: {reason}")
        return session.was_accepted

    async def _until_relay_is_back(self, planner: PlannerAddress) -> None:
        """Until the stream, a direct one, had better go by way of the relay; for ever where none knows the planner."""
        if self._relay is None or not self._planners.is_named:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self._route.retry_in_s(time.monotonic()))
            if (relay := self._relay_for(planner)) is None:
                continue
            if await is_relay_back(relay, relay_metadata(planner.address, planner.token)):
                return
            self._route.note_failure(time.monotonic())

    @asynccontextmanager
    async def _watching(
        self, channel: "grpc.aio.Channel", planner: PlannerAddress, session: "_Session"
    ) -> AsyncIterator[None]:
        """Watch the job while the stream is open; once we leave, until it is done. No relay carries that."""
        if self._watch is None:
            yield
            return
        async with AsyncExitStack() as cleanup:
            if session.is_relayed:
                channel = await cleanup.enter_async_context(self._channel(planner.address))
            watching = asyncio.create_task(self._watch_once_attached(self._watch, channel, planner.token, session))
            try:
                yield
                if self._leaving.is_set() and session.was_accepted:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LAST_WORD_S):
                            await self._watch.is_done.wait()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    @staticmethod
    async def _watch_once_attached(
        watch: JobWatch, channel: "grpc.aio.Channel", token: str, session: "_Session"
    ) -> None:
        await session.accepted.wait()  # before, the planner may not know the job
        await watch.follow(channel, token)

    def _channel(self, address: str) -> "grpc.aio.Channel":
        import grpc.aio

        from perseus_dist.rpc.connection import CHANNEL_OPTIONS, channel_credentials

        if self._tls is None or address.startswith("unix:"):
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(address, channel_credentials(self._tls), options=CHANNEL_OPTIONS)

    def _tell_trouble(self, sentence: str) -> None:
        if not self._is_trouble_told:
            self._is_trouble_told = True
            self._tell(Unreachable(f"{sentence}; training goes on, trying again"))


async def _why(channel: "grpc.aio.Channel") -> str:
    """The message of gRPC when a call does not wait until the channel is ready."""
    import grpc

    try:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_ANY_METHOD)
        await call(b"", timeout=_READY_S)
    except grpc.aio.AioRpcError as error:
        return error.details() or str(error.code())
    return "it took too long"


class _Session:
    """One stream.

    Attributes:
        accepted: Set once the planner has.
        is_relayed: Whether it goes by way of the node's relay.
        is_moving: Whether it has been ended for another way to the planner.
    """

    def __init__(
        self,
        tell: Callable[[LinkEvent], None],
        outbox: "asyncio.Queue[AgentMessage | None]",
        *,
        is_relayed: bool = False,
    ) -> None:
        self._tell = tell
        self._outbox = outbox
        self.is_relayed = is_relayed
        self.is_moving = False
        self.accepted = asyncio.Event()

    @property
    def was_accepted(self) -> bool:
        """Whether the planner knows us."""
        return self.accepted.is_set()

    async def run(
        self,
        channel: "grpc.aio.Channel",
        token: str,
        *,
        planner: str = "",
        until: "Coroutine[None, None, None] | None" = None,
    ) -> None:
        """Until either side ends it.

        Args:
            channel: To the planner, or to the node's relay.
            token: Of the job; empty for none.
            planner: Its address, where the channel is to the relay.
            until: The stream is ended when this returns, too.
        """
        from perseus_dist.rpc.connection import ATTACH, authorization

        moving = asyncio.create_task(until if until is not None else asyncio.Event().wait())
        call: grpc.aio.StreamStreamCall[bytes, bytes] | None = None
        tasks: list[asyncio.Task[Any]] = [moving]
        try:
            while not self._outbox.empty():  # meant for an earlier stream
                if self._outbox.get_nowait() is None:
                    return
            metadata = relay_metadata(planner, token) if self.is_relayed else authorization(token)
            call = channel.stream_stream(ATTACH)(metadata=metadata)
            self._tell(Connected())
            writer = asyncio.create_task(self._write(call))
            reader = asyncio.create_task(self._read(call))
            tasks += [writer, reader]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_READY_S):
                        await reader  # the planner takes what was sent, and ends the stream
            elif reader.done():
                reader.result()
            else:
                self.is_moving = True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if call is not None:
                call.cancel()

    async def _write(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        from perseus_dist.rpc.codec import encode_agent_message
        from perseus_dist.rpc.violations import InvalidMessageError

        while (message := await self._outbox.get()) is not None:
            if self._outbox.qsize() > _LARGEST_OUTBOX:
                raise ValueError(f"{_LARGEST_OUTBOX} messages wait: the stream does not take them")
            try:
                data = encode_agent_message(message)
            except InvalidMessageError as error:
                _log.warning("not sent, the planner would refuse it: %s", error)
                continue
            await call.write(data)
        await call.done_writing()

    async def _read(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        from perseus_dist.rpc.codec import decode_planner_message
        from perseus_dist.rpc.violations import InvalidMessageError

        async for data in received(call) if self.is_relayed else call:
            try:
                message = decode_planner_message(data)
            except InvalidMessageError as error:
                _log.warning("ignored, of another version of the planner perhaps: %s", error)
                continue
            if isinstance(message, Attached):
                self.accepted.set()
            self._tell(Received(message))


def _delays() -> Iterator[float]:
    """Ever longer, and different on every rank, so that a planner that comes back is not run over."""
    delay_s = _FIRST_DELAY_S
    while True:
        yield delay_s * random.uniform(0.5, 1.0)
        delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
