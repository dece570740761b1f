"""Which of a job's events are new. A status tells the newest ones again and again, and a new planner counts anew."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from perseus_dist.messages.job_status import JobEvent

_Identity = tuple[str, int, int, int, int]


class NewEvents:
    """Remembers the events of the newest status."""

    def __init__(self) -> None:
        self._known: dict[int, _Identity] = {}

    def record(self, events: Sequence[JobEvent]) -> list[JobEvent]:
        """Those that were not told before; all of them where the planner has begun to count anew.

        Args:
            events: Of a status, ascending.
        """
        told = {event.sequence: _identity(event) for event in events}
        newest = max(self._known, default=0)
        counts_anew = max(told, default=0) < newest or any(
            told.get(sequence, identity) != identity for sequence, identity in self._known.items()
        )
        new = [event for event in events if counts_anew or event.sequence > newest]
        self._known = told
        return new


def event_line(event: JobEvent, now: datetime) -> dict[str, Any]:
    """An event as ``events.jsonl`` has it: ``at`` (ISO 8601) says when it happened, instead of its age.

    Args:
        event: As it was received.
        now: Aware; when it was received.
    """
    line = asdict(event)
    at = now - timedelta(seconds=line.pop("age_s"))
    return {"at": at.isoformat(timespec="milliseconds"), **line}


def _identity(event: JobEvent) -> _Identity:
    """The content that tells apart two events of the same number, from two lives of the planner."""
    return event.kind, event.iteration, event.switch_revision, event.rank, event.dp_rank
