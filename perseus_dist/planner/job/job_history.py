"""Events of a job's pipelines, newest last: verdicts, reports and switches."""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.messages.terms import NO_ITERATION

MAX_EVENTS = 64


@dataclass(slots=True, kw_only=True)
class JobHistory:
    """Events of this life of the planner, bounded.

    Attributes:
        num_events: So far.
        num_verdicts: So far, by cause.
    """

    num_events: int = 0
    num_verdicts: Counter[str] = field(default_factory=Counter)
    _newest: deque[tuple[float, JobEvent]] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))

    def add(
        self,
        kind: str,
        sentence: str,
        *,
        now_s: float,
        iteration: int,
        effective_iteration: int = NO_ITERATION,
        switch_revision: int = 0,
        rank: int = -1,
        dp_rank: int = -1,
        degree: float = 0.0,
        low: float = 0.0,
        high: float = 0.0,
        cause: str = "",
        t_prime_s: float = 0.0,
        points: tuple[int, ...] = (),
    ) -> None:
        """Something has happened now; arguments as in ``job_status.JobEvent``."""
        self.num_events += 1
        event = JobEvent(
            sequence=self.num_events,
            kind=kind,
            age_s=0.0,
            iteration=iteration,
            sentence=sentence,
            effective_iteration=effective_iteration,
            switch_revision=switch_revision,
            rank=rank,
            dp_rank=dp_rank,
            degree=degree,
            low=low,
            high=high,
            cause=cause,
            t_prime_s=t_prime_s,
            points=points,
        )
        self._newest.append((now_s, event))

    def events(self, now_s: float) -> tuple[JobEvent, ...]:
        """The newest ones, ascending, as old as they are at an instant."""
        return tuple(replace(event, age_s=max(0.0, now_s - at_s)) for at_s, event in self._newest)
