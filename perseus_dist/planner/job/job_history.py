"""Events of a job, the newest last; ``JobEvent`` lists their kinds."""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.messages.terms import NO_ITERATION
from perseus_dist.planner.job.state.durations import ITERATION_BOUNDS_S, SWITCH_BOUNDS_S, DurationHistogram

MAX_EVENTS = 64


@dataclass(slots=True, kw_only=True)
class JobHistory:
    """Events of this life of the planner, bounded.

    Attributes:
        num_events: So far.
        num_verdicts: So far, by cause.
        iterations: That all ranks have reported, at whatever clocks.
        energy_j: [J] drawn in those of them whose energy is known.
        switch_confirmations: From the decision of a switch until a rank said that it has it, of every rank.
    """

    num_events: int = 0
    num_verdicts: Counter[str] = field(default_factory=Counter)
    iterations: DurationHistogram = field(default_factory=lambda: DurationHistogram(ITERATION_BOUNDS_S))
    energy_j: float = 0.0
    switch_confirmations: DurationHistogram = field(default_factory=lambda: DurationHistogram(SWITCH_BOUNDS_S))
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

    def count_iteration(self, time_s: float, energy_j: float | None) -> None:
        """All ranks have reported an iteration."""
        self.iterations.observe(time_s)
        self.energy_j += energy_j or 0.0

    def confirm_switch(self, switch_revision: int, now_s: float) -> None:
        """A rank confirms a switch; only confirmations of the newest one are counted."""
        for at_s, event in reversed(self._newest):
            if event.kind == "switch":
                if event.switch_revision == switch_revision:
                    self.switch_confirmations.observe(now_s - at_s)
                return

    def events(self, now_s: float) -> tuple[JobEvent, ...]:
        """The newest ones, ascending, as old as they are at an instant."""
        return tuple(replace(event, age_s=max(0.0, now_s - at_s)) for at_s, event in self._newest)
