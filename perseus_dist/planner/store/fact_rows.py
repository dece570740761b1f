"""Facts as rows: JSON for what is small and readable, one blob for encoded tables and files. Nothing is pickled."""

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from perseus_dist.planner.job.facts import Fact

_CLASSES: dict[str, Any] = {kind.__name__: kind for kind in get_args(Fact)}


class FactRow(NamedTuple):
    """A row of the table of facts, the job aside."""

    key: str
    kind: str
    body: str
    blob: bytes


def row_of_fact(fact: Fact) -> FactRow:
    """The inverse of ``fact_of_row``."""
    blobs: list[bytes] = []
    body = json.dumps(_plain(fact, blobs), separators=(",", ":"))
    return FactRow(fact.key, type(fact).__name__, body, b"".join(blobs))


def fact_of_row(row: FactRow) -> Fact:
    """The fact that a row tells.

    Raises:
        ValueError: The row is damaged, or of another version.
    """
    try:
        fact: Fact = _reader(_CLASSES[row.kind])(json.loads(row.body), BytesIO(row.blob))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"row {row.key!r} of kind {row.kind!r} cannot be read") from error
    return fact


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
        return lambda length, blob: blob.read(length)
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    accepted = (int, float) if hint is float else hint

    def read_plain(value: Any, _: BytesIO) -> Any:
        if not isinstance(value, accepted):
            raise TypeError(f"saw {value!r}, expected {hint}")
        return value

    return read_plain


def _dataclass_reader(kind: Any) -> _Reader:
    readers = {name: _reader(hint) for name, hint in _field_types(kind).items()}
    can_lack = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}

    def read(values: Any, blob: BytesIO) -> Any:
        lacking = can_lack - values.keys()  # written before these fields were there
        return kind(
            **{name: read_field(values[name], blob) for name, read_field in readers.items() if name not in lacking}
        )

    return read
