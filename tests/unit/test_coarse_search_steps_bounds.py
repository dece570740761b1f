"""Changes of one group or two, and the tree of choices, on a few numbers that can be checked by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perseus_dist.planning.coarse import search as module
from perseus_dist.planning.coarse.search import _descended, _Tree
from perseus_dist.units import FloatArray


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
