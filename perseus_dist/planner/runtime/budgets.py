"""Policies of a running planner: kept in the store, looked at again whenever a job changes, told to the jobs."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.budget.governor import Governor
from perseus_dist.planner.budget.history import PowerHistory
from perseus_dist.planner.budget.sharing import BudgetState
from perseus_dist.planner.job.facts.fact import Fact
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.lifecycle.events import PaceSet
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.store.store import NO_JOB, Store

_LEAST_PAUSE_S = 0.05
_PAUSES = 10.0  # times what an evaluation took, before another that a change gives cause to

_log = logging.getLogger(__name__)


class MayOrder(Protocol):
    """As ``Ownership.may_pace``."""

    def __call__(self, job_id: str, /, *, draws_more: bool) -> bool:
        """Whether a job may be given an order now."""


class ClearedError(Exception):
    """The budget of a load target is no more. Its text is a sentence for users."""


class Budgets:
    """The governor, its facts on the disk, and its orders to jobs. Everything runs on the event loop.

    Attributes:
        history: Power over time.
        prices: Price policies, whose paces budgets may make slower.
        wall: Unix time [s], which may jump.
    """

    def __init__(
        self,
        store: Store,
        actors: Mapping[str, JobActor],
        prices: Prices,
        wall: Callable[[], float] = time.time,
        *,
        may_order: MayOrder = lambda _job_id, *, draws_more: True,  # noqa: ARG005
    ) -> None:
        """Take up what the store holds.

        Args:
            store: Where budgets and load targets become durable.
            actors: Of all jobs, by name; read at each evaluation.
            prices: Price policies, of the same jobs.
            wall: Unix time [s], which may jump.
            may_order: Of one of several replicas; otherwise all may.
        """
        self.prices = prices
        self.wall = wall
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._actors = actors
        self._may_order = may_order
        self._governor = Governor(store.load_own())
        self.history = PowerHistory()
        self._is_scheduled = False
        self._took_s = self._ended_s = 0.0
        self._looked_s = 0.0  # Unix time
        self._edge: asyncio.TimerHandle | None = None

    def restore(self, facts: Sequence[Fact]) -> None:
        """Begin anew with stored facts, which this replica keeps from now on."""
        self._begin(facts)
        self.evaluate()

    def forget(self) -> None:
        """Begin anew without policies, which this replica no longer keeps: jobs stay at their paces."""
        self._begin(())

    @property
    def states(self) -> tuple[BudgetState, ...]:
        """Of all budgets, as of the latest evaluation."""
        return self._governor.states

    def seen_by(self, caller: Caller, visible: Collection[str]) -> list[BudgetState]:
        """The states that a caller may see: of budgets that it may change, or that cover a job which it may see.

        Args:
            caller: Who looks.
            visible: Names of the jobs that it may see.
        """
        return [
            state
            for state in self.states
            if caller.may_limit(state.budget.jobs) or not set(visible).isdisjoint(state.job_ids)
        ]

    def get(self, name: str) -> BudgetSet | None:
        """A budget, if there is one."""
        return self._governor.budgets.get(name)

    def load_targets(self, budget: str) -> list[LoadTargetSet]:
        """Of a budget, in the order of their begins, those that are over included."""
        found = (target for target in self._governor.load_targets.values() if target.budget == budget)
        return sorted(found, key=lambda target: (target.start_s, target.name))

    def coming_load_targets(self, budget: str) -> list[LoadTargetSet]:
        """Likewise those that are in force or to come; others are kept for an hour, lest the wall clock is wrong."""
        now_s = self.wall()
        return [target for target in self.load_targets(budget) if target.end_s > now_s]

    def least_w(self, target: LoadTargetSet) -> float:
        """[W] that the group of a load target can draw at least, by what is known now."""
        return self._governor.least_w(target, self._jobs())

    async def set(self, fact: BudgetSet | LoadTargetSet) -> None:
        """Put a budget or a load target in force; it is durable when this returns.

        Raises:
            ClearedError: The load target's budget has been cleared since it was checked.
            StoreError: It is in force, and the disk does not take it.
        """
        if isinstance(fact, LoadTargetSet) and fact.budget not in self._governor.budgets:
            raise ClearedError(f"budget {fact.budget} has been cleared meanwhile")
        self._governor.apply(fact)
        self.evaluate()
        await self._commit(facts=(fact,))

    async def clear(self, fact: BudgetSet | LoadTargetSet) -> None:
        """Forget one; of a budget, its load targets too. The second of two callers forgets nothing more.

        Raises:
            StoreError: It is forgotten until the planner restarts, and the disk does not take that.
        """
        if isinstance(fact, BudgetSet):
            gone = self._governor.drop_budget(fact.name)
        else:
            gone = [fact.key]
            self._governor.load_targets.pop(fact.key, None)
        self.evaluate()
        await self._commit(drop=gone)

    async def set_price(self, policy: PricePolicySet) -> None:
        """Put a price policy in force; it is durable when this returns.

        Raises:
            StoreError: It is in force, and the disk does not take it.
        """
        stored = self.prices.set(policy)
        self.evaluate()
        await stored

    async def clear_price(self, policy: PricePolicySet) -> None:
        """Forget a price policy. The second of two callers forgets nothing more.

        Raises:
            StoreError: It is forgotten until the planner restarts, and the disk does not take that.
        """
        stored = self.prices.clear(policy)
        self.evaluate()
        await stored

    def note_change(self) -> None:
        """Look again soon: something of a job has changed."""
        if not self._is_scheduled and (self._governor.budgets or self.prices.are_set):
            self._is_scheduled = True
            self._loop.call_later(max(_LEAST_PAUSE_S, _PAUSES * self._took_s), self.evaluate)

    def tick(self) -> None:
        """Look again because time has passed, unless that would take more than its share of it."""
        self.prices.refresh()
        was_set_back = self.wall() < self._looked_s
        if was_set_back or self._loop.time() >= self._ended_s + _PAUSES * self._took_s:
            self.evaluate()
        else:
            self._await_edge()

    def evaluate(self) -> None:
        """Look at all budgets, and tell jobs what follows."""
        self._is_scheduled = False
        began_s, self._looked_s = self._loop.time(), self.wall()
        try:
            self._evaluate(self._looked_s, began_s)
        finally:
            self._ended_s = self._loop.time()
            self._took_s = self._ended_s - began_s
            self._await_edge()

    def close(self) -> None:
        """End what is under way; the planner ends."""
        self.prices.close()
        if self._edge is not None:
            self._edge.cancel()

    def _await_edge(self) -> None:
        """Have budgets looked at as soon as the next load target begins or ends, however long a look takes.

        Again at each tick, because the wall clock may have been set.
        """
        if self._edge is not None:
            self._edge.cancel()
            self._edge = None
        edge_s = self._governor.next_edge_s(self._looked_s)
        if edge_s is not None:
            pause_s = self._ended_s + self._took_s - self._loop.time()  # others get half of the time at least
            self._edge = self._loop.call_later(max(edge_s - self.wall(), pause_s, 0.0), self.evaluate)

    def _evaluate(self, now_s: float, steady_s: float) -> None:
        try:
            prices = self.prices.evaluate(now_s, steady_s)
            found = self._governor.evaluate(self._jobs(), now_s, prices, steady_s=steady_s)
            self.history.add(self.states, now_s)
        except Exception:  # a defect must stop neither jobs nor the planner
            _log.exception("policies could not be looked at: jobs stay at their paces")
            return
        if found.ended:
            self._store.commit(NO_JOB, (), [target.key for target in found.ended])
        for target in found.ended:
            _log.info("budget %s: load target %s is long over, and forgotten", target.budget, target.name)
        for sentence in found.sentences:
            _log.info("%s", sentence)
        for job_id, order in found.orders:
            actor = self._actors[job_id]
            saving = _without_more_power(order, actor.job)
            if self._may_order(job_id, draws_more=saving != order):
                actor.tell(order)
            elif not _is_in_force(saving, actor.job) and self._may_order(job_id, draws_more=False):
                actor.tell(saving)

    def _begin(self, facts: Sequence[Fact]) -> None:
        self._governor = Governor(facts)
        self.prices.restore(facts)

    def _jobs(self) -> Iterator[Job]:
        return (actor.job for actor in list(self._actors.values()))

    async def _commit(self, *, facts: Sequence[Fact] = (), drop: Sequence[str] = ()) -> None:
        await asyncio.wrap_future(self._store.commit(NO_JOB, facts, drop))


def _without_more_power(order: PaceSet, job: Job) -> PaceSet:
    """The part of an order to a job that neither makes it faster nor allows it probes that it may not do now."""
    kept = replace(order, holds_probes=order.holds_probes or job.holds_probes)
    if job.chosen_pace is None or (order.slowdown or 0.0) >= job.pace:
        return kept
    pace = job.chosen_pace
    return replace(kept, slowdown=pace.slowdown, budget=pace.budget, price=pace.price)


def _is_in_force(order: PaceSet, job: Job) -> bool:
    return (order.slowdown or 0.0, order.holds_probes) == (job.pace, job.holds_probes)
