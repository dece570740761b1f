"""Power budgets: how they are shared between invented demands, and what virtual jobs under a governor then draw."""

import asyncio
import csv
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from perseus_dist.messages.terms import Target
from perseus_dist.planner.budget.demand import Demand
from perseus_dist.planner.budget.governor import Governor
from perseus_dist.planner.budget.sharing import BudgetState, cap_of, reconcile, share_budget
from perseus_dist.planner.job.facts.decisions import PaceChosen
from perseus_dist.planner.job.facts.policies import BudgetSet, LoadTargetSet
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import StragglerReported, TargetSet
from perseus_dist.planner.lifecycle.lifecycle import restore
from perseus_dist.planner.runtime.budgets import Budgets, ClearedError
from perseus_dist.planner.runtime.prices import Prices
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.store.state_dir import DATABASE
from perseus_dist.planner.store.store import Store
from perseus_dist.planning.schedule.schedule import one_f_one_b
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.fleet import VirtualFleet
from perseus_dist.simulation.virtual.run import VirtualJob, virtual_job

HALL = BudgetSet(name="hall", watts=250.0)
PEAK = LoadTargetSet(name="peak", budget="hall", start_s=100.0, end_s=200.0, watts=180.0, best_effort=False)


def demand(job_id: str, *, pace: float = 0.0, measured_w: float | None = None) -> Demand:
    """A job of 100 W at its target, of 80, 60 and 40 W where it takes 10, 30 and 100 % longer, and 110 W at most."""
    points = OperatingPoints(
        times_s=(1.0, 1.1, 1.3, 2.0), powers_w=(100.0, 80.0, 60.0, 40.0), full_time_s=1.0, full_power_w=110.0
    )
    return Demand(
        job_id=job_id,
        points=points,
        paces=(1.0, 1.1, 1.3, 2.0),
        reason="",
        pace=pace,
        measured_w=measured_w,
        is_settled=True,
    )


def powers(budget: BudgetSet, *demands: Demand) -> list[float]:
    return [share.power_w for share in share_budget(budget, cap_of(budget, (), 0.0), demands).shares]


def test_a_cap_is_kept_by_those_that_it_slows_least() -> None:
    assert powers(HALL, demand("a"), demand("b")) == [100.0, 100.0]
    assert powers(HALL, demand("a"), demand("b"), demand("c")) in ([100, 80, 60], [80, 80, 80], [60, 80, 100])
    heavy = replace(HALL, weights=(("a", 10.0), ("*", 1.0)))
    assert powers(heavy, demand("a"), demand("b"), demand("c"))[0] == 100.0
    limited = replace(HALL, watts=200.0, max_slowdowns=(("a", 1.05),))
    assert powers(limited, demand("a"), demand("b"), demand("c"))[0] == 100.0
    assert powers(replace(HALL, jobs=("b",), watts=60.0), demand("a"), demand("b")) == [60.0]
    assert sum(powers(replace(HALL, guard_band=0.2), demand("a"), demand("b"), demand("c"))) <= 200.0


def test_a_cap_that_cannot_be_kept_is_said() -> None:
    budget = replace(HALL, watts=100.0)
    state = share_budget(budget, (100.0, ""), [demand("a"), demand("b"), demand("c")], ["d"])
    assert (state.is_met, state.planned_w, state.least_w) == (False, 120.0, 120.0)
    assert "the cap of 100 W cannot be kept: 120 W are planned" in state.troubles[0]
    assert state.troubles[1] == "nothing is known of the power of d, which is not counted"
    assert state.measured_w is None
    assert state.weighted_slowdown is not None
    assert state.slowdown_bound is not None
    assert state.weighted_slowdown >= state.slowdown_bound > 0
    unlimited = share_budget(HALL, (None, ""), [demand("a")])
    assert (unlimited.weighted_slowdown, unlimited.slowdown_bound) == (None, None)
    fair = share_budget(
        replace(HALL, objective="max-min", weights=(("a", 3.0),)), (140.0, ""), [demand("a"), demand("b")]
    )
    assert fair.weighted_slowdown == pytest.approx(3 * 0.1) == pytest.approx(fair.slowdown_bound)
    banded = share_budget(
        replace(HALL, watts=150.0, guard_band=0.3), (150.0, ""), [demand("a"), demand("b"), demand("c")]
    )
    assert not banded.is_met
    assert "the cap of 150 W, 105 W with its guard band, cannot be kept: 120 W are planned" in banded.troubles[0]


