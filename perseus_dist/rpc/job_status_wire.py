"""A job's status as protobuf and back: fields by their names, numbers checked by the unit in the name.

A new field of ``JobFigures`` needs one of the same name in ``planner.proto``, and nothing here unless its range is of
its own.
"""

from dataclasses import fields, is_dataclass, replace
from functools import cache
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple, get_args, get_type_hints

from perseus_dist.messages.job_status import JobStatus
from perseus_dist.messages.terms import Target
from perseus_dist.rpc import limits
from perseus_dist.rpc.codec import parse
from perseus_dist.rpc.fields import sentence, target_from_wire, target_to_wire
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.rpc.violations import Checker

_WORDS = {"phase": 16, "kind": 16, "cause": 16, "job_id": limits.MAX_JOB_ID_LENGTH}  # other texts are sentences
_WIRE_NAMES = {"Straggler": "StragglerReport", "straggler_id": "id"}  # all others are the same
_MAX_ITEMS = {"verdicts": limits.MAX_VERDICTS, "events": limits.MAX_EVENTS}
# Of all GPUs of a job, each of which may report as much as the limit.
MAX_JOB_JOULES = limits.MAX_JOULES * limits.MAX_SIZE
_DEGREES = (0.0, limits.MAX_SLOWDOWN)
_RANGES: dict[str, tuple[float, float]] = {  # by the last word of a field's name; other integers are any
    "s": (0.0, limits.MAX_SECONDS),
    "j": (0.0, MAX_JOB_JOULES),
    **dict.fromkeys(("degree", "low", "high"), _DEGREES),
    "rank": (0, limits.MAX_SIZE - 1),
    "iteration": (-1, limits.MAX_ITERATION),
    **dict.fromkeys(("point", "points"), (-1, limits.MAX_POINTS - 1)),
}
_OWN_RANGES: dict[str, tuple[float, float]] = {
    "JobStatus.saved_j": (-MAX_JOB_JOULES, MAX_JOB_JOULES),
    "JobStatus.progress_share": (0.0, 1.0),
    **dict.fromkeys(
        ("JobStatus.predicted_saving", "JobStatus.predicted_saving_low", "JobStatus.predicted_saving_high"),
        (-limits.MAX_SLOWDOWN, 1.0),
    ),
    "GuardFigures.lost_s": (0.0, 1e9),
    "JobEvent.sequence": (1, limits.MAX_COUNT),
    "JobEvent.switch_revision": (0, limits.MAX_COUNT),
    **dict.fromkeys(("JobEvent.rank", "JobEvent.dp_rank"), (-1, limits.MAX_SIZE - 1)),
}


class _Field(NamedTuple):
    """A field of a plain value.

    Attributes:
        wire_name: Of protobuf's field.
        kind: The type of the field, or of a tuple's items.
        is_tuple: Whether there are any number of them.
        range: Both ends inclusive; None where protobuf's type says all.
    """

    name: str
    wire_name: str
    kind: Any
    is_tuple: bool
    range: tuple[float, float] | None


def status_to_wire(status: JobStatus) -> pb.JobStatus:
    """A job's status: of too many verdicts the worst, of too many events the newest."""
    verdicts = status.verdicts
    if len(verdicts) > limits.MAX_VERDICTS:
        verdicts = tuple(nlargest(limits.MAX_VERDICTS, verdicts, key=attrgetter("degree")))
    wire: pb.JobStatus = _to_wire(replace(status, verdicts=verdicts, events=status.events[-limits.MAX_EVENTS :]))
    return wire


def decode_job_status(data: bytes) -> JobStatus:
    """A ``JobStatus``.

    Raises:
        InvalidMessageError: The bytes are no such message, or fields are out of their ranges.
    """
    wire, check = parse(pb.JobStatus, data), Checker()
    for name, most in _MAX_ITEMS.items():
        if len(getattr(wire, name)) > most:
            check.violated(name, f"{len(getattr(wire, name))} of them", f"at most {most}")
    check.finish()
    status: JobStatus = _from_wire(check, "", JobStatus, wire)
    check.finish()
    return status


@cache
def _fields_of(cls: Any) -> tuple[_Field, ...]:
    types, found = get_type_hints(cls), []
    for name in (field.name for field in fields(cls)):
        items = get_args(types[name])  # of tuple[item, ...]
        kind, is_tuple = items[0] if items else types[name], bool(items)
        bounds = _OWN_RANGES.get(f"{cls.__name__}.{name}") or _RANGES.get(name.rpartition("_")[2])
        if kind is float and bounds is None:
            raise TypeError(f"{cls.__name__}.{name}: saw no range, expected one by the name's unit or in _OWN_RANGES")
        wire_name = _WIRE_NAMES.get(name, name)
        found.append(_Field(name, wire_name, kind, is_tuple, bounds if kind in (int, float) else None))
    return tuple(found)


def _to_wire(value: Any) -> Any:
    name = type(value).__name__
    message, told = getattr(pb, _WIRE_NAMES.get(name, name)), {}
    for field in _fields_of(value.__class__):
        of_field = getattr(value, field.name)
        told[field.wire_name] = (
            [_item_to_wire(field, one) for one in of_field] if field.is_tuple else _item_to_wire(field, of_field)
        )
    return message(**told)


def _item_to_wire(field: _Field, value: Any) -> Any:
    if isinstance(value, Target):
        return target_to_wire(value)
    if is_dataclass(value):
        return _to_wire(value)
    if isinstance(value, str):
        return value if field.name in _WORDS else sentence(value)
    if field.name == "age_s":  # as old as the planner, which may run for years
        return min(value, limits.MAX_SECONDS)
    # The upper end of an interval that little is known of may be any number.
    return min(value, limits.MAX_SLOWDOWN) if field.range is _DEGREES else value


def _from_wire(check: Checker, at: str, cls: Any, wire: Any) -> Any:
    values = {}
    for field in _fields_of(cls):
        of_field, place = getattr(wire, field.wire_name), at + field.name
        values[field.name] = (
            tuple(_item_from_wire(check, f"{place}[{index}]", field, one) for index, one in enumerate(of_field))
            if field.is_tuple
            else _item_from_wire(check, place, field, of_field)
        )
    return cls(**values)


def _item_from_wire(check: Checker, place: str, field: _Field, value: Any) -> Any:
    if field.kind is Target:
        return target_from_wire(check, place, value)
    if is_dataclass(field.kind):
        return _from_wire(check, f"{place}.", field.kind, value)
    if field.kind is str:
        most = _WORDS.get(field.name)
        return sentence(value) if most is None else check.text(place, value, most)
    if field.range is None:
        return value
    low, high = field.range
    if field.kind is int:
        return check.integer(place, value, int(low), int(high))
    return check.number(place, value, high, low)
