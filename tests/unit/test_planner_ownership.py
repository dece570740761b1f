"""Replicas share jobs: one owner at a time in effect, whoever is killed, stopped, cut off or started again."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import pytest
from memory_leases import LEASE_S, Database, MemoryLeases
from replica_history import WorldDatabase
from virtual_loop import VirtualLoop, VirtualThread, World

from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.job.facts.decisions import StragglerKnown
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, PricePolicySet
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import BEAT_S, Ownership
from perseus_dist.planner.store.lease_table import Claimed, LeaseError, Survey

JOBS = tuple(f"job-{number}" for number in range(6))


def fact(number: int) -> Fact:
    return StragglerKnown(straggler_id=f"{number:06}", degree=2.0, dp_rank=0)


class Holding:
    """Holds facts in place of jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[Fact]] = {}
        self.endings: dict[str, Ending] = {}

    def has(self, job_id: str) -> bool:
        return job_id in self.jobs

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        assert job_id not in self.jobs
        if claimed.facts or job_id == "":
            self.jobs[job_id] = list(claimed.facts)

    def give_up(self, job_id: str, ending: Ending) -> None:
        self.jobs.pop(job_id, None)
        self.endings[job_id] = ending


@dataclass
class Replica(Holding):
    """One replica: what it holds, and whether its process runs."""

    leases: MemoryLeases
    is_running: bool = True
    gate: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        Holding.__init__(self)
        self.ownership = Ownership(self.leases, self, self._call)

    async def attach(self, job_id: str) -> str:
        """A rank comes: the address that it is sent to, this one's where it is served."""
        try:
            await self.ownership.ensure(job_id)
        except RefusalError as error:
            return error.owner
        self.jobs.setdefault(job_id, [])
        return self.leases.address

    def write(self, job_id: str, new: Fact) -> bool:
        """Store a fact under the epoch that this replica believes in."""
        return self.leases.database.write(job_id, self.ownership.epochs.get(job_id, 0), new)

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        if self.gate is not None:
            await self.gate()
        await asyncio.sleep(0)
        answer = function(*arguments)
        await asyncio.sleep(0)
        return answer


class Fleet:
    """Replicas on one database, in virtual time."""

    def __init__(self, num_replicas: int) -> None:
        self.database = Database()
        self.replicas = [Replica(self.database.register(f"replica-{number}")) for number in range(num_replicas)]

    async def pass_time(self, duration_s: float) -> None:
        """All that run beat."""
        until_s = self.database.now_s + duration_s
        while self.database.now_s < until_s:
            self.database.now_s += BEAT_S
            await asyncio.gather(*(one.ownership.beat() for one in self.replicas if one.is_running))

    def owners(self) -> dict[str, str]:
        return {
            job: self.database.replicas[owner].address
            for job, (owner, _) in sorted(self.database.leases.items())
            if self.database.lives(owner)
        }


