"""What is counted as saved: invented iterations of a job whose plan draws 10 % less."""

import math
import random
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.planner.job.facts.runs import SavingCounted
from perseus_dist.planner.job.saving.followed import UNKNOWN, Followed
from perseus_dist.planner.job.saving.full_clocks import METER_SHARE, FullClocks, FullWindow
from perseus_dist.planner.job.saving.saving import Saving
from perseus_dist.planner.store.fact_rows import fact_of_row, row_of_fact

TIME_S, ENERGY_J, PLANNED_J, PERIOD_S = 2.0, 1000.0, 900.0, 0.1
PLAN = Followed(key="t_min", stretch=1.0, rate_j=95.0)
WAITING = Followed(key="waiting", stretch=1.0, rate_j=190.0, is_waiting=True)


def begun() -> Saving:
    saving = Saving()
    full = FullClocks(time_s=TIME_S, energy_j=ENERGY_J, num_iterations=5, weight=25.0, meter_s=METER_SHARE * PERIOD_S)
    saving.begin(full)
    return saving


def plan(
    saving: Saving,
    num: int,
    time_s: float = TIME_S,
    energy_j: float | None = PLANNED_J,
    number: int = 1000,
    plan: Followed = PLAN,
) -> None:
    for i in range(num):
        saving.record_planned(number + i, time_s, energy_j, plan=plan)


def probe(saving: Saving, number: int, time_s: float = TIME_S, energy_j: float = ENERGY_J, num: int = 3) -> None:
    """A probe, of which no more is known once it is over."""
    for i in range(num):
        saving.record_full(number + i, time_s, energy_j, period_s=PERIOD_S)


def test_the_baseline_is_compared_with() -> None:
    saving = begun()
    plan(saving, 10)
    assert saving.saved_j == pytest.approx(1000)


def test_what_the_profile_says_is_counted_before_full_clocks_are_known_and_then_what_was_measured() -> None:
    saving = Saving()
    plan(saving, 10, number=0)
    assert not saving.is_known
    assert (saving.saved_j, saving.doubt_j) == (10 * 95, 10 * 95)
    probe(saving, 10)
    plan(saving, 8, number=13)
    assert saving.full is not None
    assert saving.saved_j == pytest.approx(18 * 100, rel=0.02)


def test_windows_that_agree_are_pooled_and_count_by_the_square_of_their_length() -> None:
    saving = begun()
    probe(saving, 10, energy_j=1002.0, num=10)
    saving.end_window()
    assert saving.full is not None
    assert saving.full.num_iterations == 15
    assert saving.full.energy_j == pytest.approx(1000 + 2 * 100 / 125)


def test_what_is_known_better_counts_for_what_was_counted_before() -> None:
    saving = begun()
    plan(saving, 10, number=0)
    assert saving.saved_j == pytest.approx(1000)
    probe(saving, 10, energy_j=1002.0, num=50)
    saving.end_window()
    assert saving.full is not None
    assert saving.saved_j == pytest.approx(10 * (saving.full.energy_j - PLANNED_J), rel=0.002)


@pytest.mark.parametrize("num_before", [1, 30])
def test_a_straggler_makes_full_clocks_as_much_longer(num_before: int) -> None:
    """A slow GPU: iterations take 2.4 s and draw 100 J more. No probe shows it; that is not saved, nor lost."""
    saving = begun()
    plan(saving, num_before, number=0)
    plan(saving, 8, 2.4, 1000.0, number=num_before)
    assert saving.saved_j == pytest.approx(100 * (num_before + 8))
    assert saving.doubt_j > 8 * 20, "no window is beside them"


def test_a_probe_tells_of_the_iterations_beside_it() -> None:
    saving = begun()
    plan(saving, 20, number=0)
    plan(saving, 16, 2.4, 1000.0, number=20)
    doubt_j = saving.doubt_j
    probe(saving, 36, 2.4, 1050.0)
    plan(saving, 8, 2.4, 1000.0, number=39)
    assert saving.saved_j == pytest.approx(20 * 100 + 24 * 50, rel=0.01)
    assert saving.doubt_j < doubt_j


@pytest.mark.parametrize("num_in_window", [1, 2])
def test_a_probe_within_which_a_straggler_comes_and_goes_tells_nothing_of_both_sides(num_in_window: int) -> None:
    """A GPU is slow in every other iteration, and so in some of those at full clocks."""
    slower = replace(PLAN, stretch=1.2)
    saving = begun()
    for number in range(0, 12, 2):
        plan(saving, 1, 2.4, number=number, plan=slower)
        plan(saving, 1, 3.6, 1350.0, number=number + 1, plan=slower)
    energies_j = {TIME_S: ENERGY_J, 3.0: 1500.0}
    times_s = [TIME_S, 3.0, *[TIME_S] * num_in_window]
    for number, time_s in enumerate(times_s, start=12):
        saving.record_full(number, time_s, energies_j[time_s], period_s=0.02)
    plan(saving, 1, 3.6, 1350.0, number=12 + len(times_s), plan=slower)
    plan(saving, 1, 2.4, number=13 + len(times_s), plan=slower)
    truly_j = 7 * 100 + 7 * 150
    assert truly_j / 2 <= saving.saved_j <= truly_j


