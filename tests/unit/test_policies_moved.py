"""Policies that another replica keeps, or that are gone, by the time of a change."""

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.store import Store

if TYPE_CHECKING:
    from perseus_dist.planner.runtime.jobs import Jobs

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
