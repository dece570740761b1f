"""Iterations that look alike at their limits: what they save, in which state they may lie, and what is not known.

Full clocks take 2 s and draw 1000 J; a level saves 100 J of it. Limits that noise sets are a power of two.
"""

import math
from dataclasses import replace

import pytest

from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.saving.full_clocks import FullClocks
from perseus_dist.planner.job.saving.level import Level

SIXTEENTH = 0.0625
NOISE = SIXTEENTH / 4
FULL = FullClocks(time_s=2.0, energy_j=1000.0, num_iterations=4, weight=4.0, meter_s=0.1)
GUESS = FullClocks(time_s=2.0, energy_j=1000.0, num_iterations=0, guess_share=0.25)
BY_PROFILE = replace(GUESS, guess_share=1.0)
PLAN = Followed(key="plan", stretch=1.0, rate_j=100.0)
WAITING = replace(PLAN, is_waiting=True)
SLOW = replace(PLAN, is_around_slow=True)
UNTOLD = replace(PLAN, stretch=0.0)


def level(
    plan: Followed = PLAN,
    state: FullClocks | None = FULL,
    *,
    time_s: float = 2.0,
    energy_j: float = 900.0,
    count: int = 8,
    num_settled: int = 0,
    is_shown: bool = False,
) -> Level:
    return Level(
        plan=plan,
        time_s=time_s,
        energy_j=energy_j,
        count=count,
        state=state,
        num_settled=num_settled,
        settled_j=num_settled * energy_j,
        is_shown=is_shown,
        num_since=count,
    )


@pytest.mark.parametrize(
    ("stretch", "is_so"), [(0.0, False), (0.5, True), (1.0, True), (1 + 0.015, True), (1.0151, False)]
)
def test_a_plan_of_known_stretch_within_a_little_of_one_is_as_long_as_full_clocks(
    stretch: float, *, is_so: bool
) -> None:
    assert level(replace(PLAN, stretch=stretch)).is_as_long_as_full == is_so


def test_what_is_known_of_a_state_is_of_its_measurement_or_its_guess() -> None:
    states = (None, BY_PROFILE, GUESS, FULL)
    assert [level(state=state).is_by_profile for state in states] == [True, True, False, False]
    assert [level(state=state).is_guess for state in states] == [True, True, True, False]
    assert [level(state=state).rate_j for state in states] == [0.0, 100.0, 100.0, 100.0]
    assert [level(state=state).saved_j for state in states] == [0.0, 800.0, 800.0, 800.0]


def test_what_was_settled_stays_whatever_is_found_of_the_state_later() -> None:
    found = level(count=8)
    found.settle()
    assert (found.saved_j, found.doubt_j(0.01)) == (0.0, 0.0)
    found.add(2.0, 800.0)
    found.add(2.0, 800.0)
    found.state = replace(FULL, energy_j=1200.0)
    assert found.saved_j == pytest.approx(2 * (1200 - 800))
    assert found.doubt_j(0.0) == pytest.approx(2 * found.state.doubt_j + 4 * 0.1 * found.energy_j / 2.0)


STATE_J = 4 * 0.1 / 2.0 / 2 * 1000  # of one iteration, in doubt because counters tick
EDGES_J = 4 * 0.1 * 900 / 2.5


@pytest.mark.parametrize(
    ("found", "doubt_j"),
    [
        pytest.param(level(state=None), 0.0, id="of no state"),
        pytest.param(level(count=0), 0.0, id="none"),
        pytest.param(
            level(time_s=2.5, num_settled=4),
            4 * (STATE_J + 2 * 0.01 * math.sqrt(1 / 4 + 1 / 8) * 1000) + EDGES_J,
            id="measured",
        ),
        pytest.param(level(time_s=2.5, state=GUESS), 8 * 25.0, id="a quarter of what others save"),
        pytest.param(level(time_s=2.5, state=GUESS, energy_j=1100), 8 * 25.0, id="or lose"),
        pytest.param(level(time_s=2.5, state=BY_PROFILE), 8 * 100.0, id="all that the profile says"),
        pytest.param(level(replace(SLOW, rate_j=40.0), GUESS), 8 * 60.0, id="what the profile disputes"),
        pytest.param(level(replace(SLOW, rate_j=80.0), GUESS), 8 * 25.0, id="less than what is guessed"),
        pytest.param(level(replace(SLOW, rate_j=40.0), GUESS, is_shown=True), 8 * 25.0, id="a window has shown it"),
        pytest.param(level(state=replace(GUESS, guess_share=0.0)), 0.0, id="that nothing disputes"),
    ],
)
def test_doubt_is_of_counters_of_chance_and_of_what_was_guessed(found: Level, doubt_j: float) -> None:
    assert found.doubt_j(0.01) == pytest.approx(doubt_j)