def test_a_cap_that_comes_with_its_probe_changes_nothing_before() -> None:
    """No plan takes less time than full clocks do."""
    saving = begun()
    plan(saving, 9, number=0)
    probe(saving, 9, 2.8, 700.0)
    plan(saving, 8, 2.8, 690.0, number=12)
    assert saving.saved_j == pytest.approx(9 * 100 + 8 * 10, abs=15), "lines between ticks would round off steps"


def test_a_change_that_plans_hide_was_in_the_middle_give_or_take() -> None:
    """A plan that is as long with a cap as without: two probes tell, and between them nothing does."""
    slow = Followed(key="slow", stretch=1.2, rate_j=95.0)
    saving = begun()
    plan(saving, 20, 2.4, 800.0, number=0, plan=slow)
    probe(saving, 20)
    plan(saving, 20, 2.4, 800.0, number=23, plan=slow)
    before_j = saving.doubt_j
    probe(saving, 43, TIME_S, 900.0)
    plan(saving, 8, 2.4, 800.0, number=46, plan=slow)
    assert saving.saved_j == pytest.approx((20 + 10) * 200 + (10 + 8) * 100, rel=0.02)
    assert saving.doubt_j > before_j + 9 * 100


def test_the_state_that_hides_is_doubted() -> None:
    """Two states are known that the plan in force does not tell from each other."""
    slow = Followed(key="slow", stretch=1.2, rate_j=95.0)
    saving = begun()
    probe(saving, 0, TIME_S, 900.0)
    saving.end_window()
    plan(saving, 30, 2.4, 800.0, number=100, plan=slow)
    assert saving.doubt_j > 30 * 100


def test_what_is_waited_for_is_over_where_iterations_become_shorter() -> None:
    """The others' plans still last longer; at full clocks iterations would be what they were before the straggler."""
    saving = begun()
    plan(saving, 20, number=0)
    plan(saving, 4, 2.4, 1000.0, number=20)
    plan(saving, 4, 2.4, 900.0, number=24, plan=WAITING)
    plan(saving, 4, 2.3, 850.0, number=28, plan=WAITING)
    assert saving.saved_j == pytest.approx(24 * 100 + 4 * 200 + 4 * 150)


def test_a_plan_that_is_not_as_long_as_expected_saves_what_the_profile_says() -> None:
    saving = begun()
    plan(saving, 4, 2.4, 1000.0)
    assert saving.saved_j == pytest.approx(4 * 95)
    assert saving.doubt_j >= 4 * 95
    saving = begun()
    plan(saving, 4, 2.4, 1000.0, plan=Followed(key="deadline"))
    assert saving.saved_j == pytest.approx(0), "a deadline says nothing of full clocks"


SLOWER = Followed(key="slower", time_s=2.4, stretch=1.2, rate_j=150.0)


def test_pipelines_that_begin_to_wait_for_what_is_over_save_against_the_probe_before() -> None:
    """A straggler ends as others begin to wait for it: they take as long as with it, and full clocks do not."""
    saving = begun()
    probe(saving, 0, 2.4, 1100.0, num=6)
    probe(saving, 6, num=4)
    plan(saving, 3, 2.4, 850.0, number=10, plan=WAITING)
    saving.end_window()
    assert saving.saved_j == pytest.approx(3 * 150, abs=30)


def test_a_straggler_within_a_probe_says_nothing_of_shorter_iterations_beside_it() -> None:
    saving = begun()
    plan(saving, 8, number=0)
    probe(saving, 8, num=1)
    probe(saving, 9, 2.8, 1300.0, num=2)
    plan(saving, 10, number=11)
    assert saving.saved_j == pytest.approx(18 * 100, abs=30), "no plan makes iterations shorter than full clocks do"


def test_a_change_is_in_the_middle_of_iterations_whose_state_was_known_by_their_time_alone() -> None:
    """A cap that all GPUs shared since the baseline is over; a plan that is too slow took as long with it."""
    saving = begun()
    plan(saving, 10, number=0)
    probe(saving, 10, 1.94, 1100.0)
    plan(saving, 1, number=13)
    saving.end_window()
    assert saving.saved_j == pytest.approx(5 * 100 + 6 * 200, abs=30)
    assert saving.doubt_j > 5 * 99


