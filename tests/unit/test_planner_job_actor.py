"""Effects of a job's steps: in order, nothing before what it stands on is durable, and what a broken disk leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import pytest

from perseus_dist.errors import PlanningError
from perseus_dist.messages.from_planner import ProfileAck, Refused, Release
from perseus_dist.messages.terms import Target
from perseus_dist.planner.job.facts.decisions import TargetChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.plans import TableAhead
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.frontier_summary import FrontierSummary
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import (
    Answer,
    CancelPlanning,
    Effect,
    Forget,
    Persist,
    PlanExpected,
    PlanFailed,
    PlanReady,
    Refuse,
    Send,
    SendTable,
    StartPlanning,
    TargetSet,
    Tick,
)
from perseus_dist.planner.runtime import job_actor
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.store.database import StoreError
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult
from perseus_dist.planner.worker.planning_worker import WorkerDiedError

REQUEST = PlanningRequest(
    request_id=3,
    job_id="job",
    revision=1,
    schedule_text="",
    contributions=(),
    blocking_power_w=(),
    tp_size=1,
    switch_latency_s=0.0,
)


SUMMARY = FrontierSummary(
    time_ps=(2,), total_uj=(5,), lower_bound_uj=(4,), baseline_time_ps=2, baseline_uj=6, total_blocking_uw=7
)


def fact(slowdown: float) -> TargetChosen:
    return TargetChosen(target=Target(slowdown=slowdown), by_operator=True)


def persist(slowdown: float) -> Persist:
    return Persist(facts=(fact(slowdown),))


def send(reason: str) -> Send:
    return Send(stream=1, message=Release(reason=reason))


class SlowDisk:
    """A store whose commits end when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[float | None, Future[None]]] = []
        self.num_forgotten = 0

    def commit(self, _job_id: str, facts: Sequence[Fact], _drop: Sequence[str] = ()) -> "Future[None]":
        done: Future[None] = Future()
        (chosen,) = facts
        assert isinstance(chosen, TargetChosen)
        self.asked.append((chosen.target.slowdown, done))
        return done

    def forget(self, _job_id: str) -> None:
        self.num_forgotten += 1

    @property
    def order(self) -> list[float | None]:
        return [slowdown for slowdown, _ in self.asked]


