"""A job that follows a price in virtual time: cost against the optimum, deadlines through whatever happens."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.budget.price_follower import RESERVE_SHARE, PricedJob, PriceFollower, Signal
from perseus_dist.planner.job.facts.policies import PricePolicySet, PriceProgress
from perseus_dist.planner.job.facts.runs import JobRegistered
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.lifecycle import new_job
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.outlook import MAX_SLOTS, outlook, price_at
from perseus_dist.policies.pace import Slot, constant_pace, pace
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import JOULES_PER_KWH

BEGIN = datetime(2026, 11, 24, tzinfo=UTC)
DEADLINE_S = BEGIN.timestamp() + 86_400.0
TIMES_S = tuple(2.0 * (1 + 0.02 * step) for step in range(30))
POINTS = OperatingPoints(
    times_s=TIMES_S,
    powers_w=tuple(700 + 2300 / (t / 2.0) ** 2.5 for t in TIMES_S),
    full_time_s=2.0,
    full_power_w=3100.0,
)
PACES = tuple(t / 2.0 for t in TIMES_S)
Prices = Callable[[int], float]


def signal_of(prices: Prices, *, forecast: Prices | None = None, hours: int = 24) -> Signal:
    pieces = tuple(
        Piece(
            start=BEGIN + timedelta(hours=hour),
            duration_s=3600.0,
            value=prices(hour),
            forecast=None if forecast is None else forecast(hour),
        )
        for hour in range(hours)
    )
    return Signal(content=pieces, version=1)


@dataclass
class Run:
    """A job whose follower looks every ``tick_s``; its iterations take ``slow`` times what is planned."""

    iterations: int
    signal: Signal
    tick_s: float = 10.0
    slow: float = 1.0
    deadline_s: float = DEADLINE_S
    stalls: list[tuple[float, float]] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)
    job: Job = field(default_factory=lambda: new_job("a", Policy()))
    done: float = 0.0
    now_s: float = BEGIN.timestamp()
    paces: list[float] = field(default_factory=list)
    drawn: list[tuple[float, float]] = field(default_factory=list)
    finish_s: float = 0.0
    stored: PriceProgress | None = None
    latest: PricedJob | None = None

    def run(self) -> "Run":
        policy = PricePolicySet(
            name="p", jobs=("a",), signal="s", deadline_s=self.deadline_s, iterations=self.iterations
        )
        follower = PriceFollower(policy, "a")
        self.stored = follower.begin_at(None)
        asked = 0.0
        while self.now_s < self.deadline_s + 3600:
            if self.restarts and self.now_s >= self.restarts[0]:
                self.restarts.pop(0)
                follower = PriceFollower(policy, "a", self.stored)
            self.job.progress.iteration = int(self.done)
            follower.count(self.job)
            self.stored = follower.to_store(self.now_s) or self.stored
            demand = Demand(
                job_id="a", points=POINTS, paces=PACES, reason="", pace=asked, measured_w=None, is_settled=True
            )
            self.latest = follower.step(datetime.fromtimestamp(self.now_s, UTC), demand, self.signal)
            if self.latest.is_over:
                break
            asked = self.latest.pace
            self.paces.append(asked)
            point = demand.point_at(asked)
            is_stalled = any(begin_s <= self.now_s < begin_s + length_s for begin_s, length_s in self.stalls)
            if not is_stalled:
                rate = 1 / (POINTS.times_s[point] * self.slow)
                spent_s = min(self.tick_s, (self.iterations - self.done) / rate + 1e-6)
                self.done += spent_s * rate
                self.drawn.append((self.now_s, spent_s * POINTS.powers_w[point]))
                self.finish_s = self.now_s + spent_s
            self.now_s += self.tick_s
        return self

    def cost(self, prices: Prices) -> float:
        hours = ((int((at_s - BEGIN.timestamp()) // 3600), drawn_j) for at_s, drawn_j in self.drawn)
        return sum(prices(hour) * drawn_j / JOULES_PER_KWH for hour, drawn_j in hours)


def daily(hour: int) -> float:
    return 0.05 + 0.2 * (7 <= hour % 24 < 20)


def test_with_prices_known_ahead_it_costs_hardly_more_than_the_optimum() -> None:
    rng = random.Random(19)
    for share in (0.65, 0.8, 0.95):
        drawn = [rng.uniform(0.02, 0.3) for _ in range(24)]
        for prices in (daily, drawn.__getitem__):
            iterations = int(share * 86_400 / TIMES_S[0])
            run = Run(iterations, signal_of(prices), tick_s=30.0).run()
            slots = [Slot(duration_s=3600.0, price=prices(hour) / JOULES_PER_KWH) for hour in range(24)]
            best = pace(POINTS, slots, iterations)
            constant = constant_pace(POINTS, slots, iterations, 86_400.0)
            assert run.finish_s <= DEADLINE_S
            assert run.cost(prices) <= 1.004 * best.cost
            assert run.cost(prices) < constant.cost
            assert len({*zip(run.paces, run.paces[1:], strict=False)}) < 90, "a few switches an hour"


@pytest.mark.parametrize("share", [0.65, 0.98])
def test_where_prices_say_nothing_it_is_hardly_worse_than_the_constant_pace_of_the_same_finish(share: float) -> None:
    iterations = int(share * 86_400 / TIMES_S[0])
    run = Run(iterations, signal_of(lambda _: 0.1), tick_s=30.0).run()
    slots = [Slot(duration_s=3600.0, price=0.1 / JOULES_PER_KWH)] * 24
    constant = constant_pace(POINTS, slots, iterations, run.finish_s - BEGIN.timestamp())
    assert run.finish_s <= DEADLINE_S
    assert run.cost(lambda _: 0.1) <= 1.002 * constant.cost


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_a_deadline_that_could_be_kept_is(seed: int) -> None:
    rng = random.Random(seed)
    prices = [rng.choice([0.0, 0.02, 0.1, 0.5]) for _ in range(24)]
    wrong = [rng.choice([0.0, 0.02, 0.1, 0.5]) for _ in range(24)]
    slow = rng.uniform(0.95, 1.1)
    begin_s, hours = BEGIN.timestamp(), rng.randint(3, 24)
    iterations = int(rng.uniform(0.5, 0.9) * 86_400 / (TIMES_S[0] * slow))
    budget_s = 86_400 * (1 - 4 * RESERVE_SHARE) - iterations * TIMES_S[0] * slow
    # Stalls in the first three quarters of the time, for up to what full speed has to spare.
    stalls = [
        (begin_s + rng.uniform(0, 0.5) * 86_400, length_s)
        for length_s in [rng.uniform(0, 0.4) * budget_s for _ in range(2)]
    ]
    restarts = sorted(begin_s + rng.uniform(0, 86_400) for _ in range(4))
    signal = signal_of(prices.__getitem__, forecast=wrong.__getitem__, hours=hours)
    run = Run(iterations, signal, tick_s=20.0, slow=slow, stalls=stalls, restarts=restarts).run()
    assert run.latest is not None
    assert run.latest.left == 0, f"{run.latest}"
    assert run.finish_s <= DEADLINE_S


def test_where_the_signal_ends_or_cannot_be_read_it_is_at_its_own_target() -> None:
    iterations = int(0.7 * 86_400 / 2.0)
    run = Run(iterations, signal_of(daily, hours=10)).run()
    behind = 10 * 360
    assert any(run.paces[:behind])
    assert not any(run.paces[behind:])
    assert run.finish_s < DEADLINE_S - 3600
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=iterations)
    demand = Demand(job_id="a", points=POINTS, paces=PACES, reason="", pace=0.0, measured_w=None, is_settled=True)
    found = PriceFollower(policy, "a").step(BEGIN, demand, Signal(content=None, trouble="signal s cannot be read: no"))
    assert (found.pace, found.reason) == (0.0, "at its own target: signal s cannot be read: no")
    assert found.is_on_time


def test_a_deadline_that_cannot_be_kept_is_said() -> None:
    run = Run(60_000, signal_of(daily)).run()
    assert not any(run.paces)
    assert run.latest is not None
    assert run.latest.is_over
    assert not run.latest.is_on_time
    assert run.latest.reason == f"the deadline has passed, {run.latest.left:,} are not done"
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=60_000)
    demand = Demand(job_id="a", points=POINTS, paces=PACES, reason="", pace=0.0, measured_w=None, is_settled=True)
    found = PriceFollower(policy, "a").step(BEGIN, demand, signal_of(daily))
    assert (found.reason, found.is_on_time, found.is_over) == ("the deadline cannot be kept", False, False)


def test_iterations_are_counted_over_runs_and_planners() -> None:
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=1000)
    job = new_job("a", Policy())

    def counted(follower: PriceFollower, iteration: int) -> int:
        job.progress.iteration = iteration
        follower.count(job)
        found = follower.to_store(1e12 + iteration)
        return found.done if found else -1

    follower = PriceFollower(policy, "a")
    job.progress.iteration = 100
    begun = follower.begin_at(job)
    assert (begun.done, begun.iteration) == (0, 100)
    assert counted(follower, 130) == 30
    stored = PriceProgress(policy="p", job_id="a", done=30, run_id="", iteration=130)
    again = PriceFollower(policy, "a", stored)
    assert counted(again, -1) == -1, "the job's ranks are not back yet"
    assert counted(again, 150) == 50, "what was done meanwhile counts"
    assert counted(again, 10) == 50, "another start of the trainers, or not"
    assert counted(again, 30) == 70
    assert counted(again, 28) == -1, "a rank has attached again"
    assert counted(again, 41) == 81


def test_a_policy_that_is_set_while_a_job_is_not_back_counts_nothing_of_before() -> None:
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=1000)
    job = new_job("a", Policy())
    for begun_with in (job, None):
        job.progress.iteration = -1
        follower = PriceFollower(policy, "a")
        follower.begin_at(begun_with)
        for iteration, done in ((5000, 0), (5010, 10)):
            job.progress.iteration = iteration
            follower.count(job)
            stored = follower.to_store(1e12 + iteration)
            assert stored is not None
            assert stored.done == done


def test_iterations_of_another_run_are_counted_from_its_begin() -> None:
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=1000)
    follower = PriceFollower(policy, "a", PriceProgress(policy="p", job_id="a", done=300, run_id="one", iteration=300))
    job = new_job("a", Policy())
    job.spec = JobRegistered(schedule_digest="", pp_size=1, dp_size=1, tp_size=1, token_sha256="", run_id="two")

    def done_at(iteration: int) -> int:
        job.progress.iteration = iteration
        follower.count(job)
        stored = follower.to_store(1e12 + iteration)
        return stored.done if stored else -1

    assert done_at(300) == 300, "the run before was there, and this one has not begun"
    assert done_at(2) == 300
    assert done_at(12) == 310
    again = PriceFollower(policy, "a", PriceProgress(policy="p", job_id="a", done=300, run_id="one", iteration=300))
    job.progress.iteration = 40
    again.count(job)
    found = again.to_store(1e12)
    assert found is not None
    assert found.done == 340


def test_what_is_expected_behind_the_end_of_a_signal() -> None:
    two_days = signal_of(float, hours=30).content
    assert isinstance(two_days, tuple)
    now = BEGIN + timedelta(hours=28, minutes=30)
    found = outlook(two_days, now, 3 * 3600.0)
    assert [(slot.duration_s, round(slot.price * JOULES_PER_KWH, 6)) for slot in found] == [
        (1800.0, 28.0),
        (3600.0, 29.0),
        (3600.0, 6.0),
        (1800.0, 7.0),
    ]
    short = two_days[:2]
    assert [round(slot.price * JOULES_PER_KWH, 6) for slot in outlook(short, BEGIN, 3 * 3600.0)] == [0.0, 1.0, 0.5]
    assert price_at(two_days, BEGIN - timedelta(seconds=1)) is None
    assert price_at(two_days, BEGIN + timedelta(hours=30)) is None
    year = outlook(two_days, now, 365 * 86_400.0)
    assert len(year) <= MAX_SLOTS
    assert sum(slot.duration_s for slot in year) == pytest.approx(365 * 86_400.0)


def test_many_jobs_plan_their_ways_one_after_the_other() -> None:
    policy = PricePolicySet(name="p", jobs=("a",), signal="s", deadline_s=DEADLINE_S, iterations=20_000)
    follower = PriceFollower(policy, "a")
    demand = Demand(job_id="a", points=POINTS, paces=PACES, reason="", pace=0.0, measured_w=None, is_settled=True)
    signal = signal_of(daily)
    assert follower.step(BEGIN, demand, signal, may_plan=False).pace == 0.0
    first = follower.step(BEGIN + timedelta(hours=8), demand, signal).pace
    assert (first > 1, follower.num_plans) == (True, 1)
    assert follower.step(BEGIN + timedelta(hours=9, seconds=1), demand, signal, may_plan=False).pace == first
    follower.step(BEGIN + timedelta(hours=9, seconds=2), demand, signal)
    assert follower.num_plans == 2
