"""Frontiers of plans with shared clocks: their deadlines, and what is planned for each, worked out by hand."""

import time
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem

from perseus_dist.errors import PlanningError
from perseus_dist.planning.coarse import coarse_frontier as module
from perseus_dist.planning.coarse.coarse_frontier import plan_by, plan_coarse_frontier
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.schedule.granularity import Granularity

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}
FOUR = "0F0 0F1 0B0 0B1"
PAIR = "0F0 0B0\n1F0 1B0"


UNLIKE: list[tuple[int, str, Points]] = [
    (0, "F", {1000: (10, 9000), 800: (13, 6100), 600: (17, 5100)}),
    (0, "B", {1000: (21, 19_000), 800: (25, 12_300), 600: (33, 10_700)}),
    (1, "F", {1000: (12, 9100), 800: (14, 6700), 600: (19, 5900)}),
    (1, "B", {1000: (19, 18_100), 800: (24, 13_100), 600: (31, 11_300)}),
]


def chain(points: Points = TWO, orders: str = "0F0 0B0") -> PlanningProblem:
    return small_problem(orders, [small_curve(0, kind, points) for kind in "FB"])


def pair(points: Points = THREE, blocking_uw: int = 0) -> PlanningProblem:
    """Two stages, one behind the other."""
    curves = [small_curve(stage, kind, points, blocking_uw=blocking_uw) for stage in (0, 1) for kind in "FB"]
    return small_problem(PAIR, curves, blocking_uw=blocking_uw)


def planned(
    problem: PlanningProblem, *, deadlines_ms: tuple[float, ...] = (), is_whole: bool = False
) -> tuple[Frontier, list[float]]:
    """The frontier with one clock for each rank, and the shares done that were told."""
    shares: list[float] = []

    def progress(phase: str, share: float) -> bool:
        assert phase == "plans by rank"
        shares.append(share)
        return True

    deadlines_ps = [round(ms * MS) for ms in deadlines_ms]
    found = plan_coarse_frontier(
        problem, Granularity.RANK, deadlines_ps=deadlines_ps, is_whole=is_whole, progress=progress
    )
    return found, shares


@cache
def whole() -> tuple[Frontier, list[float]]:
    """Of two stages of three clocks."""
    return planned(pair(), is_whole=True)


def begun(problem: PlanningProblem, most: int, deadlines_ps: Sequence[int] = ()) -> list[float]:
    """The first deadlines of a whole frontier, as shares of the way from the fastest to the slowest plan."""
    shares: list[float] = []

    def progress(_: str, share: float) -> bool:
        shares.append(share)
        return len(shares) < most

    with pytest.raises(PlanningError, match="cancelled"):
        plan_coarse_frontier(problem, Granularity.RANK, deadlines_ps=deadlines_ps, progress=progress)
    return shares


def test_each_plan_is_the_best_of_its_time_and_none_is_beaten() -> None:
    """Each rank draws 18 mJ in 20 ms, 12 in 24 or 10 in 40."""
    found, _ = whole()
    assert (found.time_ps / MS).tolist() == [40, 44, 48, 64, 80]
    assert found.effective_uj.tolist() == [36_000, 30_000, 24_000, 22_000, 20_000]
    assert found.num_changes.tolist() == [0] * 5
    assert found.baseline.time_ps == 40 * MS
    assert found.granularity == Granularity.RANK


@pytest.mark.parametrize(
    ("deadlines_ms", "shares"),
    [
        ((), [0.0, 1.0]),
        ((60,), [0.0, 0.5, 1.0]),
        ((60, 50, 60), [0.0, 0.25, 0.5, 1.0]),
        ((40,), [0.0, 1.0]),
        ((39.9,), [0.0, 1.0]),
        ((80,), [0.0, 1.0]),
        ((79.2,), [0.0, 0.98, 1.0]),
        ((1000,), [0.0, 1.0]),
    ],
)
def test_plans_are_made_for_deadlines_that_are_neither_too_early_nor_met_by_the_cheapest(
    deadlines_ms: tuple[float, ...], shares: list[float]
) -> None:
    """Full clocks take 40 ms and the cheapest 80."""
    found, seen = planned(pair(), deadlines_ms=deadlines_ms)
    assert seen == pytest.approx(shares)
    assert (found.fastest_ps, found.time_ps[-1]) == (40 * MS, 80 * MS)
    for deadline_ms in deadlines_ms:
        if deadline_ms >= 40:
            best_uj = {40: 36_000, 50: 24_000, 60: 24_000, 79.2: 22_000}.get(deadline_ms, 20_000)
            assert found.effective_uj[found.point_for_straggler(round(deadline_ms * MS))] == best_uj


def test_where_there_is_one_plan_there_is_no_deadline_to_plan_for() -> None:
    found, seen = planned(pair({1000: (10, 9000)}))
    assert (seen, found.time_ps.tolist()) == ([1.0], [40 * MS])
    assert planned(pair({1000: (10, 9000)}), is_whole=True)[1] == [1.0]


