"""Instructions that share clocks and their longest paths, worked out by hand."""

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem

from perseus_dist.errors import PlanningError
from perseus_dist.planning.coarse.clock_groups import ClockGroups, clock_groups
from perseus_dist.planning.coarse.longest_paths import LongestPaths
from perseus_dist.planning.coarse.relaxation import Relaxation
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.schedule.granularity import Granularity

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
THREE: Points = {1000: (10, 9000), 800: (12, 6000), 500: (20, 5000)}
FOUR = "0F0 0F1 0B0 0B1"
PAIR = "0F0 0B0\n1F0 1B0"


def chain(forward: Points, backward: Points, orders: str = "0F0 0B0") -> PlanningProblem:
    return small_problem(orders, [small_curve(0, "F", forward), small_curve(0, "B", backward)])


def pair(points: Points = THREE, *, loads: str = "") -> PlanningProblem:
    """Two stages, one behind the other, and loads of 1 ms and 100 uJ."""
    curves = [small_curve(stage, kind, points) for stage in (0, 1) for kind in "FB"]
    curves += [small_curve(0, "LOAD", {0: (1, 100)})] if loads else []
    return small_problem(loads + PAIR, curves)


def by_rank(problem: PlanningProblem) -> ClockGroups:
    return clock_groups(problem, Granularity.RANK)


def test_a_choice_is_a_clock_that_all_were_measured_at_with_the_energy_of_all() -> None:
    groups = by_rank(chain(THREE, {1000: (5, 900), 900: (6, 800), 500: (9, 700)}, FOUR))
    assert groups.num_choices.tolist() == [2]
    assert groups.choice_uj.tolist() == [[2 * 9900, 2 * 5700]]
    assert (groups.choice_ps / MS).tolist() == [[[5, 9], [10, 20]]] or (groups.choice_ps / MS).tolist() == [
        [[10, 20], [5, 9]]
    ]
    assert groups.clock_indices(np.array([1])).tolist() == [2, 2, 2, 2]
    assert groups.clock_indices(np.array([0])).tolist() == [0, 0, 0, 0]
    assert [groups.energy_uj(np.array([choice])) for choice in (0, 1)] == [19_800, 11_400]


def test_a_clock_that_another_one_beats_in_all_is_no_choice() -> None:
    """Of 800 and 500 MHz, which take as long, the one that draws less in all; not where 800 is faster for one."""
    beaten = by_rank(
        chain(
            {1000: (10, 9000), 800: (20, 6000), 500: (20, 5000)}, {1000: (10, 9000), 800: (20, 5000), 500: (20, 5000)}
        )
    )
    assert beaten.clock_indices(np.array([1])).tolist() == [2, 2]
    near = by_rank(
        chain(
            {1000: (10, 9000), 800: (19, 6000), 500: (20, 5000)}, {1000: (10, 9000), 800: (20, 5000), 500: (20, 5000)}
        )
    )
    assert near.num_choices.tolist() == [3]


def test_of_clocks_that_are_the_same_in_all_the_highest_is_a_choice() -> None:
    same: Points = {1000: (10, 9000), 900: (10, 9000), 800: (10, 9000), 500: (20, 5000)}
    groups = by_rank(chain(same, same))
    assert groups.num_choices.tolist() == [2]
    assert [groups.clock_indices(np.array([choice])).tolist() for choice in (0, 1)] == [[0, 0], [3, 3]]


def test_the_last_choice_of_a_group_is_repeated_where_others_have_more() -> None:
    curves = [small_curve(stage, kind, (TWO, THREE)[stage]) for stage in (0, 1) for kind in "FB"]
    groups = by_rank(small_problem(PAIR, curves))
    assert groups.num_choices.tolist() == [2, 3]
    assert groups.choice_uj.tolist() == [[18_000, 10_000, 10_000], [18_000, 12_000, 10_000]]
    assert (groups.choice_ps[0] / MS).tolist() == [[10, 20, 20]] * 2
    assert groups.choice_index.tolist() == [[[0, 1, 1]] * 2, [[0, 1, 2]] * 2]


def test_the_fastest_choice_is_the_first_at_which_nothing_takes_longer_than_at_full_clocks() -> None:
    noisy: Points = {1000: (10, 9000), 900: (9, 9500), 500: (20, 5000)}
    usual: Points = {1000: (10, 9000), 900: (11, 8000), 500: (20, 5000)}
    assert by_rank(chain(noisy, usual)).fastest.tolist() == [0]
    groups = by_rank(chain(noisy, {1000: (10, 9000), 900: (10, 8000), 500: (20, 5000)}))
    assert groups.fastest.tolist() == [0], "900 MHz beats 1000, which is no choice"
    assert groups.clock_indices(groups.fastest.astype(np.int64)).tolist() == [1, 1]
    late: Points = {1000: (10, 9000), 900: (11, 8000), 800: (10, 8500), 500: (20, 5000)}
    cheap: Points = {1000: (10, 9000), 900: (9, 8000), 800: (10, 8500), 500: (20, 5000)}
    groups = by_rank(chain(late, cheap))
    assert groups.clock_indices(groups.fastest.astype(np.int64)).tolist() == [2, 2]


