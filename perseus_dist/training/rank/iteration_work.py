"""How much an iteration had to do, by the shapes of what it computed on: no value is read, no device waited for."""

import math
from contextlib import suppress
from typing import Any


class TokenCount:
    """Tokens of one rank's iteration, microbatch by microbatch.

    A token is an element of a tensor's first two dimensions, batch and sequence in either order. Tokens are compared
    among the ranks of one stage, and the report divides energy by them where all ranks of a pipeline count the same.
    """

    def __init__(self) -> None:
        self._num_tokens: int | None = 0

    def begin_iteration(self) -> None:
        """Count tokens from 0 again."""
        self._num_tokens = 0

    def add(self, *candidates: Any) -> None:
        """A microbatch is computed on.

        Args:
            candidates: What may say its tokens, tensors nested in any way; the first that has two dimensions does.
        """
        tokens = next(filter(None, map(tokens_of, candidates)), None)
        self._num_tokens = None if tokens is None or self._num_tokens is None else self._num_tokens + tokens

    @property
    def num_tokens(self) -> int:
        """Of the iteration so far; 0 where a microbatch did not say."""
        return self._num_tokens or 0


def tokens_of(value: Any) -> int:
    """Tokens of the first tensor in it; 0 where there is none, or it has fewer than two dimensions. Never raises."""
    with suppress(Exception):
        shape = first_tensor(value).shape
        return math.prod(shape[:2]) if len(shape) > 1 else 0
    return 0


def first_tensor(value: Any) -> Any:
    """The first tensor of tensors nested in lists, tuples and dictionaries; a value that is none of these itself."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        return value
    return next((tensor for tensor in map(first_tensor, value) if tensor is not None), None)
