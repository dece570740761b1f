"""Instructions that share clocks, their longest paths and the relaxation, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem

from perseus_dist.errors import PlanningError
from perseus_dist.planning.coarse import relaxation as module
from perseus_dist.planning.coarse.clock_groups import ClockGroups, clock_groups
from perseus_dist.planning.coarse.longest_paths import LongestPaths
from perseus_dist.planning.coarse.relaxation import Line, Relaxation, Relaxed
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b

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


def solved(deadline_ms: float, *, loads: str = "") -> Relaxed:
    return Relaxation(by_rank(pair(loads=loads))).solve(round(deadline_ms * MS))


@pytest.mark.parametrize(
    ("deadline_ms", "slope_uw", "least_uj"),
    [
        (42, 1_500_000, 33_000),
        (44, 1_500_000, 30_000),
        (47, 1_500_000, 25_500),
        (50, 125_000, 23_750),
        (72, 125_000, 21_000),
    ],
)
def test_the_bound_mixes_two_clocks_that_lie_beside_each_other(
    deadline_ms: float, slope_uw: float, least_uj: float
) -> None:
    """36 mJ in 40 ms, 24 in 48 and 20 in 80."""
    relaxed = solved(deadline_ms)
    assert relaxed.line.slope_uw == pytest.approx(slope_uw, rel=1e-4)
    assert relaxed.line.effective_uj(deadline_ms * MS) == pytest.approx(least_uj, rel=1e-6)
    assert relaxed.line.effective_uj(deadline_ms * MS) <= least_uj
    assert relaxed.shares.sum(axis=1).tolist() == pytest.approx([1, 1])
    times_ms = relaxed.shares @ np.array([20, 24, 40])
    assert times_ms.sum() == pytest.approx(deadline_ms, rel=1e-5)
    assert float((relaxed.shares @ np.array([18_000, 12_000, 10_000])).sum()) == pytest.approx(least_uj, rel=2e-5)


def test_a_choice_costs_what_it_is_above_the_line() -> None:
    """From 800 MHz on a rank's 20 ms are worth 2.5 mJ, of the 8 mJ that full clocks draw more than 500 MHz."""
    assert solved(50).excess_uj == pytest.approx(np.array([[5500, 0, 0]] * 2), abs=1)
    assert solved(44).excess_uj == pytest.approx(np.array([[0, 0, 22_000]] * 2), abs=1)


def test_constants_take_time_and_energy_that_no_clock_changes() -> None:
    """A load of 1 ms and 100 uJ, before what takes 50 ms or 80 of the deadline."""
    relaxed = solved(51, loads="0LOAD0 ")
    assert relaxed.line.effective_uj(51 * MS) == pytest.approx(23_850, rel=1e-6)
    assert float((relaxed.shares @ np.array([18_000, 12_000, 10_000])).sum()) + 100 == pytest.approx(23_850, rel=2e-5)
    assert relaxed.line.effective_uj(73 * MS) == pytest.approx(21_100, rel=1e-6)
    assert relaxed.line.at_zero_uj == pytest.approx(23_850 + 0.125 * 51_000, rel=1e-4)
    assert Relaxation(by_rank(pair(loads="0LOAD0 "))).constants_ps.tolist() == [MS]


def test_a_line_falls_from_a_deadline_of_nothing() -> None:
    line = Line(at_zero_uj=5000.0, slope_uw=2_000_000.0)
    assert [line.effective_uj(ms * MS) for ms in (0, 1, 2.5)] == [5000, 3000, 0]


def fresh() -> Relaxation:
    """Of two microbatches on two ranks; at full clocks 0F0, 1F0 1B0 1F1 1B1 and 0B1 are the longest path."""
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    return Relaxation(by_rank(small_problem("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", curves)))


def test_it_begins_with_the_longest_paths_at_full_clocks_and_with_one_group_slow() -> None:
    """With the first rank slow that one's own instructions, and with the second the same as at full clocks."""
    assert fresh().counts.tolist() == [[[1, 1], [2, 2]], [[2, 2], [0, 0]]]


@pytest.mark.parametrize(
    ("deadline_ms", "slope_uw", "least_uj"), [(70, 800_000, 64_000), (79, 800_000, 56_800), (100, 400_000, 48_000)]
)
def test_first_the_rank_is_slower_that_has_fewer_instructions_on_the_longest_path(
    deadline_ms: float, slope_uw: float, least_uj: float
) -> None:
    """Each rank draws 36 mJ, or 20; slow, the first is 20 ms longer, and then, if all is in 80 ms, the second 40."""
    line = fresh().solve(round(deadline_ms * MS)).line
    assert line.slope_uw == pytest.approx(slope_uw, rel=1e-4)
    assert line.effective_uj(deadline_ms * MS) == pytest.approx(least_uj, rel=1e-6)


def test_a_path_is_new_until_it_was_added_and_again_when_it_left() -> None:
    relaxation = fresh()
    of_two = np.array([[2, 2, 1, 1], [0, 0, 2, 2]])
    assert relaxation.add(of_two) == 2
    assert relaxation.add(of_two) == 0
    assert relaxation.add(np.array([[2, 2, 1, 1], [0, 0, 0, 1]])) == 1
    assert len(relaxation.counts) == len(relaxation.constants_ps) == 5
    relaxation.solve(70 * MS)  # the second is far from late, and so is one that the first two are longer than
    assert relaxation.add(of_two) == 1
    assert relaxation.add(np.array([[2, 2, 0, 0]])) == 1
    assert relaxation.add(np.array([[1, 1, 2, 2]])) == 0
    assert len(relaxation.counts) == 5


