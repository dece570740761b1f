"""Plans for several cases, at the limits of each rule, on one or two stages and a few clocks."""

from dataclasses import replace

import numpy as np
import pytest
from small_pipelines import MS, Points, frontier_of, plan_of, small_curve, small_problem

from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.frontier.several_cases import Case, as_played, best_of, on_time_in_all

TWO: Points = {1000: (10, 9000), 500: (20, 5000)}
CHAIN, FOUR = "0F0 0B0", "0F0 0F1 0B0 0B1"
PAIR = "0F0 0B0\n1F0 1B0"
SIDE_BY_SIDE = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"


def chain(orders: str = CHAIN, forward: Points = TWO, backward: Points = TWO) -> PlanningProblem:
    return small_problem(orders, [small_curve(0, "F", forward), small_curve(0, "B", backward)])


def rows(frontier: Frontier) -> list[list[int]]:
    return [row.tolist() for row in frontier.clock_indices]


@pytest.mark.parametrize(("reference_ps", "is_late"), [(20 * MS + 1, False), (20 * MS, False), (20 * MS - 1, True)])
def test_full_clocks_count_as_late_elsewhere_from_above_the_tolerance(reference_ps: int, *, is_late: bool) -> None:
    """20.01 ms, of 20 that the other case has: five in ten thousand."""
    of = chain(forward={1000: (10.01, 9000)}, backward={1000: (10, 9000)})
    alone = frontier_of(of, [plan_of(of)])
    merged = on_time_in_all(Case(alone, alone.baseline.time_ps), [Case(alone, reference_ps)])
    assert merged.time_ps.tolist() == [pytest.approx(20.020005 * MS, abs=2) if is_late else 20.01 * MS]
    assert merged.time_ps[0] >= 20.01 * MS


