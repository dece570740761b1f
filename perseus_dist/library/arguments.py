"""Checks of what callers pass. A refusal names the argument, what was seen, what is expected, and the remedy."""

import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

import numpy as np

from perseus_dist.errors import ArgumentError, PlanningError
from perseus_dist.planning.profile.power_bounds import MAX_GPU_POWER_W
from perseus_dist.units import PS_PER_S, deadline_ps_from_s

T = TypeVar("T")

MAX_SECONDS = 1e5  # picoseconds of a longer iteration would not fit into 64 bits
MIN_SECONDS = 1e-12
MAX_POWER_W = MAX_GPU_POWER_W
MAX_SWITCH_LATENCY_S = 10.0  # far beyond any GPU; a figure in milliseconds is caught
MAX_STRAGGLER = 1000.0
MAX_INT = 10**9

_MAX_SHOWN = 60


def shown(value: object) -> str:
    """A value as messages show it: itself where that is short, else its type."""
    if value is None or isinstance(value, (str, int, float, np.generic, os.PathLike)):
        with suppress(ValueError):  # a whole number of more digits than Python writes
            text = repr(value)
            if len(text) <= _MAX_SHOWN and text.isprintable():
                return text
    return f"a value of type {type(value).__name__}"


def refusal(name: str, value: object, expected: str) -> ArgumentError:
    """The error that says what was seen and what is expected."""
    return ArgumentError(f"{name}: saw {shown(value)}, expected {expected}")


def instance(name: str, value: object, of: type[T] | tuple[type[T], ...], *, expected: str) -> T:
    """The value, which is of the type.

    Raises:
        ArgumentError: It is of another.
    """
    if not isinstance(value, of):
        raise refusal(name, value, expected)
    return value


def positive_int(name: str, value: object) -> int:
    """A whole number from 1 to ``MAX_INT``.

    Raises:
        ArgumentError: It is something else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= MAX_INT:
        raise refusal(name, value, f"a whole number from 1 to {MAX_INT}, such as 4")
    return int(value)


def number(name: str, value: object, *, low: float, high: float, expected: str) -> float:
    """A number from ``low`` to ``high``.

    Raises:
        ArgumentError: It is something else, or lies outside; the message says ``expected``.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and low <= value <= high):  # type: ignore[operator]  # NaN fails too
        raise refusal(name, value, expected)
    return float(value)  # type: ignore[arg-type]


def several(name: str, value: object) -> dict[str, object]:
    """By name, as in ``name[0]``, the elements of a one-dimensional sequence or Series; else the value itself."""
    is_other = isinstance(value, (str, bytes, Mapping, AbstractSet)) or getattr(value, "ndim", 1) != 1
    if is_other or not isinstance(value, Iterable):
        return {name: value}
    return {f"{name}[{index}]": each for index, each in enumerate(value)}


def seconds(name: str, value: object) -> float:
    """A positive time.

    Raises:
        ArgumentError: It is something else.
    """
    expected = f"seconds above 0 and up to {MAX_SECONDS:g}, such as 2.5"
    return number(name, value, low=MIN_SECONDS, high=MAX_SECONDS, expected=expected)


def deadline_ps_of_slowdown(name: str, value: object, all_max_ps: int) -> int:
    """[ps] a deadline that is a multiple of the time of all-max.

    Raises:
        ArgumentError: It is no positive number, or makes too long a time.
    """
    most = MAX_SECONDS * PS_PER_S / all_max_ps
    expected = f"a factor above 0 and up to {most:.4g}, such as 1.05 for 5 % longer than at maximum clocks"
    return round(number(name, value, low=MIN_SECONDS, high=most, expected=expected) * all_max_ps)


def path(name: str, value: object, *, expected: str, suffixes: tuple[str, ...] = ()) -> Path:
    """A file's path, with one of the suffixes if there are any.

    Raises:
        ArgumentError: It is no path, or ends otherwise.
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise refusal(name, value, expected)
    if suffixes and Path(text).suffix not in suffixes:
        raise refusal(name, text, f"a name that ends in {' or '.join(suffixes)}; rename it")
    return Path(text)


@contextmanager
def naming(text: str) -> Iterator[None]:
    """Begin refusals of the planning core, within the block, with the argument at fault."""
    try:
        yield
    except PlanningError as error:
        raise PlanningError(f"{text}: {error}") from None


def one_time_ps(all_max_ps: int, **given: object) -> tuple[str, int]:
    """The one argument that is not None, ``slowdown`` or a time [s]: as a message says it, and its time [ps].

    Raises:
        ArgumentError: None of them is given, or several, or it is no positive number.
    """
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        seen = " and ".join(f"{name}={shown(given[name])}" for name in names) or "no argument"
        raise ArgumentError(f"saw {seen}, expected exactly one of {', '.join(given)}; give one")
    name, value = names[0], given[names[0]]
    is_slowdown = name == "slowdown"
    time_ps = (
        deadline_ps_of_slowdown(name, value, all_max_ps) if is_slowdown else deadline_ps_from_s(seconds(name, value))
    )
    return f"{name}={value}", time_ps
