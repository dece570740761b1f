"""The count of joules saved at its limits: which iterations a window is beside, and what is counted behind it.

The counters of most windows here tick so often that nothing is rounded off beside them.
"""

import random
from dataclasses import replace

import pytest
from test_planner_saving import ENERGY_J, PLAN, PLANNED_J, TIME_S, WAITING, begun

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.saving.kept import KeptSaving
from perseus_dist.planner.job.saving.saving import Saving

DEADLINE = Followed(key="deadline", rate_j=60.0)
OTHER = Followed(key="other", rate_j=40.0)
SLOW = Followed(key="slow", stretch=1.2, rate_j=95.0)


class Iterations:
    """One after the other, under plans and at full clocks, counted as a test says."""

    def __init__(self, saving: Saving | None = None, *, period_s: float = 1e-6) -> None:
        self.saving = begun() if saving is None else saving
        self.number = 0
        self._period_s = period_s

    def plan(
        self, num: int, time_s: float = TIME_S, energy_j: float | None = PLANNED_J, *, plan: Followed = PLAN
    ) -> "Iterations":
        """The next ones, under a plan."""
        for _ in range(num):
            self.saving.record_planned(self.number, time_s, energy_j, plan=plan)
            self.number += 1
        return self

    def full(self, num: int = 3, time_s: float = TIME_S, energy_j: float = ENERGY_J) -> "Iterations":
        """The next ones, at full clocks."""
        for _ in range(num):
            self.saving.record_full(self.number, time_s, energy_j, period_s=self._period_s)
            self.number += 1
        return self

    def skip(self, num: int) -> "Iterations":
        """So many are not reported; less than 0 where training goes back."""
        self.number += num
        return self

    def end(self) -> "Iterations":
        """No more is known of the window."""
        self.saving.end_window()
        return self

    @property
    def kept(self) -> KeptSaving:
        """What a planner that goes on from here would know."""
        return self.saving.keep()

    @property
    def saved_j(self) -> float:
        """[J] so far."""
        return self.saving.saved_j


def test_nothing_was_saved_and_nothing_is_in_doubt_before_the_first_iteration() -> None:
    assert (Saving().saved_j, Saving().doubt_j, Saving().is_known) == (0.0, 0.0, False)
    assert (begun().saved_j, begun().doubt_j, begun().is_known) == (0.0, 0.0, True)


@pytest.mark.parametrize(("num", "time_s"), [(7, None), (8, TIME_S)])
def test_without_a_baseline_the_eighth_iteration_of_a_window_shows_what_full_clocks_take_now(
    num: int, time_s: float | None
) -> None:
    full = Iterations(Saving()).full(num).saving.full_now
    assert (full.time_s if full is not None else None) == time_s


@pytest.mark.parametrize(("num", "is_wanted"), [(3, False), (4, True)])
def test_a_window_is_wanted_after_four_iterations_of_which_nothing_tells_until_one_begins(
    num: int, *, is_wanted: bool
) -> None:
    iterations = Iterations().plan(num, 2.4, plan=DEADLINE)
    assert iterations.saving.wants_window() == is_wanted
    assert not iterations.full(1).saving.wants_window()
    num_wanted = 8 if is_wanted else 4  # one that came before it was wanted makes the next no rarer
    assert iterations.full(2).end().kept.num_wanted == num_wanted
    assert not iterations.plan(num_wanted - 1, 2.6, plan=OTHER).saving.wants_window()
    assert iterations.plan(1, 2.6, plan=OTHER).saving.wants_window()


@pytest.mark.parametrize(("num_before", "num_after", "num_wanted"), [(0, 63, 8), (0, 64, 4), (63, 63, 8), (63, 64, 4)])
def test_windows_are_wanted_as_soon_as_at_first_after_64_iterations_in_a_row_of_which_something_tells(
    num_before: int, num_after: int, num_wanted: int
) -> None:
    iterations = Iterations().plan(4, 2.4, plan=DEADLINE).full().end()
    iterations.plan(num_before).plan(1, 2.6, plan=OTHER).plan(num_after)
    assert iterations.kept.num_wanted == num_wanted
    assert iterations.kept.num_unmeasured == (1 if num_wanted == 8 else 0)


@pytest.mark.parametrize(("skipped", "is_beside"), [(-1, False), (0, True), (3, True), (4, False)])
def test_a_window_shows_what_was_followed_within_four_iterations_before_it(skipped: int, *, is_beside: bool) -> None:
    iterations = Iterations(Saving()).plan(10).skip(skipped).full().plan(1, 2.2, 850.0, plan=DEADLINE).end()
    assert iterations.saved_j == pytest.approx(10 * (100 if is_beside else PLAN.rate_j) + 150)