def test_times_of_a_path_are_those_of_its_instructions_under_each_choice() -> None:
    relaxation = fresh()
    relaxation.add(np.array([[2, 1, 0, 3]]))
    assert (relaxation.times_ps()[-1] / MS).tolist() == [[30, 60], [30, 60]]


def test_shares_are_on_time_on_all_paths() -> None:
    relaxation = fresh()
    for deadline_ms in (60, 61, 75, 90, 100, 119, 120):
        shares = relaxation.solve(deadline_ms * MS).shares
        mixed_ps = relaxation.groups.mixed_ps(shares)
        assert relaxation.longest.time_ps(mixed_ps) <= deadline_ms * MS * (1 + 1.1e-6)
        assert (shares >= 0).all()
        assert shares.sum(axis=1) == pytest.approx(np.ones(2))


@pytest.mark.parametrize(
    ("deadline_ms", "share", "is_late"),
    [(80, 1.0, False), (73, 0.625, True), (72, 0.5, True), (70, 0.5, True), (63, 0.125, True), (60, 0.0, True)],
)
def test_the_way_to_shares_that_are_late_is_halved_four_times(deadline_ms: int, share: float, *, is_late: bool) -> None:
    """With the first rank at 500 MHz all takes 80 ms and not 60."""
    relaxation = fresh()
    fast, slow = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    relaxation._is_active[:] = False
    found, num_new = relaxation._search(deadline_ms * MS, fast, slow)
    assert found.tolist() == [[1 - share, share], [1, 0]]
    assert (num_new > 0) == is_late
    assert relaxation._search(deadline_ms * MS, fast, slow)[1] == 0, "paths that are known already"


@pytest.mark.parametrize(("deadline_ms", "has_left"), [(79.9, False), (79, True)])
def test_a_path_that_costs_nothing_leaves_where_it_is_far_from_late(deadline_ms: float, *, has_left: bool) -> None:
    """Of 79.9 ms the first rank's own instructions take 79.8, and of 79 ms 78."""
    relaxation = fresh()
    relaxation.solve(round(deadline_ms * MS))
    assert relaxation.add(np.array([[2, 2, 0, 0]])) == int(has_left)
    assert relaxation.add(np.array([[1, 1, 2, 2]])) == 0


def unlike() -> Relaxation:
    """Three ranks by phases, with stages so unlike that paths are found which no group alone makes the longest."""
    random = np.random.default_rng(63)
    curves = []
    for stage in range(3):
        for kind in "FB":
            fast = int(random.integers(8, 16))
            points = {1000: (fast, 9000), 800: (fast + int(random.integers(1, 5)), 6500), 500: (2 * fast, 5000)}
            curves.append(small_curve(stage, kind, points))
    curves.append(small_curve(0, "STEP", {0: (0.001, 5000)}))
    first, rest = format_schedule(one_f_one_b(pp=3, microbatches=4)).split("\n", 1)
    of = small_problem(f"{first} 0STEP\n{rest}", curves)
    return Relaxation(clock_groups(of, Granularity.PHASE))


def test_paths_that_are_late_come_into_the_programme_until_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    relaxation = unlike()
    before = len(relaxation.counts)
    fast_ps = relaxation.longest.time_ps(relaxation.groups.chosen_ps(relaxation.fastest))
    deadline_ps = round(1.4 * fast_ps)
    relaxed = relaxation.solve(deadline_ps)
    assert len(relaxation.counts) > before + 1
    bound_uj = relaxed.line.effective_uj(deadline_ps)
    reached_uj = float((relaxed.shares * relaxation.groups.choice_uj).sum()) + 5000
    assert bound_uj <= reached_uj < bound_uj + 10
    assert relaxation.solve(deadline_ps).line.effective_uj(deadline_ps) == pytest.approx(bound_uj, abs=5)
    monkeypatch.setattr(module, "_MAX_ROUNDS", 2)
    assert unlike().solve(deadline_ps).line.effective_uj(deadline_ps) < bound_uj - 4
    monkeypatch.setattr(module, "_MAX_ROUNDS", 1)
    assert unlike().solve(deadline_ps).line.effective_uj(deadline_ps) < bound_uj - 200


def test_at_a_deadline_of_full_clocks_no_more_than_the_slack_is_used() -> None:
    """The first rank has four instructions of which two may wait: with all of them slow it is 80 ms late, not 60."""
    relaxation = fresh()
    least = relaxation.solve(60 * MS)
    assert least.line.effective_uj(60 * MS) <= 72_000
    assert least.shares[1, 0] == pytest.approx(1, abs=1e-3)


def test_a_group_begins_at_its_fastest_choice() -> None:
    late: Points = {1000: (10, 9000), 900: (11, 8000), 800: (10, 8500), 500: (20, 5000)}
    cheap: Points = {1000: (10, 9000), 900: (9, 8000), 800: (10, 8500), 500: (20, 5000)}
    groups = by_rank(chain(late, cheap))
    assert Relaxation(groups).fastest.tolist() == groups.fastest.tolist() == [1]
    assert Relaxation(replace(groups, fastest=np.array([0], dtype=np.int32))).fastest.tolist() == [0]
