"""What waits for one agent: in order, bounded, and never in the way of others."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perseus_dist.planner.runtime import outbox as module
from perseus_dist.planner.runtime.outbox import LARGE_BYTES, MAX_LARGE_WRITES, MAX_WAITING, Ending, Outbox


class Agent:
    """The other side of a stream.

    Attributes:
        reads: Cleared while it does not read.
    """

    def __init__(self, large_writes: asyncio.Semaphore | None = None) -> None:
        self.got: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.num_writing = 0
        self.num_interrupts = 0
        self.outbox = Outbox(self.write, self.interrupt, large_writes or asyncio.Semaphore(MAX_LARGE_WRITES))

    async def write(self, data: bytes) -> None:
        self.num_writing += 1
        assert self.num_writing == 1, "gRPC takes one message of a stream at a time"
        await self.reads.wait()
        await asyncio.sleep(0)
        self.num_writing -= 1
        self.got.append(data)

    def interrupt(self) -> None:
        self.num_interrupts += 1


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(main())


async def settled() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


def test_messages_go_out_in_order() -> None:
    async def test() -> None:
        agent = Agent()
        messages = [b"%d" % number for number in range(50)]
        for message in messages[:30]:
            agent.outbox.put(message)
        await settled()
        for message in messages[30:]:
            agent.outbox.put(message)
        await settled()
        assert agent.got == messages
        assert agent.num_interrupts == 0

    run(test)


def test_an_orderly_end_comes_after_what_waits_and_nothing_comes_after_it() -> None:
    async def test() -> None:
        agent = Agent()
        agent.outbox.put(b"1")
        agent.outbox.put(b"refused")
        agent.outbox.end(Ending(reason="refused", orderly=True))
        agent.outbox.put(b"too late")
        assert agent.num_interrupts == 0
        await settled()
        assert agent.got == [b"1", b"refused"]
        assert agent.num_interrupts == 1

    run(test)


def test_an_end_with_nothing_waiting_is_at_once_and_only_the_first_counts() -> None:
    async def test() -> None:
        agent = Agent()
        agent.outbox.end(Ending(reason="first"))
        agent.outbox.end(Ending(reason="second"))
        assert agent.num_interrupts == 1
        assert agent.outbox.ending == Ending(reason="first")

    run(test)


@pytest.mark.parametrize("num_steps", range(5))
@pytest.mark.parametrize("orderly", [False, True])
def test_an_end_soon_after_a_message_reaches_the_agent(*, orderly: bool, num_steps: int) -> None:
    """In the same turn, too, in which a replica that was stopped has decided something, and gives the job up."""

    async def test() -> None:
        agent = Agent()
        agent.outbox.put(b"switch")
        for _ in range(num_steps):
            await asyncio.sleep(0)
        agent.outbox.put(b"last")
        agent.outbox.end(Ending(reason="the job is elsewhere", orderly=orderly))
        await settled()
        assert agent.num_interrupts == 1
        assert agent.got == [b"switch", b"last"] or not orderly

    run(test)


def test_an_agent_that_does_not_keep_up_is_cut_off() -> None:
    async def test() -> None:
        agent = Agent()
        agent.reads.clear()
        agent.outbox.put(b"on its way")
        await settled()
        for _ in range(MAX_WAITING):
            agent.outbox.put(b"waits")
        assert agent.outbox.ending is None
        agent.outbox.put(b"one too many")
        await settled()
        assert agent.outbox.ending is not None
        assert "64 messages were waiting" in agent.outbox.ending.reason
        assert (agent.got, agent.num_interrupts) == ([], 1)

    run(test)


def test_an_agent_that_reads_nothing_for_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_TIMEOUT_S", 0.01)

    async def test() -> None:
        agent = Agent()
        agent.reads.clear()
        agent.outbox.put(b"1")
        while not agent.num_interrupts:
            await asyncio.sleep(0.01)
        assert agent.outbox.ending is not None
        assert "read nothing for 0.01 s" in agent.outbox.ending.reason

    run(test)


def test_few_large_messages_are_on_their_way_at_a_time_and_small_ones_overtake_them() -> None:
    async def test() -> None:
        large_writes = asyncio.Semaphore(MAX_LARGE_WRITES)
        slow = [Agent(large_writes) for _ in range(MAX_LARGE_WRITES + 2)]
        for agent in slow:
            agent.reads.clear()
            agent.outbox.put(bytes(LARGE_BYTES))
        quick = Agent(large_writes)
        quick.outbox.put(b"switch")
        await settled()
        assert sum(agent.num_writing for agent in slow) == MAX_LARGE_WRITES
        assert quick.got == [b"switch"]
        for agent in slow:
            agent.reads.set()
        await settled()
        assert all(len(agent.got) == 1 for agent in slow)

    run(test)


def test_a_closed_stream_takes_nothing_and_is_not_interrupted() -> None:
    async def test() -> None:
        agent = Agent()
        agent.reads.clear()
        agent.outbox.put(b"1")
        await settled()
        agent.outbox.close()
        agent.outbox.put(b"2")
        agent.outbox.end(Ending(reason="late"))
        await settled()
        assert (agent.got, agent.num_interrupts, agent.outbox.ending) == ([], 0, None)

    run(test)