def test_a_plan_of_a_wrong_profile_saves_against_full_clocks_that_were_measured() -> None:
    """The profile was measured while all GPUs were slow: its plan takes what it says, and full clocks do not."""
    saving = begun()
    plan(saving, 10, 2.3, 820.0, plan=Followed(key="wrong", time_s=2.3, stretch=1.0, rate_j=20.0))
    assert saving.saved_j == pytest.approx(10 * 180)


@pytest.mark.parametrize(("time_s", "is_of_window"), [(2.25, True), (2.6, False)], ids=["as it says", "longer"])
def test_a_probe_after_a_cap_of_all_tells_of_plans_that_were_made_under_it(
    *, time_s: float, is_of_window: bool
) -> None:
    """Their iterations take what the profile says, 15 % longer than full clocks by now, and draw less than the cap."""
    capped = FullClocks(time_s=2.3, energy_j=1000.0, num_iterations=5, weight=25.0, meter_s=METER_SHARE * PERIOD_S)
    wrong = Followed(key="wrong", time_s=2.29, stretch=0.995, rate_j=35.0)
    own = Followed(key="own", time_s=2.31, stretch=0.998, rate_j=35.0, is_waiting=True)
    saving = Saving()
    saving.begin(capped)
    plan(saving, 9, 2.29, 965.0, number=0, plan=wrong)
    plan(saving, 4, time_s, 985.0, number=9, plan=own)
    probe(saving, 13, 2.0, 1200.0)
    plan(saving, 8, time_s, 980.0, number=16, plan=wrong)
    wrong_j = 9 * 35 + 8 * 220
    assert (saving.saved_j == pytest.approx(wrong_j + 4 * 215, rel=0.05)) is is_of_window


def test_a_straggler_that_is_over_in_a_probe_was_there_before_it() -> None:
    """A good profile: the plan that waits takes as long as the straggler does."""
    saving = begun()
    plan(saving, 9, number=0)
    own = Followed(key="own", time_s=2.3, stretch=1.0, rate_j=150.0, is_waiting=True)
    with_straggler = FullClocks(time_s=2.3, energy_j=1300.0, num_iterations=3, weight=9.0)
    saving._states.append(with_straggler)
    saving.full = with_straggler
    plan(saving, 6, 2.3, 1150.0, number=9, plan=own)
    probe(saving, 15)
    plan(saving, 8, number=18)
    assert saving.saved_j == pytest.approx(17 * 100 + 6 * 150, abs=30)


def test_one_iteration_of_a_counter_that_ticks_rarely_is_no_measure_of_what_others_save() -> None:
    saving = Saving()
    meter_s = METER_SHARE * PERIOD_S
    saving.begin(FullClocks(time_s=0.2, energy_j=100.0, num_iterations=5, weight=25.0, meter_s=meter_s))
    small = Followed(key="small", stretch=1.0, rate_j=10.0)
    plan(saving, 1, 0.2, 80.0, plan=small)
    plan(saving, 10, 0.15, 60.0, number=1001, plan=small)
    assert saving.saved_j == pytest.approx(20 + 10 * 10)


def test_what_others_under_a_slower_plan_saved_is_all_in_doubt_once_iterations_take_another_time() -> None:
    """Heat may hold clocks that are lower than the plan's: then full clocks take as long, and draw little more."""
    saving = begun()
    plan(saving, 10, 2.4, 850.0, number=0, plan=SLOWER)
    doubt_j = saving.doubt_j
    plan(saving, 3, 2.6, 840.0, number=10, plan=SLOWER)
    assert saving.saved_j == pytest.approx(10 * 150 + 3 * 75), "between nothing and all of it"
    assert saving.doubt_j >= doubt_j + 3 * 75


def test_iterations_that_draw_what_the_plan_does_are_not_held_at_lower_clocks() -> None:
    """A GPU that is slow at the plan's clocks makes the others wait, and these save what they did before."""
    known = replace(SLOWER, energy_j=850.0, waiting_w=200.0)
    saved = {}
    for energy_j in (892.0, 870.0):
        saving = begun()
        plan(saving, 10, 2.4, 850.0, number=0, plan=known)
        plan(saving, 3, 2.6, energy_j, number=10, plan=known)
        saved[energy_j] = saving.saved_j
    assert saved == {892.0: pytest.approx(10 * 150 + 3 * 150), 870.0: pytest.approx(10 * 150 + 3 * 75)}


def test_a_probe_tells_of_plans_that_took_as_long_just_before_it() -> None:
    """From the first iteration on heat holds all clocks below a slower plan: only the profile says what that saves."""
    saving = Saving()
    other = Followed(key="other", time_s=2.0, stretch=1.03, rate_j=170.0)
    plan(saving, 5, 2.4, 850.0, number=0, plan=SLOWER)
    plan(saving, 5, 2.4, 850.0, number=5, plan=other)
    probe(saving, 10, 2.4, 930.0)
    plan(saving, 2, 2.6, 800.0, number=13, plan=Followed(key="third"))
    saving.end_window()
    assert saving.saved_j == pytest.approx(10 * 80 + 2 * 130, abs=40)