class World:
    """An actor whose life cycle gives back what the test puts into ``effects``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.effects: list[Effect] = []
        self.events: list[object] = []
        self.disk = SlowDisk()
        self.planning: Future[PlanResult] | Exception = Future()
        self.expected: float | None = None
        self.left_s: tuple[float, ...] = ()
        self.is_replica = False
        self.counters = Counters()
        monkeypatch.setattr(job_actor, "step", self.step)
        self.actor = JobActor(
            Job(job_id="job", policy=Policy()),
            store=self.disk,  # type: ignore[arg-type]
            worker=self,
            streams=self,
            counters=self.counters,
            forget=self.done.append,
            withdraw=self.withdraw,
        )

    def withdraw(self, job_id: str, trouble: str) -> bool:
        """As a replica does it."""
        if self.is_replica:
            self.done.append(f"{job_id}: {trouble}")
            self.actor.abandon("given up")
        return self.is_replica

    def step(self, _job: Job, event: object, _now_s: float) -> list[Effect]:
        self.events.append(event)
        effects, self.effects = self.effects, []
        return effects

    def put(self, *effects: Effect) -> None:
        self.effects = list(effects)
        self.actor.tell(Tick())

    def send(self, effect: Send | SendTable) -> None:
        assert isinstance(effect, Send)
        self.done.append(effect.message.reason if isinstance(effect.message, Release) else "ack")

    def refuse(self, effect: Refuse) -> None:
        self.done.append(f"refused {effect.refused.reason}")

    def expected_s(self, request: PlanningRequest) -> float | None:
        assert request is REQUEST
        return self.expected

    async def plan(self, request: PlanningRequest, expect: Callable[[float], None] | None = None) -> PlanResult:
        assert request is REQUEST
        assert expect is not None
        for left_s in self.left_s:
            expect(left_s)
        if isinstance(self.planning, Exception):
            raise self.planning
        return await asyncio.wrap_future(self.planning)


def run(monkeypatch: pytest.MonkeyPatch, test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test(World(monkeypatch))

    asyncio.run(main())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_stands_on_nothing_new_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.put(send("a"), Refuse(stream=2, refused=Refused(reason="b", retry=False)))
        assert world.done == ["a", "refused b"]

    run(monkeypatch, test)


def test_everything_behind_a_commit_waits_for_it_later_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.put(send("a"), persist(1.1), send("b"))
        world.put(send("c"))
        await settled()
        assert world.done == ["a"]
        world.disk.asked[0][1].set_result(None)
        await settled()
        assert world.done == ["a", "b", "c"]

    run(monkeypatch, test)


def test_commits_are_asked_for_ahead_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.put(persist(1.1), send("a"))
        world.put(send("b"), persist(1.2), send("c"), persist(1.3), send("d"))
        world.put(persist(1.4), send("e"))
        assert world.disk.order == [1.1, 1.2]  # 1.3 stands on 1.2, and 1.4 must not overtake it
        world.disk.asked[1][1].set_result(None)
        await settled()
        assert world.done == []
        world.disk.asked[0][1].set_result(None)
        await settled()
        assert world.done == ["a", "b", "c"]
        assert world.disk.order == [1.1, 1.2, 1.3, 1.4]
        world.disk.asked[3][1].set_result(None)
        world.disk.asked[2][1].set_result(None)
        await settled()
        assert world.done == ["a", "b", "c", "d", "e"]

    run(monkeypatch, test)


def test_a_broken_disk_withholds_acknowledgements_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        ack = Send(stream=1, message=ProfileAck(sequence=1))
        world.put(persist(1.1), ack, send("a"), persist(1.2), send("b"))
        world.put(persist(1.3), ack, send("c"))
        world.disk.asked[0][1].set_exception(StoreError("disk full"))
        await settled()
        assert world.done == ["a", "b"]
        assert world.disk.order == [1.1, 1.3]
        world.disk.asked[1][1].set_result(None)
        await settled()
        assert world.done == ["a", "b", "ack", "c"]
        assert world.counters.store_failures == 1

    run(monkeypatch, test)


def test_a_replica_says_nothing_of_what_its_store_has_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.is_replica = True
        world.put(persist(1.1), send("a"))
        world.put(persist(1.2), send("b"))
        world.effects = [persist(1.3), Answer(accepted=True, reason="")]
        answer = world.actor.begin(Tick())
        world.disk.asked[0][1].set_exception(StoreError("the database is away"))
        for _, done in world.disk.asked[1:]:
            done.set_result(None)
        await settled()
        world.put(send("c"))
        assert world.done == ["job: the database is away"]
        assert not answer.result().accepted
        assert not (await world.actor.begin(Tick())).accepted

    run(monkeypatch, test)


@pytest.mark.parametrize("is_attached", [False, True])
def test_a_job_is_forgotten_once_unless_a_rank_attaches_before(
    monkeypatch: pytest.MonkeyPatch,
    is_attached: bool,  # noqa: FBT001
) -> None:
    """The disk is slow, so that a second tick forgets it as well."""

    async def test(world: World) -> None:
        job = world.actor.job
        job.spec = JobRegistered(schedule_digest="", pp_size=1, dp_size=1, tp_size=1, token_sha256="")
        job.phase = Phase.DONE
        world.put(persist(1.1), Forget())
        world.put(persist(1.2), Forget())
        if is_attached:
            job.phase = Phase.REGISTERING
            world.put(send("attached"))
        world.disk.asked[0][1].set_result(None)
        await settled()
        assert world.disk.num_forgotten == (not is_attached)
        world.disk.asked[1][1].set_result(None)
        await settled()
        assert world.disk.num_forgotten == (not is_attached)
        assert world.done == (["attached"] if is_attached else ["job"])

    run(monkeypatch, test)


def test_operators_are_answered_once_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        for failure, accepted in ((None, True), (StoreError("disk full"), False)):
            world.effects = [persist(1.1), Answer(accepted=True, reason="so be it")]
            asking = world.actor.begin(TargetSet(target=Target()))
            await settled()
            assert not asking.done()
            world.disk.asked[-1][1].set_exception(failure) if failure else world.disk.asked[-1][1].set_result(None)
            answer = await asking
            assert answer.accepted is accepted
        assert "disk full" in answer.reason

    run(monkeypatch, test)


@pytest.mark.parametrize(
    ("error", "transient"), [(PlanningError("no clocks"), False), (WorkerDiedError("it died"), True)]
)
def test_a_plan_that_fails_is_told_to_the_job(
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    transient: bool,  # noqa: FBT001
) -> None:
    async def test(world: World) -> None:
        world.planning = error
        world.put(StartPlanning(request=REQUEST))
        await settled()
        assert world.events[-1] == PlanFailed(request_id=3, reason=str(error), transient=transient)

    run(monkeypatch, test)


def test_when_a_plan_may_be_there_is_told_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.expected = 12.0
        world.put(StartPlanning(request=REQUEST))
        await settled()
        assert world.events[-1] == PlanExpected(request_id=3, expected_s=12.0)

    run(monkeypatch, test)


def test_when_a_plan_may_be_there_is_told_again_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.expected, world.left_s = None, (30.0, 20.0)
        world.put(StartPlanning(request=REQUEST))
        await settled()
        assert world.events[-2:] == [PlanExpected(request_id=3, expected_s=left_s) for left_s in (30.0, 20.0)]

    run(monkeypatch, test)


def test_a_cancelled_plan_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.put(StartPlanning(request=REQUEST))
        await settled()
        world.put(CancelPlanning(request_id=3))
        await settled()
        assert len(world.events) == 2
        assert isinstance(world.planning, Future)
        assert world.planning.cancelled()

    run(monkeypatch, test)


def test_no_worker_is_asked_where_the_plan_was_made_ahead_unless_it_is_of_no_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = PlanResult(
        request_id=3, revision=1, summary=SUMMARY, tables=(), frontier_npz=b"", profile_csv=b"", is_first=True
    )
    made = TableAhead(digest="", summary=SUMMARY, tables=(), frontier_npz=b"", profile_csv=b"", is_first=True)

    async def test(world: World) -> None:
        world.planning = WorkerDiedError("was asked")
        world.put(StartPlanning(request=REQUEST, made=made))
        await until(lambda: len(world.events) > 1)
        assert [event for event in world.events if isinstance(event, PlanReady)] == [PlanReady(result=result)]
        world.put(StartPlanning(request=REQUEST, made=replace(made, tables=(b"table",))))
        await until(lambda: len(world.events) > 3)
        assert world.events[-1] == PlanFailed(request_id=3, reason="was asked", transient=True)

    run(monkeypatch, test)