@pytest.mark.parametrize("hidden", ["b", "can", "10", "gpt-70b"])
def test_a_caller_hears_of_what_concerns_its_jobs_whatever_others_are_called(hidden: str) -> None:
    demands, unknown = [demand("gpt"), demand(hidden)], ["gpt-new", f"{hidden}-new"]
    broken, full = (
        reconcile([share_budget(replace(HALL, watts=watts), (watts, ""), demands, unknown)], 0)[0]
        for watts in (10.0, 200.0)
    )
    of_unknown = "nothing is known of the power of gpt-new, which is not counted"
    assert "the cap of 10 W cannot be kept" in broken.troubles[0]
    assert broken.troubles_for({"gpt", "gpt-new"}) == (broken.troubles[0], of_unknown)
    assert broken.troubles_for({hidden}) == broken.troubles_for(()) == broken.troubles[:1]
    of_probes = "no probe at full clocks fits below the cap for gpt: a wider guard band gives room"
    assert full.troubles[1] == of_probes.replace("gpt", f"gpt, {hidden}")
    assert full.troubles_for({"gpt", "gpt-new"}) == (of_unknown, of_probes)
    assert full.troubles_for({hidden}) == (of_probes.replace("gpt", hidden),)
    assert full.troubles_for(()) == ()
    assert all(state.troubles_for({*state.job_ids, *unknown}) == state.troubles for state in (broken, full))


def test_a_load_target_counts_while_it_lasts() -> None:
    assert cap_of(HALL, [PEAK], 99.9) == (250.0, "")
    assert cap_of(HALL, [PEAK], 100.0) == (180.0, "peak")
    assert cap_of(HALL, [PEAK], 200.0) == (250.0, "")
    assert cap_of(HALL, [replace(PEAK, watts=300.0)], 100.0) == (250.0, "")
    free = replace(HALL, watts=0.0)
    assert cap_of(free, [PEAK], 0.0) == (None, "")
    assert cap_of(free, [PEAK, replace(PEAK, budget="other", watts=5.0)], 150.0) == (180.0, "peak")
    assert powers(free, demand("a"), demand("b"), demand("c")) == [100.0, 100.0, 100.0]


def test_a_job_of_two_budgets_goes_at_the_slower_pace() -> None:
    demands = [demand("a"), demand("b")]
    tight = share_budget(replace(HALL, name="rack", jobs=("a",)), (60.0, ""), demands)
    wide = share_budget(HALL, (200.0, ""), demands)
    found = reconcile([wide, tight], 0)
    assert [share.pace for share in found[0].shares] == [1.3, 0.0]
    assert [share.budget for share in found[0].shares] == ["rack", "hall"]
    assert (found[0].planned_w, found[1].planned_w) == (160.0, 60.0)


def fine_demand(job_id: str, *, step: float, degree: float, pace: float = 0.0) -> Demand:
    """A job of 1 kW whose paces lie so close to each other as those of a frontier do near T_min."""
    paces = tuple(1 + step * number for number in range(200))
    powers_w = tuple(1000.0 / pace**degree for pace in paces)
    points = OperatingPoints(times_s=paces, powers_w=powers_w, full_time_s=1.0, full_power_w=1150.0)
    return replace(demand(job_id, pace=pace), points=points, paces=paces)


def test_a_pace_that_hardly_costs_more_stays() -> None:
    paces = (1.0, 1.1, 1.1004, 2.0)
    points = replace(demand("a").points, times_s=paces)
    near = replace(demand("a", pace=1.1004), paces=paces, points=points)
    assert share_budget(HALL, (85.0, ""), [near]).shares[0].point == 2, "although point 1 would do"
    assert share_budget(HALL, (85.0, ""), [replace(near, paces=(1.0, 1.1, 1.11, 2.0), pace=1.11)]).shares[0].point == 1
    assert share_budget(HALL, (50.0, ""), [near]).shares[0].point == 3


