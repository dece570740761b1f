"""The search for clocks of groups: each of its steps by hand, and all of it against every plan there is."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from small_pipelines import MS, Points, small_curve, small_problem
from test_coarse_relaxation_bounds import unlike

from perseus_dist.planning.coarse import search as module
from perseus_dist.planning.coarse.clock_groups import clock_groups
from perseus_dist.planning.coarse.relaxation import Relaxation
from perseus_dist.planning.coarse.search import Search, _descended, _Tree
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import FloatArray

THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}
PAIR = "0F0 0B0\n1F0 1B0"


def array(*values: object) -> FloatArray:
    return np.array(values, dtype=np.float64)


def descended(
    energies: FloatArray,
    times: FloatArray,
    limits: FloatArray,
    chosen: list[int],
    allowed: NDArray[np.bool_] | None = None,
) -> list[int]:
    """(num_groups, num_choices) energies; (num_paths, num_groups, num_choices) times."""
    all_allowed = np.ones(energies.shape, dtype=np.bool_) if allowed is None else allowed
    found: list[int] = _descended(energies, times, limits, all_allowed, np.array(chosen)).tolist()
    return found


@pytest.mark.parametrize(("limit", "chosen"), [(2.0, [1]), (1.999, [0]), (3.0, [2]), (2.999, [1])])
def test_a_group_takes_the_cheapest_clock_that_is_in_time(limit: float, chosen: list[int]) -> None:
    assert descended(array([10, 7, 5]), array([[1, 2, 3]]), array(limit), [0]) == chosen


def test_a_clock_that_saves_nothing_is_not_changed_to() -> None:
    assert descended(array([10, 10, 11]), array([[2, 1, 1]]), array(9), [0]) == [0]
    assert descended(array([10, 9.5, 11]), array([[2, 1, 1]]), array(9), [0]) == [1]


def test_a_clock_that_the_bound_rules_out_is_not_changed_to() -> None:
    allowed = np.array([[True, True, False]])
    assert descended(array([10, 7, 5]), array([[1, 2, 3]]), array(9), [0], allowed) == [1]


def test_all_paths_are_to_be_in_time() -> None:
    times = array([[1, 2], [0, 0]], [[1, 2], [1, 2]])
    energies = array([10, 5], [10, 7])
    assert descended(energies, times, array(2, 3), [0, 0]) == [1, 0]
    assert descended(energies, times, array(1.5, 3), [0, 0]) == [0, 1]
    assert descended(energies, times, array(2, 4), [0, 0]) == [1, 1]


def test_the_change_that_saves_most_comes_first_and_others_as_long_as_there_is_room() -> None:
    energies, times = array([10, 6], [10, 5], [10, 9]), array([[1, 2], [1, 2], [1, 2]])
    assert descended(energies, times, array(4), [0, 0, 0]) == [0, 1, 0]
    assert descended(energies, times, array(5), [0, 0, 0]) == [1, 1, 0]
    assert descended(energies, times, array(6), [0, 0, 0]) == [1, 1, 1]


@pytest.mark.parametrize(("limit", "chosen"), [(4.0, [0, 1]), (3.999, [1, 0]), (4.5, [0, 1]), (5.0, [1, 1])])
def test_two_groups_change_at_once_where_the_faster_one_makes_room(limit: float, chosen: list[int]) -> None:
    """The first saves 3 for 1, the second 8 for 2."""
    energies, times = array([10, 7], [10, 2]), array([[1, 2], [1, 3]])
    assert descended(energies, times, array(limit), [1, 0]) == chosen


def test_two_groups_change_only_where_that_saves_energy_together() -> None:
    times = array([[1, 2], [1, 3]])
    assert descended(array([10, 7], [10, 7]), times, array(4), [1, 0]) == [1, 0]
    assert descended(array([10, 7], [10, 6.9]), times, array(4), [1, 0]) == [0, 1]


def test_of_two_changes_at_once_those_are_taken_that_save_most() -> None:
    """The first group may make room for either of the others, or the second for the third."""
    energies, times = array([10, 7], [10, 2], [10, 1]), array([[1, 2], [1, 3], [1, 3]])
    assert descended(energies, times, array(5), [1, 0, 0]) == [0, 0, 1]
    energies = array([10, 7], [10, 8], [10, 1])
    assert descended(energies, array([[1, 3], [1, 3], [1, 3]]), array(7), [1, 1, 0]) == [1, 0, 1]


def test_two_changes_at_once_are_of_two_groups() -> None:
    """Of one group alone no faster and slower clock count together."""
    assert descended(array([12, 10, 1]), array([[1, 2, 3]]), array(2.5), [1]) == [1]


def test_a_faster_clock_on_one_path_makes_room_on_it() -> None:
    """The first group is faster on the second path alone, where the second group needs it."""
    times = array([[1, 1], [1, 1]], [[1, 2], [1, 3]])
    assert descended(array([10, 7], [10, 2]), times, array(2, 4), [1, 0]) == [0, 1]


@pytest.mark.parametrize(("less", "chosen"), [(0, [0, 1]), (1, [1, 0])])
def test_pairs_are_looked_for_up_to_so_many(less: int, chosen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """One faster clock, and one slower on one path."""
    monkeypatch.setattr(module, "_MOST_PAIRS", 1 - less)
    assert descended(array([10, 7], [10, 2]), array([[1, 2], [1, 3]]), array(4), [1, 0]) == chosen


def test_changes_are_made_up_to_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    energies, times = array([10, 6], [10, 5], [10, 9]), array([[1, 2], [1, 2], [1, 2]])
    monkeypatch.setattr(module, "_MOST_MOVES", 2)
    assert descended(energies, times, array(6), [0, 0, 0]) == [1, 1, 0]


@pytest.mark.parametrize(("most_pairs", "chosen"), [(2, [0, 1]), (1, [1, 0])])
def test_pairs_count_on_each_path(most_pairs: int, chosen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PAIRS", most_pairs)
    times = array([[1, 1], [1, 1]], [[1, 2], [1, 3]])
    assert descended(array([10, 7], [10, 2]), times, array(2, 4), [1, 0]) == chosen


def test_a_microjoule_is_saved_too() -> None:
    assert descended(array([10, 9.5], [10, 9]), array([[1, 2], [1, 3]]), array(4), [1, 0]) == [0, 1]


def tree(excess: FloatArray, *, limit: float = 3.0, num_choices: tuple[int, ...] = (2, 2)) -> _Tree:
    """Two groups that draw 10 or 4, and take 1 or 2 of a limit on one path."""
    energies, times = array([10, 4], [10, 4]), array([[1, 2], [1, 2]])
    return _Tree(energies, excess, times, array(limit), np.array(num_choices, dtype=np.int32))


NONE = array([0, 0], [0, 0])


@pytest.mark.parametrize(
    ("most_uj", "limit", "total"),
    [
        (14.5, 3.0, 14),
        (14, 3.0, None),
        (8.5, 3.0, None),
        (8.5, 4.0, 8),
        (8.5, 3.999, None),
        (20.5, 2.0, 20),
        (20, 2.0, None),
    ],
)
def test_clocks_are_found_that_are_in_time_and_draw_less_than_the_best_known(
    most_uj: float, limit: float, total: float | None
) -> None:
    found = tree(NONE, limit=limit).search(1.0, most_uj)
    energies = None if found is None else sum(4 if choice else 10 for choice in found.tolist())
    assert energies == total


@pytest.mark.parametrize(("most_excess", "chosen"), [(3.0, None), (3.001, [0, 1]), (2.0, None)])
def test_clocks_are_less_above_the_bound_than_what_would_be_no_better(
    most_excess: float, chosen: list[int] | None
) -> None:
    """The fast clocks lie 1 and 2 above it, the slow ones 5 and 2."""
    found = tree(array([1, 5], [2, 2])).search(most_excess, 14.5)
    assert (None if found is None else found.tolist()) == chosen


def test_what_lies_above_the_bound_alone_is_left_out_before_and_where_nothing_is_left_there_is_none() -> None:
    assert tree(array([5, 5], [0, 0])).search(5.0, 99) is None
    assert tree(array([5, 5], [0, 0])).search(5.001, 99) is not None


def test_choices_of_least_excess_come_first() -> None:
    slow_first = tree(array([1, 0], [0, 1]), limit=4.0).search(9.0, 99)
    fast_first = tree(array([0, 1], [1, 0]), limit=4.0).search(9.0, 99)
    assert slow_first is not None
    assert fast_first is not None
    assert (slow_first.tolist(), fast_first.tolist()) == ([1, 0], [0, 1])


def test_a_group_has_no_more_choices_than_it_says() -> None:
    found = tree(array([1, 0], [0, 1]), limit=4.0, num_choices=(1, 2)).search(9.0, 99)
    assert found is not None
    assert found.tolist() == [0, 0]


def test_groups_of_unlike_numbers_of_choices_are_told_apart() -> None:
    """The second has one choice, and comes first: the third takes what is left of 6."""
    energies = array([10, 6, 4], [9, 9, 9], [20, 12, 5])
    times = array([[1, 2, 3], [1, 1, 1], [1, 2, 4]])
    excess = array([0, 1, 2], [0, 0, 0], [0, 1, 2])
    one = _Tree(energies, excess, times, array(6), np.array([3, 1, 3], dtype=np.int32))
    found = one.search(99.0, 25)
    assert found is not None
    assert found.tolist() == [0, 0, 2]
    assert one.search(99.0, 24) is None


@pytest.mark.parametrize(("most_nodes", "is_found"), [(3, True), (2, False)])
def test_no_more_nodes_are_looked_at_than_so_many(
    most_nodes: int, monkeypatch: pytest.MonkeyPatch, *, is_found: bool
) -> None:
    """Both fast, and then one slow: a node of the first, two of the second."""
    monkeypatch.setattr(module, "_MOST_NODES", most_nodes)
    three = _Tree(
        array([10], [10], [10]),
        array([0], [0], [0]),
        array([[1], [1], [1]]),
        array(3),
        np.array([1, 1, 1], dtype=np.int32),
    )
    assert (three.search(1.0, 31) is not None) == is_found


@pytest.mark.parametrize("most_nodes", [1, 2])
def test_choices_that_leave_too_little_time_or_energy_for_the_rest_are_no_nodes(
    most_nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first group's choice of least excess takes 5 of 4, or draws 10 of 14; the second's take 2 or draw 9."""
    monkeypatch.setattr(module, "_MOST_NODES", most_nodes)
    excess, numbers = array([0, 1], [0, 0]), np.array([2, 2], dtype=np.int32)
    for energies, times in (
        (array([1, 1], [1, 1]), array([[5, 1], [2, 2]])),
        (array([10, 4], [9, 9]), array([[1, 1], [1, 1]])),
    ):
        found = _Tree(energies, excess, times, array(4), numbers).search(9.0, 14)
        assert found is None if most_nodes == 1 else found is not None


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


UNLIKE: list[tuple[int, str, Points]] = [
    (0, "F", {1000: (10, 9000), 800: (13, 6100), 600: (17, 5100)}),
    (0, "B", {1000: (21, 19_000), 800: (25, 12_300), 600: (33, 10_700)}),
    (1, "F", {1000: (12, 9100), 800: (14, 6700), 600: (19, 5900)}),
    (1, "B", {1000: (19, 18_100), 800: (24, 13_100), 600: (31, 11_300)}),
]


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