def test_a_window_is_wanted_where_the_profile_alone_says_what_is_saved() -> None:
    saving = Saving()
    wanted = []
    for number in range(6):
        plan(saving, 1, number=number)
        wanted += [number] * saving.wants_window()
    assert wanted == [3, 4, 5], "until it comes, whatever is asked for meanwhile"
    probe(saving, 6)
    plan(saving, 1, number=9)
    assert not saving.wants_window(), "one is there, and is not over"
    plan(saving, 400, number=10)
    assert not saving.wants_window()


def test_plans_that_change_before_they_are_measured_want_one_window_together() -> None:
    saving = begun()
    for number in range(4):
        odd = Followed(key=str(number), time_s=1.9, stretch=1.2, rate_j=200.0)
        plan(saving, 1, 2.6 + 0.1 * number, 900.0, number=number, plan=odd)
        assert saving.wants_window() == (number == 3)


def test_windows_that_tell_nothing_are_wanted_half_as_often_each_time() -> None:
    saving = begun()
    gaps, number = [], 0
    for _ in range(3):
        gap = 0
        while not saving.wants_window():
            odd = Followed(key=str(number), time_s=1.9, stretch=1.2, rate_j=200.0)
            plan(saving, 1, 2.6 + 0.1 * (number % 5), 900.0, number=number, plan=odd)
            number, gap = number + 1, gap + 1
        gaps.append(gap)
        probe(saving, number, 3.0, 1500.0)
        plan(saving, 1, 2.0, 900.0, number=number + 3, plan=Followed(key=str(number)))
        saving.end_window()
        number += 4
    assert gaps == [4, 8, 16]
    plan(saving, 80, 2.0, 900.0, number=number)
    other = Followed(key="other", time_s=1.9, stretch=1.2, rate_j=200.0)
    plan(saving, 4, 2.6, 900.0, number=number + 80, plan=other)
    assert saving.wants_window(), "what was measured for long comes first again"


def test_a_window_is_wanted_under_a_deadline_since_its_iterations_tell_nothing_of_full_clocks() -> None:
    saving = begun()
    plan(saving, 4, 2.4, 850.0, number=0, plan=Followed(key="deadline"))
    assert saving.wants_window()
    probe(saving, 4)
    plan(saving, 40, 2.4, 850.0, number=7, plan=Followed(key="deadline"))
    assert not saving.wants_window()


def test_what_is_measured_wants_no_window() -> None:
    saving = begun()
    plan(saving, 100, number=0)
    plan(saving, 100, 2.4, 1000.0, number=100)
    plan(saving, 100, 2.4, 900.0, number=200, plan=WAITING)
    assert not saving.wants_window(), "a straggler of which nothing is known but by others under the same plan"


def test_a_state_that_is_over_behind_its_window_is_not_that_of_the_next_plan() -> None:
    """A power cap is over as the plan comes; a deadline, of which no length tells, follows soon."""
    saving = begun()
    probe(saving, 1000, time_s=2.5 * TIME_S, energy_j=1.5 * ENERGY_J)
    plan(saving, 6, number=1003)
    deadline = Followed(key="deadline", rate_j=150.0)
    plan(saving, 3, number=1009, time_s=1.1 * TIME_S, energy_j=850.0, plan=deadline)
    assert saving.saved_j == pytest.approx(6 * 100 + 3 * 150, abs=5)


def test_a_window_tells_of_iterations_behind_the_first_one_after_it_whose_clocks_are_on_their_way() -> None:
    """A slower plan hides that a power cap is over: its iterations go on as they were."""
    slow = Followed(key="slow", stretch=1.2, rate_j=95.0)
    saving = begun()
    plan(saving, 20, time_s=1.2 * TIME_S, plan=slow)
    probe(saving, 1020)
    plan(saving, 20, time_s=1.2 * TIME_S, number=1023, plan=slow)
    probe(saving, 1043, energy_j=1100.0)
    plan(saving, 1, time_s=1.19 * TIME_S, number=1046, plan=slow)
    plan(saving, 20, time_s=1.2 * TIME_S, number=1047, plan=slow)
    before_j = saving.saved_j
    plan(saving, 10, time_s=1.2 * TIME_S, number=1067, plan=slow)
    assert saving.saved_j - before_j == pytest.approx(10 * 200)