@pytest.mark.parametrize(("stretch", "is_beside"), [(1.0, False), (1.4, True), (0.0, True)])
def test_a_window_in_whose_first_iteration_the_machines_have_changed_shows_nothing_of_what_was_before(
    stretch: float, *, is_beside: bool
) -> None:
    plan = replace(PLAN, stretch=stretch)
    iterations = Iterations(Saving()).plan(10, plan=plan).full(1, 2.8).full().plan(1, 2.2, 850.0, plan=DEADLINE).end()
    assert iterations.saved_j == pytest.approx(10 * (100 if is_beside else PLAN.rate_j) + 150)


@pytest.mark.parametrize(("skipped", "num_iterations"), [(-1, 7), (0, 1), (1, 7)])
def test_one_iteration_at_full_clocks_is_a_window_right_behind_another_one_alone(
    skipped: int, num_iterations: int
) -> None:
    iterations = Iterations().full(2).skip(skipped).full(1, 2.8, 1400.0).end()
    assert iterations.saving.full is not None
    assert iterations.saving.full.num_iterations == num_iterations


@pytest.mark.parametrize(("skipped", "num_before"), [(0, 8), (1, 0)])
def test_energies_beside_a_window_are_those_right_before_it_the_nearest_first(skipped: int, num_before: int) -> None:
    iterations = Iterations()
    for energy_j in range(900, 910):
        iterations.plan(1, energy_j=energy_j)
    assert iterations.skip(skipped).full(1).kept.before_j == tuple(range(909, 901, -1))[:num_before]


def test_energies_in_a_row_are_of_one_level_without_a_gap() -> None:
    iterations = Iterations().plan(3)
    assert len(iterations.kept.row_j) == 3
    assert len(iterations.skip(1).plan(1).kept.row_j) == 1
    assert len(iterations.plan(1).kept.row_j) == 2
    assert len(iterations.plan(1, plan=OTHER).kept.row_j) == 1
    assert len(iterations.plan(1).kept.row_j) == 1


def test_an_iteration_of_unknown_energy_saves_what_others_like_it_do_or_the_latest_under_its_plan() -> None:
    iterations = Iterations().plan(2).plan(1, energy_j=None)
    assert (iterations.saved_j, iterations.saving.counted_doubt_j) == (300.0, 0.0)
    iterations.plan(1, 3.0, None)
    assert (iterations.saved_j, iterations.saving.counted_doubt_j) == (400.0, 100.0)
    iterations.plan(1, 3.0, None, plan=OTHER)
    assert (iterations.saved_j, iterations.saving.counted_doubt_j) == (440.0, 140.0), "by the profile"
    iterations = Iterations(Saving()).plan(1, energy_j=None)
    assert (iterations.saved_j, iterations.saving.doubt_j) == (0.0, 0.0), "nothing is known of full clocks"


def test_an_iteration_of_unknown_energy_ends_the_window_before_it() -> None:
    iterations = Iterations().full().plan(1, energy_j=None)
    assert iterations.kept.window is None
    assert iterations.saved_j == PLAN.rate_j


def test_what_a_window_has_borrowed_is_given_back_by_all_iterations_behind_it() -> None:
    iterations = Iterations(period_s=0.1).full(9).full(1, energy_j=ENERGY_J + 30)
    iterations.plan(1, energy_j=PLANNED_J - 30).plan(1).plan(1, energy_j=None)
    assert iterations.saved_j == pytest.approx(3 * 100, abs=12)


@pytest.mark.parametrize(("num_plans", "counted_j"), [(48, 0.0), (49, 150.0), (50, 250.0)])
def test_of_48_plans_it_is_counted_anew_what_they_save(num_plans: int, counted_j: float) -> None:
    iterations = Iterations()
    for key in range(num_plans):
        iterations.plan(1, energy_j=PLANNED_J if key else PLANNED_J - 50, plan=Followed(key=str(key), stretch=1.0))
    assert iterations.saving.counted_j == counted_j
    assert (iterations.saving.counted_doubt_j > 0) == (counted_j > 0)
    assert iterations.saved_j == num_plans * 100 + 50


def test_the_plan_that_was_followed_longest_ago_is_the_first_to_be_a_sum() -> None:
    iterations = Iterations()
    plans = [Followed(key=str(key), stretch=1.0) for key in range(49)]
    for plan in plans[:48]:
        iterations.plan(1, energy_j=PLANNED_J - 50 if plan is plans[1] else PLANNED_J, plan=plan)
    iterations.plan(1, plan=plans[0]).plan(1, plan=plans[48])
    assert iterations.saving.counted_j == 150.0


@pytest.mark.parametrize(("skipped", "num_after"), [(-1, None), (0, 1), (3, 1), (4, None)])
def test_a_window_is_beside_what_is_followed_within_four_iterations(skipped: int, num_after: int | None) -> None:
    kept = Iterations().full().skip(skipped).plan(1).kept
    assert (None if kept.window is None else len(kept.after_j)) == num_after


