"""Points of a plan table at their bounds: which plan meets a deadline, ends by T', or is as slow as a slow rank."""

from dataclasses import replace

import pytest
from test_waiting_slack import SUMMARY

from perseus_dist.units import PS_PER_S

CHEAPEST = replace(SUMMARY, total_uj=(900, 700, 800, 750))
"""Of plans of 1000, 1100, 1200 and 1300 ps, the second draws least."""


@pytest.mark.parametrize(("deadline_ps", "point"), [(0, 0), (999, 0), (1000, 0), (1099, 0), (1100, 1), (9999, 1)])
def test_the_plan_for_a_deadline_draws_least_of_those_that_just_meet_it(deadline_ps: int, point: int) -> None:
    assert CHEAPEST.point_for_deadline(deadline_ps) == point


@pytest.mark.parametrize(("t_prime_ps", "point"), [(0, 0), (1000, 0), (1099, 0), (1100, 1), (1199, 1), (1300, 3)])
def test_whoever_waits_takes_the_slowest_plan_that_just_ends_by_then(t_prime_ps: int, point: int) -> None:
    assert CHEAPEST.point_for_straggler(t_prime_ps) == point
    assert CHEAPEST.point_beside_straggler(t_prime_ps) == point


@pytest.mark.parametrize(("t_prime_ps", "point"), [(900.0, 0), (1374.9, 0), (1375.0, 1), (1949.9, 2), (1950.0, 3)])
def test_a_plan_that_noise_makes_later_ends_by_then_on_the_mean(t_prime_ps: float, point: int) -> None:
    noisy = replace(CHEAPEST, late_by=(0.25, 0.25, 0.25, 0.5))
    assert noisy.point_beside_straggler(t_prime_ps) == point


def test_of_plans_that_draw_the_same_the_fastest_is_that_of_least_energy() -> None:
    assert CHEAPEST.t_star_ps == 1100
    even = replace(SUMMARY, total_uj=(900, 700, 700, 750))
    assert even.t_star_ps == 1100
    assert SUMMARY.t_star_ps == 1300
    assert SUMMARY.fastest_ps == 1000


def test_one_past_the_last_plan_stands_for_all_maximum_clocks() -> None:
    summary = replace(SUMMARY, baseline_time_ps=950, baseline_uj=1234)
    assert summary.full_point == 4
    assert [summary.planned_ps(point) for point in range(5)] == [1000, 1100, 1200, 1300, 950]
    assert [summary.planned_uj(point) for point in range(5)] == [900, 800, 700, 650, 1234]


@pytest.mark.parametrize(("slowest_ps", "factor"), [(0, 1.0), (500, 1.0), (1000, 1.0), (1250, 1.25)])
def test_a_plan_takes_as_long_as_in_the_slowest_case_and_no_less_than_alone(slowest_ps: int, factor: float) -> None:
    assert replace(SUMMARY, slowest_case_ps=slowest_ps).case_factor == factor


def test_what_of_an_iteration_lies_between_the_begins_of_two() -> None:
    assert SUMMARY.of_many == 1.0
    assert replace(SUMMARY, gained_ps=250).of_many == 0.75


SLOW = replace(SUMMARY, tail_ps=200, slow_rank_ps=((1000, 1000, 1040, 1200, 1600), (1000, 1080, 1200, 1400, 1800)))


@pytest.mark.parametrize(
    ("pp_rank", "degree", "time_ps"),
    [
        (0, 1.0, 1000),
        (0, 1.1, 1000),  # a stage with time to spare
        (0, 1.25, 1040),
        (0, 1.5, 1200),
        (0, 2.0, 1600),
        (0, 3.0, 2400),  # as the last line goes on
        (1, 1.0, 1000),
        (1, 1.1, 1080),
        (1, 1.5, 1400),
        (1, 1.75, 1600),
        (1, 4.0, 3400),
        (1, 0.5, 1000),  # none is faster for it
    ],
)
def test_a_pipeline_is_as_slow_as_its_slow_rank_makes_what_it_computes(
    pp_rank: int, degree: float, time_ps: int
) -> None:
    assert SLOW.pipeline_degree(pp_rank, degree) == pytest.approx((time_ps - 200) / (1000 - 200))


@pytest.mark.parametrize(("degree", "time_ps"), [(1.26, 1040 + 0.01 * 40 / 0.15), (1.375, 1100), (1.45, 1160)])
def test_between_known_slownesses_lines_from_either_side_are_never_above_a_convex_time(
    degree: float, time_ps: float
) -> None:
    """The line through both ends is above it; just behind one end the line before is nearest, and then the next."""
    assert SLOW.pipeline_degree(0, degree) == pytest.approx((time_ps - 200) / 800, abs=1e-6)


def test_a_pipeline_of_which_no_more_is_known_is_as_slow_as_its_slow_rank() -> None:
    assert SUMMARY.pipeline_degree(0, 1.7) == 1.7


def test_what_every_iteration_takes_besides_is_waited_for_at_blocking_power() -> None:
    whole = replace(
        SLOW,
        total_blocking_uw=3,
        baseline_uj=6,
        slowest_case_ps=1250,
        saving_low=(0.1, 0.2, 0.3, 0.4),
        saving_high=(0.2, 0.3, 0.4, 0.5),
        gained_ps=7,
    )
    assert whole.with_extra(0) is whole
    extra = whole.with_extra(2 * PS_PER_S)
    assert extra.time_ps == tuple(one + 2 * PS_PER_S for one in SUMMARY.time_ps)
    assert extra.total_uj == (906, 806, 706, 656)
    assert extra.lower_bound_uj == (906, 806, 706, 656)
    assert extra.baseline_time_ps - 1000 == extra.slowest_case_ps - 1250 == extra.tail_ps - 200 == 2 * PS_PER_S
    assert extra.slow_rank_ps[1] == tuple(one + 2 * PS_PER_S for one in SLOW.slow_rank_ps[1])
    assert extra.baseline_uj == 12
    assert extra.saving_low == (0.05, 0.1, 0.15, 0.2), "half of the energy is besides"
    assert extra.saving_high == (0.1, 0.15, 0.2, 0.25)
    assert SUMMARY.with_extra(1).slowest_case_ps == 0, "there is one case"


def test_extra_time_leaves_what_a_slow_rank_does_to_what_a_pipeline_computes() -> None:
    for degree in (1.0, 1.3, 2.5):
        assert SLOW.with_extra(5000).pipeline_degree(1, degree) == pytest.approx(SLOW.pipeline_degree(1, degree))