@pytest.mark.parametrize(
    ("found", "is_measured"),
    [
        (level(), True),
        (level(state=GUESS), False),
        (level(state=GUESS, is_shown=True), True),
        (level(SLOW), False),
        (level(SLOW, is_shown=True), True),
        (level(SLOW, GUESS), False),
    ],
)
def test_a_state_is_measured_by_its_window_or_before_ranks_became_slow(found: Level, *, is_measured: bool) -> None:
    assert found.is_measured == is_measured
    assert found.may_be_other == (found.plan is SLOW and not found.is_shown)


@pytest.mark.parametrize(
    ("found", "is_unmeasured"),
    [
        (level(), False),
        (level(state=BY_PROFILE), True),
        (level(UNTOLD), True),
        (level(UNTOLD, is_shown=True), False),
        (level(replace(WAITING, rate_j=125.0), GUESS), False),
        (level(replace(WAITING, rate_j=125.1), GUESS), True),
        (level(replace(WAITING, rate_j=75.0), GUESS), False),
        (level(replace(WAITING, rate_j=74.9), GUESS), True),
        (level(replace(WAITING, rate_j=200.0)), False),
        (level(replace(PLAN, rate_j=200.0), GUESS), False),
        (level(replace(WAITING, rate_j=-126.0), GUESS, energy_j=1100.0), True),
        (level(replace(SLOW, rate_j=105.0)), False),
        (level(replace(SLOW, rate_j=105.1)), True),
        (level(replace(SLOW, rate_j=94.9)), True),
        (level(replace(SLOW, rate_j=200.0), is_shown=True), False),
    ],
)
def test_nothing_tells_of_full_clocks_where_the_profile_alone_does_or_says_something_else(
    found: Level, *, is_unmeasured: bool
) -> None:
    assert found.is_unmeasured == is_unmeasured


SLOWER = replace(PLAN, time_s=2.0, stretch=1.2)
KNOWN = replace(SLOWER, energy_j=800.0, waiting_w=100.0)  # draws 850 J where it waits for 0.5 s


@pytest.mark.parametrize(
    ("plan", "time_s", "energy_j", "noise", "is_held_back"),
    [
        (SLOWER, 2 * (1 + 0.015), 900.0, 0.0, False),
        (SLOWER, 2.0301, 900.0, 0.0, True),
        (SLOWER, 2 * (1 + SIXTEENTH), 900.0, NOISE, False),
        (SLOWER, 2.1251, 900.0, NOISE, True),
        (replace(SLOWER, time_s=0.0), 2.5, 900.0, 0.0, False),
        (replace(SLOWER, time_s=0.5), 0.6, 900.0, 0.0, True),
        (replace(SLOWER, stretch=1 + 0.015), 2.5, 900.0, 0.0, False),
        (replace(SLOWER, stretch=1.0151), 2.5, 900.0, 0.0, True),
        (replace(SLOWER, stretch=1.0, is_waiting=True), 2.5, 900.0, 0.0, True),
        (KNOWN, 2.5, 0.99 * 850 - 0.1, 0.0, True),
        (KNOWN, 2.5, (1 - 0.01) * 850, 0.0, False),
        (KNOWN, 2.5, 900.0, 0.0, False),
        (replace(KNOWN, stretch=1.0), 2.5, 700.0, 0.0, False),
    ],
)
def test_clocks_are_held_back_where_a_slower_plan_takes_longer_and_draws_less_than_it_does_by_waiting(
    plan: Followed, time_s: float, energy_j: float, noise: float, *, is_held_back: bool
) -> None:
    assert level(plan, time_s=time_s, energy_j=energy_j).is_held_back(noise) == is_held_back


@pytest.mark.parametrize(
    ("time_s", "noise", "is_so"),
    [
        (2.5 * (1 + SIXTEENTH), NOISE, True),
        (2.5 * (1 - SIXTEENTH), NOISE, True),
        (2.5 * 1.0626, NOISE, False),
        (2.5 * 0.9374, NOISE, False),
        (2.5 * 1.0149, 0.0, True),
        (2.5 * 1.0151, 0.0, False),
        (2.5 * 0.9849, 0.0, False),
    ],
)
def test_iterations_are_as_long_as_planned_within_a_little_or_four_deviations(
    time_s: float, noise: float, *, is_so: bool
) -> None:
    found = level(replace(PLAN, stretch=1.25, time_s=2.5), time_s=time_s)
    assert found.may_be_in(FULL, noise) == is_so
    assert found.is_as_profiled(noise) == is_so
    assert found.may_be_in(replace(FULL, time_s=2.5), noise) is False
    assert level(UNTOLD, time_s=time_s).may_be_in(FULL, noise), "of any length, where it is not known"
    assert level(PLAN, time_s=time_s).is_as_profiled(noise) is False, "the profile says nothing"