def test_behind_a_window_iterations_of_one_level_in_a_row_are_beside_it_up_to_eight() -> None:
    assert len(Iterations().full().plan(7).kept.after_j) == 7
    assert Iterations().full().plan(8).kept.window is None
    assert Iterations().full().plan(1).skip(1).plan(1).kept.window is None
    assert Iterations().full().plan(1).plan(1, 2.4, 1000.0).kept.window is None
    assert Iterations().full().plan(1).plan(1, plan=OTHER).kept.window is None


def test_the_first_iteration_behind_a_window_may_be_on_its_way_to_what_was_before() -> None:
    before = Iterations().plan(4, 2.4, plan=SLOW).full().plan(1, 2.2, 950.0, plan=SLOW)
    assert before.kept.after_j == (950.0,)
    assert before.plan(1, 2.4, plan=SLOW).kept.after_j == (PLANNED_J,)
    assert len(before.plan(1, 2.4, plan=SLOW).kept.after_j) == 2
    two = Iterations().plan(4, 2.4, plan=SLOW).full().plan(2, 2.2, 950.0, plan=SLOW)
    assert two.plan(1, 2.4, plan=SLOW).kept.window is None, "two are a level of their own"
    as_before = Iterations().plan(4, 2.4, plan=SLOW).full().plan(1, 2.4, plan=SLOW)
    assert as_before.plan(1, 2.4, plan=SLOW).kept.after_j == (PLANNED_J,) * 2


def test_a_window_with_nothing_known_behind_it_shows_what_was_before() -> None:
    iterations = Iterations(Saving()).plan(10).full().end()
    assert iterations.saved_j == pytest.approx(10 * 100, abs=1)
    assert iterations.saving.full is not None


@pytest.mark.parametrize(
    ("plan", "saved_j", "doubt_j"),
    [(PLAN, 10 * 100 + 8 * 95, 0.0), (DEADLINE, 5 * 100 + 5 * 200 + 8 * 110, 500.0)],
    ids=["the same plan", "another plan"],
)
def test_a_change_that_a_window_shows_was_in_the_middle_of_what_was_followed_if_it_ends_there(
    plan: Followed, saved_j: float, doubt_j: float
) -> None:
    """Its energy is another one; iterations behind it are longer than the plan makes them."""
    iterations = Iterations().plan(10).full(energy_j=1100.0).plan(8, 2.2, 990.0, plan=plan)
    assert iterations.saved_j == pytest.approx(saved_j, abs=2)
    assert iterations.saving.counted_doubt_j == pytest.approx(doubt_j)


@pytest.mark.parametrize("num_behind", [0, 8])
def test_a_change_of_energy_alone_was_in_the_middle_since_a_window_has_shown_another_one(num_behind: int) -> None:
    """No time tells when it came: neither that of the plan before the window nor that of another one behind it."""
    iterations = Iterations().plan(10).full().plan(8).full(energy_j=1100.0)
    iterations.plan(num_behind, 2.2, 990.0, plan=DEADLINE).end()
    assert iterations.saved_j == pytest.approx(14 * 100 + 4 * 200 + num_behind * 110, abs=2)
    assert iterations.saving.counted_doubt_j == pytest.approx(4 * 100, abs=1)


def test_what_a_window_has_shown_a_longer_one_of_another_plan_does_not_change() -> None:
    iterations = Iterations().plan(10).full().plan(8).full(3, 2.2, 1100.0).plan(8, 2.2, 990.0, plan=DEADLINE)
    assert iterations.saved_j == pytest.approx(18 * 100 + 8 * 110, abs=2)


@pytest.mark.parametrize("has_plans_changed", [False, True])
def test_what_is_counted_is_within_its_doubt_where_full_clocks_change_at_most_once_between_two_windows(
    *, has_plans_changed: bool
) -> None:
    """Histories of up to eight stretches under plans that are drawn, each before a window.

    Full clocks draw 0, 5 or 10 % more and take as long, and plans draw as much more, or no more.
    """
    plans = [(PLAN, 1.0, 0.9), (OTHER, 1.0, 0.85), (SLOW, 1.2, 0.8)]
    for seed in range(200):
        rng = random.Random(seed)
        iterations, energy_j, expected_j = Iterations(), ENERGY_J, 0.0
        for _ in range(rng.randint(1, 8)):
            followed, stretch, share = rng.choice(plans)
            num = rng.randint(1, 40)
            changes_at = rng.randrange(2 * num)
            for i in range(num):
                energy_j = rng.choice([1000.0, 1050.0, 1100.0]) if i == changes_at else energy_j
                planned_j = share * (energy_j if has_plans_changed else ENERGY_J)
                iterations.plan(1, stretch * TIME_S, planned_j, plan=followed)
                expected_j += energy_j - planned_j
            iterations.full(energy_j=energy_j)
        off_j = abs(iterations.end().saved_j - expected_j)
        assert off_j <= iterations.saving.doubt_j + 0.01 * abs(expected_j) + 50, f"history {seed}"


