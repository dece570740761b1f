"""A database that is slow: a planner lives all the same."""

from collections.abc import Mapping, Sequence

from test_planner_store import FACTS

from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.store.fact_database import Change, WriteError
from perseus_dist.planner.store.fact_rows import FactRow
from perseus_dist.planner.store.store import Store


class SlowFacts:
    """Refuses each transaction, as a server does where a lock is not free in time."""

    name = "the database"
    period_s: float | None = 0.0  # a renewal is always due

    def __init__(self) -> None:
        self.calls: list[str] = []

    def load(self) -> dict[str, list[Fact]]:
        return {}

    def write(self, changes: Mapping[str, Change]) -> None:
        self.calls.append("+".join(sorted(changes)))
        raise WriteError("a lock was not free in time")

    def keep_alive(self) -> None:
        self.calls.append("alive")

    def set_aside(self, jobs: Mapping[str, Sequence[FactRow]]) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Nothing is open."""


def test_a_planner_whose_writes_fail_one_by_one_renews_its_registration_meanwhile() -> None:
    facts = SlowFacts()
    store = Store(facts, wake=lambda: None)
    for job_id in ("a", "b"):
        store.commit(job_id, FACTS)
    store.store(store.take())
    assert facts.calls == ["a+b", "a", "alive", "b", "alive"]
    facts.calls.clear()
    store.store([])
    assert facts.calls == ["a+b", "a", "alive", "b", "alive"]
