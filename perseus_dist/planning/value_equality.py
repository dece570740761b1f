"""Equality and hash by value, for classes that hold numpy arrays.

The ``==`` that a dataclass generates raises with arrays, whose own gives an array, and its ``hash`` does as well.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass

import numpy as np
from numpy.typing import NDArray


class ValueEquality:
    """Objects of one class are equal if all that they hold is; NaN equals NaN.

    A dataclass that derives from it says ``eq=False``.
    """

    __slots__ = ()

    def _value(self) -> object:
        """The part of the object that makes it equal to another: all fields of a dataclass, all attributes else."""
        return _fields(self) if is_dataclass(self) else vars(self)

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class and value."""
        if not isinstance(other, ValueEquality) or type(other) is not type(self):
            return NotImplemented
        return self is other or _hashable(self._value()) == _hashable(other._value())

    def __hash__(self) -> int:
        """The same for equal objects."""
        return hash(_hashable(self._value()))


def _hashable(value: object) -> Hashable:
    """A value that is equal to that of another object if, and only if, the two are equal throughout."""
    if isinstance(value, ValueEquality):
        return _hashable(value._value())  # noqa: SLF001 - of one class
    if isinstance(value, np.ndarray):
        return value.shape, _numbers(value).tobytes()
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(of_key)) for key, of_key in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if is_dataclass(value):
        return _hashable(_fields(value))
    if isinstance(value, float) and value != value:
        return "NaN"
    assert isinstance(value, Hashable)
    return value


def _fields(value: object) -> tuple[object, ...]:
    return tuple(getattr(value, field.name) for field in fields(value))  # type: ignore[arg-type]


def _numbers(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Numbers of one width, with one NaN and one zero, so that their bytes can be compared."""
    if array.dtype.kind != "f":
        return array.astype(np.int64)
    return np.where(np.isnan(array), np.nan, array.astype(np.float64) + 0.0)