def test_iterations_on_both_sides_of_a_window_lie_in_its_state_whatever_they_take() -> None:
    """The plan is wrong: it makes no iteration longer, it says; on one side alone they tell nothing."""
    both = Iterations().plan(10, 2.4, 950.0).full().plan(8, 2.4, 950.0)
    assert both.saved_j == pytest.approx(18 * 50)
    behind = Iterations().full().plan(8, 2.4, 950.0)
    assert behind.saved_j == pytest.approx(8 * PLAN.rate_j)
    waiting = Iterations().full().plan(8, 2.4, 950.0, plan=WAITING)
    assert waiting.saved_j == pytest.approx(8 * 50), "for what is over"


def test_iterations_that_are_shorter_than_a_window_before_them_lie_in_the_state_of_before() -> None:
    iterations = Iterations().plan(8).full(time_s=2.8, energy_j=1300.0).plan(8)
    assert iterations.saved_j == pytest.approx(16 * 100)
    assert iterations.saving.full is not None
    assert iterations.saving.full.time_s == TIME_S


@pytest.mark.parametrize(("num_iterations", "counted_j"), [(127, 0.0), (128, 500.0)])
def test_what_was_counted_by_128_iterations_at_full_clocks_is_not_counted_again(
    num_iterations: int, counted_j: float
) -> None:
    """But for half of the newest ones, which may lie in the state that the window shows."""
    saving = Saving()
    saving.begin(FullClocks(time_s=TIME_S, energy_j=ENERGY_J, num_iterations=num_iterations, weight=25.0))
    iterations = Iterations(saving).plan(10).full(energy_j=1001.0).end()
    assert saving.counted_j == counted_j
    assert (iterations.saved_j > 1002) == (not counted_j)


@pytest.mark.parametrize("num_iterations", [127, 128, 10_000])
def test_a_state_that_is_known_well_ends_with_a_window_that_shows_another(num_iterations: int) -> None:
    """Full clocks draw 1,000 J, and 1,100 J from within the first ten iterations on, or as they end."""
    saving = Saving()
    saving.begin(FullClocks(time_s=TIME_S, energy_j=ENERGY_J, num_iterations=num_iterations, weight=25.0))
    iterations = Iterations(saving).plan(10).full(energy_j=1100.0).plan(8).end()
    assert iterations.saved_j == pytest.approx(5 * 100 + 13 * 200, abs=1)
    assert saving.doubt_j >= 500
    iterations.full(energy_j=1000.0).plan(8)
    assert iterations.saved_j == pytest.approx(5 * 100 + 9 * 200 + 12 * 100, abs=1)


@pytest.mark.parametrize(("num_states", "num_iterations"), [(7, 8), (8, 3)])
def test_of_the_states_the_newest_eight_are_known(num_states: int, num_iterations: int) -> None:
    iterations = Iterations()
    for place in range(num_states):
        iterations.full(time_s=3.0 + place, energy_j=1500.0 + place).end()
    iterations.full().end()
    assert iterations.saving.full is not None
    assert iterations.saving.full.num_iterations == num_iterations
    assert iterations.kept.num_states == 8


def test_pipelines_that_wait_as_long_as_before_lie_in_the_same_state_whatever_they_draw() -> None:
    iterations = Iterations().full(time_s=2.4, energy_j=1100.0).plan(4, 2.4, 900.0, plan=WAITING).end()
    before_j = iterations.saved_j
    assert iterations.plan(1, 2.4, 700.0, plan=WAITING).saved_j - before_j == pytest.approx(400)
    assert iterations.plan(1, 2.2, 700.0, plan=WAITING).saved_j - before_j == pytest.approx(400 + 300), "it is over"


@pytest.mark.parametrize(("stretch", "doubt_j"), [(1.0, 100.0), (1.2, 400.0 + 4 * 90)])
def test_a_quarter_of_what_others_saved_is_in_doubt_where_longer_iterations_are_longer_at_full_clocks(
    stretch: float, doubt_j: float
) -> None:
    """And else all of it, and whether full clocks have become longer at all."""
    plan = replace(PLAN, stretch=stretch)
    iterations = Iterations().plan(8, stretch * TIME_S, plan=plan).full().plan(8, stretch * TIME_S, plan=plan)
    before_j, known_j = iterations.saved_j, iterations.saving.doubt_j
    iterations.plan(4, 2.8, 990.0, plan=plan)
    assert iterations.saved_j - before_j == pytest.approx(4 * 100)
    assert iterations.saving.doubt_j - known_j == pytest.approx(doubt_j, rel=0.01)
