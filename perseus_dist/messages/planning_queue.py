"""State of the planning queue that planners on one database share, for metrics, page and doctor."""

from dataclasses import dataclass

LONG_WAIT_S = 60.0
"""How long a request may wait for a worker before that is a trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningQueue:
    """Requests that no worker has, and the workers that are seen. A request and its worker are of the same version.

    Attributes:
        num_waiting: Requests of this version.
        oldest_s: [s] How long the oldest of them has waited.
        num_waiting_others: Requests of planners of other versions, which workers of this version do not take.
        oldest_others_s: [s] How long the oldest of those has waited.
        num_workers: Processes of this version that only plan; a planner's own are not among them.
        num_at_once: Requests that those plan at once.
        num_workers_others: Processes of other versions that only plan.
    """

    num_waiting: int = 0
    oldest_s: float = 0.0
    num_waiting_others: int = 0
    oldest_others_s: float = 0.0
    num_workers: int = 0
    num_at_once: int = 0
    num_workers_others: int = 0

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        waiting = _waiting(self.num_waiting, self.oldest_s) or "no request waits"
        workers = (
            f"{_counted(self.num_workers, 'planning worker')}, {self.num_at_once} at once"
            if self.num_workers
            else "no planning workers but the planners' own"
        )
        parts = [f"{waiting}; {workers}"]
        if others := _waiting(self.num_waiting_others, self.oldest_others_s):
            parts.append(f"of other versions: {others}")
        if self.num_workers_others:
            parts.append(f"{_counted(self.num_workers_others, 'planning worker')} of other versions")
        return "; ".join(parts)

    @property
    def troubles(self) -> tuple[tuple[str, str], ...]:
        """Sentences on what is wrong, each with a remedy."""
        found = []
        if self.oldest_s > LONG_WAIT_S:
            found.append(
                (
                    f"a request has waited {self.oldest_s:.0f} s for a worker",
                    "start 'perseus-dist planning-worker --store URL' on more machines, or with more --workers",
                )
            )
        if self.oldest_others_s > LONG_WAIT_S:
            found.append(
                (
                    f"a request of a planner of another version has waited {self.oldest_others_s:.0f} s",
                    "give all planners and planning workers on the database the same version",
                )
            )
        if self.num_workers_others:
            found.append(
                (
                    f"{_counted(self.num_workers_others, 'planning worker')} of other versions plan nothing for it",
                    "install the planner's version where they run, and start them again",
                )
            )
        return tuple(found)


def _waiting(number: int, oldest_s: float) -> str:
    if not number:
        return ""
    return f"{_counted(number, 'request')} {'waits' if number == 1 else 'wait'}, the oldest for {oldest_s:.0f} s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