@pytest.mark.parametrize(("time_s", "one_j"), [(2.08, 120), (2.4, 500)], ids=["as long", "longer"])
def test_a_guess_gives_way_to_what_is_known_of_the_iterations_that_follow(time_s: float, one_j: float) -> None:
    """Unless the plan makes no iteration as long there: a straggler may be over with it."""
    saving = begun()
    plan(saving, 4, 2.4, 880.0, number=0, plan=Followed(key="odd", stretch=1.0, rate_j=500.0))
    plan(saving, 4, number=4)
    probe(saving, 8)
    plan(saving, 8, number=11)
    plan(saving, 4, time_s, 880.0, number=19, plan=Followed(key="even", stretch=1.0, rate_j=500.0))
    plan(saving, 1, number=23)
    assert saving.saved_j == pytest.approx(4 * 500 + 13 * 100 + 4 * one_j, abs=20)


def test_waiting_begins_again_for_a_straggler_that_was_over_as_others_waited_for_it() -> None:
    """The straggler comes again under the plan that the others do not wait by; only later is it waited for."""
    saving = begun()
    plan(saving, 8, number=0)
    probe(saving, 8)
    plan(saving, 8, 2.4, 800.0, number=11, plan=WAITING)
    plan(saving, 4, 2.5, 980.0, number=19)
    before_j = saving.saved_j
    plan(saving, 10, 2.4, 800.0, number=23, plan=WAITING)
    assert saving.saved_j - before_j == pytest.approx(10 * 190, rel=0.01), "in the probe's state it would be 200 J each"
    assert saving.wants_window()
    probe(saving, 33, 2.4, 1030.0)
    plan(saving, 8, 2.4, 800.0, number=36, plan=WAITING)
    assert saving.saved_j - before_j == pytest.approx(18 * 230, rel=0.02)


def test_iterations_apart_are_no_window() -> None:
    saving = begun()
    for number in (10, 13, 20, 23):
        saving.record_full(number, 7.0, 5000.0, period_s=PERIOD_S)
    saving.end_window()
    assert saving.full is not None
    assert saving.full.num_iterations == 5


def test_an_iteration_alone_counts_where_clocks_had_arrived() -> None:
    """A GPU becomes slow in the middle of a probe: one long iteration is enough, unless counters tick too rarely."""
    for period_s, num_iterations in ((0.02, 1), (2.0, 5)):
        saving = begun()
        for time_s, number in ((TIME_S, 10), (TIME_S, 11), (2.8, 12)):
            saving.record_full(number, time_s, 500 * time_s, period_s=period_s)
        saving.end_window()
        assert saving.full is not None
        assert saving.full.num_iterations == num_iterations + (period_s > 1) * 2


def test_the_first_iteration_of_a_probe_may_be_longer() -> None:
    saving = Saving()
    for number, (time_s, energy_j) in enumerate(((2.03, 980.0), (2.0, 1000.0), (2.0, 1020.0))):
        saving.record_full(number, time_s, energy_j, period_s=PERIOD_S)
    saving.end_window()
    assert saving.full is not None
    assert saving.full.num_iterations == 3
    assert saving.full.energy_j == pytest.approx(1000)


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.5, 0.9])
def test_a_counter_that_ticks_rarely_does_not_change_what_is_saved(phase: float) -> None:
    """Iterations of 0.45 s, and a counter that publishes every 0.2 s: lines between its ticks move energy."""
    time_s, tick_s, full_w, planned_w = 0.45, 0.2, 1000.0, 900.0
    saving = Saving()
    is_full = [i < 40 or 60 <= i < 63 or 90 <= i < 93 for i in range(130)]
    ends_j = list(accumulate((full_w if free else planned_w) * time_s for free in is_full))

    def counted_j(at_s: float) -> float:
        """By a straight line between the two ticks around an instant."""

        def true_j(instant_s: float) -> float:
            index = min(max(int(instant_s / time_s), 0), len(is_full) - 1)
            before_j = ends_j[index - 1] if index else 0.0
            return before_j + (instant_s - index * time_s) * (full_w if is_full[index] else planned_w)

        low_s = (math.floor((at_s - phase * tick_s) / tick_s) + phase) * tick_s
        share = (at_s - low_s) / tick_s
        return (1 - share) * true_j(low_s) + share * true_j(low_s + tick_s)

    for i, free in enumerate(is_full):
        energy_j = counted_j((i + 1) * time_s) - counted_j(i * time_s)
        if free:
            saving.record_full(i, time_s, energy_j, period_s=tick_s)
        else:
            saving.record_planned(i, time_s, energy_j, plan=PLAN)
    true_j = sum(not free for free in is_full) * (full_w - planned_w) * time_s
    assert saving.saved_j == pytest.approx(true_j, rel=0.02)


def test_a_window_with_an_iteration_of_unknown_energy_ends_there() -> None:
    saving = begun()
    saving.record_full(1, 3.0, 1500.0, period_s=PERIOD_S)
    saving.record_full(2, 3.0, None, period_s=PERIOD_S)
    saving.record_full(3, 3.0, 1500.0, period_s=PERIOD_S)
    saving.end_window()
    assert saving.full is not None
    assert saving.full.num_iterations == 5


