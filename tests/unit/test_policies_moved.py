"""Policies that another replica keeps, or that are gone, by the time of a change."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from memory_leases import Database

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.budget.governor import Evaluation
from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.events import JobEvent, PaceSet
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.plan_request import PlanningRequest, PlanResult

OPERATOR = Caller(token_sha256="", is_operator=True)


def test_a_replica_that_has_lost_the_policies_changes_none() -> None:
    """As where it was waiting for a signal's provider meanwhile."""

    async def play() -> None:
        with closing(Store(None)) as store, closing(Access("")) as access:
            budgets = Budgets(store, {}, Prices(store, {}, SignalFiles(None)))
            here = SimpleNamespace(ownership=SimpleNamespace(owns=lambda _: False), budgets=budgets)
            calls = PolicyCalls(cast("Jobs", here), access.audit)
            with pytest.raises(RefusalError, match="another replica"):
                await calls.change(
                    OPERATOR, "SetBudget", "*", "none", "hall", budgets.set(BudgetSet(name="hall", watts=1.0))
                )
            assert budgets.get("hall") is None
            assert access.audit.read(after_id=0, since_s=0.0, job="", limit=10) == []
            budgets.close()

    asyncio.run(play())


def test_a_load_target_is_not_told_as_set_where_its_budget_is_cleared_at_once() -> None:
    """It was recorded as set, and its caller was told so."""

    async def play() -> None:
        with closing(Store(None)) as store, closing(Access("")) as access:
            budgets = Budgets(store, {}, Prices(store, {}, SignalFiles(None)))
            calls = PolicyCalls(cast("Jobs", SimpleNamespace(ownership=None, budgets=budgets)), access.audit)
            hall = BudgetSet(name="hall", watts=1e6)
            await calls.change(OPERATOR, "SetBudget", "*", "none", "hall", budgets.set(hall))
            end_s = budgets.wall() + 60.0
            peak = LoadTargetSet(budget="hall", name="peak", watts=5e5, start_s=0.0, end_s=end_s, best_effort=True)
            cleared, told = await asyncio.gather(
                calls.change(OPERATOR, "ClearBudget", "*", "hall", "none", budgets.clear(hall)),
                calls.set_load_target(OPERATOR, peak),
                return_exceptions=True,
            )
            assert cleared is None
            assert isinstance(told, RefusalError)
            assert str(told) == "budget hall has been cleared meanwhile"
            actions = [entry.action for entry in access.audit.read(after_id=0, since_s=0.0, job="", limit=10)]
            assert actions == ["SetBudget", "ClearBudget"]
            budgets.close()

    asyncio.run(play())


class IdleWorker:
    """Plans nothing."""

    def expected_s(self, _request: PlanningRequest) -> float | None:
        return None

    async def plan(self, request: PlanningRequest, expect: Callable[[float], None] | None = None) -> PlanResult:
        raise AssertionError(request, expect)


class PacedReplica:
    """A replica that may take over a job that policies have made slower."""

    def __init__(self, database: Database, address: str) -> None:
        self.leases = database.register(address)
        self.store = Store(None)
        self.jobs = Jobs(self.store, IdleWorker(), Policy(), Counters())
        self.ownership = self.jobs.ownership = Ownership(self.leases, self.jobs)
        self.store.epochs = self.ownership.epochs

    @property
    def pace(self) -> PaceChosen | None:
        actor = self.jobs.get("paced")
        assert actor is not None
        return actor.job.chosen_pace

    def close(self) -> None:
        self.jobs.close()
        self.store.close()


PACE = PaceChosen(slowdown=1.2, budget="hall", price="")
PACED = JobRegistered(schedule_digest="ab" * 32, pp_size=2, dp_size=1, tp_size=1, token_sha256="")
HALL = BudgetSet(name="hall", watts=1000.0)


def paced_database(*policies: Fact) -> Database:
    database = Database()
    dead = database.register("dead")
    database.facts = {"": list(policies), "paced": [PACED, PACE]}
    database.leases = dict.fromkeys(database.facts, (dead.number, 1))
    del database.replicas[dead.number]
    return database


@pytest.mark.parametrize("how", ["leave", "suspend", "lose", "withdraw"])
def test_jobs_stay_at_their_paces_where_a_replica_gives_the_policies_up(how: str) -> None:
    """Their next owner would go on with faster switches, and above the cap."""

    async def play() -> None:
        database = paced_database(HALL)
        with closing(PacedReplica(database, "here")) as here:
            await here.ownership.beat()
            assert here.ownership.owns("")
            paced = here.jobs.get("paced")
            assert paced is not None
            match how:
                case "leave":
                    await here.ownership.leave()
                case "suspend":
                    here.ownership.suspend()
                case "lose":
                    here.ownership.lose("", here.ownership.epochs[""])
                    here.jobs.budgets.tick()
                case _:
                    here.ownership.withdraw("", "the disk is full")
                    here.jobs.budgets.tick()
            assert here.jobs.budgets.get("hall") is None
            assert paced.job.chosen_pace == PACE

    asyncio.run(play())