@pytest.mark.parametrize(
    ("time_s", "noise", "is_shorter"),
    [(2 * (1 - 0.015), 0.0, False), (1.9699, 0.0, True), (2 * (1 - SIXTEENTH), NOISE, False), (1.8749, NOISE, True)],
)
def test_iterations_are_shorter_than_full_clocks_by_more_than_a_little_or_noise(
    time_s: float, noise: float, *, is_shorter: bool
) -> None:
    found = level(UNTOLD, time_s=time_s)
    assert found.is_shorter_than(FULL, noise) == is_shorter
    assert found.may_lie_in(FULL, noise) == (not is_shorter), "a plan of which no length is known may be longer"
    assert level(UNTOLD, time_s=100.0).may_lie_in(FULL, noise, is_beside=True)


STRETCHED = replace(PLAN, stretch=1.25)  # 2.5 s
OF_SLOW_PROFILE = replace(STRETCHED, time_s=3.0)  # of full clocks that took 2.4 s
WAITS_BY_IT = replace(OF_SLOW_PROFILE, is_waiting=True)
AT_THE_LIMIT = replace(STRETCHED, time_s=2.625)  # 2.1 s, five percent longer


@pytest.mark.parametrize(
    ("plan", "state", "most_s", "is_beside"),
    [
        pytest.param(STRETCHED, FULL, 2.5 * 1.015, False, id="within a little"),
        pytest.param(replace(PLAN, stretch=0.5), FULL, 2.0 * 1.015, False, id="full clocks, where a cap holds"),
        pytest.param(STRETCHED, GUESS, 2.5 * 1.015, False, id="a guess"),
        pytest.param(STRETCHED, GUESS, 2.5 * 1.05, True, id="a guess, beside them"),
        pytest.param(STRETCHED, FULL, 2.5 * 1.015, True, id="what was measured, beside them"),
        pytest.param(OF_SLOW_PROFILE, FULL, 2.5 * 1.015, False, id="a slow profile"),
        pytest.param(OF_SLOW_PROFILE, FULL, 3.0 * 1.015, True, id="a slow profile, beside them"),
        pytest.param(WAITS_BY_IT, FULL, 2.5 * 1.015, True, id="waiting is longer than the profile's"),
        pytest.param(WAITS_BY_IT, GUESS, 2.5 * 1.05, True, id="waiting, where others were measured"),
        pytest.param(WAITS_BY_IT, BY_PROFILE, 3.0 * 1.05, True, id="waiting, of which the profile alone tells"),
        pytest.param(AT_THE_LIMIT, FULL, 2.5 * 1.015, True, id="a profile that is just not slow"),
        pytest.param(replace(AT_THE_LIMIT, time_s=2.63), FULL, 2.63 * 1.015, True, id="that just is"),
        pytest.param(replace(STRETCHED, time_s=2.0), BY_PROFILE, 2.5 * 1.05, True, id="a profile that is fast"),
    ],
)
def test_iterations_lie_in_a_state_up_to_what_the_plan_takes_there(
    plan: Followed, state: FullClocks, most_s: float, *, is_beside: bool
) -> None:
    for time_s, may_lie in ((most_s - 0.001, True), (most_s + 0.001, False), (1.96, False), (1.98, True)):
        assert level(plan, state, time_s=time_s).may_lie_in(FULL, 0.0, is_beside=is_beside) == may_lie, time_s


def test_iterations_lie_in_a_state_up_to_four_deviations_above_it() -> None:
    assert level(STRETCHED, time_s=2.5 * (1 + SIXTEENTH)).may_lie_in(FULL, NOISE)
    assert not level(STRETCHED, time_s=2.5 * 1.0626).may_lie_in(FULL, NOISE)


@pytest.mark.parametrize(("count", "is_known"), [(1, False), (2, True), (3, True)])
def test_what_one_saves_is_known_well_where_ticks_hide_no_more_than_a_quarter_of_what_all_do(
    count: int, *, is_known: bool
) -> None:
    assert level(count=count).is_well_metered == is_known, "50 J in doubt, of 100 J each"
    assert level(energy_j=1100.0, count=count).is_well_metered == is_known, "lost"
    assert level(state=replace(FULL, meter_s=0.0), count=count).is_well_metered
    assert not level(state=None, count=count).is_well_metered