def played(play: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(play())  # type: ignore[arg-type]


def test_ranks_are_sent_to_the_owner_wherever_they_come() -> None:
    async def play() -> None:
        fleet = Fleet(3)
        for number, job_id in enumerate(JOBS):
            first = fleet.replicas[number % 3]
            assert await first.attach(job_id) == first.leases.address
            for replica in fleet.replicas:
                assert await replica.attach(job_id) == first.leases.address

    played(play)


def test_ranks_that_come_at_once_get_one_owner() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        asked = [replica.attach("job") for replica in fleet.replicas * 20]
        assert len(set(await asyncio.gather(*asked))) == 1
        assert sum(replica.has("job") for replica in fleet.replicas) == 1
        assert [epoch for _, epoch in fleet.database.leases.values()] == [3]

    played(play)


def test_jobs_of_a_dead_replica_are_shared_among_the_others_once_their_leases_are_over() -> None:
    async def play() -> None:
        fleet = Fleet(3)
        dead, *others = fleet.replicas
        for number, job_id in enumerate(JOBS):
            await dead.attach(job_id)
            assert dead.write(job_id, fact(number))
        await fleet.pass_time(1.0)
        dead.is_running = False
        await fleet.pass_time(LEASE_S - 2 * BEAT_S)
        assert set(fleet.owners().values()) >= {"replica-0"}, "the leases still last"
        await fleet.pass_time(3 * BEAT_S)
        owned = [{job_id for job_id in replica.jobs if job_id} for replica in others]
        assert owned[0] | owned[1] == set(JOBS)
        assert not owned[0] & owned[1]
        assert all(owned)
        for number, job_id in enumerate(JOBS):
            (owner,) = (replica for replica in others if replica.has(job_id))
            assert owner.jobs[job_id] == [fact(number)]
        assert sum(replica.ownership.num_takeovers for replica in others) == len(JOBS)

    played(play)


def test_a_replica_that_wakes_up_changes_nothing_and_gives_up_what_it_has_lost() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        stopped, other = fleet.replicas
        await stopped.attach("job")
        stopped.write("job", fact(1))
        stopped.is_running = False
        await fleet.pass_time(2 * LEASE_S)
        assert other.has("job")
        assert not stopped.write("job", fact(2)), "fenced"
        stopped.is_running = True
        await fleet.pass_time(BEAT_S)
        assert not stopped.has("job")
        assert "another replica" in stopped.endings["job"].reason
        assert not stopped.endings["job"].may_return
        assert await stopped.attach("job") == "replica-1"
        assert fleet.database.facts["job"] == [fact(1)]

    played(play)


def test_a_replica_that_was_silent_while_all_others_were_too_goes_on() -> None:
    async def play() -> None:
        fleet = Fleet(1)
        (replica,) = fleet.replicas
        await replica.attach("job")
        epoch = replica.ownership.epochs["job"]
        replica.leases.is_away = True
        await fleet.pass_time(5 * LEASE_S)
        with pytest.raises(RefusalError) as refused:
            await replica.ownership.ensure("new")
        assert refused.value.code is grpc.StatusCode.UNAVAILABLE
        replica.leases.is_away = False
        await fleet.pass_time(BEAT_S)
        assert replica.ownership.epochs["job"] == epoch
        assert replica.write("job", fact(1))

    played(play)


def test_a_replica_that_is_cut_off_serves_no_job_beyond_its_lease() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        replica, other = fleet.replicas
        replica.leases.lease_s = 0.05
        for number, job_id in enumerate(JOBS):
            await replica.attach(job_id)
            assert replica.write(job_id, fact(number))
        await replica.ownership.beat()
        replica.leases.is_away = True
        await asyncio.sleep(0.1)
        await replica.ownership.beat()
        assert replica.jobs == {}
        assert "cut off" in replica.endings["job-0"].reason
        assert replica.endings["job-0"].may_return
        await other.ownership.beat()
        assert await other.attach("job-0") == "replica-0", "the lease lasts by the database's clock"
        replica.leases.lease_s = 60.0
        replica.leases.is_away = False
        await replica.ownership.beat()
        assert sorted(job_id for job_id in replica.jobs if job_id) == list(JOBS), "no other has taken them"
        assert replica.jobs["job-5"] == [fact(5)]

    played(play)


def test_a_job_that_cannot_be_stored_is_given_up_and_goes_on_from_what_is_stored() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        owner, other = fleet.replicas
        for job in JOBS[:2]:
            await owner.attach(job)
            assert owner.write(job, fact(1))
            owner.jobs[job].append(fact(1))
        before = dict(owner.ownership.epochs)
        owner.jobs[JOBS[0]].append(fact(2))  # which the store refuses
        owner.ownership.withdraw(JOBS[0], "the disk is full")
        owner.ownership.withdraw(JOBS[0], "again")
        assert "the disk is full" in owner.endings[JOBS[0]].reason or "again" in owner.endings[JOBS[0]].reason
        assert JOBS[0] not in owner.jobs
        assert set(owner.ownership.epochs) == {JOBS[1]}
        assert await other.attach(JOBS[0]) == owner.leases.address
        await owner.ownership.beat()
        assert owner.jobs[JOBS[0]] == [fact(1)]
        assert owner.ownership.epochs[JOBS[0]] > before[JOBS[0]]
        assert owner.ownership.epochs[JOBS[1]] == before[JOBS[1]]

    asyncio.run(play())


@dataclass
class Struck(Replica):
    """One to whom something happens as it goes on with the second of several jobs."""

    strike: Callable[["Struck"], None] = lambda _: None

    def take_over(self, job_id: str, claimed: Claimed) -> None:
        super().take_over(job_id, claimed)
        if len(self.jobs) == 2:
            self.strike(self)


def taken_over_by(survivor: Struck, fleet: Fleet) -> list[str]:
    return sorted(job_id for job_id in survivor.jobs if job_id and fleet.owners()[job_id] == survivor.leases.address)


def failing(_: Struck) -> None:
    raise RuntimeError("a defect at the second job")


@pytest.mark.parametrize("strike", [lambda replica: replica.ownership.suspend(), failing], ids=["suspended", "defect"])
def test_jobs_that_are_claimed_and_not_taken_up_are_taken_up_later(strike: Callable[[Struck], None]) -> None:
    async def play() -> None:
        fleet = Fleet(1)
        (dead,) = fleet.replicas
        for number, job_id in enumerate(JOBS):
            await dead.attach(job_id)
            assert dead.write(job_id, fact(number))
        dead.is_running = False
        fleet.database.now_s += 2 * LEASE_S
        survivor = Struck(fleet.database.register("survivor"), strike=strike)
        with suppress(RuntimeError):
            await survivor.ownership.beat()
        before = dict(survivor.ownership.epochs)
        assert len(taken_over_by(survivor, fleet)) <= 2
        survivor.strike = lambda _: None
        await survivor.ownership.beat()
        assert taken_over_by(survivor, fleet) == list(JOBS)
        assert all(survivor.ownership.epochs[job_id] == epoch for job_id, epoch in before.items())
        for number, job_id in enumerate(JOBS):
            assert survivor.jobs[job_id] == [fact(number)]
            assert survivor.write(job_id, fact(number))

    played(play)


async def of_a_dead_replica() -> Fleet:
    """All jobs are those of a replica whose leases are over; each has a fact."""
    fleet = Fleet(1)
    (dead,) = fleet.replicas
    for number, job_id in enumerate(JOBS):
        await dead.attach(job_id)
        assert dead.write(job_id, fact(number))
    fleet.database.now_s += 2 * LEASE_S
    return fleet


def test_jobs_that_another_replica_takes_before_they_are_taken_up_are_left_to_it() -> None:
    """The leases lapse while the first of them is taken up; a renewal that comes just then finds them gone."""

    async def play() -> None:
        fleet = await of_a_dead_replica()
        other = Replica(fleet.database.register("other"))
        arrived: list[str] = []

        def lapse(replica: Struck) -> None:
            arrived.extend(replica.jobs)
            fleet.database.now_s += 2 * LEASE_S
            other.leases.survey({})
            for job_id, claimed in other.leases.claim(JOBS, known_only=True).items():
                assert isinstance(claimed, Claimed)
                other.ownership.epochs[job_id] = claimed.epoch

        survivor = Struck(fleet.database.register("survivor"), strike=lapse)
        taking = asyncio.create_task(survivor.ownership.beat())
        while not arrived:
            await asyncio.sleep(0)
        await survivor.ownership._renew()
        await taking
        assert not set(survivor.jobs) & set(JOBS)
        assert set(fleet.owners().values()) == {"other"}

    played(play)


def test_jobs_whose_claim_was_made_and_not_answered_are_taken_up() -> None:
    """Their leases are this replica's by then, so they are no orphans that any replica would look at."""

    async def play() -> None:
        fleet = await of_a_dead_replica()
        survivor = Replica(fleet.database.register("survivor"))
        claim = survivor.leases.claim

        def claim_unanswered(*arguments: Any, **options: Any) -> Any:
            claim(*arguments, **options)
            raise LeaseError("the connection broke behind the commit")

        survivor.leases.claim = claim_unanswered  # type: ignore[method-assign]
        await survivor.ownership.beat()
        assert not survivor.jobs
        assert fleet.owners()["job-0"] == "survivor"
        survivor.leases.claim = claim  # type: ignore[method-assign]
        await survivor.ownership.beat()
        assert sorted(job_id for job_id in survivor.jobs if job_id) == list(JOBS)

    played(play)


def test_a_replica_that_leaves_hands_everything_over_at_once() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        leaving, other = fleet.replicas
        await leaving.attach("job")
        leaving.write("job", fact(1))
        asking = asyncio.create_task(leaving.attach("new"))
        await asyncio.sleep(0)
        await leaving.ownership.leave()
        assert await other.attach("job") == "replica-1"
        assert other.jobs["job"] == [fact(1)]
        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], asyncio.CancelledError)
        with pytest.raises(RefusalError, match="the planner ends"):
            await leaving.ownership.ensure("another")
        await leaving.ownership.beat()
        assert leaving.ownership.epochs == {}

    played(play)