def shared_again(budget: BudgetSet, demands: list[Demand]) -> tuple[BudgetState, list[Demand]]:
    """What a budget gives jobs that are at the paces which they were given before."""
    state = share_budget(budget, cap_of(budget, (), 0.0), demands)
    return state, [replace(share.demand, pace=share.pace) for share in state.shares]


def test_paces_that_stay_leave_no_watts_of_a_cap_that_rises_unused() -> None:
    """Of sixteen jobs that are slowed by 1 % each, paces 0.5 % too slow would be half of it."""
    demands = [fine_demand(f"job-{number}", step=0.001, degree=2.2) for number in range(16)]
    for rise in range(12):
        state, demands = shared_again(replace(HALL, watts=16e3 * 0.975 * (1 + 0.0015 * rise)), demands)
        assert state.weighted_slowdown is not None
        assert state.slowdown_bound is not None
        assert state.weighted_slowdown <= 1.016 * state.slowdown_bound, "one job's step is up to 1.6 % of it"


@pytest.mark.parametrize("objective", ["total", "max-min"])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_caps_come_jobs_are_hardly_slower_than_if_they_had_begun_with_the_last(
    seed: int, objective: str
) -> None:
    rng = random.Random(seed)
    demands = [
        fine_demand(f"job-{number}", step=rng.uniform(5e-4, 2e-3), degree=rng.uniform(1.5, 2.6))
        for number in range(rng.randint(2, 8))
    ]
    fresh, depth = demands, rng.choice((0.005, 0.02, 0.1, 0.3))
    for _ in range(12):
        cap_w = 1e3 * len(demands) * (1 - depth * rng.uniform(0.95, 1.05))
        budget = replace(HALL, watts=cap_w, objective=objective, weights=(("job-1", 2.0),))
        state, demands = shared_again(budget, demands)
        anew = share_budget(budget, (cap_w, ""), fresh)
        assert state.is_met == anew.is_met
        for objective_of in ("total", "max-min"):
            kept, best = (replace(one, budget=replace(budget, objective=objective_of)) for one in (state, anew))
            if objective_of in ("total", objective):
                assert kept.weighted_slowdown is not None
                assert best.weighted_slowdown is not None
                assert kept.weighted_slowdown <= 1.005 * best.weighted_slowdown + 1e-12
        paces = [one.pace for one in demands]
        _, demands = shared_again(budget, demands)
        assert [one.pace for one in demands] == paces, "nothing has changed, so nobody is switched again"


def test_probes_take_turns_where_there_is_no_room_for_all() -> None:
    three = [demand("a"), demand("b"), demand("c")]

    def held(cap_w: float, turn: int) -> list[bool]:
        state = replace(share_budget(HALL, (300.0, ""), three), cap_w=cap_w)
        return [share.holds_probes for share in reconcile([state], turn)[0].shares]

    assert held(330.0, 0) == [False, False, False]
    assert [held(310.0, turn).index(False) for turn in range(3)] == [0, 1, 2]
    assert held(310.0, 0) == [False, True, True]
    assert held(305.0, 0) == [True, True, True]
    state = share_budget(HALL, (180.0, ""), three[:1])
    assert not reconcile([state], 0)[0].troubles
    tight = reconcile([share_budget(HALL, (100.0, ""), three[:1])], 0)[0]
    assert tight.troubles == ("no probe at full clocks fits below the cap for a: a wider guard band gives room",)
    (trouble,) = reconcile([share_budget(HALL, (20.0, ""), three[:1])], 0)[0].troubles
    assert trouble.startswith("the cap of 20 W cannot be kept"), "no guard band gives room then"


def test_jobs_that_draw_no_more_in_a_probe_take_no_turns() -> None:
    at_full = OperatingPoints.at_full_power(full_time_s=1.0, full_power_w=50.0)
    idle = [replace(demand(job_id), points=at_full, paces=(), reason="it has no plan yet") for job_id in "cde"]
    state = share_budget(HALL, (365.0, ""), [demand("a"), demand("b"), *idle])  # a probe draws 10 W more
    for turn in range(5):
        held = {share.demand.job_id for share in reconcile([state], turn)[0].shares if share.holds_probes}
        assert held == {"b" if turn % 2 == 0 else "a"}