def test_a_replica_without_the_policies_frees_no_job_that_they_cover() -> None:
    """Their keeper has died, and a rank has brought the job here before another replica keeps them."""

    async def play() -> None:
        database = paced_database(HALL)
        with closing(PacedReplica(database, "here")) as here, closing(PacedReplica(database, "there")) as there:
            await here.ownership._renew()
            there.leases.claim([""], known_only=True)
            await here.ownership.ensure("paced")
            here.jobs.budgets.tick()
            assert here.pace == PACE

    asyncio.run(play())


def test_a_replica_without_the_policies_frees_a_job_that_none_covers_any_more() -> None:
    """The replica that kept the policies has died between clearing a budget and freeing its job."""

    async def play() -> None:
        database = paced_database()
        with closing(PacedReplica(database, "here")) as here, closing(PacedReplica(database, "there")) as there:
            await here.ownership._renew()
            there.leases.claim([""], known_only=True)
            await here.ownership.ensure("paced")
            here.jobs.budgets.tick()
            assert here.pace is None

    asyncio.run(play())


@pytest.mark.parametrize("pace", [PACE, None], ids=["faster", "probes"])
def test_a_new_keeper_has_no_job_draw_more_until_it_has_all_that_its_policies_cover(pace: PaceChosen | None) -> None:
    async def play() -> None:
        with closing(PacedReplica(paced_database(replace(HALL, jobs=("other-*",))), "here")) as here:
            await here.ownership.beat()
            actor = here.jobs.get("paced")
            assert actor is not None
            actor.job.chosen_pace, actor.job.holds_probes = pace, True
            here.jobs.budgets.tick()
            assert (actor.job.chosen_pace, actor.job.holds_probes) == (pace, True)
            here.ownership._gathering.is_over = True
            here.jobs.budgets.evaluate()
            assert (actor.job.chosen_pace, actor.job.holds_probes) == (None, False)

    asyncio.run(play())


def _asked(slowdown: float | None, *, budget: str = "", price: str = "", holds_probes: bool = False) -> PaceSet:
    return PaceSet(slowdown=slowdown, budget=budget, price=price, holds_probes=holds_probes, reason="")


@pytest.mark.parametrize(
    ("asked", "was_held", "is_held", "pace"),
    [
        (_asked(1.5, budget="hall"), True, True, (1.5, "hall", "")),
        (_asked(1.5, price="cheap"), True, True, (1.5, "", "cheap")),
        (_asked(1.1, budget="hall", holds_probes=True), False, True, (1.2, "hall", "")),
        (_asked(None), False, False, (1.2, "hall", "")),
    ],
    ids=["slower", "slower by a price", "no probes", "faster"],
)
def test_a_new_keeper_gives_the_part_of_an_order_that_draws_no_more_at_once(
    asked: PaceSet, pace: tuple[float, str, str], monkeypatch: pytest.MonkeyPatch, *, was_held: bool, is_held: bool
) -> None:
    async def play() -> None:
        with closing(PacedReplica(paced_database(replace(HALL, jobs=("other-*",))), "here")) as here:
            await here.ownership.beat()
            actor = here.jobs.get("paced")
            assert actor is not None
            actor.job.holds_probes = was_held
            told: list[JobEvent] = []
            tell = actor.tell

            def note(event: JobEvent) -> None:
                told.append(event)
                tell(event)

            monkeypatch.setattr(actor, "tell", note)
            found = Evaluation(orders=(("paced", asked),))
            monkeypatch.setattr(here.jobs.budgets._governor, "evaluate", lambda *_, **__: found)
            for _ in range(2):
                here.jobs.budgets.evaluate()
            chosen = actor.job.chosen_pace
            assert chosen is not None
            assert (chosen.slowdown, chosen.budget, chosen.price) == pace
            assert actor.job.holds_probes == is_held
            assert len(told) == ((pace[0], is_held) != (1.2, was_held)), "once, and nothing where nothing changes"
            here.ownership._gathering.is_over = True
            here.jobs.budgets.evaluate()
            assert (actor.job.pace, actor.job.holds_probes) == (asked.slowdown or 0.0, asked.holds_probes)

    asyncio.run(play())


def test_a_replica_takes_up_no_damaged_policy(caplog: pytest.LogCaptureFixture) -> None:
    async def play() -> None:
        late = PricePolicySet(name="late", jobs=("paced",), signal="day-ahead", deadline_s=1e300, iterations=5)
        database = paced_database(HALL, replace(HALL, name="negative", watts=-5.0), late)
        with closing(PacedReplica(database, "here")) as here:
            await here.ownership.beat()
            assert here.jobs.budgets.get("hall") == HALL
            assert here.jobs.budgets.get("negative") is None
            assert here.jobs.budgets.prices.get("late") is None

    asyncio.run(play())
    assert "left out: budget/negative/, price/late/" in caplog.text