HALL = BudgetSet(
    name="hall", watts=1e6, jobs=("llama-*",), objective="total", guard_band=0.0, weights=(), max_slowdowns=()
)
CHEAP = PricePolicySet(
    name="cheap", jobs=("llama-1", "llama-2", "llama-3"), signal="day-ahead", deadline_s=1e9, iterations=1000
)


@pytest.mark.parametrize("policy", [HALL, CHEAP], ids=["budget", "price"])
def test_jobs_of_a_policy_go_to_the_replica_that_keeps_the_policies(policy: BudgetSet | PricePolicySet) -> None:
    async def play() -> None:
        fleet = Fleet(2)
        keeper, other = fleet.replicas
        await fleet.pass_time(BEAT_S)
        await keeper.ownership.ensure("")
        for job_id in ("llama-1", "llama-2", "gpt"):
            await other.attach(job_id)
            other.write(job_id, fact(1))
        with pytest.raises(RefusalError) as refused:
            await other.ownership.ensure("")
        assert refused.value.owner == "replica-0"
        assert keeper.write("", policy)
        await fleet.pass_time(2 * BEAT_S)
        assert other.endings["llama-1"].owner == "replica-0"
        assert {job_id for job_id in keeper.jobs if job_id} == {"llama-1", "llama-2"}
        assert set(other.jobs) == {"gpt"}
        assert await other.attach("llama-3") == "replica-0"
        assert await keeper.attach("llama-3") == "replica-0"
        keeper.is_running = False
        await fleet.pass_time(LEASE_S + 3 * BEAT_S)
        assert set(other.jobs) == {"", "gpt", "llama-1", "llama-2", "llama-3"} - {"llama-3"}
        assert other.jobs[""] == [policy]

    played(play)