def test_an_iteration_whose_energy_is_not_known_drew_what_the_one_before_drew() -> None:
    saving = begun()
    plan(saving, 1, energy_j=None)
    assert (saving.saved_j, saving.doubt_j) == (PLAN.rate_j, PLAN.rate_j), "by the profile, if there is none"
    saving = begun()
    plan(saving, 1)
    plan(saving, 1, energy_j=None)
    assert saving.saved_j == pytest.approx(200)
    doubt_j = saving.doubt_j
    plan(saving, 1, time_s=3.0, energy_j=None)
    assert saving.saved_j == pytest.approx(300)
    assert saving.doubt_j >= doubt_j + 100, "it took longer than those before"


def test_iterations_that_are_told_late_followed_the_plan_of_then() -> None:
    saving = Saving()
    t_min, full_clocks, waiting = ({0: (1, 7), 1: (1, point)} for point in (7, 0, 31))
    saving.plans.begin(10, t_min, PLAN)
    saving.plans.begin(20, full_clocks, None)
    saving.plans.begin(30, waiting, WAITING)
    assert [saving.plans.at(25, followed) for followed in (t_min, full_clocks, waiting)] == [PLAN, None, WAITING]
    assert saving.plans.at(31, full_clocks) is None, "a planner that was stopped has ordered the next one too late"
    assert saving.plans.at(25, {0: (1, 7), 1: (1, 8)}) is UNKNOWN
    again = replace(WAITING, rate_j=200.0)
    saving.plans.begin(40, waiting, again)
    assert [saving.plans.at(number, waiting) for number in (39, 40)] == [WAITING, again]


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_meter_makes_no_changes(seed: int) -> None:
    """Counters that tick make an iteration's energy 10 % more or less; the mean over many is the truth."""
    rng = random.Random(seed)
    saving = begun()
    for begin in range(0, 3000, 100):
        for i in range(97):
            saving.record_planned(begin + i, TIME_S, rng.gauss(PLANNED_J, 0.1 * PLANNED_J), plan=PLAN)
        for i in range(3):
            saving.record_full(begin + 97 + i, TIME_S, rng.gauss(ENERGY_J, 0.1 * ENERGY_J), period_s=PERIOD_S)
    assert saving.saved_j == pytest.approx(30 * 97 * 100, rel=0.3)


def test_energy_of_a_probe_that_was_counted_beside_it_is_not_lost() -> None:
    """Counters that tick count 4 J of each probe before it, and 3 J after it."""
    saving = begun()
    for begin in range(0, 15 * 28, 28):
        plan(saving, 16, number=begin)
        plan(saving, 1, energy_j=PLANNED_J + 4, number=begin + 16)
        probe(saving, begin + 17, energy_j=ENERGY_J - 7 / 3)
        plan(saving, 1, energy_j=PLANNED_J + 3, number=begin + 20)
        plan(saving, 7, number=begin + 21)
    assert saving.saved_j == pytest.approx(15 * 25 * (ENERGY_J - PLANNED_J), rel=0.004)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_is_counted(seed: int) -> None:
    """Probes and plans of any length, in states that change, some with no reading of the counter."""
    rng = random.Random(seed)
    for _ in range(30):
        saving, number = begun(), 0
        for _ in range(rng.randint(5, 40)):
            num, time_s = rng.choice([1, 2, 3, 8, 9, 20, 150]), rng.choice([TIME_S, TIME_S, 2.4, 0.4])
            if rng.random() < 0.5:
                energy_j = rng.choice([PLANNED_J, 950.0, ENERGY_J, None])
                plan(saving, num, time_s, energy_j, number, plan=rng.choice([PLAN, PLAN, PLAN, WAITING]))
            else:
                probe(saving, number, time_s, rng.choice([ENERGY_J, 1100.0, 1200.0]), num)
            number += num + rng.choice([0, 0, 0, 5])
            assert math.isfinite(saving.saved_j)
            assert saving.doubt_j >= 0


def test_a_state_that_comes_back_is_known() -> None:
    saving = begun()
    probe(saving, 10, 2.4, 1100.0)
    probe(saving, 20, TIME_S, 1001.0)
    saving.end_window()
    assert saving.full is not None
    assert (saving.full.time_s, saving.full.num_iterations) == (TIME_S, 8)
    probe(saving, 30, 2.4, 1101.0)
    saving.end_window()
    assert (saving.full.time_s, saving.full.num_iterations) == (2.4, 6)


def test_a_window_that_goes_on_for_long_shows_what_full_clocks_take_now() -> None:
    """As where the plan is full clocks itself, so that no iteration under a plan ends it."""
    saving = begun()
    before = saving.full
    probe(saving, 1, time_s=1.6, num=7)
    assert saving.full_now is before
    probe(saving, 8, time_s=1.6, num=1)
    assert saving.full is before
    assert saving.full_now is not None
    assert saving.full_now.time_s == pytest.approx(1.6)
    alike = begun()
    probe(alike, 1, num=40)
    assert alike.full_now is alike.full