def test_the_distance_of_an_iteration_is_of_time_or_energy_whichever_is_further() -> None:
    found = level(energy_j=1000.0)
    doubts = {"time_doubt": SIXTEENTH / 2, "energy_doubt": SIXTEENTH}
    for time_s, energy_j, distance in ((2.125, 1125.0, 2.0), (1.875, 750.0, 4.0), (2.125, None, 2.0), (2.0, 1e3, 0.0)):
        assert found.distance(time_s, energy_j, **doubts) == distance
    assert level(energy_j=0.0).distance(2.125, 1000.0, **doubts) == 2.0, "no counter has ticked"


@pytest.mark.parametrize(("time_s", "is_alike"), [(2.0299, True), (2.0301, False), (1.9701, True), (1.9699, False)])
def test_iterations_of_two_plans_look_alike_that_last_as_long(time_s: float, *, is_alike: bool) -> None:
    assert level(time_s=time_s).looks_like(level(WAITING)) == is_alike


@pytest.mark.parametrize(("time_s", "hides"), [(2.01 / (1 + 0.005), True), (2.0001, False), (2.01, False)])
def test_a_state_is_hidden_where_iterations_would_be_shorter_by_half_a_percent(time_s: float, *, hides: bool) -> None:
    state = replace(FULL, time_s=time_s)
    assert level(time_s=2.01).hides(state) == hides
    assert level(WAITING, time_s=2.01).waits_in(state) == hides
    assert level(PLAN, time_s=2.01).waits_in(state) is False


def test_the_newest_state_without_the_straggler_is_a_fiftieth_shorter_at_least() -> None:
    found = level(WAITING, replace(FULL, time_s=2.0))
    states = [replace(FULL, time_s=time_s) for time_s in (1.5, 1.9599, (1 - 0.02) * 2.0, 2.5)]
    assert found.faster_state(states) is states[1]
    assert found.faster_state(states[2:]) is None
    assert level(WAITING, None).faster_state(states) is None


WITH_STRAGGLER = replace(FULL, time_s=2.4, energy_j=1100.0)
OTHERS = [replace(FULL, energy_j=1040.0), replace(FULL, energy_j=1250.0), replace(FULL, time_s=2.4, energy_j=2000.0)]


@pytest.mark.parametrize(
    ("plan", "state", "hidden_j"),
    [
        pytest.param(WAITING, WITH_STRAGGLER, 8 * 150.0, id="pipelines that wait"),
        pytest.param(PLAN, WITH_STRAGGLER, 0.0, id="as long as full clocks are"),
        pytest.param(PLAN, FULL, 8 * 250.0, id="longer than full clocks"),
        pytest.param(WAITING, None, 0.0, id="in no state"),
    ],
)
def test_what_may_be_counted_wrong_is_the_furthest_of_the_states_that_iterations_hide(
    plan: Followed, state: FullClocks | None, hidden_j: float
) -> None:
    found = level(plan, state, time_s=2.4)
    assert found.hidden_j([*OTHERS, *([state] if state else [])]) == hidden_j
    assert found.hidden_j([OTHERS[2], *([state] if state else [])]) == 0.0, "it takes as long as they do"


@pytest.mark.parametrize(("count", "usual_j", "num_usual"), [(10, 895.0, 8), (3, 860.0, 1), (2, 900.0, 0)])
def test_beside_a_window_the_usual_energy_is_that_of_the_others(count: int, usual_j: float, num_usual: int) -> None:
    found = level(count=count, time_s=2.4).beside([930.0, 910.0])
    assert (found.energies_j, found.usual_time_s, found.num_usual) == ([930.0, 910.0], 2.4, num_usual)
    assert found.usual_j == pytest.approx(usual_j)


def test_energy_that_is_a_windows_is_given_back_by_all_of_them() -> None:
    for count, energy_j in ((8, 900.0 - 5), (0, 900.0)):
        found = level(count=count)
        found.give_back(40.0)
        assert found.energy_j == energy_j


def test_one_more_is_part_of_the_mean_unless_its_energy_is_not_known() -> None:
    found = level(count=1)
    found.add(4.0, 1000.0)
    assert (found.count, found.num_since, found.time_s, found.energy_j) == (2, 2, 3.0, 950.0)
    found.add(9.0, None)
    assert (found.count, found.num_since, found.time_s, found.energy_j) == (3, 3, 3.0, 950.0)


def test_what_full_clocks_draw_is_guessed_anew_with_each_one() -> None:
    found = level(count=1, state=replace(BY_PROFILE))
    found.guessed_j = 70.0
    found.add(2.0, 1000.0)
    assert found.rate_j == 70.0
    found.guessed_j, before_j = None, found.saved_j
    found.add(2.0, 950.0)
    assert found.saved_j == before_j + 70.0, "what a window has shown stays"
    nowhere = level(state=None)
    nowhere.guessed_j = 70.0
    nowhere.add(2.0, 900.0)
    assert nowhere.saved_j == 0.0
