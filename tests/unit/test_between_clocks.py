"""What lies between measured clocks, and which clocks are slower than those beside them allow, by hand."""

import pytest

from perseus_dist.errors import PerseusError
from perseus_dist.planning.frontier.frontier_file import _latencies
from perseus_dist.planning.profile.between_clocks import energy_between, irregular_intervals, slow_points
from perseus_dist.planning.schedule.calls.deferred import deferred_programs
from perseus_dist.planning.schedule.schedule import gpipe, one_f_one_b

CLOCKS_MHZ = (1400, 1200, 600)
NO_ERRORS_S = (0.0, 0.0, 0.0)


def times_s(middle_s: float) -> tuple[float, float, float]:
    """Full clocks take 1 s, the lowest 2 s; the chord at 1200 MHz, a quarter of the way, is 1.25 s."""
    return (1.0, middle_s, 2.0)


def test_times_that_follow_the_clock_are_regular() -> None:
    exact_s = tuple(1400 / clock for clock in CLOCKS_MHZ)
    assert slow_points(CLOCKS_MHZ, exact_s, NO_ERRORS_S) == set()
    assert irregular_intervals(CLOCKS_MHZ, (1.0, 1.0, 1.0), NO_ERRORS_S) == set()


def test_a_clock_is_slow_that_takes_clearly_longer_than_the_chord_of_its_neighbours() -> None:
    clocks_mhz = (1400, 1000, 600)  # the chord of 1.0 and 1.1 s is 1.05 s; in proportion to clocks 1.4 s is allowed
    assert slow_points(clocks_mhz, (1.0, 1.05, 1.1), NO_ERRORS_S) == set()
    assert slow_points(clocks_mhz, (1.0, 1.099, 1.1), NO_ERRORS_S) == {1}
    assert irregular_intervals(clocks_mhz, (1.0, 1.099, 1.1), NO_ERRORS_S) == {0, 1}


@pytest.mark.parametrize(
    ("errors_s", "is_slow"),
    [
        ((0.0, 0.0, 0.0), True),
        ((0.0, 0.02, 0.0), False),
        ((0.028, 0.0, 0.0), False),  # three quarters of it count
        ((0.012, 0.0, 0.0), True),
        ((0.0, 0.0, 0.08), False),  # a quarter
        ((0.0, 0.0, 0.02), True),
    ],
)
def test_what_may_be_an_error_of_the_chord_is_no_slow_clock(errors_s: tuple[float, ...], *, is_slow: bool) -> None:
    assert (slow_points(CLOCKS_MHZ, (1.0, 1.0665, 1.1), errors_s) == {1}) == is_slow


def test_no_clock_is_faster_than_a_higher_one_or_slower_than_in_proportion() -> None:
    assert slow_points(CLOCKS_MHZ, (1.0, 0.9, 2.0), NO_ERRORS_S) == {0, 2}
    assert 1 in slow_points(CLOCKS_MHZ, times_s(1.3), NO_ERRORS_S), "1400 / 1200 is 1.17"
    assert slow_points(CLOCKS_MHZ, (1.0, 0.9, 1.5), (0.03, 0.03, 0.03)) == set(), "they may be wrong by that"


def test_an_energy_between_clocks_lies_between_chord_and_parabola() -> None:
    clocks_mhz = (1400, 1000, 600)
    on_a_line = energy_between(clocks_mhz, (14.0, 10.0, 6.0), 1200)
    assert on_a_line[:2] == pytest.approx((12.0, 0.0))
    squares = tuple((clock / 100) ** 2 for clock in clocks_mhz)
    value, doubt, chord = energy_between(clocks_mhz, squares, 1200)
    assert chord == pytest.approx((196 + 100) / 2)
    assert (value, doubt) == pytest.approx(((chord + 144) / 2, (chord - 144) / 2))
    assert energy_between((1400, 1000), (14.0, 10.0), 1100)[:2] == pytest.approx((11.0, 0.0))


@pytest.mark.parametrize("values", [[1.5, 1], [-1, 1], [True, 1], [1], [1, 1, 1], [10**30, 1]])
def test_latencies_of_a_file_are_whole_numbers_one_a_clock(values: list[object]) -> None:
    with pytest.raises((ValueError, PerseusError)):
        _latencies(values, 2)
    assert _latencies(None, 2) is None
    known = _latencies([0, 7], 2)
    assert known is not None
    assert known.tolist() == [0, 7]


@pytest.mark.parametrize("microbatches", [1, 2, 5])
def test_one_microbatch_is_a_schedule_too(microbatches: int) -> None:
    for make in (gpipe, one_f_one_b):
        programs = deferred_programs(make(pp=2, microbatches=microbatches))
        assert programs is not None
        assert len(programs) == 2
