"""Changes of clocks that arrive in time or not, and the bound of several lines, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, plan_of, small_curve, small_problem
from test_coarse_frontier_bounds import TWO, chain, pair

from perseus_dist.planning.coarse.coarse_frontier import _bound, reaches_all
from perseus_dist.planning.coarse.relaxation import Line
from perseus_dist.planning.frontier.replay import replay


@pytest.mark.parametrize(
    ("latency_ps", "arrives"), [(0, True), (18 * MS, True), (18 * MS + 1, False), (20 * MS, False)]
)
def test_a_change_arrives_within_nine_tenths_of_the_computation_at_the_old_clock(
    latency_ps: int, *, arrives: bool
) -> None:
    """The backward takes 20 ms at the forward's 500 MHz."""
    of = chain()
    played = replay(of, plan_of(of, _0F0=1), switch_latency_ps=latency_ps)
    assert reaches_all(of, played, latency_ps) == arrives
    to_slow = replay(of, plan_of(of, _0B0=1), switch_latency_ps=latency_ps)
    assert reaches_all(of, to_slow, latency_ps) == (latency_ps <= 9 * MS)


@pytest.mark.parametrize(("latency_ps", "arrives"), [(38 * MS, True), (38 * MS + 1, False)])
def test_waiting_hides_a_change(latency_ps: int, *, arrives: bool) -> None:
    """The first rank waits for 20 ms between its two computations."""
    of = pair(TWO)
    played = replay(of, plan_of(of, _0F0=1), switch_latency_ps=latency_ps)
    assert reaches_all(of, played, latency_ps) == arrives


@pytest.mark.parametrize(("name", "arrives"), [("_1F0", False), ("_1B0", False), ("_0F0", True)])
def test_changes_of_each_rank_count_and_none_between_ranks(name: str, *, arrives: bool) -> None:
    of = pair(TWO)
    assert reaches_all(of, replay(of, plan_of(of, **{name: 1}), switch_latency_ps=19 * MS), 19 * MS) == arrives


def test_a_clock_that_stays_takes_no_time_and_constants_do_not_change_it() -> None:
    curves = [small_curve(0, kind, TWO) for kind in "FB"] + [small_curve(0, "LOAD", {0: (1, 0)})]
    of = small_problem("0F0 0LOAD0 0B0", curves)
    slow = plan_of(of, _0F0=1, _0B0=1)
    assert reaches_all(of, replay(of, slow), 10**15)
    one = plan_of(of, _0F0=1)
    assert reaches_all(of, replay(of, one), 19 * MS), "a millisecond of the load hides as much"
    assert not reaches_all(of, replay(of, one), 19 * MS + 1)


@pytest.mark.parametrize(("to_fast_ms", "arrives"), [(18, True), (18.001, False)])
def test_a_change_takes_what_the_profile_says_of_its_clock(to_fast_ms: float, *, arrives: bool) -> None:
    latencies_ps = np.array([round(to_fast_ms * MS), 10**15])
    curves = [replace(small_curve(0, kind, TWO), latencies_ps=latencies_ps) for kind in "FB"]
    of = small_problem("0F0 0B0", curves)
    assert reaches_all(of, replay(of, plan_of(of, _0F0=1)), 10**15) == arrives
    assert not reaches_all(of, replay(of, plan_of(of, _0B0=1)), 0)


def test_the_computation_is_slow_at_its_clock_nearest_to_the_old_one() -> None:
    """Of 1000, 700 and 400 MHz the backward has 700 nearest to 600."""
    curves = [small_curve(0, "F", {1000: (10, 9000), 600: (20, 5000)})]
    curves += [small_curve(0, "B", {1000: (10, 9000), 700: (15, 6000), 400: (30, 5000)})]
    of = small_problem("0F0 0B0", curves)
    played = replay(of, plan_of(of, _0F0=1))
    assert reaches_all(of, played, round(13.5 * MS))
    assert not reaches_all(of, played, round(13.5 * MS) + 1)


FLAT, STEEP = Line(at_zero_uj=10_000.0, slope_uw=0.0), Line(at_zero_uj=50_000.0, slope_uw=1_000_000.0)


def test_a_bound_is_the_highest_line_at_each_time_less_a_microjoule() -> None:
    """50 mJ less 1 uJ / us: 30 in 20 ms, and 10 in 40, from where on it is flat."""
    found = _bound([FLAT, STEEP], 20 * MS, 7)
    assert (found.time_ps / MS).tolist() == [20, 40]
    assert found.effective_uj.tolist() == [29_999, 9_999]
    assert (found.total_blocking_uw, found.tolerance) == (7, 0.0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_lines_below_others_at_every_time_make_no_vertex(order: tuple[int, ...]) -> None:
    """The steepest is highest until 22 ms; another one lies below the others everywhere."""
    lines = [
        FLAT,
        STEEP,
        Line(at_zero_uj=116_000.0, slope_uw=4_000_000.0),
        Line(at_zero_uj=20_000.0, slope_uw=500_000.0),
    ]
    found = _bound([lines[number] for number in order], 20 * MS, 0)
    assert (found.time_ps / MS).tolist() == [20, 22, 40]
    assert found.effective_uj.tolist() == [35_999, 27_999, 9_999]


def test_a_bound_begins_with_the_line_that_is_highest_there() -> None:
    steeper = Line(at_zero_uj=116_000.0, slope_uw=4_000_000.0)
    found = _bound([FLAT, STEEP, steeper], 30 * MS, 0)
    assert (found.time_ps / MS).tolist() == [30, 40]
    assert found.effective_uj.tolist() == [19_999, 9_999]
    assert _bound([FLAT, STEEP], 50 * MS, 0).time_ps.tolist() == [50 * MS]


def test_vertices_that_fall_by_less_than_a_microjoule_are_one() -> None:
    nearly = Line(at_zero_uj=10_000.4, slope_uw=5.0)
    found = _bound([FLAT, nearly, STEEP], 20 * MS, 0)
    assert found.effective_uj.tolist() == [29_999, 9_999]
    assert found.time_ps[1] == pytest.approx(40 * MS, rel=1e-4)


def test_lines_that_meet_at_one_point_have_one_vertex_there() -> None:
    between = Line(at_zero_uj=30_000.0, slope_uw=500_000.0)
    for lines in ([FLAT, between, STEEP], [STEEP, FLAT, between], [between, STEEP, FLAT]):
        found = _bound(lines, 20 * MS, 0)
        assert ((found.time_ps / MS).tolist(), found.effective_uj.tolist()) == ([20, 40], [29_999, 9_999])