def test_deadlines_are_half_a_percent_apart() -> None:
    _, seen = whole()
    times_ms = [40 + 40 * share for share in seen]
    steps = [later / earlier for earlier, later in pairwise(times_ms[:-1])]
    assert (min(steps), max(steps)) == pytest.approx((1.005, 1.005))
    assert 80 / 1.005 <= times_ms[-2] < 80
    assert seen[-1] == 1


@pytest.mark.parametrize(("blocking_uw", "step"), [(124_000, 1.005), (126_000, 1.03)])
def test_deadlines_are_further_apart_where_waiting_costs_more_than_is_saved(blocking_uw: int, step: float) -> None:
    """From 48 ms on 125 mW are saved, and what the rank that works would draw waiting; both draw twice that."""
    times_ms = [40 + 40 * share for share in begun(pair(blocking_uw=blocking_uw), 42)]
    assert times_ms[1] / times_ms[0] == pytest.approx(1.005)
    beyond = [later / earlier for earlier, later in pairwise(times_ms) if earlier > 48]
    assert len(beyond) > 3
    assert beyond == pytest.approx([step] * len(beyond))


@pytest.mark.parametrize(("quick_work", "step"), [(8, 1.005), (9, 1.005), (4, 1.01), (1, 1.04), (0.5, 1.04)])
def test_deadlines_are_further_apart_the_larger_the_pipeline(
    quick_work: float, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four instructions in two groups."""
    monkeypatch.setattr(module, "_QUICK_WORK", quick_work)
    assert 1 + begun(pair(), 2)[1] == pytest.approx(step)


def test_deadlines_asked_for_come_between() -> None:
    seen = begun(pair(), 3, deadlines_ps=[round(40.1 * MS)])
    assert seen == pytest.approx([0, 0.0025, (1.005 * 40.1 - 40) / 40])


@pytest.mark.parametrize("deadline_ps", [0, -1, 0.5, 5e10])
def test_a_time_asked_for_is_a_whole_number_of_picoseconds_from_one(deadline_ps: float) -> None:
    for granularity in Granularity:
        with pytest.raises(PlanningError, match=f"^deadlines_ps: saw {deadline_ps!r}, expected whole picoseconds"):
            plan_by(pair(), granularity, deadlines_ps=[deadline_ps])  # type: ignore[list-item]
    assert plan_coarse_frontier(pair(), Granularity.RANK, deadlines_ps=[1], is_whole=False).fastest_ps == 40 * MS


def test_a_plan_is_as_fine_as_asked_for() -> None:
    """With 22 ms one of two may be slower by instructions and by phases, none by ranks."""
    of = chain({1000: (10, 9000), 400: (12, 6000)})
    energies = []
    for granularity in Granularity:
        found = plan_by(of, granularity, deadlines_ps=[22 * MS])
        assert found.granularity == granularity
        energies.append(int(found.effective_uj[found.point_for_straggler(22 * MS)]))
    assert energies == [15_000, 15_000, 18_000]


def test_noise_can_make_a_plan_faster_than_full_clocks() -> None:
    curves = [small_curve(0, "F", {1000: (10, 9000), 900: (9, 9500)})]
    curves += [small_curve(0, "B", {1000: (10, 9000), 900: (10.5, 9500)})]
    found, seen = planned(small_problem("0F0 0B0", curves), is_whole=True)
    assert (found.time_ps / MS).tolist() == [19.5, 20]
    assert found.baseline.time_ps == 20 * MS
    assert seen[0] == 0


def two_phases() -> PlanningProblem:
    """GPipe on one rank: two forwards, and two backwards that take as long."""
    return chain(THREE, FOUR)


@pytest.mark.parametrize("latency_ms", [0, 3])
def test_plans_by_phases_are_in_time_with_their_changes(latency_ms: int) -> None:
    """With 45 ms one phase is at 800 MHz: 44 ms, and 44.5 where a change of 3 ms comes beside it."""
    of = two_phases()
    found = plan_coarse_frontier(
        of,
        Granularity.PHASE,
        switch_latency_ps=latency_ms * MS,
        deadlines_ps=[44 * MS, 45 * MS, 50 * MS],
        is_whole=False,
    )
    at = found.point_for_straggler(45 * MS)
    assert found.num_changes[at] == 1
    played = replay(of, found.clock_indices[at], switch_latency_ps=latency_ms * MS)
    assert played.time_ps == found.time_ps[at] <= 45 * MS
    assert found.effective_uj[at] == pytest.approx(30_000, abs=900 if latency_ms else 0)
    assert found.effective_uj[found.point_for_straggler(50 * MS)] == 24_000
    assert (found.gaps >= 0).all()


def test_where_changes_come_too_late_ranks_have_one_clock() -> None:
    """Of 30 ms nothing arrives within 20."""
    of = two_phases()
    found, by_rank = (
        plan_coarse_frontier(of, one, switch_latency_ps=30 * MS, deadlines_ps=[50 * MS], is_whole=False)
        for one in (Granularity.PHASE, Granularity.RANK)
    )
    assert found.num_changes.tolist() == [0, 0, 0]
    assert found.clock_indices.tolist() == by_rank.clock_indices.tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert found.baseline.time_ps == replay_all_max(of).time_ps


def test_a_bound_with_latency_allows_the_first_of_a_phase_a_clock_of_its_own() -> None:
    """A late change mixes two clocks in it, which no plan without latency can."""
    of = small_problem("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", [small_curve(*one) for one in UNLIKE])
    deadlines_ps = [round(slowdown * replay_all_max(of).time_ps) for slowdown in (1.05, 1.1)]
    strict, late = (
        plan_coarse_frontier(
            of, Granularity.PHASE, switch_latency_ps=latency_ps, deadlines_ps=deadlines_ps, is_whole=False
        )
        for latency_ps in (0, 3 * MS)
    )
    at_ps = np.array(deadlines_ps)
    assert (late.bound.total_uj(at_ps) < strict.bound.total_uj(at_ps) - 1000).all()
    assert (late.gaps >= 0).all()


@pytest.mark.parametrize(("after", "is_cancelled"), [(1, True), (3, True), (4, False)])
def test_planning_is_cancelled_when_progress_says_so(after: int, *, is_cancelled: bool) -> None:
    """Two deadlines beside that of full clocks, and the end."""
    shares: list[float] = []

    def progress(_: str, share: float) -> bool:
        shares.append(share)
        return share == 1.0 or len(shares) < after

    def plan() -> Frontier:
        return plan_coarse_frontier(
            pair(), Granularity.RANK, deadlines_ps=[50 * MS, 60 * MS], is_whole=False, progress=progress
        )

    if is_cancelled:
        with pytest.raises(PlanningError, match=r"^planning was cancelled; nothing was written$"):
            plan()
        assert len(shares) == after
    else:
        assert len(plan().time_ps) >= 3


def test_how_long_planning_took_is_no_longer_than_it_did() -> None:
    began = time.perf_counter()
    found, _ = planned(pair(), deadlines_ms=(50,))
    took_s = time.perf_counter() - began
    assert min(found.solve_seconds, found.realise_seconds) > 0
    assert found.solve_seconds + found.realise_seconds <= took_s


def test_the_fastest_plan_uses_what_time_others_have() -> None:
    """The first rank has 120 ms of work, the second 40, and 10 ms to spare in each of its two turns."""
    curves = [small_curve(0, kind, {1000: (30, 9000), 500: (60, 5000)}) for kind in "FB"]
    curves += [small_curve(1, kind, {1000: (10, 9000), 500: (15, 5000), 400: (15.1, 4000)}) for kind in "FB"]
    of = small_problem(f"{FOUR}\n1F0 1B0 1F1 1B1", curves)
    found, _ = planned(of)
    assert found.fastest_ps == 120 * MS
    assert found.clock_indices[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.effective_uj[0] == 36_000 + 20_000


def test_constants_draw_energy_that_no_plan_saves() -> None:
    curves = [small_curve(0, kind, TWO) for kind in "FB"] + [small_curve(0, "LOAD", {0: (1, 100)})]
    found, _ = planned(small_problem("0LOAD0 0F0 0B0", curves))
    assert (found.time_ps / MS).tolist() == [21, 41]
    assert found.effective_uj.tolist() == [18_100, 10_100]
    assert found.bound.effective_uj[-1] == pytest.approx(10_099, abs=1)
    assert (found.gaps >= 0).all()


def test_plans_by_ranks_stand_in_only_where_there_is_none_by_phases() -> None:
    """With 51 ms forwards are at 700 MHz and backwards at 800; all at 800 would be faster and draw more."""
    curves = [small_curve(0, "F", {1000: (10, 9000), 800: (12, 6000), 700: (13, 5000), 500: (20, 4900)})]
    curves += [small_curve(0, "B", {1000: (10, 9000), 800: (12, 6000), 500: (20, 5500)})]
    of = small_problem(FOUR, curves)
    found = plan_coarse_frontier(
        of, Granularity.PHASE, switch_latency_ps=3 * MS, deadlines_ps=[51 * MS], is_whole=False
    )
    at = found.point_for_straggler(51 * MS)
    assert found.time_ps[at] == 50 * MS, "backwards have no 700 MHz, and run at the nearest until the change"
    assert found.num_changes[at] == 1
    assert 48 * MS not in found.time_ps.tolist()
    for latency_ps, deadline_ps, is_by_ranks in ((3 * MS, 50 * MS, False), (30 * MS, 51 * MS, True)):
        other = plan_coarse_frontier(
            of, Granularity.PHASE, switch_latency_ps=latency_ps, deadlines_ps=[deadline_ps], is_whole=False
        )
        assert (48 * MS in other.time_ps.tolist()) == is_by_ranks
