"""Drawn histories of replicas in virtual time: agents hear of nothing that is not stored, and what they hear holds.

The first test plays actors alone, with many steps; the others all of a replica (``replica_history.py``).
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from memory_leases import LEASE_S, Database, MemoryLeases
from replica_history import play as play_history

from perseus_dist.messages.from_planner import Release
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import Effect, Persist, Refuse, Send, SendTable, Tick
from perseus_dist.planner.runtime import job_actor
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import BEAT_S, Ownership
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.store.fact_database import FencedError
from perseus_dist.planner.store.lease_table import Claimed
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult

JOBS = ("a", "b", "c")


def numbered(revision: int) -> Fact:
    return StragglerKnown(straggler_id=f"{revision:06}", degree=2.0, dp_rank=0)


def next_revision(job: Job, _event: object, _now_s: float) -> list[Effect]:
    """Stands in for the life cycle: each step stores a revision, and says it to the agents."""
    job.num_messages += 1
    said = Send(stream=0, message=Release(reason=f"{job.job_id} {job.num_messages}"))
    return [Persist(facts=(numbered(job.num_messages),)), said]


@dataclass
class Heard:
    """By job, what agents have heard last.

    Attributes:
        revisions: Highest of each job.
        num: Of all that was said.
        breaches: Sentences; callbacks of the event loop cannot raise to the test.
    """

    database: Database
    revisions: dict[str, int] = field(default_factory=dict)
    num: int = 0
    breaches: list[str] = field(default_factory=list)

    def hear(self, job_id: str, revision: int) -> None:
        if numbered(revision) not in self.database.facts.get(job_id, ()):
            self.breaches.append(f"{job_id}: {revision} is not stored")
        if revision <= self.revisions.get(job_id, 0):
            self.breaches.append(f"{job_id}: {revision} after {self.revisions[job_id]}")
        self.revisions[job_id] = revision
        self.num += 1


@dataclass
class Waiting:
    """A commit on its way to the database, under the epoch of the moment when it was made."""

    job_id: str
    epoch: int
    facts: Sequence[Fact]
    done: "Future[None]" = field(default_factory=Future)


class ReplicaProcess:
    """Actors, their store and their streams; ``Ownership`` takes jobs and gives them up."""

    def __init__(self, leases: MemoryLeases, heard: Heard) -> None:
        self.leases = leases
        self.is_running = True
        self._heard = heard
        self._actors: dict[str, JobActor] = {}
        self._waiting: list[Waiting] = []
        self._failed: dict[str, Waiting] = {}
        self.ownership = Ownership(leases, self, self._call)

    def has(self, job_id: str) -> bool:
        return job_id in self._actors

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        assert job_id not in self._actors
        if job_id not in JOBS:
            return
        job = Job(job_id=job_id, policy=Policy())
        job.num_messages = max(
            [0, *(int(one.straggler_id) for one in claimed.facts if isinstance(one, StragglerKnown))]
        )
        self._actors[job_id] = JobActor(
            job,
            store=self,  # type: ignore[arg-type]
            worker=self,
            streams=self,
            counters=Counters(),
            forget=lambda _: None,
            withdraw=self._withdraw,
        )

    def give_up(self, job_id: str, ending: Ending) -> None:
        if (actor := self._actors.pop(job_id, None)) is not None:
            actor.abandon(ending.reason)

    def step(self, job_id: str) -> None:
        """Something happens to a job, wherever it is believed to be."""
        if (actor := self._actors.get(job_id)) is not None:
            actor.tell(Tick())

    async def attach(self, job_id: str) -> None:
        try:
            await self.ownership.ensure(job_id)
        except RefusalError:
            return

    def commit(self, job_id: str, facts: Sequence[Fact], _drop: Sequence[str] = ()) -> "Future[None]":
        commit = Waiting(job_id, self.ownership.epochs.get(job_id, 0), facts)
        self._waiting.append(commit)
        return commit.done

    def flush(self) -> None:
        """The store's thread writes what waits, and what has failed before of the same lease."""
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            failed = self._failed.pop(commit.job_id, None)
            if failed is not None and failed.epoch == commit.epoch:
                commit.facts = [*failed.facts, *commit.facts]
            if self.leases.is_away:
                self._failed[commit.job_id] = commit
                commit.done.set_exception(StoreError("the database is away"))
            elif all(self.leases.database.write(commit.job_id, commit.epoch, fact) for fact in commit.facts):
                commit.done.set_result(None)
            else:
                self.ownership.lose(commit.job_id, commit.epoch)
                commit.done.set_exception(StoreError(str(FencedError("another replica has it", (commit.job_id,)))))

    def send(self, effect: Send | SendTable) -> None:
        assert isinstance(effect, Send)
        assert isinstance(effect.message, Release)
        job_id, revision = effect.message.reason.split()
        self._heard.hear(job_id, int(revision))

    def refuse(self, effect: Refuse) -> None:
        raise AssertionError(effect)

    def expected_s(self, request: PlanningRequest) -> float | None:
        raise AssertionError(request)

    async def plan(self, request: PlanningRequest, expect: object = None) -> PlanResult:
        raise AssertionError(request, expect)

    def _withdraw(self, job_id: str, trouble: str) -> bool:
        self.ownership.withdraw(job_id, trouble)
        return True

    async def _call(self, function, *arguments):  # type: ignore[no-untyped-def]  # as Ownership wants it
        await asyncio.sleep(0)
        return function(*arguments)


