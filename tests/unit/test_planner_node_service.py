"""A node relay's stream over real gRPC: an agent's fault ends its channel alone, the fault of the relay the stream."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from builders import make_rank
from served_planner import OPERATOR_TOKEN, served_planner

from perseus_dist.messages.from_agent import Attach
from perseus_dist.messages.from_planner import Attached
from perseus_dist.messages.terms import Gpu
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.service import node_service
from perseus_dist.planner.service.node_outbox import NodeOutbox
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.store.store import Store
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.rpc.codec import decode_planner_message, encode_agent_message
from perseus_dist.rpc.connection import NODE_STREAM
from perseus_dist.rpc.limits import MAX_CHANNELS
from perseus_dist.rpc.node_wire import (
    NO_CHANNEL,
    Closed,
    Ended,
    NodeFrame,
    NodeHello,
    Opened,
    decode_node_reply,
    encode_node_message,
)

PATIENCE_S = 20.0
GPU = Gpu(uuid="GPU-1", name="A100", driver_version="570", clocks_mhz=(1410, 1200), control="clockd")
ATTACH = Attach(
    rank=make_rank(pp_size=2, schedule_digest=one_f_one_b(pp=2, microbatches=2).digest()), gpu=GPU, incarnation=7
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served_planner() as address:
        yield address


class Stream:
    """The relay's side."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._sent: SimpleQueue[bytes | None] = SimpleQueue()
        call: Any = channel.stream_stream(NODE_STREAM)
        self._answers = call(iter(self._sent.get, None), timeout=PATIENCE_S)
        self._frames: list[tuple[int, bytes | Ended]] = []

    def send(self, *frames: NodeFrame) -> None:
        self._sent.put(encode_node_message(frames))

    def next(self) -> tuple[int, bytes | Ended]:
        """The next frame of a channel that the planner sends."""
        while not self._frames:
            reply = decode_node_reply(next(self._answers))
            self._frames += [(channel, frame) for channels, frame in reply for channel in channels]
        return self._frames.pop(0)

    def ended(self) -> tuple[int, grpc.StatusCode, str]:
        """The channel that the planner ends next, and why; messages before it are left out."""
        channel, frame = self.next()
        while not isinstance(frame, Ended):
            channel, frame = self.next()
        (code,) = [one for one in grpc.StatusCode if one.value[0] == frame.code]
        return channel, code, frame.reason

    def status(self) -> tuple[grpc.StatusCode, str]:
        """How the planner ends the stream."""
        with pytest.raises(grpc.RpcError):
            self.next()
        return self._answers.code(), self._answers.details()

    def end(self) -> None:
        self._sent.put(None)


@contextmanager
def relay(address: str) -> Iterator[Stream]:
    with grpc.insecure_channel(address) as channel:
        stream = Stream(channel)
        try:
            yield stream
        finally:
            stream.end()


def test_an_agent_that_is_refused_ends_its_channel_and_its_neighbour_attaches(address: str) -> None:
    with relay(address) as stream:
        stream.send((NO_CHANNEL, NodeHello("node-1")), (1, Opened("")), (2, Opened(OPERATOR_TOKEN)))
        channel, code, why = stream.ended()
        assert (channel, code) == (1, grpc.StatusCode.UNAUTHENTICATED)
        assert why == "this planner wants a token: name its file with --perseus-token-file"
        stream.send((1, b"too late"), (1, Closed()), (2, encode_agent_message(ATTACH)))
        channel, frame = stream.next()
        assert channel == 2
        assert isinstance(frame, bytes)
        assert isinstance(decode_planner_message(frame), Attached)
        stream.send((2, Closed()), (3, Opened(OPERATOR_TOKEN)), (3, b"\xff"))
        channel, code, _ = stream.ended()
        assert (channel, code) == (3, grpc.StatusCode.INVALID_ARGUMENT)


class Claim:
    """An ``Ownership`` that has a job from ``made`` on."""

    def __init__(self) -> None:
        self.made = asyncio.Event()

    def owns(self, _job_id: str) -> bool:
        return self.made.is_set()

    async def ensure(self, _job_id: str) -> None:
        await self.made.wait()


class Channels:
    """Those of one relay, at a replica that looks for an agent's job by ``ownership``."""

    def __init__(self, ownership: object, numbers: Iterable[int]) -> None:
        worker: Any = SimpleNamespace(expected_s=lambda _request: None)
        self.jobs = Jobs(Store(None), worker, Policy(), Counters())
        self.jobs.ownership = ownership  # type: ignore[assignment]
        self.open: dict[int, Any] = {}
        self._written: list[bytes] = []
        guard: Any = RpcGuard(access=Access(OPERATOR_TOKEN), needs_token=True, counters=self.jobs.counters)
        outbox, relay = (
            NodeOutbox(self._write, pytest.fail, asyncio.Semaphore(1)),
            Caller(token_sha256="", is_operator=False),
        )
        for number in numbers:
            node_service._Channel(number, OPERATOR_TOKEN, self.jobs, guard, relay, outbox, self.open)

    async def _write(self, data: bytes) -> None:
        self._written.append(data)

    @property
    def ended(self) -> list[tuple[Sequence[int], Ended]]:
        """What the relay was told of those that the planner ended."""
        frames = [one for data in self._written for one in decode_node_reply(data)]
        return [(numbers, frame) for numbers, frame in frames if isinstance(frame, Ended)]

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def test_an_agent_that_has_attached_is_waited_for_however_long_its_job_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_service, "ATTACH_TIMEOUT_S", 0.0)

    async def test() -> None:
        claim = Claim()
        channels = Channels(claim, (1, 2))
        channels.open[1].receive(encode_agent_message(ATTACH))
        await channels.settle()
        assert [*channels.open] == [1], "nothing has come of the other"
        claim.made.set()
        await channels.settle()
        assert channels.jobs.num_streams == 1
        channels.open[1].close()
        channels.jobs.close()

    asyncio.run(test())


def test_an_agent_whose_job_cannot_be_looked_for_is_refused_and_does_not_wait() -> None:
    class Defect(Claim):
        async def ensure(self, _job_id: str) -> None:
            raise ZeroDivisionError

    async def test() -> None:
        channels = Channels(Defect(), (1,))
        channels.open[1].receive(encode_agent_message(ATTACH))
        await channels.settle()
        ((numbers, ended),) = channels.ended
        assert ([*numbers], ended.code) == ([1], grpc.StatusCode.INTERNAL.value[0])
        assert ended.reason == "the planner failed at this message; its log says how"
        assert not channels.open
        channels.jobs.close()

    asyncio.run(test())


def test_a_channels_number_that_comes_again_ends_the_stream(address: str) -> None:
    with relay(address) as stream:
        stream.send((2, Opened(OPERATOR_TOKEN)), (1, Opened(OPERATOR_TOKEN)))
        code, details = stream.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "channel: 1 was seen, expected a number above 2" in details


def test_a_node_has_so_many_agents_at_most(address: str) -> None:
    with relay(address) as stream:
        stream.send(*((number, Opened(OPERATOR_TOKEN)) for number in range(1, MAX_CHANNELS + 2)))
        code, details = stream.status()
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert f"expected at most {MAX_CHANNELS}" in details


def test_a_stream_that_the_relay_ends_is_over_in_order(address: str) -> None:
    with relay(address) as stream:
        stream.send((1, Opened(OPERATOR_TOKEN)))
        stream.end()
        with pytest.raises(StopIteration):
            stream.next()
