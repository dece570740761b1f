"""Rows of a planner's facts, each damaged in one place: in its text, in a value of it, or in its bytes."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from malformed.hostile import cut, flipped, foreign
from perseus_dist.planner.store.fact_rows import FactRow

_At = tuple[int | str, ...]
_MAX_ITEMS = 4  # of a list, that are damaged by themselves
_WRONG: tuple[Any, ...] = (
    *(None, -1, 0, 1, 2, 7, 10**9, 10**19, -(10**19), 10**400, 1e308, -1e308, float("nan"), float("inf"), True, 0.5),
    *("", "x", "\x00", "\u00e9" * 50, [], [[]], {}, [1], [-1] * 3, [0] * 5, {"x": 1}),
)


def damaged_row(rng: Random, row: FactRow) -> FactRow:
    """A row that a planner has not written."""
    if row.blob and rng.random() < 0.3:
        data = row.blob
        wrong = (cut(rng, data), b"", data + b"x", bytes(len(data)), flipped(rng, data), foreign(rng))
        return row._replace(blob=rng.choice(wrong))
    if rng.random() < 0.1:
        return row._replace(body=rng.choice((row.body[: rng.randrange(len(row.body))], "[]", "null", "[" * 100_000)))
    body = json.loads(row.body)
    if rng.random() < 0.1 and body:
        del body[rng.choice(list(body))]
        return row._replace(body=json.dumps(body))
    at = rng.choice(list(_places(body)) or [()])
    return row._replace(body=json.dumps(_with(body, at, _wrong_for(rng, _value(body, at)))))


def _wrong_for(rng: Random, value: Any) -> Any:
    if rng.random() < 0.4:
        return rng.choice(_WRONG)
    match value:
        case bool():
            return not value
        case int() | float():
            return rng.choice((-value, value + 1, value - 1, value * 1000, 0, -1, 10**15, type(value)(value / 2)))
        case [*items] if items:
            return rng.choice((items[:-1], items + items[-1:], items[::-1], items[:1]))
        case str() if value:
            return rng.choice((value[:-1], value + "x", value[::-1], value.upper()))
    return rng.choice(_WRONG)


def _places(value: Any, at: _At = ()) -> Iterator[_At]:
    match value:
        case dict():
            for key, one in value.items():
                yield from _places(one, (*at, key))
        case list():
            yield at
            for index, one in enumerate(value[:_MAX_ITEMS]):
                yield from _places(one, (*at, index))
        case _:
            yield at


def _value(value: Any, at: _At) -> Any:
    for step in at:
        value = value[step]
    return value


def _with(value: Any, at: _At, new: Any) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = _with(value[at[0]], at[1:], new)
    return copy