@pytest.mark.parametrize("seed", range(40))
def test_agents_hear_of_nothing_that_the_next_owner_would_contradict(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_actor, "step", next_revision)

    async def pass_time(database: Database, replicas: Sequence[ReplicaProcess], duration_s: float) -> None:
        until_s = database.now_s + duration_s
        while database.now_s < until_s:
            database.now_s += BEAT_S
            await asyncio.gather(*(one.ownership.beat() for one in replicas if one.is_running))

    async def play() -> int:
        chance, database = random.Random(seed), Database()
        heard = Heard(database)
        replicas = [ReplicaProcess(database.register(f"replica-{number}"), heard) for number in range(3)]
        for _ in range(300):
            replica, job_id = chance.choice(replicas), chance.choice(JOBS)
            match chance.randrange(20):
                case 0:
                    replica.is_running = not replica.is_running or chance.random() < 0.5
                case 1:
                    replica.leases.is_away = not replica.leases.is_away and chance.random() < 0.5
                case 2:
                    await pass_time(database, replicas, chance.choice([BEAT_S, LEASE_S, 2 * LEASE_S]))
                case 3 if replica.is_running:
                    replica.ownership.suspend()
                case 4 | 5 if replica.is_running:
                    await replica.attach(job_id)
                case 6 | 7 | 8 | 9 | 10:
                    replica.flush()  # of one that is stopped as well: what was on its way arrives
                case _ if replica.is_running:
                    replica.step(job_id)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for replica in replicas:
            replica.is_running, replica.leases.is_away = True, False
        await pass_time(database, replicas, 2 * LEASE_S)
        for job_id in JOBS:
            await asyncio.gather(*(one.attach(job_id) for one in replicas))
            assert sum(one.has(job_id) for one in replicas) == 1
            before = heard.num
            for one in replicas:
                one.step(job_id)
                one.flush()
            await asyncio.sleep(0.001)
            assert heard.num > before
        assert not heard.breaches
        return heard.num

    assert asyncio.run(play()) > 2 * len(JOBS)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(2, 6))])
def test_whatever_happens_to_replicas_what_they_acknowledged_holds(seed: int) -> None:
    played = play_history(seed)
    assert not played.breaches, f"python tests/stress/replica_histories.py --seeds {seed}-{seed}"
    assert played.counts["targets"] > 0
    assert played.counts["switches"] > 0


@pytest.mark.stress
def test_the_same_seed_plays_the_same_history() -> None:
    first, second = play_history(3), play_history(3)
    assert first.lines
    assert first == second


@pytest.mark.stress
def test_a_sample_of_histories_of_replicas_holds() -> None:
    script = Path(__file__).parents[1] / "stress" / "replica_histories.py"
    done = subprocess.run([sys.executable, str(script), "--seeds", "6-30"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
