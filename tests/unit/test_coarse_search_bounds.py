"""The search for clocks of groups: repair and improvement by hand, and all of it against every plan there is."""

from itertools import product

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem
from test_coarse_frontier_bounds import UNLIKE
from test_coarse_relaxation_bounds import unlike

from perseus_dist.planning.coarse.clock_groups import clock_groups
from perseus_dist.planning.coarse.relaxation import Relaxation
from perseus_dist.planning.coarse.search import Search
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.schedule.granularity import Granularity

THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}
PAIR = "0F0 0B0\n1F0 1B0"


def pair(first: Points = THREE, second: Points = THREE) -> PlanningProblem:
    """Two stages, one behind the other."""
    curves = [small_curve(stage, kind, (first, second)[stage]) for stage in (0, 1) for kind in "FB"]
    return small_problem(PAIR, curves)


def searching(problem: PlanningProblem, granularity: Granularity = Granularity.RANK) -> tuple[Relaxation, Search]:
    relaxation = Relaxation(clock_groups(problem, granularity))
    return relaxation, Search(relaxation)


@pytest.mark.parametrize(
    ("deadline_ms", "of_slow"),
    [
        (80, [2, 2]),
        (79, [1, 2]),
        (64, [1, 2]),
        (63.9, [1, 1]),
        (48, [1, 1]),
        (47.9, [0, 1]),
        (44, [0, 1]),
        (40, [0, 0]),
        (39.9, None),
    ],
)
def test_late_clocks_are_made_faster_where_that_costs_least_for_the_time_it_saves(
    deadline_ms: float, of_slow: list[int] | None
) -> None:
    """From 500 MHz to 800 each rank saves 16 ms for 2 mJ, and from there 4 for 6."""
    _, search = searching(pair())
    found = search._repaired(round(deadline_ms * MS), np.array([2, 2]))
    assert (None if found is None else sorted(found.tolist())) == (of_slow and sorted(of_slow))


@pytest.mark.parametrize(
    ("slowdown", "chosen"),
    [(1.4, [2, 2, 2, 1, 2, 2, 2, 0, 1]), (1.4, [1, 2, 0, 2, 1, 2, 0, 0, 1]), (1.3, [2, 2, 0, 2, 1, 0, 2, 1, 2])],
)
def test_what_is_repaired_is_in_time_on_paths_that_nobody_knew(slowdown: float, chosen: list[int]) -> None:
    """Three ranks by phases: known are the paths that are longest with one group slow, and one with several is not."""
    relaxation = unlike()
    num_known = len(relaxation.counts)
    groups, search = relaxation.groups, Search(relaxation)
    deadline_ps = round(slowdown * relaxation.longest.time_ps(groups.chosen_ps(relaxation.fastest)))
    found = search._repaired(deadline_ps, np.array(chosen))
    assert found is not None
    assert relaxation.longest.time_ps(groups.chosen_ps(found)) <= deadline_ps
    assert len(relaxation.counts) > num_known


@pytest.mark.parametrize(("deadline_ms", "chosen"), [(45, [0, 1]), (44.9, [0, 0]), (40.9, None)])
def test_constants_take_their_share_of_the_deadline(deadline_ms: float, chosen: list[int] | None) -> None:
    """A load of 1 ms."""
    curves = [small_curve(stage, kind, THREE) for stage in (0, 1) for kind in "FB"]
    _, search = searching(small_problem(f"0LOAD0 {PAIR}", [*curves, small_curve(0, "LOAD", {0: (1, 100)})]))
    found = search._repaired(round(deadline_ms * MS), np.array([1, 1]))
    assert (None if found is None else sorted(found.tolist())) == chosen


@pytest.mark.parametrize(
    ("deadline_ms", "chosen"), [(40, [0, 0]), (44, [0, 1]), (48, [1, 1]), (64, [1, 2]), (80, [2, 2])]
)
def test_clocks_in_time_are_improved_as_far_as_one_or_two_changes_go(deadline_ms: int, chosen: list[int]) -> None:
    relaxation, search = searching(pair())
    start = search.fastest()
    relaxed = relaxation.solve(deadline_ms * MS)
    found = search._improved(deadline_ms * MS, relaxed, start.chosen, start)
    assert found is not None
    assert sorted(found.tolist()) == chosen
    assert search._improved(deadline_ms * MS, relaxed, None, start) is None
    bound_uj = relaxed.line.effective_uj(deadline_ms * MS)
    branched = search._branch(deadline_ms * MS, relaxed, bound_uj, start)
    assert branched.effective_uj == search.found(found).effective_uj


