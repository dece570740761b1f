"""What waits for the ranks behind one node relay: one message for many, in order on each channel, bounded, ended."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest

from perseus_dist.planner.runtime.outbox import LARGE_BYTES, MAX_WAITING, Ending
from perseus_dist.planner.service import node_outbox as module
from perseus_dist.planner.service.node_outbox import ChannelOutbox, NodeOutbox, ReplyBatch, split
from perseus_dist.rpc.limits import MAX_FRAMING_BYTES, MAX_PLANNER_MESSAGE_BYTES
from perseus_dist.rpc.node_wire import Ended, decode_node_reply


class Relay:
    """The other side of a node stream.

    Attributes:
        reads: Cleared while it does not read.
        failures: What the planner has said as it gave the stream up.
    """

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.is_gone = False
        self.failures: list[str] = []
        self.interrupted: list[int] = []
        self.large_writes = asyncio.Semaphore(1)
        self.outbox = NodeOutbox(self._write, self.failures.append, self.large_writes)

    async def _write(self, data: bytes) -> None:
        await self.reads.wait()
        if self.is_gone:
            raise ConnectionResetError
        self.got.append(data)

    def channel(self, number: int) -> ChannelOutbox:
        return ChannelOutbox(self.outbox, number, lambda: self.interrupted.append(number))

    def frames(self) -> list[tuple[tuple[int, ...], bytes | Ended]]:
        return [(tuple(channels), frame) for message in self.got for channels, frame in decode_node_reply(message)]


def run(test: Callable[[Relay], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test(Relay())

    asyncio.run(main())


def test_one_message_to_many_ranks_is_one_frame_unless_it_would_overtake_another() -> None:
    batch = ReplyBatch()
    assert not batch
    for channel, frame in ((1, b"a"), (2, b"a"), (1, b"b"), (2, b"c"), (2, b"b"), (1, b"a")):
        batch.add(channel, frame)
    assert batch.num_waiting(1) == batch.num_waiting(2) == 3
    assert batch.take() == [((1, 2), b"a"), ((1,), b"b"), ((2,), b"c"), ((2,), b"b"), ((1,), b"a")]
    assert not batch
    assert batch.take() == []


def test_what_waits_for_a_channel_that_is_dropped_goes_to_the_others_alone() -> None:
    batch = ReplyBatch()
    for channel, frame in ((1, b"both"), (2, b"both"), (1, b"own")):
        batch.add(channel, frame)
    batch.drop(1)
    batch.drop(3)
    assert batch.num_waiting(1) == 0
    assert batch.take() == [((2,), b"both")]


def test_frames_are_split_in_order_and_a_long_one_stands_alone() -> None:
    one = MAX_FRAMING_BYTES + 5 + 100
    frames: list[tuple[tuple[int, ...], bytes | Ended]] = [((1,), bytes(100)), ((2,), bytes(100)), ((3,), bytes(900))]
    frames.append(((4,), Ended(0)))
    assert list(split(frames, 2 * one)) == [frames[:2], [frames[2]], [frames[3]]]
    assert list(split([], one)) == []


def test_what_comes_while_the_relay_reads_slowly_travels_together() -> None:
    async def test(relay: Relay) -> None:
        relay.reads.clear()
        one, two = relay.channel(1), relay.channel(2)
        one.put(b"first")
        await asyncio.sleep(0)
        for channel in (one, two):
            channel.put(b"plan")
        relay.reads.set()
        await relay.outbox.flush()
        assert relay.frames() == [((1,), b"first"), ((1, 2), b"plan")]
        assert len(relay.got) == 2
        await relay.outbox.flush()

    run(test)


def test_a_large_message_waits_for_its_turn_among_large_ones() -> None:
    async def test(relay: Relay) -> None:
        await relay.large_writes.acquire()
        relay.channel(1).put(bytes(LARGE_BYTES))
        for _ in range(10):
            await asyncio.sleep(0)
        assert relay.got == []
        relay.large_writes.release()
        await relay.outbox.flush()
        assert relay.frames() == [((1,), bytes(LARGE_BYTES))]

    run(test)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending(reason="the job is over", orderly=True), [((1,), b"last"), ((1,), Ended(0))]),
        (
            Ending(reason="another has it", owner="node:5"),
            [((1,), Ended(grpc.StatusCode.FAILED_PRECONDITION.value[0], "another has it", "node:5"))],
        ),
        (
            Ending(reason="it restarts"),
            [((1,), Ended(grpc.StatusCode.UNAVAILABLE.value[0], "it restarts"))],
        ),
    ],
)
def test_an_orderly_end_keeps_what_waits_and_any_other_does_not(
    ending: Ending, expected: list[tuple[tuple[int, ...], bytes | Ended]]
) -> None:
    async def test(relay: Relay) -> None:
        channel = relay.channel(1)
        channel.put(b"last")
        channel.end(ending)
        channel.end(Ending(reason="again"))
        channel.put(b"too late")
        channel.close()
        assert relay.interrupted == []
        await relay.outbox.flush()
        assert relay.frames() == expected
        assert relay.interrupted == [1]

    run(test)


def test_an_agent_that_does_not_read_is_cut_off_and_its_neighbour_is_not() -> None:
    async def test(relay: Relay) -> None:
        slow, other = relay.channel(1), relay.channel(2)
        for number in range(MAX_WAITING + 1):
            slow.put(b"%d" % number)
        other.put(b"plan")
        await relay.outbox.flush()
        (first, ended), second = relay.frames()
        assert first == (1,)
        assert isinstance(ended, Ended)
        assert ended.reason == f"{MAX_WAITING} messages were waiting for this agent, which did not read them"
        assert second == ((2,), b"plan")

    run(test)


def test_what_no_node_stream_can_carry_sends_its_agent_to_the_planner_itself() -> None:
    async def test(relay: Relay) -> None:
        relay.channel(1).put(bytes(MAX_PLANNER_MESSAGE_BYTES))
        await relay.outbox.flush()
        ((_, ended),) = relay.frames()
        assert isinstance(ended, Ended)
        assert ended.reason.endswith("are too many for a node stream; attach without a node relay")

    run(test)


def test_a_channel_that_its_agent_closed_sends_nothing_more() -> None:
    async def test(relay: Relay) -> None:
        channel = relay.channel(1)
        channel.put(b"unread")
        channel.close()
        channel.close()
        await relay.outbox.flush()
        assert relay.got == []
        assert relay.interrupted == []

    run(test)


def test_a_relay_that_reads_nothing_is_given_up_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_TIMEOUT_S", 0)

    async def test(relay: Relay) -> None:
        relay.reads.clear()
        relay.channel(1).put(b"plan")
        await relay.outbox.flush()
        assert relay.failures == ["the node relay has read nothing for 0 s"]
        relay.reads.set()
        relay.channel(2).put(b"plan")
        await relay.outbox.flush()
        assert relay.got == []

    run(test)


def test_a_stream_that_is_gone_is_left_to_its_handler() -> None:
    async def test(relay: Relay) -> None:
        relay.is_gone = True
        relay.channel(1).put(b"plan")
        await relay.outbox.flush()
        assert relay.failures == []
        relay.is_gone = False
        relay.channel(1).put(b"plan")
        await relay.outbox.flush()
        assert relay.got == []

    run(test)


def test_closing_a_node_stream_forgets_what_waits() -> None:
    async def test(relay: Relay) -> None:
        relay.reads.clear()
        relay.channel(1).put(b"plan")
        await asyncio.sleep(0)
        relay.outbox.close()
        relay.reads.set()
        await relay.outbox.flush()
        relay.outbox.close()
        assert relay.got == []

    run(test)