def test_leases_that_end_while_jobs_are_handed_over_are_given_up_and_taken_again() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        keeper, other = fleet.replicas
        await fleet.pass_time(BEAT_S)
        await keeper.ownership.ensure("")
        for job_id in ("llama-1", "gpt"):
            await other.attach(job_id)
            other.write(job_id, fact(1))
        assert keeper.write("", HALL)
        assert await other.ownership._renew()
        other.ownership._calls.renewed_s -= other.leases.lease_s
        await other.ownership._hand_over()
        assert other.ownership.epochs == {}
        assert all("cut off" in other.endings[job_id].reason for job_id in ("llama-1", "gpt"))
        await fleet.pass_time(4 * BEAT_S)
        assert (set(other.jobs), {job_id for job_id in keeper.jobs if job_id}) == ({"gpt"}, {"llama-1"})

    played(play)


@pytest.mark.parametrize("is_made", [False, True], ids=["not made", "not confirmed"])
def test_a_job_whose_release_has_failed_is_handed_over_all_the_same(*, is_made: bool) -> None:
    """Or the keeper would send its ranks to the replica that has given it up, and that one back, for ever."""

    async def play() -> None:
        fleet = Fleet(2)
        keeper, other = fleet.replicas
        for job_id in ("llama-1", "llama-2"):
            await other.attach(job_id)
            other.write(job_id, fact(1))
        await keeper.ownership.ensure("")
        assert keeper.write("", HALL)
        release = other.leases.release
        num_calls = 0

        def fail(held: Mapping[str, int]) -> None:
            nonlocal num_calls
            num_calls += 1
            if num_calls > 2:
                other.leases.release = release  # type: ignore[method-assign]
            if is_made:
                release(held)
            raise LeaseError("the connection broke")

        other.leases.release = fail  # type: ignore[method-assign]
        await fleet.pass_time(6 * BEAT_S)
        assert keeper.jobs == {"": [], "llama-1": [fact(1)], "llama-2": [fact(1)]}
        assert not other.jobs
        assert await other.attach("llama-1") == await keeper.attach("llama-1") == "replica-0"

    played(play)


def test_a_job_that_is_taken_again_before_its_release_succeeds_is_kept() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        owner, other = fleet.replicas
        await owner.ownership.ensure("job")  # and its first rank was refused
        release = owner.leases.release

        def fail(held: Mapping[str, int]) -> None:
            raise LeaseError(f"the connection broke with {len(held)} leases")

        owner.leases.release = fail  # type: ignore[method-assign]
        await fleet.pass_time(3 * BEAT_S)
        assert not owner.ownership.owns("job")
        assert await owner.attach("job") == "replica-0"
        owner.leases.release = release  # type: ignore[method-assign]
        await fleet.pass_time(3 * BEAT_S)
        assert owner.ownership.owns("job")
        assert await other.attach("job") == "replica-0"

    played(play)


