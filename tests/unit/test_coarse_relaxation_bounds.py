"""The relaxation of plans with shared clocks: its bound, its shares and its paths, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, Points, small_curve, small_problem
from test_coarse_clock_groups_bounds import TWO, by_rank, chain, pair

from perseus_dist.planning.coarse import relaxation as module
from perseus_dist.planning.coarse.clock_groups import clock_groups
from perseus_dist.planning.coarse.relaxation import Line, Relaxation, Relaxed
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.planning.schedule.schedule import format_schedule, one_f_one_b


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
