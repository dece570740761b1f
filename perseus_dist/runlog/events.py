"""Events of a job beside its iterations: stragglers, switches and reports; in a test, the throttles injected.

``events.jsonl`` has a line for each ``JobEvent``, by rank 0's agent, in the order in which they came.
``injected.jsonl``, by a simulated run that throttles GPUs on purpose, has a line for each cap, and for its end.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.messages.terms import NO_ITERATION, NO_POINT
from perseus_dist.runlog.json_fields import Fields, FieldsError
from perseus_dist.runlog.json_lines import objects_of, read_lines

_MAX_LINES = 100_000
_MAX_RANK = 2**31
_MAX_CLOCK_MHZ = 100_000
_NOBODY = -1

_Read = TypeVar("_Read")


class KeptEvent(NamedTuple):
    """An event, and when it happened: aware, or None where that cannot be understood."""

    at: datetime | None
    event: JobEvent


class Injection(NamedTuple):
    """A throttle that was put on a GPU on purpose, after ``iteration`` had begun; a cap of None ends it."""

    iteration: int
    rank: int
    thermal_cap_mhz: int | None


def read_events(path: Path, notes: list[str]) -> tuple[KeptEvent, ...]:
    """The events of a job, as they came; none where there is no file.

    Args:
        path: The file.
        notes: Gets a sentence for everything that is left out.
    """
    return _each(path, notes, _event)


def read_injections(path: Path, notes: list[str]) -> tuple[Injection, ...]:
    """Throttles that were injected; arguments as in ``read_events``."""
    return _each(path, notes, _injection)


def _each(path: Path, notes: list[str], read: Callable[[Fields], _Read]) -> tuple[_Read, ...]:
    lines = read_lines(path, notes)
    if len(lines) > _MAX_LINES:
        notes.append(f"{path.name}: only the last {_MAX_LINES} of {len(lines)} lines are read")
    found = []
    for fields in objects_of(lines[-_MAX_LINES:], path.name, notes):
        try:
            found.append(read(fields))
        except FieldsError as error:
            notes.append(f"{path.name}: a line is left out: {error}")
    return tuple(found)


def _event(fields: Fields) -> KeptEvent:
    points = fields.wholes_or_none("points") or ()
    event = JobEvent(
        sequence=fields.whole("sequence", low=1),
        kind=fields.text("kind"),
        age_s=0.0,
        iteration=fields.whole("iteration", NO_ITERATION, low=NO_ITERATION),
        sentence=fields.text("sentence", ""),
        effective_iteration=fields.whole("effective_iteration", NO_ITERATION, low=NO_ITERATION),
        switch_revision=fields.whole("switch_revision", 0),
        rank=fields.whole("rank", _NOBODY, low=_NOBODY, high=_MAX_RANK),
        dp_rank=fields.whole("dp_rank", _NOBODY, low=_NOBODY, high=_MAX_RANK),
        degree=fields.real("degree", 0.0, low=0.0),
        low=fields.real("low", 0.0, low=0.0),
        high=fields.real("high", 0.0, low=0.0),
        cause=fields.text("cause", ""),
        t_prime_s=fields.real("t_prime_s", 0.0, low=0.0),
        points=tuple(point if NO_POINT <= point < _MAX_RANK else NO_POINT for point in points),
    )
    return KeptEvent(_moment(fields.text("at", "")), event)


def _injection(fields: Fields) -> Injection:
    cap_mhz = fields.whole("thermal_cap_mhz", 0, high=_MAX_CLOCK_MHZ)
    return Injection(
        iteration=fields.whole("iteration", low=NO_ITERATION),
        rank=fields.whole("gpu", high=_MAX_RANK),
        thermal_cap_mhz=cap_mhz or None,
    )


def _moment(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