def test_a_budget_that_is_cleared_and_set_again_is_said_again() -> None:
    governor = Governor([HALL])
    (said,) = governor.evaluate([], 0.0).sentences
    assert governor.evaluate([], 1.0).sentences == ()
    for other in (None, replace(HALL, name="other")):
        governor.drop_budget("hall")
        if other is not None:
            governor.apply(other)
        governor.evaluate([], 2.0)
        governor.apply(HALL)
        assert said in governor.evaluate([], 3.0).sentences


SHAPES = ((2, 1, 0.2, 0.4), (3, 1, 0.1, 0.8), (2, 2, 0.3, 0.4))


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of each shape, as a first run has measured it."""
    folder, found = tmp_path_factory.mktemp("profiles"), []
    for number, shape in enumerate(SHAPES):
        with virtual_job(simulated(number, shape, None), "a100", quick_plans=True) as job:
            while job.planner.job.plan is None:
                job.run_iteration()
            file = folder / f"{number}.csv"
            file.write_bytes(job.planner.job.plan.profile_csv)
            found.append(str(file))
    return found


def simulated(number: int, shape: tuple[int, int, float, float], profile: str | None) -> SimulatedJob:
    pp, dp, imbalance, time_scale = shape
    return SimulatedJob(
        schedule=one_f_one_b(pp=pp, microbatches=4),
        num_pipelines=dp,
        num_iterations=10**6,
        imbalance=imbalance,
        job_id=f"job-{number}",
        time_scale=time_scale,
        profile=profile,
    )


@pytest.fixture
def fleet(profiles: list[str]) -> Iterator[VirtualFleet]:
    """Three jobs under their plans."""
    with ExitStack() as jobs:
        starting = [
            jobs.enter_context(virtual_job(simulated(number, shape, profile), "a100", quick_plans=True))
            for number, (shape, profile) in enumerate(zip(SHAPES, profiles, strict=True))
        ]
        running = VirtualFleet(starting)
        until(running, lambda job: job.phase is Phase.ENFORCING and not job.awaits_frontier)
        running.run_until(running.now_s + 20)
        yield running


def until(fleet: VirtualFleet, condition: "object") -> None:
    assert callable(condition)
    while not all(condition(job.planner.job) for job in fleet.jobs):
        assert fleet.now_s < 600
        fleet.run_until(fleet.now_s + 2)


def job_of(running: VirtualJob) -> Job:
    return running.planner.job


def drawn_w(fleet: VirtualFleet) -> float:
    return fleet.power_w(fleet.now_s - 1e-3)


def settle(fleet: VirtualFleet) -> float:
    fleet.run_until(fleet.now_s + 12)
    return drawn_w(fleet)


def test_jobs_keep_a_cap_and_are_back_on_their_targets(fleet: VirtualFleet) -> None:
    before_w, before_s = drawn_w(fleet), [job.iterations[-1].time_s for job in fleet.jobs]
    for cut in (0.1, 0.25):
        cap_w = (1 - cut) * before_w
        fleet.governor.apply(BudgetSet(name="hall", watts=cap_w, guard_band=0.01))
        fleet.evaluate()
        assert 0.93 * cap_w < settle(fleet) <= cap_w
        (state,) = fleet.governor.states
        assert state.is_met
        assert state.measured_w == pytest.approx(state.planned_w, rel=0.02), "by counters that tick"
        assert all(job_of(job).phase is Phase.ENFORCING for job in fleet.jobs)
    slowed = [max(range(len(fleet.jobs)), key=lambda one: fleet.governor.states[0].shares[one].pace)]
    stored = list(fleet.jobs[slowed[0]].planner.store.facts())
    assert any(isinstance(fact, PaceChosen) and fact.budget == "hall" for fact in stored)
    fleet.governor.drop_budget("hall")
    fleet.evaluate()
    settle(fleet)
    assert [job.iterations[-1].time_s for job in fleet.jobs] == pytest.approx(before_s, rel=0.01)
    assert not any(job_of(job).chosen_pace for job in fleet.jobs)
    assert all(job_of(job).enforcement.guard.figures.falls == 0 for job in fleet.jobs)


def test_jobs_wait_for_watts_of_others_in_their_own_budgets_alone(fleet: VirtualFleet) -> None:
    """Three racks, of which the hall covers two."""
    racks = [
        BudgetSet(name=f"rack-{number}", watts=0.85 * share_w, jobs=(f"job-{number}",))
        for number, share_w in enumerate(drawn_each_w(fleet))
    ]
    for rack in (*racks, BudgetSet(name="hall", watts=1e6, jobs=("job-0", "job-2"))):
        fleet.governor.apply(rack)
    settle(fleet)
    before = [job_of(job).pace for job in fleet.jobs]
    assert min(before) > 1.0
    fleet.governor.apply(replace(racks[0], watts=0.9 * racks[0].watts))
    for rack in racks[1:]:
        fleet.governor.apply(replace(rack, watts=1e6))
    found = fleet.governor.evaluate([job_of(job) for job in fleet.jobs], fleet.now_s)
    paces = {job_id: order.slowdown for job_id, order in found.orders if order.slowdown != before[int(job_id[-1])]}
    assert sorted(paces) == ["job-0", "job-1"], "job-2 waits, since the hall covers job-0 too"
    assert paces["job-1"] is None
    assert (paces["job-0"] or 0.0) > before[0]
    settle(fleet)
    settle(fleet)
    assert [job_of(job).chosen_pace is None for job in fleet.jobs] == [False, True, True]


def drawn_each_w(fleet: VirtualFleet) -> list[float]:
    fleet.governor.apply(BudgetSet(name="all", watts=0.0))
    fleet.evaluate()
    (state,) = fleet.governor.states
    fleet.governor.drop_budget("all")
    return [share.power_w for share in state.shares]


def test_powers_that_the_profile_has_too_low_are_counted_as_measured(profiles: list[str], tmp_path: Path) -> None:
    """As on GPUs that have aged since a saved profile was measured."""
    file = tmp_path / "low.csv"
    with Path(profiles[0]).open(newline="") as measured, file.open("w", newline="") as low:
        rows = list(csv.DictReader(measured))
        writer = csv.DictWriter(low, rows[0])
        writer.writeheader()
        writer.writerows({**row, "energy": 0.92 * float(row["energy"] or 0)} for row in rows)
    with ExitStack() as jobs:
        starting = [
            jobs.enter_context(virtual_job(simulated(number, SHAPES[number], profile), "a100", quick_plans=True))
            for number, profile in enumerate((str(file), profiles[1]))
        ]
        running = VirtualFleet(starting)
        until(running, lambda job: job.measured.self_check.latest.plan is not None)
        cap_w = 0.85 * drawn_w(running)
        running.governor.apply(BudgetSet(name="hall", watts=cap_w, guard_band=0.01))
        running.evaluate()
        settle(running)
        settle(running)
        assert 0.93 * cap_w < drawn_w(running) <= cap_w
        (state,) = running.governor.states
        assert state.measured_w == pytest.approx(state.planned_w, rel=0.02), "by counters that tick"
        asked = [job_of(job).switch for job in running.jobs]
        settle(running)
        assert [job_of(job).switch for job in running.jobs] == asked, "no switch for noise"


def test_a_restarted_planner_goes_on_at_the_same_pace(fleet: VirtualFleet) -> None:
    fleet.governor.apply(BudgetSet(name="hall", watts=0.8 * drawn_w(fleet)))
    fleet.evaluate()
    settle(fleet)
    kept = [job_of(job).chosen_pace for job in fleet.jobs]
    assert any(kept)
    points = [job_of(job).switch for job in fleet.jobs]
    for job in fleet.jobs:
        planner = job.planner
        again = restore(job_of(job).job_id, planner.store.facts(), job_of(job).policy)
        assert (again.chosen_pace, again.switch) == (job_of(job).chosen_pace, job_of(job).switch)
        planner.kill()
        planner.restart()
        job.touched()
    fleet.governor = Governor(fleet.governor.budgets.values())
    settle(fleet)
    assert [job_of(job).chosen_pace for job in fleet.jobs] == kept
    assert [one and one.points for one in points] == [
        one and one.points for one in (job_of(job).switch for job in fleet.jobs)
    ]


@pytest.mark.stress
def test_a_targets_own_pace_is_the_fastest(fleet: VirtualFleet) -> None:
    first = fleet.jobs[0]
    first.planner.tell(TargetSet(target=Target(slowdown=1.3)))
    fleet.run_until(fleet.now_s + 5)
    own = job_of(first).switch
    fleet.governor.apply(BudgetSet(name="hall", watts=0.95 * drawn_w(fleet), weights=(("job-0", 100.0),)))
    fleet.evaluate()
    settle(fleet)
    now = job_of(first).switch
    assert own is not None
    assert now is not None
    assert now.points == own.points, "so heavy that the others give all"
    fleet.governor.apply(BudgetSet(name="hall", watts=0.62 * drawn_w(fleet)))
    fleet.evaluate()
    settle(fleet)
    slower = job_of(first).switch
    assert slower is not None
    assert slower.points[0] > own.points[0]


@pytest.mark.stress
def test_a_budget_makes_slower_what_follows_a_price_and_not_faster(fleet: VirtualFleet) -> None:
    first = job_of(fleet.jobs[0])
    assert first.plan is not None
    summary = first.plan.summary
    slower = summary.time_ps[summary.point_for_straggler(round(1.03 * summary.baseline_time_ps))]
    fleet.prices = {"job-0": ("cheap", slower / summary.baseline_time_ps)}
    fleet.evaluate()
    settle(fleet)
    assert first.chosen_pace is not None
    assert (first.chosen_pace.price, first.chosen_pace.budget) == ("cheap", "")
    asked = first.switch
    assert asked is not None
    fleet.governor.apply(BudgetSet(name="hall", watts=1.05 * drawn_w(fleet)))
    settle(fleet)
    own_w = fleet.governor.states[0].shares[0].power_w
    assert first.chosen_pace == PaceChosen(slowdown=slower / summary.baseline_time_ps, budget="", price="cheap")
    fleet.governor.apply(BudgetSet(name="hall", watts=0.9 * own_w, jobs=("job-0",)))
    settle(fleet)
    assert fleet.governor.states[0].is_met
    assert first.switch is not None
    assert first.switch.points[0] > asked.points[0]
    assert first.chosen_pace.budget == "hall"
    fleet.governor.drop_budget("hall")
    settle(fleet)
    assert first.switch.points == asked.points
    fleet.prices = {"job-0": ("cheap", 0.0)}
    settle(fleet)
    assert first.chosen_pace is None


def test_a_pace_has_the_name_of_the_policy_that_asks_for_it_now(fleet: VirtualFleet) -> None:
    """Of two that ask for the same one is removed; a job that waits for others keeps the name it has."""
    first, watts = job_of(fleet.jobs[0]), 0.85 * drawn_each_w(fleet)[0]
    for name in ("hall", "rack"):
        fleet.governor.apply(BudgetSet(name=name, watts=watts, jobs=("job-0",)))
    settle(fleet)
    asked, switch = first.chosen_pace, first.switch
    assert asked is not None
    assert asked.budget == "hall"
    fleet.governor.drop_budget("hall")
    settle(fleet)
    assert first.chosen_pace == replace(asked, budget="rack")
    fleet.prices = {"job-0": ("cheap", asked.slowdown)}
    settle(fleet)
    assert first.chosen_pace == replace(asked, budget="", price="cheap")
    fleet.prices = {}
    settle(fleet)
    assert first.chosen_pace == replace(asked, budget="rack")
    assert first.switch == switch, "the clocks are the same all the time"
    assert first.chosen_pace in list(fleet.jobs[0].planner.store.facts())


def test_a_job_without_a_plan_counts_at_full_power(profiles: list[str]) -> None:
    with ExitStack() as jobs:
        planned = jobs.enter_context(virtual_job(simulated(0, SHAPES[0], profiles[0]), "a100", quick_plans=True))
        fresh = jobs.enter_context(virtual_job(simulated(1, SHAPES[1], None), "a100", quick_plans=True))
        running = VirtualFleet([planned, fresh])
        while job_of(planned).phase is not Phase.ENFORCING or job_of(fresh).measured.baseline is None:
            running.run_until(running.now_s + 1)
        running.governor.apply(BudgetSet(name="hall", watts=1.0))
        running.evaluate()
        (state,) = running.governor.states
        full = state.shares[1]
        baseline = job_of(fresh).measured.baseline
        assert baseline is not None
        assert "it has no plan yet" in full.demand.reason
        assert full.power_w == pytest.approx(baseline.energy_j / baseline.time_s)
        assert any("cannot be kept" in sentence for sentence in running.sentences)
        until(running, lambda job: job.phase is Phase.ENFORCING and not job.awaits_frontier)
        running.run_until(running.now_s + 20)
        assert job_of(fresh).pace > 1.2, "once it has a frontier, it gives what it can"


def test_noise_in_the_power_of_a_job_without_a_plan_switches_no_other(fleet: VirtualFleet) -> None:
    """Of GPUs that do not say their limits, it counts with what its iterations draw."""
    job = job_of(fleet.jobs[1])
    job.measured.baseline = job.plan = None
    for state in job.members.ranks.values():
        state.gpu = replace(state.gpu, power_limit_w=0, default_power_limit_w=0)
    (pipeline,) = job.progress.pipelines
    assert pipeline.latest is not None
    assert pipeline.latest.energy_j is not None
    usual, energy_j = pipeline.latest, pipeline.latest.energy_j
    fleet.governor.apply(BudgetSet(name="hall", watts=0.9 * drawn_w(fleet)))
    rng, asked = random.Random(1), []
    for _ in range(20):
        asked.append(fleet.governor.evaluate([job_of(one) for one in fleet.jobs], fleet.now_s).orders)
        pipeline.latest = replace(usual, energy_j=energy_j * rng.uniform(0.98, 1.009))
    assert [job_id for job_id, _ in asked[0]] == ["job-0", "job-2"]
    assert asked == asked[:1] * 20


def test_what_a_straggler_leaves_goes_to_the_others(fleet: VirtualFleet) -> None:
    cap_w = 0.85 * drawn_w(fleet)
    fleet.governor.apply(BudgetSet(name="hall", watts=cap_w))
    fleet.evaluate()
    settle(fleet)
    before = [share.power_w for share in fleet.governor.states[0].shares]
    fleet.jobs[2].planner.tell(StragglerReported(straggler_id="a", degree=1.5, dp_rank=1))
    settle(fleet)
    after = [share.power_w for share in fleet.governor.states[0].shares]
    assert after[2] < before[2]
    assert sum(after[:2]) > sum(before[:2])
    assert sum(after) <= cap_w


def test_a_load_target_begins_and_ends_by_itself(fleet: VirtualFleet) -> None:
    before_w = drawn_w(fleet)
    fleet.governor.apply(BudgetSet(name="hall", watts=0.0, guard_band=0.01))
    begin_s = fleet.now_s + 5
    fleet.governor.apply(replace(PEAK, start_s=begin_s, end_s=begin_s + 20, watts=0.8 * before_w))
    fleet.run_until(begin_s + 15)
    assert drawn_w(fleet) <= 0.8 * before_w
    assert fleet.governor.states[0].load_target == "peak"
    fleet.run_until(begin_s + 35)
    assert drawn_w(fleet) > 0.95 * before_w
    assert fleet.governor.states[0].load_target == ""


def test_two_callers_who_clear_at_once_find_the_same(tmp_path: Path) -> None:
    """Both were told that it is there: the second to come finds it gone, and nothing of it comes back."""

    async def race() -> None:
        store = Store(tmp_path / DATABASE)
        try:
            budgets = Budgets(store, {}, Prices(store, {}, SignalFiles(None)))
            await budgets.set(HALL)
            await budgets.set(PEAK)
            await asyncio.gather(budgets.clear(PEAK), budgets.clear(PEAK))
            clearing = asyncio.gather(budgets.clear(HALL), budgets.clear(HALL))
            with pytest.raises(ClearedError, match="budget hall has been cleared meanwhile"):
                await asyncio.gather(clearing, budgets.set(PEAK))
            await clearing
            assert budgets.get("hall") is None
            assert budgets.load_targets("hall") == []
            assert list(store.load_own()) == []
        finally:
            store.close()

    asyncio.run(race())
