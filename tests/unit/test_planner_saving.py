"""What is counted as saved: invented iterations of a job whose plan draws 10 % less."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.planner.saving import FullClocks, Saving

TIME_S, ENERGY_J, PLANNED_J, WAITING_W = 2.0, 1000.0, 900.0, 100.0


def begun() -> Saving:
    saving = Saving()
    saving.begin(FullClocks(time_s=TIME_S, energy_j=ENERGY_J, num_iterations=5), 0.0)
    return saving


def plan(saving: Saving, num: int, time_s: float = TIME_S, energy_j: float | None = PLANNED_J) -> None:
    for _ in range(num):
        saving.take_planned(time_s, energy_j, waiting_w=WAITING_W)


def probe(saving: Saving, number: int, time_s: float = TIME_S, energy_j: float = ENERGY_J) -> None:
    for i in range(3):
        saving.take_full(number + i, time_s, energy_j)


def test_the_baseline_is_compared_with() -> None:
    saving = begun()
    plan(saving, 10)
    assert saving.saved_j == pytest.approx(1000)


def test_nothing_is_counted_before_full_clocks_are_known() -> None:
    saving = Saving()
    plan(saving, 10)
    assert saving.saved_j == 0
    probe(saving, 10)
    plan(saving, 1)
    assert saving.saved_j == pytest.approx(100)


def test_probes_that_agree_are_pooled() -> None:
    saving = begun()
    probe(saving, 10, energy_j=1004.0)
    assert saving.full is not None
    assert saving.full.num_iterations == 8
    assert saving.full.energy_j == pytest.approx(1000 + 4 * 3 / 8)


@pytest.mark.parametrize("num_before", [0, 1, 30])
def test_a_change_counts_from_where_iterations_changed(num_before: int) -> None:
    """A slow GPU: full clocks take 2.4 s and 1100 J now, and the plan 2.4 s and 1000 J."""
    saving = begun()
    plan(saving, num_before)
    plan(saving, 8, 2.4, 1000.0)
    probe(saving, 38, 2.4, 1100.0)
    plan(saving, 10, 2.4, 1000.0)
    assert saving.saved_j == pytest.approx(100 * (num_before + 18), abs=101)


def test_a_cap_that_comes_with_its_probe_changes_nothing_before() -> None:
    """No plan takes less time, or draws more, than full clocks do."""
    saving = begun()
    plan(saving, 9)
    probe(saving, 9, 2.8, 700.0)
    assert saving.saved_j == pytest.approx(900)
    plan(saving, 40, 2.8, 700.0)
    assert saving.saved_j == pytest.approx(900)


def test_a_change_without_a_sign_is_put_in_the_middle() -> None:
    saving = begun()
    plan(saving, 20, TIME_S, 800.0)
    probe(saving, 20, TIME_S, 900.0)
    assert saving.saved_j == pytest.approx(20 * 200 - 10 * 100)


def test_iterations_apart_are_no_probe() -> None:
    saving = begun()
    for number in (10, 11, 20, 21):
        saving.take_full(number, 7.0, 5000.0)
    assert saving.full is not None
    assert saving.full.num_iterations == 5
    saving.take_full(22, 7.0, 5000.0)
    assert (saving.full.time_s, saving.full.energy_j, saving.full.num_iterations) == (7.0, 5000.0, 3)


def test_what_a_counter_charges_to_the_next_iteration_is_made_up_for() -> None:
    saving = begun()
    for number, energy_j in enumerate((980.0, 1000.0, 1020.0)):
        saving.take_full(number, TIME_S, energy_j)
    assert saving.full is not None
    assert saving.full.energy_j == pytest.approx(1000)
    for number, (time_s, energy_j) in enumerate(((2.4, 900.0), (3.0, 1500.0), (3.0, 1530.0))):
        saving.take_full(10 + number, time_s, energy_j)
    assert (saving.full.time_s, saving.full.energy_j) == (3.0, 1500.0)


def test_a_probe_with_an_iteration_of_unknown_energy_says_nothing() -> None:
    saving = begun()
    saving.take_full(1, 3.0, 1500.0)
    saving.take_full(2, 3.0, None)
    saving.take_full(3, 3.0, 1500.0)
    assert saving.full is not None
    assert saving.full.num_iterations == 5


def test_waiting_that_an_operator_asks_for_is_waited_without_a_plan_too() -> None:
    saving = begun()
    saving.take_planned(3.0, 900.0, waited_s=3.0, waiting_w=WAITING_W)
    assert saving.saved_j == pytest.approx(1000 + 1.0 * WAITING_W - 900)


def test_being_slower_is_no_saving_of_its_own() -> None:
    saving = begun()
    saving.take_planned(3.0, 900.0, waiting_w=WAITING_W)
    assert saving.saved_j == pytest.approx(100)


def test_an_iteration_whose_energy_is_not_known_drew_what_the_one_before_drew() -> None:
    saving = begun()
    plan(saving, 1, energy_j=None)
    assert saving.saved_j == 0
    plan(saving, 1)
    plan(saving, 1, energy_j=None)
    assert saving.saved_j == pytest.approx(200)
    plan(saving, 1, time_s=3.0, energy_j=None)
    assert saving.saved_j == pytest.approx(200)


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_meter_makes_no_changes(seed: int) -> None:
    """Counters that tick make an iteration's energy 10 % more or less; the mean over many is the truth."""
    rng = random.Random(seed)
    saving = begun()
    for begin in range(0, 3000, 100):
        for _ in range(97):
            saving.take_planned(TIME_S, rng.gauss(PLANNED_J, 0.1 * PLANNED_J), waiting_w=WAITING_W)
        for i in range(3):
            saving.take_full(begin + 97 + i, TIME_S, rng.gauss(ENERGY_J, 0.1 * ENERGY_J))
    assert saving.saved_j == pytest.approx(30 * 97 * 100, rel=0.4)