def test_a_thousand_jobs_of_a_policy_are_taken_over_from_its_keeper() -> None:
    """A survey lists some of them, and the policies have to be taken before any is."""

    async def play() -> None:
        fleet = Fleet(3)
        first, keeper, third = fleet.replicas
        await keeper.ownership.ensure("")
        assert keeper.write("", BudgetSet(name="all", watts=1e6))
        for number in range(1000):
            assert await keeper.attach(f"job-{number}") == "replica-1"
            keeper.write(f"job-{number}", fact(1))
        keeper.is_running = False
        await fleet.pass_time(LEASE_S + 10 * BEAT_S)
        (owner,) = [one for one in (first, third) if one.jobs]
        assert len(owner.jobs) == 1001

    played(play)


def test_leases_without_a_job_are_dropped() -> None:
    async def play() -> None:
        fleet = Fleet(2)
        first, second = fleet.replicas
        await first.ownership.ensure("stranger")  # and its first rank was refused
        await fleet.pass_time(3 * BEAT_S)
        assert "stranger" not in fleet.database.leases
        assert await second.attach("stranger") == "replica-1"
        await first.ownership.ensure("unknown", known_only=True)
        assert not first.ownership.owns("unknown")

    played(play)


async def fleet_with_an_orphan() -> tuple[Fleet, Replica]:
    """Two replicas, the first of which has died with the job "a"; and the second."""
    fleet = Fleet(2)
    first, second = fleet.replicas
    await first.attach("a")
    assert first.write("a", fact(1))
    first.is_running = False
    fleet.database.now_s += 2 * LEASE_S
    second.leases.survey({})  # renews its registration
    return fleet, second


@pytest.mark.parametrize("num_steps", range(1, 6))
@pytest.mark.parametrize("known_only", [False, True])
def test_a_caller_that_leaves_while_a_job_is_claimed_leaves_it_to_nobody(*, num_steps: int, known_only: bool) -> None:
    """The lease is this replica's by then, so that no other takes the job, and no agent may ever come."""

    async def play() -> None:
        fleet, second = await fleet_with_an_orphan()
        calling = asyncio.create_task(second.ownership.ensure("a", known_only=known_only))
        for _ in range(num_steps):
            await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        await fleet.pass_time(3 * BEAT_S)
        assert second.ownership.owns("a")
        assert second.jobs == {"a": [fact(1)]}

    played(play)


@pytest.mark.parametrize("known_only", [False, True])
def test_a_claim_for_a_caller_that_was_not_confirmed_is_made_again(*, known_only: bool) -> None:
    async def play() -> None:
        fleet, second = await fleet_with_an_orphan()
        second.leases.loses_answer = lambda: True
        with pytest.raises(RefusalError, match="the connection broke"):
            await second.ownership.ensure("a", known_only=known_only)
        second.leases.loses_answer = lambda: False
        await fleet.pass_time(3 * BEAT_S)
        assert second.jobs == {"a": [fact(1)]}

    played(play)


def test_a_planner_that_serves_all_jobs_ends_replicas() -> None:
    async def play() -> None:
        fleet = Fleet(1)
        fleet.database.replicas.clear()
        await fleet.replicas[0].ownership.beat()
        assert "another planner" in await fleet.replicas[0].ownership.is_over

    played(play)


