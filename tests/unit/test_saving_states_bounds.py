"""Which state iterations under plans lie in, what is guessed where none is known, and what gives way to a window."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from test_planner_saving import PLAN, PLANNED_J, TIME_S, WAITING, begun
from test_saving_saving_bounds import DEADLINE, OTHER, SLOW, Iterations

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.saving import Saving

OTHER_BY_TIME = replace(OTHER, stretch=1.0)
EVEN = Followed(key="even", stretch=1.2, rate_j=500.0)
WRONG = Followed(key="wrong", time_s=2.3, stretch=1.0, rate_j=20.0)


def deviation(step: float) -> float:
    """Of iterations that differ by so much from one to the next, as a share."""
    return 1.4826 / math.sqrt(2) * math.log1p(step)


@pytest.mark.parametrize("share", [0.99, 1.01])
@pytest.mark.parametrize(
    ("make", "longer", "more"),
    [
        pytest.param(Saving, 0.005, 0.0, id="longer"),
        pytest.param(Saving, 0.0, 0.01, id="more"),
        pytest.param(begun, 0.005, 0.0, id="longer, where counters tick rarely"),
        pytest.param(begun, 0.0, 0.04, id="more, where counters tick rarely"),
    ],
)
def test_iterations_of_a_steady_job_look_alike_within_little(
    make: Callable[[], Saving], longer: float, more: float, share: float
) -> None:
    iterations = Iterations(make()).plan(10)
    iterations.plan(1, TIME_S * (1 + share * longer), PLANNED_J * (1 + share * more))
    assert iterations.kept.num_levels == (1 if share < 1 else 2)


@pytest.mark.parametrize("share", [0.99, 1.01])
def test_iterations_of_a_noisy_job_look_alike_within_four_deviations_of_time_and_eight_of_energy(share: float) -> None:
    for longer, more in ((0.008, 0.0), (0.0, 0.015)):
        iterations = Iterations(Saving())
        for _ in range(20):
            iterations.plan(1).plan(1, TIME_S * (1 + longer), PLANNED_J * (1 + more))
        assert iterations.kept.num_levels == 1
        time_s, energy_j = TIME_S * (1 + longer / 2), PLANNED_J * (1 + more / 2)
        iterations.plan(1, time_s * (1 + share * 4 * deviation(longer)), energy_j * (1 + share * 8 * deviation(more)))
        assert iterations.kept.num_levels == (1 if share < 1 else 2)


def test_a_plan_of_which_no_length_is_known_is_held_against_what_was_measured_and_no_guess() -> None:
    iterations = Iterations().plan(4, 2.4, 1000.0)
    before_j = iterations.saved_j
    assert iterations.plan(4, 2.6, 850.0, plan=DEADLINE).saved_j - before_j == pytest.approx(4 * 150)


def test_a_slower_plan_saves_what_the_profile_says_where_full_clocks_are_a_guess_of_others() -> None:
    iterations = Iterations().plan(4, 2.4, 1000.0)
    before_j = iterations.saved_j
    assert iterations.plan(4, 2.5, plan=SLOW).saved_j - before_j == pytest.approx(4 * 95)


def test_iterations_of_a_slower_plan_that_are_as_long_as_a_cap_makes_them_lie_in_the_state_before_it() -> None:
    assert Iterations().plan(4, 2.2, plan=SLOW).saved_j == pytest.approx(4 * 100)
    assert Iterations().plan(4, 2.5, plan=SLOW).saved_j == pytest.approx(4 * 95), "longer than the plan"


def test_iterations_as_long_as_profiled_lie_in_the_state_before_unless_they_have_changed_or_are_too_short() -> None:
    assert Iterations().plan(4, 2.3, 820.0, plan=WRONG).saved_j == pytest.approx(4 * 180)
    changed = Iterations().plan(4, plan=WRONG).plan(4, 2.3, 820.0, plan=WRONG)
    assert changed.saved_j == pytest.approx(8 * 100)
    fast = replace(WRONG, time_s=1.9)
    assert Iterations().plan(4, 1.9, 820.0, plan=fast).saved_j == pytest.approx(4 * 20)


def test_a_guess_is_of_what_was_shown_under_the_same_plan_or_of_the_iterations_right_before() -> None:
    shown = Iterations().plan(8).full().plan(8)
    assert shown.plan(4, 2.4, 950.0, plan=OTHER_BY_TIME).saved_j == pytest.approx(16 * 100 + 4 * 40), "another plan"
    assert shown.plan(4, 2.6, 1000.0).saved_j == pytest.approx(20 * 100 + 4 * 40)
    before = Iterations().plan(8).plan(4, 2.4, 1000.0)
    assert before.saved_j == pytest.approx(12 * 100)
    apart = Iterations().plan(8).plan(1, plan=OTHER_BY_TIME).plan(4, 2.4, 1000.0)
    assert apart.saved_j == pytest.approx(9 * 100 + 4 * 95)


def test_what_pipelines_save_that_wait_for_what_is_over_says_nothing_of_another_straggler() -> None:
    iterations = Iterations().full().plan(8, 2.4, 800.0, plan=WAITING).plan(1, plan=OTHER_BY_TIME)
    assert iterations.plan(4, 2.6, 800.0, plan=WAITING).saved_j == pytest.approx(8 * 200 + 100 + 4 * 190)


@pytest.mark.parametrize(("stretch", "full_s"), [(1.25, 2.4 / 1.25), (0.0, 2.4)])
def test_full_clocks_are_guessed_to_be_as_much_shorter_as_the_plan_makes_iterations(
    stretch: float, full_s: float
) -> None:
    saving = Iterations(Saving()).plan(1, 2.4, plan=replace(PLAN, stretch=stretch)).saving
    assert saving.full is not None
    assert saving.full.time_s == pytest.approx(full_s)
    assert (saving.full.num_iterations, saving.full.energy_j) == (0, PLANNED_J + PLAN.rate_j)
    known = Iterations().plan(4, 2.4, plan=DEADLINE).plan(1, 2.9, plan=DEADLINE).saving.full
    assert known is not None
    assert (known.time_s, known.num_iterations) == (TIME_S, 0), "as before, where the plan says nothing"


def test_what_is_followed_again_behind_another_plan_lies_in_the_new_state_from_its_window_on() -> None:
    iterations = Iterations().plan(10).plan(2, 2.0, 950.0, plan=OTHER).full(energy_j=1100.0).plan(8)
    assert iterations.saved_j == pytest.approx(10 * 100 + 50 + 150 + 8 * 200, abs=5)


@pytest.mark.parametrize(("num_before", "num_old"), [(9, 5), (10, 5)])
def test_a_change_is_in_the_middle_of_what_went_on_on_both_sides(num_before: int, num_old: int) -> None:
    iterations = Iterations().plan(num_before).full(energy_j=1100.0).plan(8)
    num_new = num_before - num_old
    assert iterations.saved_j == pytest.approx(num_old * 100 + (num_new + 8) * 200, abs=5)
    assert iterations.saving.counted_doubt_j == pytest.approx(num_new * 100, abs=5)
    assert len(iterations.plan(1).kept.row_j) == 8, "they go on"


@pytest.mark.parametrize(("time_s", "one_j"), [(1.98, 500.0), (2 / (1 + 0.005), 120.0)])
def test_a_guess_gives_way_only_to_full_clocks_that_are_no_longer_than_its_iterations(
    time_s: float, one_j: float
) -> None:
    iterations = Iterations().plan(4).full().plan(8).plan(1, 2.4, 950.0, plan=OTHER_BY_TIME)
    before_j = iterations.saved_j
    iterations.plan(4, time_s, 880.0, plan=EVEN).plan(1)
    assert iterations.saved_j - before_j == pytest.approx(4 * one_j + 100)


def test_a_guess_stays_where_no_switch_is_behind_it_and_what_was_measured_wherever_it_is() -> None:
    guessed = Iterations().plan(8).full().plan(8).plan(4, 2.09, 950.0).plan(1)
    assert guessed.saved_j == pytest.approx((16 + 4 + 1) * 100)
    measured = Iterations().plan(4, 2.0, 950.0, plan=OTHER).plan(4).full(energy_j=1100.0).plan(8)
    measured.plan(1, 2.0, 950.0, plan=OTHER).plan(1)
    assert measured.saved_j == pytest.approx(5 * 50 + 2 * 100 + 11 * 200, abs=5)


@pytest.mark.parametrize(("time_s", "one_j"), [(2.09, 100.0), (2.11, 95.0)])
def test_a_window_shows_a_guess_beside_it_up_to_five_percent_longer(time_s: float, one_j: float) -> None:
    iterations = Iterations(Saving()).plan(10, time_s).full().plan(1, 2.3, 850.0, plan=DEADLINE).end()
    assert iterations.saved_j == pytest.approx(10 * one_j + 150)


def test_waiting_for_what_is_over_goes_on_behind_its_window_and_after_another_one() -> None:
    iterations = Iterations().plan(8).full().plan(12, 2.4, 800.0, plan=WAITING)
    assert iterations.saved_j == pytest.approx(8 * 100 + 12 * 200)
    assert iterations.kept.num_levels == 2, "none of which is a guess"
    iterations.full().plan(1, 2.5, 980.0)
    before_j = iterations.saved_j
    assert iterations.plan(1, 2.4, 800.0, plan=WAITING).saved_j - before_j == pytest.approx(200)


@pytest.mark.parametrize(
    ("time_s", "skipped", "one_j"), [(2.5, 0, 190.0), (2.5, 1, 200.0), (2.0, 0, 200.0)], ids=["again", "a gap", "over"]
)
def test_waiting_begins_again_right_behind_iterations_that_show_the_straggler(
    time_s: float, skipped: int, one_j: float
) -> None:
    iterations = Iterations().plan(8).full().plan(8, 2.4, 800.0, plan=WAITING).plan(4, time_s, 980.0)
    before_j = iterations.saved_j
    iterations.skip(skipped).plan(10, 2.4, 800.0, plan=WAITING)
    assert iterations.saved_j - before_j == pytest.approx(10 * one_j)


def test_full_clocks_are_what_a_window_shows_where_iterations_behind_it_are_longer() -> None:
    iterations = Iterations().full(time_s=2.2, energy_j=1050.0).plan(8, 2.9, 950.0)
    assert iterations.saving.full is not None
    assert iterations.saving.full.time_s == pytest.approx(2.2)
