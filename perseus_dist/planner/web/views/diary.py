"""Diary of a job: phases that it entered and targets that were set, as the planner sees them once a second.

The planner's own history has verdicts, reports and switches. Both together are the events of the page.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.job import Phase
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.web.views.wording import target_words

MAX_ENTRIES = 64
PLANNER = "planner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event.

    Attributes:
        at_s: [s] since 1970.
        who: Who did it, as far as it is known.
    """

    at_s: float
    kind: str
    who: str
    sentence: str


@dataclass(slots=True, kw_only=True)
class _Seen:
    phase: Phase
    target: Target
    by_operator: bool
    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=MAX_ENTRIES))


class Diary:
    """Of all jobs; a job's is forgotten with it."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[JobActor, _Seen] = WeakKeyDictionary()

    def look(self, actor: JobActor) -> None:
        """Note what has changed since the last look."""
        job = actor.job
        seen = self._of.get(actor)
        by_operator = job.chosen_target is not None and job.chosen_target.by_operator
        if seen is None:
            self._of[actor] = _Seen(phase=job.phase, target=job.target, by_operator=by_operator)
            return
        if seen.phase is not job.phase:
            seen.phase = job.phase
            sentence = f"{job.phase.replace('_', ' ')}: {job.reason}"
            seen.entries.append(Entry(at_s=time.time(), kind="phase", who=PLANNER, sentence=sentence))
        if (seen.target, seen.by_operator) != (job.target, by_operator):
            seen.target, seen.by_operator = job.target, by_operator
            sentence = f"target: {target_words(job.target)}"
            who = (actor.target_set_by or "an operator") if by_operator else "the job"
            seen.entries.append(Entry(at_s=time.time(), kind="target", who=who, sentence=sentence))

    def entries(self, actor: JobActor) -> tuple[Entry, ...]:
        """The newest ones of a job, ascending."""
        seen = self._of.get(actor)
        return tuple(seen.entries) if seen else ()
