"""Windows at full clocks at their limits: what belongs to one, which states are one, and how sure each is.

Where a limit is a share of noise, that is a power of two, so that iterations can lie exactly at it.
"""

import math
from dataclasses import replace

import pytest

from perseus_dist.planner.job.saving.full_clocks import Beside, FullClocks, FullWindow

SIXTEENTH = 0.0625
NOISE = SIXTEENTH / 4  # of which four deviations may be noise
A_LITTLE = 1e-6
FULL = FullClocks(time_s=2.0, energy_j=1000.0, num_iterations=2, weight=2.0)
WINDOW = FullWindow(
    first=10, last=12, time_s=6.0, energy_j=3000.0, period_s=1e-6, is_settled=True, last_s=2, last_j=1e3
)
ONE = FullWindow(first=10, last=10, time_s=2.0, energy_j=1000.0, period_s=1e-6, is_settled=False)


def test_a_state_is_in_doubt_by_four_deviations_of_what_counters_leave() -> None:
    assert replace(FULL, weight=4.0, meter_s=0.1).doubt_j == pytest.approx(4 * 0.1 / 2.0 / 2 * 1000)
    assert replace(FULL, weight=0.0, meter_s=0.1).doubt_j == 0.0, "a guess has a doubt of its own"


def are_alike(one: FullClocks, other: FullClocks, *, time_noise: float = 0.0, energy_noise: float = 0.0) -> bool:
    """Whichever is looked at first."""
    is_like = one.is_like(other, time_noise=time_noise, energy_noise=energy_noise)
    assert other.is_like(one, time_noise=time_noise, energy_noise=energy_noise) == is_like
    return is_like


def test_a_guess_is_like_no_other_state() -> None:
    assert are_alike(FULL, FULL)
    assert not are_alike(FULL, replace(FULL, weight=0.0))
    assert not are_alike(replace(FULL, weight=0.0), replace(FULL, weight=0.0))


@pytest.mark.parametrize(
    ("longer", "more", "is_like"),
    [(0.0049, 0.0, True), (0.0051, 0.0, False), (0.0, 0.0029, True), (0.0, 0.0031, False), (0.0049, 0.0031, False)],
)
def test_states_of_steady_iterations_are_alike_within_half_a_percent_of_time_and_less_of_energy(
    longer: float, more: float, *, is_like: bool
) -> None:
    assert are_alike(FULL, replace(FULL, time_s=2 * (1 + longer), energy_j=1000 * (1 + more))) == is_like


@pytest.mark.parametrize(("beyond", "is_like"), [(0.0, True), (A_LITTLE, False)])
def test_states_of_noisy_iterations_are_alike_within_four_deviations(beyond: float, *, is_like: bool) -> None:
    longer = replace(FULL, time_s=2 * (1 + SIXTEENTH + beyond))
    assert longer.is_like(FULL, time_noise=NOISE, energy_noise=0.0) == is_like
    more = replace(FULL, energy_j=1000 * (1 + SIXTEENTH + beyond))
    assert more.is_like(FULL, time_noise=0.0, energy_noise=NOISE) == is_like
    ticked = replace(more, meter_s=2 * SIXTEENTH / 2)
    for one, other in ((ticked, FULL), (more, replace(FULL, meter_s=2 * SIXTEENTH / 2))):
        assert one.is_like(other, time_noise=0.0, energy_noise=0.0) == is_like, "two deviations of what counters leave"
    both = replace(more, energy_j=1000 * (1 + 2 * SIXTEENTH + 2 * beyond), meter_s=SIXTEENTH)
    assert both.is_like(FULL, time_noise=0.0, energy_noise=NOISE) == is_like


@pytest.mark.parametrize(("num", "num_other"), [(4, 1), (1, 4)])
@pytest.mark.parametrize(("share", "is_like"), [(0.99, True), (1.01, False)])
def test_states_are_known_the_better_the_more_there_is_of_either(
    num: int, num_other: int, share: float, *, is_like: bool
) -> None:
    off = share * 4 * 0.01 * math.sqrt(1 / num + 1 / num_other)
    one, other = (replace(FULL, num_iterations=count, weight=count) for count in (num, num_other))
    assert one.is_like(replace(other, time_s=2 / (1 + off)), time_noise=0.01, energy_noise=0.0) == is_like
    assert one.is_like(replace(other, energy_j=1000 / (1 + off)), time_noise=0.0, energy_noise=0.01) == is_like