@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize(("less_ps", "row"), [(0, [1, 1]), (1, [1, 0])])
def test_a_plan_is_made_as_fast_as_the_other_cases_own_from_above_the_tolerance(
    share: int, less_ps: int, row: list[int]
) -> None:
    """Both at 500 MHz take 40.02 ms, and the backward at 1000 MHz saves 10 ms of it."""
    of = chain(backward={1000: (10, 9000), 500: (20.02, 5000)})
    slow, faster = plan_of(of, _0F0=1, _0B0=1), plan_of(of, _0F0=1)
    first = Case(frontier_of(of, [slow]), round(40.02 * MS / share))
    merged = on_time_in_all(first, [Case(frontier_of(of, [faster]), 40 * MS // share - less_ps)])
    assert rows(merged)[-1] == row
    assert merged.time_ps[-1] == (40.02 * MS if all(row) else pytest.approx(40.02 * 30 / 40 * MS, abs=2))


@pytest.mark.parametrize(("own", "other"), [(1, 0), (0, 1)])
def test_of_both_plans_each_instruction_has_the_faster_clock(own: int, other: int) -> None:
    of = chain(backward={1000: (30, 9000), 500: (60, 5000)})
    first = Case(frontier_of(of, [plan_of(of, _0F0=own, _0B0=other)]), 40 * MS)
    second = Case(frontier_of(of, [plan_of(of, _0F0=other, _0B0=own)]), 20 * MS)
    assert rows(on_time_in_all(first, [second])) == [[0, 0]]


def test_of_two_clocks_that_are_as_fast_the_plan_keeps_its_own() -> None:
    of = chain(forward={1000: (10, 9000), 900: (10, 8000), 800: (10, 7000)})
    first = Case(frontier_of(of, [plan_of(of, _0F0=2)]), 20 * MS)
    second = Case(frontier_of(of, [plan_of(of, _0F0=1)]), 10 * MS)
    assert rows(on_time_in_all(first, [second])) == [[2, 0]]


@pytest.mark.parametrize(("overlap_ms", "time_ms"), [(0, 30), (4, 32.5), (10, 40)])
def test_time_in_which_the_next_iteration_is_under_way_counts_in_no_case(overlap_ms: int, time_ms: float) -> None:
    """30 of 20 ms are half as long again; without 10 ms of both, 20 of 10 are twice as long."""
    of = chain()
    alone = frontier_of(of, [plan_of(of, _0F0=1)])
    merged = on_time_in_all(Case(alone, 20 * MS), [Case(alone, 20 * MS, overlap_ms * MS)])
    assert merged.time_ps[-1] == pytest.approx(time_ms * MS, abs=1)


@pytest.mark.parametrize(
    ("overlap_ms", "reference_ms", "row"),
    [
        (0, 22, [1, 0]),  # 1.5 x 22 are 33, enough for the forward alone
        (0, 27, [1, 1]),  # 40.5
        (10, 26, [1, 0]),  # 10 + 1.5 x 16 are 34
        (10, 30, [1, 1]),  # 10 + 1.5 x 20 are 40
        (0, 12, [0, 0]),  # 18: nothing is as fast, and full clocks come nearest
    ],
)
def test_the_other_cases_plan_is_its_best_within_the_same_share(
    overlap_ms: int, reference_ms: int, row: list[int]
) -> None:
    of = chain()
    slow = plan_of(of, _0F0=1, _0B0=1)
    first = Case(frontier_of(of, [slow]), round(40 / 1.5 * MS))
    own = frontier_of(of, [plan_of(of), plan_of(of, _0F0=1), slow])
    merged = on_time_in_all(first, [Case(own, reference_ms * MS, overlap_ms * MS)])
    assert rows(merged) == [[0, 0], row] if any(row) else [[0, 0]]


LATENCY_PS = 5 * MS


def late_change(row: np.ndarray, other: np.ndarray, of: PlanningProblem, *, first_ms: float) -> list[int]:
    """What becomes of a row whose reference in the first case is this, beside a case that allows nothing but 1 ms."""
    first = Case(frontier_of(of, [row], switch_latency_ps=LATENCY_PS), round(first_ms * MS))
    own = frontier_of(of, [other], switch_latency_ps=LATENCY_PS)
    merged = on_time_in_all(first, [Case(own, 40 * MS)])
    assert merged.switch_latency_ps == LATENCY_PS
    return rows(merged)[-1]


def test_where_a_faster_clock_comes_too_late_the_instruction_before_has_it_as_well() -> None:
    of = chain(FOUR)
    slow = plan_of(of, _0F0=1, _0F1=1, _0B0=1, _0B1=1)
    other = plan_of(of, _0F0=1, _0F1=1)
    assert late_change(slow, other, of, first_ms=80) == [0, 0, 0, 0]


def test_where_it_was_too_late_before_already_full_clocks_spread_in_the_end() -> None:
    of = chain(FOUR)
    row = plan_of(of, _0F0=1)
    time_ms = replay(of, row, switch_latency_ps=LATENCY_PS).time_ps / MS
    assert time_ms == 52.5, "the second forward runs for 5 ms as the first does: 20 + 5 + 7.5 + 10 + 10"
    assert late_change(row, row, of, first_ms=time_ms) == [0, 0, 0, 0]


def test_a_plan_slower_than_full_clocks_may_be_late_for_changes() -> None:
    of = chain(FOUR)
    slow = plan_of(of, _0F0=1, _0F1=1, _0B0=1, _0B1=1)
    other = plan_of(of, _0F0=1, _0F1=1)
    assert late_change(slow, other, of, first_ms=79.9) == [1, 1, 0, 0]


def test_a_plan_faster_than_full_clocks_in_the_first_case_is_to_be_as_fast_elsewhere() -> None:
    """Half of its reference, and 62.5 of 40 ms where half would be 20."""
    of = chain(FOUR)
    slow = plan_of(of, _0F0=1, _0F1=1, _0B0=1, _0B1=1)
    assert late_change(slow, plan_of(of, _0F0=1, _0F1=1), of, first_ms=160) == [0, 0, 0, 0]


@pytest.mark.parametrize(("less_ps", "row"), [(0, [1, 0, 0, 0]), (1, [0, 0, 0, 0])])
def test_a_change_that_is_late_stays_where_the_plan_is_on_time(less_ps: int, row: list[int]) -> None:
    """40.02 ms, of which a change of 5 ms takes 2.5."""
    of = chain(FOUR, backward={1000: (3.76, 9000)})
    plan = plan_of(of, _0F0=1)
    alone = frontier_of(of, [plan], switch_latency_ps=LATENCY_PS)
    assert alone.time_ps.tolist() == [round(40.02 * MS)]
    merged = on_time_in_all(Case(alone, round(40.02 * MS)), [Case(alone, 40 * MS - less_ps)])
    assert rows(merged)[-1] == row


def merged_row(of: PlanningProblem, row: np.ndarray, other: np.ndarray, other_ms: float) -> list[int]:
    """What becomes of a row that is on time alone, beside a case with a plan of its own."""
    alone, beside = (frontier_of(of, [one], switch_latency_ps=LATENCY_PS) for one in (row, other))
    merged = on_time_in_all(Case(alone, int(alone.time_ps[0])), [Case(beside, round(other_ms * MS))])
    return rows(merged)[-1]


def test_clocks_spread_from_changed_instructions_alone_at_first() -> None:
    """0F1 is late for its clock in the plan itself; 0B1 for one that the other case asked for: 60 ms, of 55."""
    of = chain(FOUR)
    row, other = plan_of(of, _0F0=1, _0B0=1, _0B1=1), plan_of(of, _0F0=1, _0B0=1)
    assert merged_row(of, row, other, 60) == [1, 0, 1, 0]
    assert merged_row(of, row, other, 55) == [1, 0, 0, 0]
    assert merged_row(of, row, other, 51) == [0, 0, 0, 0]


def test_clocks_spread_past_constants_to_the_instruction_before_them() -> None:
    """A load before each forward changes no clock: 0F0 asks for 500 MHz, and 0F1 behind 0LOAD1 is late for 1000."""
    loads = small_curve(0, "LOAD", {0: (0.01, 0)})
    of = small_problem("0LOAD0 0F0 0LOAD1 0F1 0B0 0B1", [small_curve(0, "F", TWO), small_curve(0, "B", TWO), loads])
    row, other = plan_of(of, _0F0=1, _0F1=1), plan_of(of, _0F0=1)
    assert merged_row(of, row, other, 52.515) == other.tolist()
    assert merged_row(of, row, other, 50) == plan_of(of).tolist()


def test_clocks_spread_from_instructions_that_are_delayed_alone() -> None:
    """0B0 has 25 ms for its change, and 1B1 none: it ends 7.5 ms later than the 10 ms that 1F1 then saves it."""
    curves = [
        small_curve(stage, kind, {1000: (10 + 10 * stage, 9000), 500: (20 + 20 * stage, 5000)})
        for stage in (0, 1)
        for kind in "FB"
    ]
    of = small_problem(SIDE_BY_SIDE, curves)
    row = plan_of(of, _0F1=1, _0B0=1, _1F1=1, _1B1=1)
    other = plan_of(of, _0F1=1, _1F1=1)
    assert replay(of, other, switch_latency_ps=LATENCY_PS).time_ps == 117.5 * MS
    assert merged_row(of, row, other, 110) == plan_of(of, _0F1=1).tolist()


def test_the_instruction_before_gets_the_lowest_clock_that_is_as_high_as_asked_for() -> None:
    """0F1 asks for 800 MHz behind a backward at 500: that one has 850, and nothing nearer above it."""
    forward: Points = {1000: (10, 9000), 800: (12, 7000), 500: (20, 5000)}
    backward: Points = {1000: (10, 9000), 900: (10.5, 8000), 850: (11, 7000), 700: (12, 6000), 500: (20, 5000)}
    of = chain("0F0 0B0 0F1 0B1", forward, backward)
    row, other = plan_of(of, _0B0=4, _0F1=2, _0B1=4), plan_of(of, _0B0=4, _0F1=1, _0B1=4)
    unspread_ms = replay(of, other, switch_latency_ps=LATENCY_PS).time_ps / MS
    assert merged_row(of, row, other, unspread_ms) == other.tolist()
    assert merged_row(of, row, other, unspread_ms - 1) == plan_of(of, _0B0=2, _0F1=1, _0B1=4).tolist()


def test_it_is_the_clock_of_the_one_before_that_changes_whatever_the_one_behind_has() -> None:
    """Both backwards ask for more than 500 MHz, the second for full clocks: 0F1 gets 800 MHz, as 0B0 asked for."""
    points: Points = {1000: (10, 9000), 800: (12, 7000), 500: (20, 5000)}
    of = chain(FOUR, points, points)
    row = plan_of(of, _0F0=2, _0F1=2, _0B0=2, _0B1=2)
    other = plan_of(of, _0F0=2, _0F1=2, _0B0=1)
    spread = plan_of(of, _0F0=2, _0F1=1)
    spread_ms = replay(of, spread, switch_latency_ps=LATENCY_PS).time_ps / MS
    assert merged_row(of, row, other, spread_ms) == spread.tolist()


def test_full_clocks_are_asked_for_where_none_is_as_high() -> None:
    of = chain("0F0 0B0", {700: (10, 9000), 600: (12, 7000), 500: (20, 5000)}, TWO)
    row, other = plan_of(of, _0F0=2, _0B0=1), plan_of(of, _0F0=2)
    assert merged_row(of, row, other, 25) == [0, 0]


def test_transfers_have_no_clocks_that_could_spread() -> None:
    """0F0 0B0 and 1F0 1B0 one behind the other, with a transfer of 1 ms either way: 1B0 is late for its change."""
    curves = [small_curve(stage, kind, TWO) for stage in (0, 1) for kind in "FB"]
    curves += [small_curve(0, "SEND_F", {0: (1, 0)}), small_curve(1, "SEND_B", {0: (1, 0)})]
    of = small_problem(PAIR, curves)
    assert of.num_instructions == 6
    row, other = plan_of(of, _1F0=1, _1B0=1), plan_of(of, _1F0=1)
    assert replay(of, other, switch_latency_ps=LATENCY_PS).time_ps == 54.5 * MS
    assert merged_row(of, row, other, 54.5) == other.tolist()
    assert merged_row(of, row, other, 50) == plan_of(of).tolist()


def test_the_first_of_a_rank_has_none_before_it_whose_clock_could_spread() -> None:
    of = chain(FOUR)
    row, other = plan_of(of, _0F1=1, _0B0=1, _0B1=1), plan_of(of, _0F1=1, _0B1=1)
    assert merged_row(of, row, other, 50) == plan_of(of, _0B1=1).tolist()


def test_plans_as_they_are_played_have_the_times_of_the_first_case() -> None:
    of = chain()
    alone = frontier_of(of, [plan_of(of), plan_of(of, _0F0=1)])
    merged = on_time_in_all(Case(alone, 20 * MS), [Case(alone, 10 * MS)])
    assert merged.time_ps.tolist() == [40 * MS]
    assert as_played(merged).time_ps.tolist() == [20 * MS]
    later = replace(alone, time_ps=2 * alone.time_ps)
    assert as_played(later).time_ps.tolist() == [20 * MS, 30 * MS]
    assert as_played(later).effective_uj.tolist() == [18_000, 14_000]


def test_of_plans_those_are_kept_that_no_other_one_beats() -> None:
    of = chain(forward={1000: (10, 9000), 800: (12, 9000), 700: (12, 8000), 500: (20, 8000)})
    plans = [plan_of(of, _0F0=index) for index in (3, 2, 1, 0)]
    played = [replay(of, plan) for plan in plans]
    found = best_of(frontier_of(of, plans[-1:]), plans, played, [one.time_ps for one in played])
    assert rows(found) == [[0, 0], [2, 0]]
    assert found.num_changes.tolist() == [0, 1]
    assert rows(best_of(found, plans[::-1], played[::-1], [one.time_ps for one in played[::-1]])) == [[0, 0], [2, 0]]
