"""Facts as rows: JSON for what is small and readable, one blob for encoded tables and files. Nothing is pickled."""

import dataclasses
import json
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from perseus_dist.planner.job.facts.fact import Fact

_Value = TypeVar("_Value")

_MOST = 2.0**64  # that a number may be; floats in facts are finite

_CLASSES: dict[str, Any] = {fact.kind(): fact for fact in get_args(Fact)}


class FactRow(NamedTuple):
    """A row of the table of facts, the job aside."""

    key: str
    kind: str
    body: str
    blob: bytes


def row_of_fact(fact: Fact) -> FactRow:
    """The inverse of ``fact_of_row``."""
    return FactRow(fact.key, fact.kind(), *text_of_value(fact))


def fact_of_row(row: FactRow) -> Fact:
    """The fact that a row tells.

    Raises:
        ValueError: The row is damaged, or of another version.
    """
    try:
        fact: Fact = value_of_text(_CLASSES[row.kind], row.body, row.blob)
    except (KeyError, ValueError) as error:
        raise ValueError(f"row {row.key!r} of kind {row.kind!r} cannot be read") from error
    return fact


def text_of_value(value: Any) -> tuple[str, bytes]:
    """A dataclass of plain values, tuples and further ones as JSON, and all bytes in it; see ``value_of_text``."""
    blobs: list[bytes] = []
    return json.dumps(_plain(value, blobs), separators=(",", ":")), b"".join(blobs)


def value_of_text(kind: Callable[..., _Value], body: str, blob: bytes = b"") -> _Value:
    """The inverse of ``text_of_value``.

    Raises:
        ValueError: The text is damaged, or of another version.
    """
    try:
        stream = BytesIO(blob)
        value: _Value = _reader(kind)(json.loads(body), stream)
        if stream.read(1):
            raise ValueError("more bytes than the text tells of")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError("a text cannot be read: damaged, or of another version") from error
    return value


def _plain(value: Any, blobs: list[bytes]) -> Any:
    """A value as JSON can say it; bytes go to ``blobs`` and leave their length."""
    if isinstance(value, (str, int, float, NoneType)):
        return value
    if isinstance(value, tuple):
        return [_plain(item, blobs) for item in value]
    if isinstance(value, bytes):
        blobs.append(value)
        return len(value)
    return {name: _plain(getattr(value, name), blobs) for name in _field_types(value.__class__)}


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


_Reader = Callable[[Any, BytesIO], Any]  # takes bytes from the blob in the order in which they were written


@cache
def _reader(hint: Any) -> _Reader:
    """A function that rebuilds a value of a type from JSON; cached: a restarted planner reads a million values."""
    origin = get_origin(hint)
    if origin is UnionType:  # always "something or None"
        read_value = _reader(get_args(hint)[0])
        return lambda value, blob: None if value is None else read_value(value, blob)
    if origin is tuple:
        hints = get_args(hint)
        if hints[-1] is not Ellipsis:
            readers = [_reader(one) for one in hints]
            return lambda items, blob: tuple([read(item, blob) for read, item in zip(readers, items, strict=True)])
        read_item = _reader(hints[0])
        return lambda items, blob: tuple([read_item(item, blob) for item in items])
    if hint is bytes:
        return _read_bytes
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    if issubclass(hint, StrEnum):
        return lambda value, _: hint(value)
    accepted = (int, float) if hint is float else (hint,)

    def read_plain(value: Any, _: BytesIO) -> Any:
        if type(value) not in accepted or (hint is not str and not -_MOST < value < _MOST):
            raise TypeError(f"saw {value!r}, expected {hint}")
        return value

    return read_plain


def _read_bytes(length: Any, blob: BytesIO) -> bytes:
    data = blob.read(length) if type(length) is int and length >= 0 else b""
    if len(data) != length:
        raise ValueError("fewer bytes than the text tells of")
    return data


def _dataclass_reader(kind: Any) -> _Reader:
    readers = {name: _reader(hint) for name, hint in _field_types(kind).items()}
    can_lack = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}

    def read(values: Any, blob: BytesIO) -> Any:
        lacking = can_lack - values.keys()  # written before these fields were there
        return kind(
            **{name: read_field(values[name], blob) for name, read_field in readers.items() if name not in lacking}
        )

    return read