def test_states_that_are_one_are_its_mean_by_weight_up_to_what_would_hide_the_next_change() -> None:
    state = replace(FULL, weight=1.0, meter_s=0.1)
    state.pool(FullClocks(time_s=4.0, energy_j=2000.0, num_iterations=5, weight=3.0, meter_s=0.2))
    assert state == FullClocks(time_s=3.5, energy_j=1750.0, num_iterations=7, weight=4.0, meter_s=0.2)
    state.pool(replace(state, weight=1020.0, meter_s=0.0))
    assert (state.weight, state.meter_s) == (1024.0, 0.2)
    state.pool(replace(state, weight=1.0))
    assert state.weight == 1024.0


def beside(*energies_j: float, num_usual: int = 16) -> Beside:
    """At 450 W, 50 W below the window's, which is 30 J in a period of 0.6 s."""
    return Beside(energies_j=list(energies_j), usual_time_s=2.0, usual_j=900.0, num_usual=num_usual)


@pytest.mark.parametrize(
    ("one", "excess_j", "doubt"),
    [
        pytest.param(beside(912.0), 5.0, 1.0, id="one iteration: a sixth of a period at the step"),
        pytest.param(beside(912.0, 906.0, num_usual=15), 5.0, 1.0, id="too few others"),
        pytest.param(beside(912.0, 906.0), (12 + 18) / 2, 1 / 2 + 2 * (1.5 / 16) ** 2, id="a line by enough of them"),
        pytest.param(beside(912.0, 906.0, 900.0), 16.0, 1 / 3 + 2 * (2 / 16) ** 2, id="and by more"),
        pytest.param(beside(1000.0, 900.0), 30.0, 1 / 2 + 2 * (1.5 / 16) ** 2, id="a period at most"),
        pytest.param(beside(800.0, 900.0), -30.0, 1 / 2 + 2 * (1.5 / 16) ** 2, id="nor less"),
        pytest.param(beside(*[900.0] * 24), 0.0, 1.0, id="in doubt as one edge read once at most"),
    ],
)
def test_what_was_counted_beside_a_window_of_its_energy(one: Beside, excess_j: float, doubt: float) -> None:
    assert one.excess_j(500.0, 0.6) == pytest.approx((excess_j, doubt))


@pytest.mark.parametrize(("energies_j", "excess_j"), [((912.0,), -5.0), ((1000.0, 900.0), 30.0), ((800.0,) * 2, -30.0)])
def test_a_window_that_draws_less_than_the_plan_beside_it_is_rounded_off_likewise(
    energies_j: tuple[float, ...], excess_j: float
) -> None:
    assert beside(*energies_j).excess_j(400.0, 0.6)[0] == pytest.approx(excess_j)


def test_a_window_shows_its_mean_with_what_was_counted_beside_it() -> None:
    window = replace(WINDOW, period_s=0.6)
    assert window.shown([]) == FullClocks(time_s=2.0, energy_j=1000.0, num_iterations=3, weight=9.0, meter_s=0.2 * 0.6)
    short, line = beside(912.0), beside(912.0, 906.0)
    doubt = 1 / 2 + 2 * (1.5 / 16) ** 2
    for sides, excess_j, doubts in (([short], 5, 2.0), ([line], 15, 1 + doubt), ([short, line], 20, 1 + doubt)):
        shown = window.shown(sides)
        assert shown.energy_j == pytest.approx(1000 + excess_j / 3)
        assert shown.weight == pytest.approx(2 * 3**2 / doubts), "by the square of its length"


@pytest.mark.parametrize(
    ("window", "says_something"),
    [
        pytest.param(replace(ONE, period_s=1.0, time_s=40.0, is_settled=True), True, id="one that is long enough"),
        pytest.param(replace(ONE, period_s=1.0, time_s=39.99, is_settled=True), False, id="one lost in ticks"),
        pytest.param(replace(ONE, period_s=1.0, time_s=40.0), False, id="one whose clocks were on their way"),
        pytest.param(replace(ONE, period_s=1.0, last=11), True, id="two"),
    ],
)
def test_one_iteration_says_something_where_clocks_had_arrived_and_counters_tick_often(
    window: FullWindow, *, says_something: bool
) -> None:
    assert window.says_something == says_something


@pytest.mark.parametrize(
    ("window", "next_s", "stretch", "is_on_the_way"),
    [
        (replace(ONE, time_s=2.04), 2.0, 1.0, True),
        (replace(ONE, time_s=2.04 + A_LITTLE), 2.0, 1.0, False),
        (replace(ONE, time_s=2.04), 2.0, 0.5, True),
        (replace(ONE, time_s=2.04 * 1.25), 2.0, 1.25, True),
        (replace(ONE, time_s=2.04 * 1.25 + A_LITTLE), 2.0, 1.25, False),
        (replace(ONE, time_s=9.0), 2.0, 0.0, True),
        (replace(ONE, time_s=2.0), 2.0, 1.25, False),
        (replace(ONE, time_s=2.04, is_settled=True), 2.0, 1.0, False),
        (replace(ONE, time_s=4.04, last=11), 3.98, 1.0, False),
    ],
)
def test_clocks_were_on_their_way_in_one_iteration_that_is_as_much_longer_as_the_plan_before_it_explains(
    window: FullWindow, next_s: float, stretch: float, *, is_on_the_way: bool
) -> None:
    assert window.is_on_the_way_to(next_s, stretch) == is_on_the_way


