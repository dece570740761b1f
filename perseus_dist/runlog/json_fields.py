"""Fields of a JSON object that somebody else wrote: each of the type that is expected, or one clear sentence."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

from perseus_dist.errors import PerseusError

_MAX_WHOLE = 2**62
_MAX_REAL = 1e12  # more than any time, power or energy here; keeps what is made of them inside 64 bits


class FieldsError(PerseusError):
    """A field that is missing or not what it should be."""


def read_json(text: str | bytes) -> Any:
    """As ``json.loads``, which also raises RecursionError.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


class Fields:
    """One object. A field that is missing, or null, is its default; one without a default must be there.

    Raises:
        FieldsError: What was read is no object.
    """

    def __init__(self, document: object) -> None:
        if not isinstance(document, dict):
            raise FieldsError(f"saw {_shown(document)}, expected an object")
        self._document: dict[str, Any] = document

    def text(self, key: str, default: str | None = None) -> str:
        """A string; the default where it is missing."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def flag(self, key: str) -> bool:
        """True or false; false where it is missing."""
        value = self._get(key, default=False)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def whole(self, key: str, default: int | None = None, *, low: int = 0, high: int = _MAX_WHOLE) -> int:
        """A whole number from ``low`` to ``high``."""
        value = self._get(key, default)
        if not _is_whole(value) or not low <= value <= high:
            raise self._wrong(
                key, f"a whole number from {low} on" if high == _MAX_WHOLE else f"one from {low} to {high}"
            )
        return int(value)

    def real(
        self, key: str, default: float | None = None, *, low: float = -_MAX_REAL, high: float = _MAX_REAL
    ) -> float:
        """A number from ``low`` to ``high``; NaN is none."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def real_or_none(self, key: str) -> float | None:
        """A number, or nothing."""
        return None if self._document.get(key) is None else self.real(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(key)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(key, "a list of texts")
        return tuple(values)

    def wholes_or_none(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers, or nothing."""
        if self._document.get(key) is None:
            return None
        values = self._list(key)
        if not all(map(_is_whole, values)):
            raise self._wrong(key, "a list of whole numbers")
        return tuple(values)

    def rows(self, key: str, width: int) -> list[list[Any]]:
        """A list of lists of ``width`` values."""
        rows = self._list(key)
        if not all(isinstance(row, list) and len(row) == width for row in rows):
            raise self._wrong(key, f"a list of rows of {width}")
        return list(rows)

    def each(self, key: str) -> list["Fields"]:
        """A list of objects."""
        return [Fields(document) for document in self._list(key)]

    def inner(self, key: str) -> "Fields":
        """An object; an empty one where it is missing."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return Fields(value)

    def _get(self, key: str, default: Any) -> Any:
        value = self._document.get(key)
        return default if value is None else value

    def _list(self, key: str) -> Sequence[Any]:
        values = self._get(key, [])
        if not isinstance(values, list):
            raise self._wrong(key, "a list")
        return values

    def _wrong(self, key: str, expected: str) -> FieldsError:
        seen = _shown(self._document[key]) if key in self._document else "nothing"
        return FieldsError(f"'{key}': saw {seen}, expected {expected}")


def values_of(cls: type, fields: Fields) -> dict[str, Any]:
    """The arguments of a dataclass, read from the object that ``dataclasses.asdict`` made of one.

    Fields may be of the types that ``Fields`` reads, dataclasses, and tuples of texts or dataclasses. A whole number is
    at least 0, or at least its default.

    Raises:
        FieldsError: A value of another type, or none where the dataclass has no default.
    """
    types = get_type_hints(cls)
    return {one.name: _value(fields, one, types[one.name]) for one in dataclasses.fields(cls)}


def _value(fields: Fields, field: "dataclasses.Field[Any]", kind: Any) -> Any:
    default = None if field.default is dataclasses.MISSING else field.default
    if kind is bool:
        return fields.flag(field.name)
    if kind is int:
        return fields.whole(field.name, default, low=min(0, default or 0))
    if kind is float:
        return fields.real(field.name, default)
    if kind is str:
        return fields.text(field.name, default)
    if kind == float | None:
        return fields.real_or_none(field.name)
    if dataclasses.is_dataclass(kind):
        return _made(kind, fields.inner(field.name))
    (item, _) = get_args(kind)  # of tuple[item, ...]
    return fields.texts(field.name) if item is str else tuple(_made(item, one) for one in fields.each(field.name))


def _made(cls: Any, fields: Fields) -> Any:
    return cls(**values_of(cls, fields))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
