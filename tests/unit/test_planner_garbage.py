"""What lives long is out of the collector's sight, and cycles that die there go all the same."""

import asyncio
import gc
import weakref
from contextlib import suppress

import pytest

from perseus_dist.planner.runtime import garbage


class Node:
    """Part of a cycle."""

    other: "Node | None" = None


async def collections(seconds: float) -> int:
    """Run the planner's task; how many objects were out of sight at its end."""
    task = asyncio.create_task(garbage.keep_collections_short())
    await asyncio.sleep(seconds)
    num_frozen = gc.get_freeze_count()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return num_frozen


def test_what_lives_is_not_looked_at_and_comes_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "PERIOD_S", 0.01)
    kept = [[number] for number in range(10_000)]
    usual = gc.get_threshold()
    assert asyncio.run(collections(0.2)) > len(kept)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == usual


def test_a_cycle_that_died_out_of_sight_is_found_by_a_full_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "PERIOD_S", 0.01)
    monkeypatch.setattr(garbage, "FULL_PERIOD_S", 0.3)

    async def die() -> "weakref.ref[Node]":
        task = asyncio.create_task(garbage.keep_collections_short())
        one, two = Node(), Node()
        one.other, two.other = two, one
        found = weakref.ref(one)
        await asyncio.sleep(0.1)
        del one, two
        gc.collect()
        assert found() is not None, "out of sight"
        async with asyncio.timeout(30):
            while found() is not None:
                await asyncio.sleep(0.02)
        task.cancel()
        return found

    assert asyncio.run(die())() is None
    gc.unfreeze()