def test_claims_that_fail_are_told_once_and_not_as_renewals(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        fleet = Fleet(2)
        here, there = fleet.replicas
        there.leases.claim(["orphan"])
        fleet.database.facts["orphan"] = [fact(1)]
        there.is_running = False
        claim = here.leases.claim

        def fail(*_: Any, **__: Any) -> Any:
            raise LeaseError("it takes no lock")

        here.leases.claim = fail  # type: ignore[method-assign]
        await fleet.pass_time(3 * LEASE_S)
        here.leases.claim = claim  # type: ignore[method-assign]
        await fleet.pass_time(3 * LEASE_S)
        assert fleet.owners() == {"orphan": "replica-0"}

    with caplog.at_level("WARNING", "perseus_dist.planner.runtime.ownership.lease_calls"):
        played(play)
    told = [record.message for record in caplog.records if record.name.endswith("lease_calls")]
    assert told == ["leases cannot be taken: it takes no lock", "leases can be taken again"]


class SlowClaims(Holding):
    """A replica in virtual time, whose claims and releases wait for locks of others."""

    def __init__(self, world: World, leases: MemoryLeases, wait_s: float) -> None:
        Holding.__init__(self)
        self.loop = VirtualLoop(world)
        leases.lease_s = LEASE_S
        self.leases, self.number = leases, leases.number
        waiting = VirtualThread(world, self.loop, lambda: (wait_s, 0.0))
        renewals = VirtualThread(world, self.loop, lambda: (0.01, 0.01))
        with self.loop.current():
            self.ownership = Ownership(leases, self, through(waiting), through(renewals))
            self.keeping = self.loop.create_task(self.ownership.keep())


def through(thread: VirtualThread) -> Callable[..., Awaitable[Any]]:
    async def call(function: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.wrap_future(thread.submit(partial(function, *arguments)))

    return call


@pytest.mark.parametrize("then", ["claim", "release"])
def test_leases_outlast_calls_that_wait_for_locks(then: str) -> None:
    """A transaction of another replica may hold up a claim for ten seconds, and a release for three."""
    world = World()
    database = WorldDatabase(world)
    replica, other = SlowClaims(world, database.register("here"), 4.0), database.register("there")
    world.run(replica.loop, replica.ownership.ensure("held"), 10.0)
    replica.jobs["held"] = [fact(1)]
    assert database.write("held", replica.ownership.epochs["held"], fact(1))
    world.run(replica.loop, replica.ownership.ensure("new"), 10.0)
    if then == "claim":
        replica.jobs["new"] = []
    world.run_until(world.now_s + 10.0)
    assert ("new" in database.leases) == (then == "claim"), "a lease without a job is released"
    assert not replica.endings
    assert "held" in replica.ownership.epochs
    assert other.survey({}).orphans == []
    world.close()


def holding(world: World, database: WorldDatabase, meanwhile: Callable[[], None]) -> SlowClaims:
    """A replica with a job, whose event loop a look at its jobs holds from just before the answer of a renewal."""
    replica = SlowClaims(world, database.register("here"), 0.01)
    world.run(replica.loop, replica.ownership.ensure("held"), 10.0)
    replica.jobs["held"] = [fact(1)]
    assert database.write("held", replica.ownership.epochs["held"], fact(1))
    world.run_until(5.0)
    survey = replica.leases.survey

    def hold(held: Mapping[str, int]) -> Survey:
        replica.leases.survey = survey  # type: ignore[method-assign]
        replica.loop.is_stopped = True
        meanwhile()
        return survey(held)

    replica.leases.survey = hold  # type: ignore[method-assign]
    while not replica.loop.is_stopped:
        world.run_until(world.now_s + 0.001)
    return replica


@pytest.mark.parametrize(("duration_s", "is_over"), [(1.0, False), (1.45, False), (1.65, False), (1.85, True)])
def test_leases_outlast_a_look_at_jobs_that_holds_an_answer_up(*, duration_s: float, is_over: bool) -> None:
    """The event loop comes to the answer behind the end of the renewal before it."""
    world = World()
    replica = holding(world, WorldDatabase(world), lambda: None)
    world.run_until(world.now_s + duration_s)
    replica.loop.is_stopped = False
    world.run_until(world.now_s + 0.01)
    assert ("held" in replica.endings) == is_over
    world.run_until(world.now_s + 5.0)
    assert "held" in replica.ownership.epochs
    assert ("held" in replica.endings) == is_over
    world.close()


def test_a_replica_that_is_cut_off_behind_a_long_look_gives_its_jobs_up_in_time() -> None:
    world = World()
    replica = holding(world, WorldDatabase(world), lambda: None)
    world.run_until(world.now_s + 1.6)
    replica.leases.is_away = True
    replica.loop.is_stopped = False
    world.run_until(world.now_s + 0.1)
    assert "held" not in replica.endings
    world.run_until(world.now_s + 0.9 * LEASE_S)
    assert "cut off" in replica.endings["held"].reason
    world.close()


def test_an_answer_by_which_jobs_are_lost_prolongs_no_lease() -> None:
    world = World()
    database = WorldDatabase(world)
    other = database.register("there")

    def lose() -> None:
        database.ahead_s += 2 * LEASE_S
        other.survey({})
        other.claim(["held"])

    replica = holding(world, database, lose)
    world.run_until(world.now_s + 1.6)
    with replica.loop.current():
        assert not replica.ownership.owns("held")
    replica.loop.is_stopped = False
    world.run_until(world.now_s + 0.1)
    assert "held" not in replica.ownership.epochs
    world.close()


@pytest.mark.parametrize("killed_after_s", [3.0, 3.17, 3.31])
def test_jobs_of_a_killed_replica_have_owners_as_soon_as_their_leases_are_over(killed_after_s: float) -> None:
    """Each of the others takes its part of them, in one look."""
    world = World()
    database = WorldDatabase(world)
    replicas = [SlowClaims(world, database.register(f"replica-{number}"), 0.01) for number in range(3)]
    dead, *others = replicas
    jobs = {f"job-{number}" for number in range(40)}
    for job_id in jobs:
        world.run(dead.loop, dead.ownership.ensure(job_id), 10.0)
        assert database.write(job_id, dead.ownership.epochs[job_id], fact(1))
        dead.jobs[job_id] = [fact(1)]
    world.run_until(world.now_s + killed_after_s)
    renewed_s = database.replicas[dead.number].alive_until_s - database.now_s
    dead.loop.kill()
    world.run_until(world.now_s + renewed_s)
    assert not any(other.jobs for other in others), "the leases still last"
    world.run_until(world.now_s + 0.3)
    owned = [other.jobs.keys() for other in others]
    assert owned[0] | owned[1] == jobs
    assert not owned[0] & owned[1]
    assert all(len(own) > len(jobs) / 4 for own in owned)
    world.close()


def test_a_job_that_cannot_be_taken_up_is_not_owned_and_is_tried_again() -> None:
    """Or the next rank would begin it afresh, over what is stored."""

    async def play() -> None:
        fleet = await of_a_dead_replica()
        survivor = Struck(fleet.database.register("survivor"))

        def fail(_: str, __: Claimed) -> None:
            raise RuntimeError("a defect")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(survivor, "take_over", fail)
            with pytest.raises(RefusalError, match="by a fault of this replica") as refused:
                await survivor.ownership.ensure("job-0")
            assert refused.value.code is grpc.StatusCode.UNAVAILABLE
            assert not survivor.ownership.owns("job-0")
            await survivor.ownership.beat()
            assert not survivor.ownership.epochs
        await survivor.ownership.beat()
        assert sorted(job_id for job_id in survivor.jobs if job_id) == list(JOBS)
        assert survivor.jobs["job-0"] == [fact(0)]

    played(play)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_epoch_has_one_writer_and_nothing_stored_is_lost(seed: int) -> None:
    async def play() -> None:
        chance = random.Random(seed)
        fleet = Fleet(3)
        writers: dict[tuple[str, int], str] = {}
        stored: dict[str, list[Fact]] = {job_id: [] for job_id in JOBS}
        for number in range(150):
            replica = chance.choice(fleet.replicas)
            match chance.randrange(8):
                case 0:
                    replica.is_running = not replica.is_running
                case 1:
                    replica.leases.is_away = not replica.leases.is_away
                    if chance.random() < 0.5:
                        replica.ownership.suspend()
                case 2:
                    await fleet.pass_time(chance.choice([BEAT_S, LEASE_S, 3 * LEASE_S]))
                case 3:
                    await asyncio.gather(*(one.attach(chance.choice(JOBS)) for one in fleet.replicas if one.is_running))
                case _:
                    job_id = chance.choice(JOBS)
                    epoch = replica.ownership.epochs.get(job_id, 0)
                    if replica.write(job_id, fact(number)):  # stopped processes wake up with a write, too
                        stored[job_id].append(fact(number))
                        assert writers.setdefault((job_id, epoch), replica.leases.address) == replica.leases.address
        for replica in fleet.replicas:
            replica.is_running, replica.leases.is_away = True, False
        await fleet.pass_time(2 * LEASE_S)
        for job_id in JOBS:
            epochs = [epoch for job, epoch, _ in fleet.database.history if job == job_id]
            assert epochs == sorted(epochs)
            assert fleet.database.facts.get(job_id, []) == stored[job_id]
            assert sum(replica.ownership.owns(job_id) for replica in fleet.replicas) == (job_id in fleet.owners())
            assert not stored[job_id] or job_id in fleet.owners()

    played(play)
