"""Tokens are counted by shapes alone, whatever the tensors are nested in."""

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.training.rank.iteration_work import TokenCount, tokens_of


class Unreadable:
    """Its shape can be had, and nothing else: a value would have to be waited for."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __bool__(self) -> bool:
        raise AssertionError("a value was read")

    def __len__(self) -> int:
        raise AssertionError("a value was read")


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (Unreadable(4, 2048), 8192),
        (Unreadable(2048, 4, 512), 8192),
        ((Unreadable(4, 2048), Unreadable(4, 1, 2048, 2048)), 8192),
        ([None, Unreadable(16, 2, 8)], 32),
        ({"hidden": [Unreadable(16, 2, 8)]}, 32),
        (Unreadable(4), 0),
        (Unreadable(), 0),
        (None, 0),
        ([None], 0),
        ((), 0),
        ("text", 0),
        (SimpleNamespace(shape="unknown"), 0),
        (SimpleNamespace(shape=7), 0),
    ],
)
def test_tokens_are_those_of_the_first_two_dimensions(value: Any, tokens: int) -> None:
    assert tokens_of(value) == tokens


def test_microbatches_add_up_from_iteration_to_iteration() -> None:
    count = TokenCount()
    count.add(Unreadable(4, 100))
    count.add(Unreadable(4, 28))
    assert count.num_tokens == 512
    count.begin_iteration()
    assert count.num_tokens == 0
    count.add(None, Unreadable(2, 3))
    count.add(Unreadable(2, 5), Unreadable(9, 9))
    assert count.num_tokens == 16


def test_one_microbatch_that_does_not_say_makes_all_unknown() -> None:
    count = TokenCount()
    count.add(Unreadable(4, 100))
    count.add([None], Unreadable())
    count.add(Unreadable(4, 100))
    assert count.num_tokens == 0
    count.begin_iteration()
    count.add(Unreadable(4, 100))
    assert count.num_tokens == 400
