"""Functions of objects are replaced for a while, and objects are then as they were."""

from types import SimpleNamespace

import pytest

from perseus_dist.training.replaced_function import replace_function


class Optimizer:
    """Counts its steps."""

    def __init__(self) -> None:
        self.num_steps = 0

    def step(self, by: int) -> int:
        self.num_steps += by
        return self.num_steps


def test_a_method_is_replaced_and_put_back() -> None:
    optimizer = Optimizer()
    put_back = replace_function(optimizer, "step", lambda call: ("told", call()))
    assert optimizer.step(by=2) == ("told", 2)  # type: ignore[comparison-overlap]
    put_back()
    assert optimizer.__dict__ == {"num_steps": 2}
    assert optimizer.step(1) == 3


def test_what_an_object_holds_itself_is_put_back_unless_replaced_meanwhile() -> None:
    first, second = (lambda: 1), (lambda: 2)
    config = SimpleNamespace(finalize=first)
    put_back = replace_function(config, "finalize", lambda call: call() + 10)
    assert config.finalize() == 11
    put_back()
    assert config.finalize is first
    put_back = replace_function(config, "finalize", lambda call: call() + 10)
    config.finalize = second
    put_back()
    assert config.finalize is second


@pytest.mark.parametrize("owner", [None, object(), SimpleNamespace(step=None), 1])
def test_nothing_is_replaced_where_there_is_no_such_function(owner: object) -> None:
    replace_function(owner, "step", lambda call: call())()
    assert getattr(owner, "step", None) is None
