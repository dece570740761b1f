"""The time within Megatron's iterators; how they look to whoever draws from them does not change."""

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from perseus_dist.megatron import input_wait
from perseus_dist.megatron.input_wait import InputWait

WAIT_NS = 250


class RerunDataIterator:
    """As Megatron has it, without the state that says when to keep microbatches."""

    def __init__(self, iterable: Any) -> None:
        self.iterable = iterable
        self.saved_microbatches: list[Any] = []
        self.replay_pos: int | None = None

    def __next__(self) -> Any:
        if self.replay_pos is not None:
            self.replay_pos += 1
            return self.saved_microbatches[self.replay_pos - 1]
        self.saved_microbatches.append(next(self.iterable))
        return self.saved_microbatches[-1]


RerunDataIterator.__module__ = "megatron.core.rerun_state_machine"


class DataLoaderIterator:
    """As torch's: it knows how much is left, and more."""

    num_workers = 3

    def __init__(self, left: int) -> None:
        self.left = left

    def __next__(self) -> int:
        self.left -= 1
        return self.left

    def __len__(self) -> int:
        return self.left


DataLoaderIterator.__module__ = "torch.utils.data.dataloader"


class Own:
    """A user's."""

    def __next__(self) -> int:
        return 1


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a little later."""
    monkeypatch.setattr(input_wait, "monotonic_ns", itertools.count(1000, WAIT_NS).__next__)


def batches(num: int) -> Iterator[int]:
    yield from range(num)


def draw(call: dict[str, Any], *, num: int) -> tuple[list[Any], int | None]:
    """Call a schedule that draws so often of each iterator; what it got, and what was waited."""
    wait = InputWait()
    given = dict(wait.time(call))
    assert given.keys() == call.keys()
    iterators = given["data_iterator"]
    drawn = [next(i) for i in (iterators if isinstance(iterators, list) else [iterators]) for _ in range(num)]
    wait.put_back()
    wait.put_back()
    return drawn, wait.wait_ns


@pytest.mark.parametrize("iterator", [batches(9), iter(range(9)), itertools.count(), iter([0, 1, 2]), map(int, "012")])
def test_each_draw_is_timed(iterator: Any) -> None:
    assert draw({"data_iterator": iterator, "seq_length": 7}, num=3) == ([0, 1, 2], 3 * WAIT_NS)


def test_chunks_have_iterators_of_their_own_and_some_have_none() -> None:
    wait = InputWait()
    call = wait.time({"data_iterator": [batches(2), None, batches(2)]})
    first, nothing, last = call["data_iterator"]
    assert (list(first), nothing, next(last)) == ([0, 1], None, 0)
    assert wait.wait_ns == 4 * WAIT_NS  # the end is waited for too


@pytest.mark.parametrize("given", [None, [None, None], Own(), [batches(1), Own()], 5, DataLoaderIterator])
def test_nothing_is_said_without_iterators_or_of_unknown_ones(given: Any) -> None:
    wait = InputWait()
    call = {"data_iterator": given}
    assert wait.time(call) is call
    assert wait.wait_ns is None
    assert wait.time({}) == {}
    assert wait.wait_ns is None


def test_an_iteration_without_draws_waits_for_nothing() -> None:
    assert draw({"data_iterator": batches(1)}, num=0) == ([], 0)


def test_each_iteration_counts_from_0() -> None:
    wait = InputWait()
    source = batches(9)
    for _ in range(2):
        next(wait.time({"data_iterator": source})["data_iterator"])
        assert wait.wait_ns == WAIT_NS


def test_an_iterator_that_replays_stays_itself_and_waits_for_what_it_draws_alone() -> None:
    source = batches(9)
    replaying = RerunDataIterator(source)
    wait = InputWait()
    given = wait.time({"data_iterator": [replaying, replaying]})["data_iterator"]  # chunks share it
    assert given[0] is given[1] is replaying
    assert [next(given[0]), next(given[1])] == [0, 1]
    assert wait.wait_ns == 2 * WAIT_NS
    replaying.replay_pos = 0
    assert [next(given[0]), next(given[1])] == [0, 1]
    assert wait.wait_ns == 2 * WAIT_NS
    wait.put_back()
    assert replaying.iterable is source


def test_what_somebody_else_has_put_there_meanwhile_stays() -> None:
    replaying, other = RerunDataIterator(batches(9)), batches(2)
    wait = InputWait()
    wait.time({"data_iterator": replaying})
    replaying.iterable = other
    wait.put_back()
    assert replaying.iterable is other


def test_errors_of_the_loader_pass_and_their_time_counts() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    wait = InputWait()
    iterator = wait.time({"data_iterator": failing()})["data_iterator"]
    assert next(iterator) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert wait.wait_ns == 3 * WAIT_NS


def test_it_looks_like_what_it_stands_for() -> None:
    wait = InputWait()
    generator = wait.time({"data_iterator": batches(3)})["data_iterator"]
    assert inspect.isgenerator(generator)
    assert isinstance(generator, Iterator)
    assert iter(generator) is generator
    assert bool(generator)
    assert not hasattr(generator, "__len__")
    generator.close()
    assert list(generator) == []
    loader = wait.time({"data_iterator": DataLoaderIterator(4)})["data_iterator"]
    assert isinstance(loader, DataLoaderIterator)
    assert (next(loader), len(loader), loader.num_workers) == (3, 3, 3)
