"""Load targets and price policies while time passes, or a wall clock jumps."""

import asyncio
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.budget.governor import Governor
from perseus_dist.planner.budget.long_over import KEPT_OVER_S
from perseus_dist.planner.budget.price_follower import PriceFollower, Signal
from perseus_dist.planner.budget.price_policies import PricePolicies
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet, PricePolicySet
from perseus_dist.planner.runtime.budgets import Budgets
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.service.price_service import PriceService
from perseus_dist.planner.store.state_dir import DATABASE
from perseus_dist.planner.store.store import NO_JOB, Store
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.signal_text import Piece

if TYPE_CHECKING:
    from perseus_dist.planner.runtime.jobs import Jobs
    from perseus_dist.planner.service.policy_changes import PolicyChanges

HALL = BudgetSet(name="hall", watts=250.0)
PEAK = LoadTargetSet(name="peak", budget="hall", start_s=100.0, end_s=200.0, watts=180.0, best_effort=False)
CHEAP = PricePolicySet(name="cheap", jobs=("a",), signal="prices", deadline_s=5000.0, iterations=1000)
NEXT = replace(CHEAP, name="next", deadline_s=9000.0)
FAR_S = 1e9


def test_a_load_target_outlives_a_wall_clock_that_jumps_forward_and_back() -> None:
    governor = Governor([HALL, PEAK])
    for at_s, steady_s, load_target in ((50.0, 0.0, ""), (FAR_S, 1.0, ""), (51.0, 3600.0, ""), (100.0, 3649.0, "peak")):
        assert governor.evaluate([], at_s, steady_s=steady_s).ended == ()
        assert governor.states[0].load_target == load_target
    assert governor.evaluate([], 200.0, steady_s=3749.0).ended == ()
    assert governor.states[0].load_target == "", "over, and still known"
    assert governor.evaluate([], FAR_S, steady_s=3749.0 + KEPT_OVER_S - 1).ended == ()
    assert governor.evaluate([], FAR_S, steady_s=3749.0 + KEPT_OVER_S).ended == (PEAK,)
    assert governor.load_targets == {}


def test_the_hour_counts_from_the_latest_time_that_it_was_not_over() -> None:
    governor = Governor([HALL, PEAK])
    governor.evaluate([], FAR_S, steady_s=0.0)
    governor.evaluate([], 150.0, steady_s=KEPT_OVER_S - 1)
    assert governor.evaluate([], FAR_S, steady_s=KEPT_OVER_S).ended == ()
    later = replace(PEAK, end_s=2 * FAR_S)
    governor.apply(later)  # of the same name, and once more in force
    assert governor.evaluate([], FAR_S, steady_s=3 * KEPT_OVER_S).ended == ()
    assert governor.states[0].load_target == "peak"
    assert governor.evaluate([], 3 * FAR_S, steady_s=3 * KEPT_OVER_S + 1).ended == ()


def test_a_price_policy_outlives_a_wall_clock_that_jumps_forward_and_back() -> None:
    policies = PricePolicies([CHEAP])

    def ended(at_s: float, steady_s: float) -> tuple[PricePolicySet, ...]:
        return policies.evaluate({}, datetime.fromtimestamp(at_s, UTC), {}, steady_s).ended

    assert ended(100.0, 0.0) == ended(FAR_S, 1.0) == ended(101.0, 3600.0) == ()
    assert ended(FAR_S, 3601.0) == ended(FAR_S, 3600.0 + KEPT_OVER_S) == ()
    assert ended(FAR_S, 3601.0 + KEPT_OVER_S) == (CHEAP,)
    assert policies.policies == {}


def test_a_job_whose_deadline_has_passed_gets_another_price_policy_at_once(tmp_path: Path) -> None:
    """The one before is known for a day more, and may be of jobs that the caller has no rights for."""

    async def play(now_s: float) -> None:
        budgets = Budgets(store, {}, Prices(store, {}, SignalFiles(None)), wall=lambda: now_s)
        service = PriceService(cast("Jobs", SimpleNamespace(budgets=budgets)), cast("PolicyChanges", None))
        try:
            service._check_jobs(NEXT)
            await budgets.set_price(NEXT)
            assert [state.policy for state in budgets.prices.states] == [CHEAP, NEXT]
            (before,), (now,) = (state.jobs for state in budgets.prices.states)
            assert (before.is_over, now.is_over) == (True, False)
        finally:
            budgets.close()

    with closing(Store(tmp_path / DATABASE)) as store:
        store.commit(NO_JOB, (CHEAP,)).result()
    with closing(Store(tmp_path / DATABASE)) as store:
        with pytest.raises(RefusalError, match="under the price policy cheap already"):
            asyncio.run(play(CHEAP.deadline_s - 1))
        asyncio.run(play(CHEAP.deadline_s))


@pytest.mark.parametrize("jump", [timedelta(days=2), timedelta(hours=1)])
def test_a_pace_that_was_planned_for_later_is_not_kept_once_the_clock_is_set_right(jump: timedelta) -> None:
    """Energy is dear at first and cheap later: by a clock that is ahead the job would begin with its target."""
    begin = datetime(2026, 11, 24, tzinfo=UTC)
    pieces = tuple(
        Piece(start=begin + timedelta(hours=hour), duration_s=3600.0, value=1.0 if hour < 1 else 0.01, forecast=None)
        for hour in range(96)
    )
    times_s = (1.0, 1.1, 1.2, 1.5)
    points = OperatingPoints(times_s=times_s, powers_w=(100.0, 80.0, 65.0, 40.0), full_time_s=1.0, full_power_w=110.0)
    demand = Demand(job_id="a", points=points, paces=times_s, reason="", pace=0.0, measured_w=None, is_settled=True)
    policy = replace(CHEAP, deadline_s=(begin + timedelta(hours=80)).timestamp(), iterations=250_000)
    signal = Signal(content=pieces, version=1)
    now = begin + timedelta(minutes=1)
    right = PriceFollower(policy, "a").step(now, demand, signal).pace
    follower = PriceFollower(policy, "a")
    ahead = follower.step(now + jump, demand, signal).pace
    assert ahead != right
    assert follower.step(now, demand, signal).pace == right


def test_the_next_edge_is_a_begin_or_an_end() -> None:
    governor = Governor([HALL, PEAK, replace(PEAK, name="other", start_s=150.0, end_s=160.0)])
    assert [governor.next_edge_s(at_s) for at_s in (0.0, 100.0, 150.0, 160.0, 200.0)] == [100, 150, 160, 200, None]


def test_budgets_are_looked_at_as_a_load_target_begins_and_ends(tmp_path: Path) -> None:
    """Without a tick, as where a look takes so long that the next tick's is left out."""

    async def play() -> None:
        store = Store(tmp_path / DATABASE)
        budgets = Budgets(store, {}, Prices(store, {}, SignalFiles(None)))
        begin_s = time.time() + 0.3
        try:
            await budgets.set(HALL)
            await budgets.set(replace(PEAK, start_s=begin_s, end_s=begin_s + 0.3))
            seen: list[str] = []
            async with asyncio.timeout(30):
                while seen != ["", "peak", ""]:
                    (state,) = budgets.states
                    if not seen or state.load_target != seen[-1]:
                        seen.append(state.load_target)
                        assert state.load_target != "peak" or time.time() >= begin_s
                    await asyncio.sleep(0.01)
            await budgets.set(replace(PEAK, start_s=begin_s, end_s=time.time() + 1e6))
        finally:
            budgets.close()
            store.close()

    asyncio.run(play())