@pytest.mark.parametrize(("number", "goes_on"), [(12, False), (13, True), (14, False)])
def test_a_window_is_of_iterations_in_a_row(number: int, *, goes_on: bool) -> None:
    assert WINDOW.goes_on(number, 2.0, 1000.0, 0.0) == goes_on


TWO = replace(ONE, last=11, time_s=4.0, energy_j=2000.0, last_s=2.0, last_j=1000.0)


@pytest.mark.parametrize(
    ("window", "most", "noise"),
    [
        pytest.param(ONE, 0.02, 0.0, id="first, whose clocks may be on their way"),
        pytest.param(replace(ONE, is_settled=True), 0.005, 0.0, id="first, behind others"),
        pytest.param(TWO, 0.005, 0.0, id="second"),
        pytest.param(replace(TWO, is_settled=True), 0.005, 0.0, id="second, behind others"),
        pytest.param(replace(TWO, is_settled=True), SIXTEENTH, NOISE, id="noise"),
    ],
)
def test_iterations_of_a_window_take_as_long_as_each_other(window: FullWindow, most: float, noise: float) -> None:
    for share, goes_on in ((most - A_LITTLE, True), (most + A_LITTLE, False)):
        for time_s in (2 * (1 + share), 2 * (1 - share)):
            assert window.goes_on(window.last + 1, time_s, 1000.0, noise) == goes_on


def test_noise_of_exactly_four_deviations_ends_no_window() -> None:
    assert WINDOW.goes_on(13, 2 * (1 + SIXTEENTH), 1000.0, NOISE)
    assert WINDOW.goes_on(13, 2.0, 1000 * (1 + SIXTEENTH), NOISE)
    assert not WINDOW.goes_on(13, 2.0, 1000 * (1 + SIXTEENTH + A_LITTLE), NOISE)


def test_behind_a_first_iteration_on_the_way_the_last_one_counts_and_else_the_mean() -> None:
    on_the_way = replace(TWO, time_s=4.03)
    assert on_the_way.goes_on(12, 1.992, 1000.0, 0.0)
    assert not on_the_way.goes_on(12, 2.014, 1000.0, 0.0)
    noisy = replace(TWO, is_settled=True, time_s=4.0, last_s=2.02)
    assert noisy.goes_on(12, 1.995, 1000.0, 0.0)
    assert not noisy.goes_on(12, 2.012, 1000.0, 0.0)


@pytest.mark.parametrize(
    ("window", "most"),
    [(WINDOW, 0.015), (replace(WINDOW, period_s=SIXTEENTH), SIXTEENTH), (replace(WINDOW, period_s=0.25), 0.25)],
    ids=["lines between readings", "two readings, each a period off", "counters that tick rarely"],
)
def test_from_three_on_iterations_of_a_window_draw_as_much_as_each_other(window: FullWindow, most: float) -> None:
    for share, goes_on in ((most - A_LITTLE, True), (most + A_LITTLE, False)):
        for energy_j in (1000 * (1 + share), 1000 * (1 - share)):
            assert window.goes_on(13, 2.0, energy_j, 0.0) == goes_on
            assert replace(TWO, period_s=window.period_s).goes_on(12, 2.0, energy_j, 0.0)


def test_energies_exactly_as_far_off_as_two_readings_end_no_window() -> None:
    assert replace(WINDOW, period_s=SIXTEENTH).goes_on(13, 2.0, 1000 * (1 + SIXTEENTH), 0.0)


@pytest.mark.parametrize(("num_others", "borrowed_j"), [(4, 0.0), (5, 30.0), (6, 30.0)])
def test_the_last_iteration_has_borrowed_what_it_draws_more_than_five_others(
    num_others: int, borrowed_j: float
) -> None:
    window = replace(ONE)
    for _ in range(num_others - 1):
        window.add(2.0, 1000.0)
    window.add(2.5, 1030.0)
    assert (window.num_iterations, window.last) == (num_others + 1, 10 + num_others)
    assert (window.time_s, window.energy_j) == (2.0 * num_others + 2.5, 1000.0 * num_others + 1030)
    assert (window.last_s, window.last_j) == (2.5, 1030.0)
    assert window.borrowed_j == pytest.approx(borrowed_j)


def test_one_iteration_alone_has_borrowed_nothing() -> None:
    assert ONE.borrowed_j == 0.0
    assert replace(ONE, last=20).borrowed_j == 0.0, "its last one is not known"