def test_what_lies_long_behind_is_not_counted_again() -> None:
    """Full clocks drift by 0.2 % a window; a state that is known well does not take a day of them along."""
    saving = begun()
    probe(saving, 0, num=200)
    plan(saving, 1000, number=1000)
    for number in range(4000, 5000, 100):
        probe(saving, number, energy_j=1002.0)
    saving.end_window()
    assert saving.full is not None
    assert saving.full.energy_j > 1000.02
    assert saving.saved_j == pytest.approx(1000 * 100, abs=1)


def test_many_plans_are_kept_as_a_sum() -> None:
    saving = begun()
    for number in range(200):
        saving.record_planned(number, TIME_S, PLANNED_J, plan=Followed(key=str(number), stretch=1.0))
    assert saving.saved_j == pytest.approx(200 * 100)
    assert saving.counted_j > 0


ITERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("full", "planned", "waiting", "other")),
        st.floats(1e-6, 1e4),
        st.one_of(st.none(), st.just(0.0), st.floats(0.0, 1e9)),
    ),
    max_size=60,
)


@given(ITERATIONS)
def test_no_readings_are_too_strange(iterations: list[tuple[str, float, float | None]]) -> None:
    """Short iterations, of which a counter that ticks sees nothing for a while, among them."""
    saving = Saving()
    for number, (kind, time_s, energy_j) in enumerate(iterations):
        if kind == "full":
            saving.record_full(number, time_s, energy_j, period_s=PERIOD_S)
        elif kind == "other":
            saving.end_window()
        else:
            saving.record_planned(number, time_s, energy_j, plan=PLAN if kind == "planned" else WAITING)
    assert math.isfinite(saving.saved_j)
    assert 0 <= saving.doubt_j < math.inf


def test_a_counter_that_has_not_ticked_is_no_change() -> None:
    saving = begun()
    plan(saving, 4)
    plan(saving, 4, energy_j=0.0)
    probe(saving, 8, energy_j=1200.0)
    saving.end_window()
    assert math.isfinite(saving.saved_j)


def test_an_iteration_is_of_the_level_that_it_is_nearest_to() -> None:
    """Pipelines wait for a straggler that is over for an iteration, which looks much like those before."""
    saving = begun()
    probe(saving, 0, 1.9, 950.0)
    saving.end_window()
    plan(saving, 4, number=100, plan=WAITING)
    plan(saving, 1, 1.97, 885.0, number=104, plan=WAITING)
    plan(saving, 4, 1.989, 896.0, number=105, plan=WAITING)
    assert saving.saved_j == pytest.approx(4 * (1000 - 900) + (950 - 885) + 4 * (1000 - 896), rel=0.01)


def test_a_newest_level_that_is_as_near_as_others_goes_on() -> None:
    """Plans hide that a state has changed: what follows lies in the one that was shown last."""
    slow = Followed(key="slow", stretch=1.2, rate_j=95.0)
    saving = begun()
    plan(saving, 20, 2.4, 800.0, number=0, plan=slow)
    probe(saving, 20)
    plan(saving, 8, 2.4, 800.0, number=23, plan=slow)
    probe(saving, 31, TIME_S, 900.0)
    plan(saving, 8, 2.4, 800.0, number=34, plan=slow)
    before_j = saving.saved_j
    plan(saving, 10, 2.401, 800.4, number=42, plan=slow)
    assert saving.saved_j - before_j == pytest.approx(10 * 100, abs=15)


def test_pipelines_that_wait_as_long_as_planned_tell_nothing_of_full_clocks() -> None:
    """A planner that has started again knows the baseline of a job that was well; a straggler makes others wait now."""
    waiting = replace(WAITING, time_s=2.5)
    saving = begun()
    plan(saving, 4, 2.5, 950.0, plan=waiting)
    assert saving.saved_j == pytest.approx(4 * 190)
    assert saving.doubt_j >= 4 * 190
    assert saving.wants_window()


def test_a_window_is_wanted_where_pipelines_wait_in_a_state_that_was_guessed_before() -> None:
    """Heat: iterations took longer under the plan before, so that what they save was a guess; the profile says more."""
    saving = begun()
    probe(saving, 0)
    plan(saving, 8, number=3)
    plan(saving, 1, 2.4, 850.0, number=11)
    plan(saving, 3, 2.4, 840.0, number=12, plan=WAITING)
    assert not saving.wants_window()
    plan(saving, 1, 2.4, 840.0, number=15, plan=WAITING)
    assert saving.wants_window()