def test_constants_are_of_no_group_and_count_beside_them() -> None:
    groups = by_rank(pair(loads="0LOAD0 "))
    assert groups.group_of.tolist() == [-1, 0, 0, 1, 1]
    assert (groups.constant_ps.tolist(), groups.constant_uj) == ([MS], 100)
    assert groups.class_of.tolist()[0] == 4
    assert sorted(groups.class_of.tolist()[1:]) == [0, 1, 2, 3]
    assert groups.clock_indices(np.array([1, 2])).tolist() == [0, 1, 1, 2, 2]
    assert groups.energy_uj(np.array([1, 2])) == 12_000 + 10_000 + 100
    assert (groups.chosen_ps(np.array([1, 2])) / MS).tolist() == [12, 12, 20, 20, 1]


def test_each_kind_of_constant_is_a_class_of_its_own() -> None:
    curves = [small_curve(0, kind, TWO) for kind in "FB"]
    curves += [small_curve(0, "LOAD", {0: (1, 100)}), small_curve(0, "STEP", {0: (5, 300)})]
    groups = by_rank(small_problem("0LOAD0 0F0 0B0 0STEP", curves))
    assert sorted(groups.class_of.tolist()) == [0, 1, 2, 3]
    assert sorted(groups.constant_ps.tolist()) == [MS, 5 * MS]
    ends_ps = groups.chosen_ps(np.array([0]))[groups.class_of]
    assert (ends_ps / MS).tolist() == [1, 10, 10, 5]
    assert groups.constant_uj == 400
    assert LongestPaths(groups).time_ps(groups.chosen_ps(np.array([1]))) == 46 * MS


def test_groups_of_unlike_sizes_have_classes_of_their_own() -> None:
    """The first rank has a forward and a backward, the second those and the halves of another stage's."""
    curves = [small_curve(0, kind, THREE) for kind in "FB"] + [small_curve(1, kind, THREE) for kind in "FIW"]
    groups = by_rank(small_problem("0F0 0B0\n1F0 1I0 1W0", curves))
    assert Relaxation(groups).times_ps().shape[1:] == (2, 3)
    assert groups.choice_ps.shape == (2, 3, 3)
    assert (groups.choice_ps[0, 2] == 0).all()
    assert sorted(groups.class_of.tolist()) == [0, 1, 3, 4, 5]
    assert groups.clock_indices(np.array([2, 1])).tolist() == [2, 2, 1, 1, 1]


def test_mixed_clocks_take_their_shares_of_each() -> None:
    groups = by_rank(pair())
    mixed_ps = groups.mixed_ps(np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]))
    assert (mixed_ps / MS).tolist() == [11, 11, 18, 18]


@pytest.mark.parametrize(
    ("granularity", "is_first_free", "group_of"),
    [
        (Granularity.RANK, False, [0, 0, 0, 0, 1, 1, 1, 1]),
        (Granularity.RANK, True, [0, 0, 0, 0, 1, 1, 1, 1]),
        (Granularity.PHASE, False, [0, 0, 1, 1, 2, 3, 3, 4]),
        (Granularity.PHASE, True, [0, 0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_groups_are_numbered_rank_by_rank_and_a_phase_behind_another_may_have_its_first_apart(
    granularity: Granularity, group_of: list[int], *, is_first_free: bool
) -> None:
    """GPipe on the first rank; on the second one forward, a backward and a forward, and a backward."""
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    of = small_problem(f"{FOUR}\n1F0 1B0 1F1 1B1", curves)
    assert clock_groups(of, granularity, is_first_free=is_first_free).group_of.tolist() == group_of


def test_all_but_the_first_of_a_phase_stay_together() -> None:
    of = chain(TWO, TWO, "0F0 0F1 0F2 0B0 0B1 0B2")
    assert clock_groups(of, Granularity.PHASE, is_first_free=True).group_of.tolist() == [0, 0, 0, 1, 2, 2]


def test_computations_of_one_clock_were_measured_at_the_same_highest_one() -> None:
    with pytest.raises(PlanningError, match="saw stage 0 forward 1000 MHz, stage 0 backward 900 MHz"):
        by_rank(chain({1000: (10, 9000), 900: (11, 8000)}, {900: (10, 9000), 800: (11, 8000)}))


def test_the_longest_path_is_what_it_has_of_each_class() -> None:
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    paths = LongestPaths(by_rank(small_problem("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", curves)))
    alike = np.array([10, 10, 20, 20])  # 0F0, 1F0 1B0 1F1 1B1, 0B1
    assert paths.time_ps(alike) == 100
    assert paths.critical(alike).tolist() == [[1, 1, 2, 2]]
    first = np.array([50, 10, 20, 20])  # 0F0 0F1 1F1 1B1 0B1
    assert (paths.time_ps(first), paths.critical(first).tolist()) == (150, [[2, 1, 1, 1]])
    last = np.array([10, 90, 20, 20])  # 0F0 1F0 1B0 0B0 0B1
    assert (paths.time_ps(last), paths.critical(last).tolist()) == (230, [[1, 2, 1, 1]])


def test_a_constant_beside_the_longest_path_is_none_of_it() -> None:
    """The second rank's step and the first one's backward end the iteration."""
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    groups = by_rank(small_problem(f"{PAIR} 1STEP", [*curves, small_curve(1, "STEP", {0: (5, 100)})]))
    paths = LongestPaths(groups)
    assert paths.critical(groups.chosen_ps(np.array([0, 0]))).tolist() == [[1, 1, 1, 1, 0]]
    assert paths.critical(np.array([10, 10, 10, 10, 25])).tolist() == [[1, 0, 1, 1, 1]]
