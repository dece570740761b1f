"""Leases and facts of replicas in memory, on a clock that the test moves: PostgreSQL's contract, by the same tests."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from perseus_dist.planner.access.audit import AuditRecord
from perseus_dist.planner.access.grants import Grant
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, PricePolicySet
from perseus_dist.planner.store.fact_database import Change, FencedError, WriteError
from perseus_dist.planner.store.fact_rows import FactRow, fact_of_row
from perseus_dist.planner.store.lease_table import (
    MOST_ELSEWHERE,
    Claimed,
    JobElsewhere,
    LeaseError,
    Survey,
    job_elsewhere,
)

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
        grants: By name of the token, number of its newest change, and the grant.
        audit: State folder and record, in the order of storing.
    """

    now_s: float = 0.0
    facts: dict[str, list[Fact]] = field(default_factory=dict)
    leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    replicas: dict[int, Registration] = field(default_factory=dict)
    history: list[tuple[str, int, str]] = field(default_factory=list)
    grants: dict[str, tuple[int, Grant]] = field(default_factory=dict)
    audit: list[tuple[str, AuditRecord]] = field(default_factory=list)
    newest: int = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest

    def register(self, address: str, lease_s: float = LEASE_S) -> "MemoryLeases":
        """A replica that starts; an earlier start of the same address has ended."""
        number = self.next()
        self.replicas = {key: one for key, one in self.replicas.items() if one.address != address}
        self.replicas[number] = Registration(address, self.now_s + lease_s)
        return MemoryLeases(self, number, address)

    def note_committed(self, facts: Sequence[Fact]) -> None:
        """A replica has committed these; they are not stored yet, and perhaps never will be."""

    def lives(self, number: int) -> bool:
        return number in self.replicas and self.replicas[number].alive_until_s > self.now_s

    def write(self, job: str, epoch: int, fact: Fact) -> bool:
        """Store a fact under an epoch; False where the epoch does not count."""
        if not epoch or self.leases.get(job, (0, 0))[1] != epoch:
            return False
        self.facts[job] = [one for one in self.facts.get(job, ()) if one.key != fact.key] + [fact]
        self.history.append((job, epoch, fact.key))
        return True

    def change(self, job: str, change: Change) -> bool:
        """Store a change under its epoch; False where the epoch does not count."""
        if not change.epoch or self.leases.get(job, (0, 0))[1] != change.epoch:
            return False
        begins = tuple(change.drop)
        self.facts[job] = [one for one in self.facts.get(job, ()) if not (begins and one.key.startswith(begins))]
        for row in change.rows.values():
            self.write(job, change.epoch, fact_of_row(row))
        return True


class MemoryLeases:
    """A ``LeaseTable``.

    Attributes:
        is_away: Whether the database cannot be reached from here.
        loses_answer: Called at each change that has been made: whether the connection breaks before it is confirmed.
    """

    lease_s = 60.0  # by the clock of the loop: tests suspend by themselves

    def __init__(self, database: Database, number: int, address: str) -> None:
        self.database = database
        self.number = number
        self.address = address
        self.is_away = False
        self.loses_answer: Callable[[], bool] = lambda: False

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
            next_lapse_s=min(
                (
                    one.alive_until_s - database.now_s
                    for number, one in database.replicas.items()
                    if number != self.number and database.lives(number)
                ),
                default=math.inf,
            ),
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
        if self.loses_answer():
            raise LeaseError("the connection broke behind the claim")
        return found

    def all(self) -> dict[str, bool]:
        self._check_reachable()
        database = self.database
        return {job: database.lives(owner) for job, (owner, _) in database.leases.items() if job}

    def elsewhere(self) -> list[JobElsewhere]:
        self._check_reachable()
        database = self.database
        found = [
            job_elsewhere(job, database.replicas[owner].address, database.facts.get(job, ()))
            for job, (owner, _) in sorted(database.leases.items())
            if owner != self.number and database.lives(owner)
        ]
        return [job for job in found if job is not None][:MOST_ELSEWHERE]

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


class MemoryFacts:
    """A ``FactDatabase`` of a replica.

    Args:
        leases: Of the replica: both reach the database, or neither does.
    """

    name = "the database"
    period_s: float | None = None

    def __init__(self, leases: MemoryLeases) -> None:
        self._leases = leases

    def load(self) -> dict[str, list[Fact]]:
        """A replica has facts from its leases."""
        return {}

    def write(self, changes: Mapping[str, Change]) -> None:
        if self._leases.is_away:
            raise WriteError("the database cannot be reached", of_all=True)
        fenced = [job for job, change in changes.items() if not self._leases.database.change(job, change)]
        if self._leases.loses_answer():
            raise WriteError("the connection broke behind the commit", of_all=True)
        if fenced:
            raise FencedError(f"another replica has {fenced[0]} now", fenced, is_over=False)

    def keep_alive(self) -> None:
        raise AssertionError("a replica renews its leases")

    def set_aside(self, jobs: Mapping[str, Sequence[FactRow]]) -> None:
        raise AssertionError(f"no job can be made of what is stored of {', '.join(jobs)}")

    def close(self) -> None:
        """Nothing is open."""