def test_few_iterations_at_full_clocks_may_be_longer_than_others_by_chance() -> None:
    """Each one's time and energy is 1 percent off, as a standard deviation."""
    num_within = 0
    for seed in range(40):
        noise = random.Random(seed)
        factors = [noise.gauss(1, 0.01) for _ in range(61)]
        saving = Saving()
        for i, factor in enumerate(factors[:6]):
            saving.record_full(i, TIME_S * factor, ENERGY_J * factor, period_s=1e-6)
        for i, factor in enumerate(factors[6:], start=6):
            saving.record_planned(i, TIME_S * factor, PLANNED_J * factor, plan=PLAN)
        true_j = sum((ENERGY_J - PLANNED_J) * factor for factor in factors[6:])
        num_within += abs(saving.saved_j - true_j) <= saving.doubt_j
    assert num_within >= 34


@pytest.mark.parametrize(
    ("energy_j", "period_s", "goes_on"),
    [
        pytest.param(1008.0, 0.01, True, id="noise"),
        pytest.param(975.0, 0.01, False, id="a GPU that others wait for hides that another one recovers"),
        pytest.param(975.0, 0.1, True, id="a counter that ticks rarely"),
    ],
)
def test_a_window_ends_where_iterations_of_the_same_time_draw_another_energy(
    energy_j: float, period_s: float, *, goes_on: bool
) -> None:
    window = FullWindow(first=0, last=4, time_s=5 * 2.0, energy_j=5 * 1000.0, period_s=period_s, is_settled=True)
    assert window.goes_on(5, 2.0, energy_j, 0.001) == goes_on


def test_what_the_window_before_a_short_plan_has_borrowed_is_given_back_where_the_job_ends() -> None:
    """The counter is read where clocks change; at the end of each iteration but that a line between readings tells."""
    saving = begun()
    probe(saving, 0, num=9)
    probe(saving, 9, energy_j=1030.0, num=1)
    plan(saving, 1, energy_j=PLANNED_J - 30, number=10)
    plan(saving, 2, energy_j=None, number=11)
    assert saving.saved_j == pytest.approx(3 * 100, rel=0.05)


def restarted(saving: Saving) -> Saving:
    """The count of a planner that reads what another one has stored, over a baseline of its own."""
    fact = SavingCounted(saved_j=saving.saved_j, doubt_j=saving.doubt_j, kept=saving.keep())
    read = fact_of_row(row_of_fact(fact))
    assert isinstance(read, SavingCounted)
    assert read == fact
    assert read.kept is not None
    counts_on = begun()
    counts_on.restore(read.kept)
    return counts_on


@given(seed=st.integers(0, 10_000))
def test_a_planner_that_restarts_at_any_moment_counts_as_one_that_does_not(seed: int) -> None:
    """Plans, caps that come and go, and windows at full clocks, between any two of which the planner may restart."""
    rng = random.Random(seed)
    steady, stopped = Saving(), Saving()
    if rng.random() < 0.5:
        steady, stopped = begun(), begun()
    number = 0
    for _ in range(rng.randint(1, 25)):
        share = rng.choice([1.0, 1.0, 1.05, 1.2])  # of the time at full clocks
        plan = rng.choice([None, PLAN, WAITING, SLOWER, Followed(key="set")])
        for _ in range(rng.randint(1, 12)):
            number += rng.choice([1] * 9 + [2, 9])
            time_s = TIME_S * share * (plan.stretch or 1.1 if plan else 1.0) * rng.gauss(1, 0.002)
            energy_j: float | None = (PLANNED_J if plan else ENERGY_J) * rng.gauss(1, 0.004)
            energy_j = None if rng.random() < 0.02 else energy_j
            if rng.random() < 0.15:
                stopped = restarted(stopped)
            for saving in (steady, stopped):
                if plan is None:
                    saving.record_full(number, time_s, energy_j, period_s=PERIOD_S)
                else:
                    saving.record_planned(number, time_s, energy_j, plan=plan)
            assert stopped.saved_j == pytest.approx(steady.saved_j, abs=1e-6)
            assert stopped.doubt_j == pytest.approx(steady.doubt_j, abs=1e-6)
            assert stopped.wants_window() == steady.wants_window()


def test_what_a_planner_guessed_before_it_was_restarted_is_counted_anew_by_a_window() -> None:
    saving = Saving()
    plan(saving, 10, number=0)
    assert saving.saved_j == 10 * 95
    saving = restarted(saving)
    probe(saving, 10, energy_j=1100.0)
    plan(saving, 8, number=13)
    assert saving.saved_j == pytest.approx(18 * 200, rel=0.02)


def test_what_is_kept_stays_as_it_is_while_the_count_goes_on() -> None:
    saving = begun()
    plan(saving, 5)
    probe(saving, 1005)
    kept, before = saving.keep(), saving.saved_j
    plan(saving, 40, number=1008, energy_j=800.0)
    counts_on = Saving()
    counts_on.restore(kept)
    assert counts_on.saved_j == before