def test_full_clocks_that_come_back_are_known() -> None:
    saving = begun()
    probe(saving, 10, 2.4, 1100.0)
    probe(saving, 20, TIME_S, 1008.0)
    assert saving.full == FullClocks(time_s=TIME_S, energy_j=1003.0, num_iterations=8)
    probe(saving, 30, 2.4, 1106.0)
    assert saving.full == FullClocks(time_s=2.4, energy_j=1103.0, num_iterations=6)


def test_how_noisy_the_meter_is_the_baseline_says_first() -> None:
    saving = Saving()
    saving.begin(FullClocks(time_s=TIME_S, energy_j=ENERGY_J, num_iterations=5), 50.0)
    probe(saving, 10, energy_j=1080.0)
    assert saving.full == FullClocks(time_s=TIME_S, energy_j=1030.0, num_iterations=8)


ITERATIONS = st.lists(
    st.tuples(st.booleans(), st.floats(1e-6, 1e4), st.one_of(st.none(), st.just(0.0), st.floats(0.0, 1e9))), max_size=60
)


@given(ITERATIONS)
def test_no_readings_are_too_strange(iterations: list[tuple[bool, float, float | None]]) -> None:
    """Short iterations, of which a counter that ticks sees nothing for a while, among them."""
    saving = Saving()
    for number, (is_full, time_s, energy_j) in enumerate(iterations):
        if is_full:
            saving.take_full(number, time_s, energy_j)
        else:
            saving.take_planned(time_s, energy_j, waiting_w=WAITING_W)
    assert math.isfinite(saving.saved_j)
    assert saving.full is None or saving.full.energy_j > 0


def test_a_counter_that_has_not_ticked_is_no_change() -> None:
    saving = begun()
    plan(saving, 4)
    plan(saving, 4, energy_j=0.0)
    probe(saving, 8, energy_j=1200.0)
    assert math.isfinite(saving.saved_j)
