"""A table of leases in memory, on a clock that the test moves: the same contract as PostgreSQL's, by the same tests."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from zlib import crc32

from perseus_dist.planner.job.facts import BudgetSet, Fact, PricePolicySet
from perseus_dist.planner.store.fact_database import FencedError
from perseus_dist.planner.store.lease_table import Claimed, JobElsewhere, LeaseError, Survey, job_elsewhere

LEASE_S = 2.0
MAX_ORPHANS = 256


@dataclass
class Registration:
    address: str
    alive_until_s: float


@dataclass
class Database:
    """What replicas share.

    Attributes:
        now_s: The database's clock.
        facts: By job, all that writes have stored.
        leases: By job, number of the owner (0 for none) and epoch.
        history: (job, epoch, fact's key) of each write that was stored.
    """

    now_s: float = 0.0
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    replicas: dict[int, Registration] = field(default_factory=dict)
    history: list[tuple[str, int, str]] = field(default_factory=list)
    newest: int = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest

    def register(self, address: str) -> "MemoryLeases":
        number = self.next()
        self.replicas[number] = Registration(address, self.now_s + LEASE_S)
        return MemoryLeases(self, number, address)

    def lives(self, number: int) -> bool:
        return number in self.replicas and self.replicas[number].alive_until_s > self.now_s

    def write(self, job: str, epoch: int, fact: Fact) -> bool:
        """Store a fact under an epoch; False where the epoch does not count."""
        if not epoch or self.leases.get(job, (0, 0))[1] != epoch:
            return False
        self.facts[job] = [one for one in self.facts.get(job, ()) if one.key != fact.key] + [fact]
        self.history.append((job, epoch, fact.key))
        return True


class MemoryLeases:
    """A ``LeaseTable``.

    Attributes:
        is_away: Whether the database cannot be reached from here.
    """

    lease_s = 60.0  # by the clock of the loop: tests suspend by themselves

    def __init__(self, database: Database, number: int, address: str) -> None:
        self.database = database
        self.number = number
        self.address = address
        self.is_away = False

    def survey(self, held: Mapping[str, int]) -> Survey:
        database, me = self.database, self._registration()
        lost: set[str] = set()
        if me.alive_until_s <= database.now_s:
            lost = {job for job, epoch in held.items() if database.leases.get(job) != (self.number, epoch)}
        me.alive_until_s = database.now_s + LEASE_S
        orphans = [job for job, (owner, _) in database.leases.items() if not database.lives(owner)]
        keeper, _ = database.leases.get("", (0, 0))
        return Survey(
            lost=frozenset(lost),
            orphans=sorted(orphans, key=lambda job: (job != "", crc32(f"{job}{self.number}".encode())))[:MAX_ORPHANS],
            replicas=sorted(one.address for number, one in database.replicas.items() if database.lives(number)),
            policies=database.replicas[keeper].address if database.lives(keeper) else "",
            patterns=[
                fact.jobs for fact in database.facts.get("", ()) if isinstance(fact, (BudgetSet, PricePolicySet))
            ],
        )

    def claim(self, jobs: Collection[str], *, known_only: bool = False) -> "dict[str, Claimed | str]":
        database, me = self.database, self._registration()
        if me.alive_until_s <= database.now_s:
            raise LeaseError("the registration has lapsed")
        found: dict[str, Claimed | str] = {}
        for job in jobs:
            is_known = job in database.leases
            owner, _ = database.leases.get(job, (0, 0))
            if owner != self.number and database.lives(owner):
                found[job] = database.replicas[owner].address
            elif is_known or not known_only:
                database.leases[job] = (self.number, database.next())
                facts = tuple(database.facts.get(job, ()))
                found[job] = Claimed(epoch=database.leases[job][1], facts=facts, has_predecessor=is_known and job != "")
        return found

    def elsewhere(self) -> list[JobElsewhere]:
        self._check_reachable()
        database = self.database
        found = [
            job_elsewhere(job, database.replicas[owner].address, database.facts.get(job, ()))
            for job, (owner, _) in sorted(database.leases.items())
            if owner != self.number and database.lives(owner)
        ]
        return [job for job in found if job is not None]

    def release(self, held: Mapping[str, int]) -> None:
        self._check_reachable()
        for job, epoch in held.items():
            if self.database.leases.get(job) == (self.number, epoch):
                if self.database.facts.get(job):
                    self.database.leases[job] = (0, epoch)
                else:
                    del self.database.leases[job]

    def resign(self) -> None:
        self._check_reachable()
        self.database.replicas.pop(self.number, None)

    def _registration(self) -> Registration:
        self._check_reachable()
        if self.number not in self.database.replicas:
            raise FencedError("another planner has taken over", ())
        return self.database.replicas[self.number]

    def _check_reachable(self) -> None:
        if self.is_away:
            raise LeaseError("the database cannot be reached")