@pytest.mark.parametrize("deadline_ms", [45, 49, 65, 81])
def test_a_better_plan_is_found_whatever_constants_draw(deadline_ms: int) -> None:
    """A load of 1 ms draws 50 mJ, more than all that clocks can save."""
    curves = [small_curve(stage, kind, THREE) for stage in (0, 1) for kind in "FB"]
    of = small_problem(f"0LOAD0 {PAIR}", [*curves, small_curve(0, "LOAD", {0: (1, 50_000)})])
    relaxation, search = searching(of)
    relaxed = relaxation.solve(deadline_ms * MS)
    bound_uj = relaxed.line.effective_uj(deadline_ms * MS)
    branched = search._branch(deadline_ms * MS, relaxed, bound_uj, search.fastest())
    assert branched.effective_uj == {45: 80_000, 49: 74_000, 65: 72_000, 81: 70_000}[deadline_ms]


def test_more_time_than_it_is_late_by_is_worth_nothing() -> None:
    """Of 54 ms: the first rank saves 4 for 3 mJ, and the second 10 for 4, of which 6 or 4 are not needed."""
    of = pair({1000: (10, 9000), 500: (12, 7500)}, {1000: (10, 9000), 500: (15, 7000)})
    _, search = searching(of)
    late = search._repaired(50 * MS, np.array([1, 1]))
    assert late is not None
    assert late.tolist() == [0, 1]
    later = search._repaired(48 * MS, np.array([1, 1]))
    assert later is not None
    assert later.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("backward_ms", "choice"), [(10.5, 1), (10.99, 1), (10.9979, 1), (10.9999, 0), (11.0, 0), (11.1, 0)]
)
def test_faster_clocks_than_full_ones_are_found_to_a_ten_thousandth(backward_ms: float, choice: int) -> None:
    """Noise: forwards take 9 ms at 900 MHz, backwards longer than the 10 ms of full clocks. Both take 20."""
    curves = [small_curve(0, "F", {1000: (10, 9000), 900: (9, 9500)})]
    curves += [small_curve(0, "B", {1000: (10, 9000), 900: (backward_ms, 8900)})]
    relaxation, search = searching(small_problem("0F0 0B0", curves))
    assert relaxation.fastest.tolist() == [0]
    found = search.fastest()
    assert found.chosen.tolist() == relaxation.fastest.tolist() == [choice]
    assert found.effective_uj == (18_400 if choice else 18_000)


def test_the_best_clocks_are_never_worse_than_those_to_begin_with() -> None:
    relaxation, search = searching(pair())
    start = search.found(np.array([1, 0]))
    assert start.effective_uj == 30_000
    assert search.best(44 * MS, relaxation.solve(44 * MS), start).effective_uj == 30_000
    assert search.best(48 * MS, relaxation.solve(48 * MS), start).chosen.tolist() == [1, 1]
    assert search.best(47 * MS, relaxation.solve(47 * MS), start) is start


@pytest.mark.parametrize("granularity", [Granularity.RANK, Granularity.PHASE])
@pytest.mark.parametrize(
    "orders", ["0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1", "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2"]
)
def test_with_few_groups_the_best_of_all_plans_is_found(orders: str, granularity: Granularity) -> None:
    problem = small_problem(orders, [small_curve(*one) for one in UNLIKE])
    relaxation, search = searching(problem, granularity)
    groups = relaxation.groups
    plans = [np.array(one) for one in product(*map(range, groups.num_choices.tolist()))]
    times_ps = np.array([relaxation.longest.time_ps(groups.chosen_ps(one)) for one in plans])
    energies_uj = np.array([groups.energy_uj(one) for one in plans])
    fastest = search.fastest()
    for slowdown in (1.0, 1.01, 1.04, 1.1, 1.2, 1.3, 1.5):
        deadline_ps = round(slowdown * int(times_ps.min()))
        found = search.best(deadline_ps, relaxation.solve(deadline_ps), fastest)
        assert relaxation.longest.time_ps(groups.chosen_ps(found.chosen)) <= deadline_ps
        best_uj = int(energies_uj[times_ps <= deadline_ps].min())
        assert found.effective_uj == groups.energy_uj(found.chosen)
        assert best_uj <= found.effective_uj <= best_uj + 2, slowdown
