"""A case that stands for pipelines without a frontier, at the limits of each rule, on one or two stages."""

from dataclasses import replace

import pytest
from small_pipelines import MS, Points, frontier_of, plan_of, small_curve, small_problem
from test_frontier_several_cases_bounds import SIDE_BY_SIDE, chain, rows

from perseus_dist.planning.frontier import bounding_case
from perseus_dist.planning.frontier.bounding_case import BoundingCase
from perseus_dist.planning.frontier.replay import replay
from perseus_dist.planning.frontier.several_cases import Case, on_time_in_all
from perseus_dist.planning.schedule.granularity import Granularity

FIVE: Points = {1000: (10, 9000), 900: (11, 8000), 800: (13, 7000), 700: (16, 6000), 600: (20, 5000)}


@pytest.mark.parametrize(
    ("share", "index"),
    [(1.5, 4), (1.4999, 2), (1.15, 2), (1.1499, 1), (1.05, 1), (1.0499, 0), (1.0, 0), (0.5, 0)],
)
def test_a_late_instruction_goes_two_thirds_of_its_way_at_once(share: float, index: int) -> None:
    """20 ms at full clocks; the forward takes 20, 13, 11 or 10 ms."""
    of = chain(forward=FIVE, backward={1000: (10, 9000)})
    case = BoundingCase(of, 20 * MS)
    assert case.on_time(plan_of(of, _0F0=4), share).tolist() == [index, 0]


@pytest.mark.parametrize(("indices", "expected"), [((3, 0), [2, 0]), ((4, 1), [2, 0]), ((2, 1), [1, 0])])
def test_each_late_instruction_goes_its_own_two_thirds(indices: tuple[int, int], expected: list[int]) -> None:
    of = chain(forward=FIVE, backward={1000: (10, 9000), 900: (11, 8000)})
    plan = plan_of(of, _0F0=indices[0], _0B0=indices[1])
    assert BoundingCase(of, 20 * MS).on_time(plan, 1.15 if indices[0] > 2 else 1.05).tolist() == expected


def test_what_is_on_no_late_path_keeps_its_clock() -> None:
    """0F1 has 30 ms to spare, at whose end it is exactly in time."""
    curves = [small_curve(0, "F", {1000: (10, 9000), 500: (40, 5000), 400: (40.1, 4000)})]
    curves += [small_curve(0, "B", {1000: (10, 9000)})]
    curves += [small_curve(1, kind, {1000: (20, 9000), 500: (30, 5000)}) for kind in "FB"]
    of = small_problem(SIDE_BY_SIDE, curves)
    case = BoundingCase(of, 100 * MS)
    in_time, late = plan_of(of, _0F1=1), plan_of(of, _0F1=1, _1F0=1)
    assert case.on_time(in_time, 1.0).tolist() == in_time.tolist()
    assert case.on_time(late, 1.0).tolist() == in_time.tolist()
    assert case.on_time(plan_of(of, _0F1=2), 1.0).tolist() == in_time.tolist()
    assert late.tolist() == plan_of(of, _0F1=1, _1F0=1).tolist(), "the plan itself stays as it was"


@pytest.mark.parametrize("load", ["", "0LOAD0 0LOAD1 "])
def test_what_a_change_of_clocks_delays_has_the_instruction_before_it_at_full_clocks(load: str) -> None:
    """0F1 ends at 30 + 12 + 0.6 x 50 ms, 8 before the backward, a thirtieth of which its change then leaves slow."""
    curves = [small_curve(0, "F", {1000: (30, 9000), 500: (50, 5000)})]
    curves += [small_curve(0, "B", {1000: (60, 9000), 500: (120, 5000)})]
    curves += [small_curve(0, "LOAD", {0: (1, 0)})] if load else []
    curves += [small_curve(1, kind, {1000: (25, 9000), 500: (35, 5000)}) for kind in "FB"]
    of = small_problem(f"0F0 0F1 {load}0B0 0B1\n1F0 1B0 1F1 1B1", curves)
    plan = plan_of(of, _0F1=1, _1B1=1)
    assert replay(of, plan, switch_latency_ps=12 * MS).time_ps == 202 * MS
    case = BoundingCase(of, 200 * MS, switch_latency_ps=12 * MS)
    assert case.on_time(plan, 1.0).tolist() == plan_of(of, _1B1=1).tolist()
    assert case.on_time(plan, 202 / 200).tolist() == plan.tolist()


def test_the_first_instruction_is_one_before_as_well() -> None:
    """Two thirds of the way at once would leave the forward at 800 MHz, with the backward too late for that."""
    of = chain(forward=FIVE, backward={1000: (10, 9000), 600: (20, 5000)})
    case = BoundingCase(of, 20 * MS, switch_latency_ps=MS)
    assert case.on_time(plan_of(of, _0F0=4), 1.3).tolist() == [0, 0]


def test_where_rounds_do_not_suffice_all_run_at_full_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    of = chain(forward=FIVE, backward=FIVE)
    plan = plan_of(of, _0F0=4, _0B0=4)
    case = BoundingCase(of, 20 * MS)
    assert case.on_time(plan, 1.15).tolist() == [1, 1]
    monkeypatch.setattr(bounding_case, "_MAX_ROUNDS", 1)
    assert case.on_time(plan, 1.15).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("of_first", "allowed", "share"),
    [
        (1.0, 1.0, 1.5),  # 30 of 20 ms
        (1.0, 1.5, 1.0),
        (1.0, 1.4999, 1.5),
        (0.5, 1.5, 1.0),
        (1.2, 1.25, 1.2),
        (1.2, 1.2499, 1.5),
        (1.6, 1.0, 1.6),
    ],
)
def test_a_share_counts_from_above_what_is_allowed(of_first: float, allowed: float, share: float) -> None:
    of = chain()
    assert BoundingCase(of, 20 * MS).share(plan_of(of, _0F0=1), of_first, allowed) == share


@pytest.mark.parametrize(("reference_ms", "row"), [(20, [1, 0]), (19.9, [0, 0])])
def test_a_plan_slower_than_full_clocks_may_take_as_much_longer_in_a_case_that_stands_for_others(
    reference_ms: float, row: list[int]
) -> None:
    of = chain()
    alone = frontier_of(of, [plan_of(of, _0F0=1)])
    merged = on_time_in_all(Case(alone, 20 * MS), [], [BoundingCase(of, round(reference_ms * MS))])
    assert rows(merged)[-1] == row


def test_full_clocks_are_never_late_in_a_case_that_stands_for_others() -> None:
    of = chain()
    assert BoundingCase(of, 15 * MS).share(plan_of(of), 0.9, 1.0) == 1.0
    assert BoundingCase(of, 15 * MS).on_time(plan_of(of), 1.0).tolist() == [0, 0]


@pytest.mark.parametrize(("granularity", "row", "time_ms"), [("instruction", [0, 0], 40), ("rank", [1, 1], 80)])
def test_instructions_that_share_clocks_count_as_late_and_others_are_made_faster(
    granularity: str, row: list[int], time_ms: int
) -> None:
    of = chain()
    alone = replace(frontier_of(of, [plan_of(of, _0F0=1, _0B0=1)]), granularity=Granularity(granularity))
    merged = on_time_in_all(Case(alone, 40 * MS), [], [BoundingCase(of, 20 * MS)])
    assert rows(merged)[-1] == row
    assert merged.time_ps[-1] == time_ms * MS
