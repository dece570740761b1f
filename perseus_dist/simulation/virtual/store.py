"""The planner's store in virtual time: commits take no time, and the disk may be full."""

from collections.abc import Sequence

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.lifecycle.events import Persist
from perseus_dist.planner.store.fact_rows import fact_of_row, row_of_fact
from perseus_dist.planner.store.store import RETRY_PERIOD_S

_RETRY_NS = round(RETRY_PERIOD_S * 1e9)


class VirtualStore:
    """One job's facts. Those that could not be written are written before the job's next ones, or never.

    Attributes:
        is_full: Nothing can be written.
        retry_ns: When to ``make_up``; None while nothing has failed.
    """

    def __init__(self) -> None:
        self.is_full = False
        self.retry_ns: int | None = None
        self._facts: dict[str, Fact] = {}
        self._failed: list[Persist] = []

    def commit(self, persist: Persist, now_ns: int) -> bool:
        """Make facts durable, and all that failed before; whether that has worked."""
        self._failed.append(persist)
        return self._write(now_ns)

    def make_up(self, now_ns: int) -> None:
        """Try again what has failed."""
        if self._failed:
            self._write(now_ns)

    @property
    def unwritten_keys(self) -> frozenset[str]:
        """Keys of facts that the disk has not taken, and that the planner knows not to be durable."""
        return frozenset(fact.key for persist in self._failed for fact in persist.facts)

    def facts(self) -> Sequence[Fact]:
        """The durable facts, as a planner reads them that has just started."""
        return [fact_of_row(row_of_fact(fact)) for fact in self._facts.values()]

    def crash(self) -> None:
        """The planner's process ends: what failed is lost with it."""
        self._failed.clear()
        self.retry_ns = None

    def forget(self) -> None:
        """The job is over and deleted."""
        self._facts.clear()
        self.crash()

    def _write(self, now_ns: int) -> bool:
        if self.is_full:
            self.retry_ns = now_ns + _RETRY_NS
            return False
        for persist in self._failed:
            self._facts = {
                key: fact for key, fact in self._facts.items() if not any(key.startswith(p) for p in persist.drop)
            }
            for fact in persist.facts:
                self._facts.pop(fact.key, None)  # stored anew, it comes last
                self._facts[fact.key] = fact
        self._failed.clear()
        self.retry_ns = None
        return True
