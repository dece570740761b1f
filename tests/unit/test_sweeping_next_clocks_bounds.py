"""Which clocks a sweep measures next, at the bounds: what an interval's doubt is, and when a lower clock pays."""

from dataclasses import replace

import pytest

from perseus_dist.planner.lifecycle.sweeping.next_clocks import (
    MeasuredCurve,
    _doubt,
    _lower_clock,
    _middle,
    first_clocks,
    next_clocks,
)
from perseus_dist.planner.lifecycle.sweeping.replica_shares import clocks_of_a_step

MENU_MHZ = (2000, 1500, 1250, 1000, 750, 500)
MEASURED_MHZ = (2000, 1000, 500)


def curve(
    times_s: tuple[float, ...],
    energies_j: tuple[float, ...],
    *,
    clocks_mhz: tuple[int, ...] = MEASURED_MHZ,
    time_errors_s: tuple[float, ...] | None = None,
    energy_errors_j: tuple[float, ...] | None = None,
    blocking_power_w: float = 0.0,
) -> MeasuredCurve:
    none = (0.0,) * len(times_s)
    return MeasuredCurve(
        clocks_mhz=clocks_mhz,
        times_s=times_s,
        energies_j=energies_j,
        time_errors_s=time_errors_s or none,
        energy_errors_j=energy_errors_j or none,
        blocking_power_w=blocking_power_w,
    )


@pytest.mark.parametrize(
    ("num_clocks", "expected"), [(1, (2000,)), (2, (2000, 1000)), (3, (2000, 1500, 1000)), (6, MENU_MHZ), (7, MENU_MHZ)]
)
def test_the_first_clocks_end_a_little_above_half_the_maximum_but_where_the_whole_menu_is_measured(
    num_clocks: int, expected: tuple[int, ...]
) -> None:
    assert first_clocks(MENU_MHZ, num_clocks) == expected


@pytest.mark.parametrize(
    ("high_mhz", "low_mhz", "middle_mhz"),
    [(2000, 1500, 0), (2000, 1250, 1500), (2000, 1000, 1500), (1500, 750, 1250), (1500, 500, 1000), (1000, 500, 750)],
)
def test_an_interval_is_halved_at_a_clock_inside_it(high_mhz: int, low_mhz: int, middle_mhz: int) -> None:
    assert _middle(MENU_MHZ, high_mhz, low_mhz) == middle_mhz


# Of 100, 70 and 67 J beside 10 W of waiting, a parabola is 4 J below the chord at 1500 MHz: 2 J are in doubt, and of
# the times 1/90 s is, at the 100 W that 0.3 s save.
CURVED = curve((1.0, 1.3, 2.5), (110.0, 83.0, 92.0), blocking_power_w=10.0)
STRAIGHT = curve((1.0, 2.0, 4.0), (110.0, 120.0, 125.0))


@pytest.mark.parametrize(
    ("curves", "doubt_j"),
    [
        ((CURVED,), 2.0 + 100 / 90),
        ((CURVED, STRAIGHT), (2.0 + 100 / 90) / 2),
        ((replace(CURVED, energy_errors_j=(3.0, 1.0, 7.0)),), 1.0 + 100 / 90),
        ((replace(CURVED, energy_errors_j=(5.0, 6.0, 0.0)),), 100 / 90),
        ((replace(CURVED, time_errors_s=(0.008, 0.012, 0.03)),), 2.0 + 100 * (1 / 90 - 0.005)),
        ((replace(CURVED, time_errors_s=(0.03, 0.04, 0.0)),), 2.0),
        ((curve((1.0, 1.3, 2.5), (110.0, 111.0, 111.5)),), 0.0),  # a slower clock saves nothing
        ((curve((1.0, 1.0, 1.5), (110.0, 80.0, 65.0)),), 0.0),  # and no time is lost
    ],
)
def test_what_may_be_lost_in_an_interval_is_what_curves_bend_by_beyond_their_errors(
    curves: tuple[MeasuredCurve, ...], doubt_j: float
) -> None:
    assert _doubt(MENU_MHZ, MEASURED_MHZ, curves, 0) == pytest.approx(doubt_j / 110, abs=1e-12)


def test_in_an_interval_in_which_times_jump_all_may_be_lost() -> None:
    jumps = curve((1.0, 0.9, 1.8), (110.0, 83.0, 92.0))
    assert _doubt(MENU_MHZ, MEASURED_MHZ, (STRAIGHT, jumps), 0) == 1.0
    assert _doubt(MENU_MHZ, MEASURED_MHZ, (STRAIGHT, jumps), 1) < 1.0


FINE_MHZ = tuple(range(2000, 999, -50))


@pytest.mark.parametrize(("share", "num"), [(1.01, 0), (0.99, 1), (0.26, 1), (0.24, 3), (0.0626, 3), (0.0624, 5)])
def test_each_half_of_an_interval_has_a_quarter_of_its_doubt(share: float, num: int) -> None:
    menu_mhz = (*FINE_MHZ, 500)
    whole = _doubt(menu_mhz, MEASURED_MHZ, (CURVED,), 0)
    found = next_clocks(menu_mhz, [CURVED], max_doubt=share * whole, num_clocks=5)
    assert len(found) == num
    assert list(found) == sorted(found, reverse=True)
    assert num == 0 or 1500 in found


def test_a_jump_is_looked_for_with_one_clock_in_a_round() -> None:
    jumps = curve((1.0, 0.9), (110.0, 120.0), clocks_mhz=(2000, 1000))
    for num_clocks, expected in ((0, ()), (1, (1500,)), (5, (1500,))):
        assert next_clocks(FINE_MHZ, [jumps], max_doubt=0.1, num_clocks=num_clocks) == expected


@pytest.mark.parametrize(
    ("last_j", "errors_j", "is_lower"),
    [
        (79.0, (0.0, 0.0, 0.0), False),
        (78.99, (0.0, 0.0, 0.0), True),
        (78.25, (9.0, 0.25, 0.125), False),
        (78.24, (9.0, 0.25, 0.125), True),
    ],
)
def test_a_lower_clock_is_measured_where_energy_clearly_falls_at_the_end_of_some_curve(
    last_j: float, errors_j: tuple[float, ...], *, is_lower: bool
) -> None:
    menu_mhz = (1400, 1200, 1000, 900, 850, 700)
    falls = curve((1.0, 1.2, 1.4), (100.0, 80.0, last_j), clocks_mhz=(1400, 1200, 1000), energy_errors_j=errors_j)
    level = curve((1.0, 1.2, 1.4), (100.0, 100.0, 100.0), clocks_mhz=(1400, 1200, 1000))
    assert _lower_clock(menu_mhz, (1400, 1200, 1000), [level, falls]) == (850 if is_lower else 0)


def test_from_four_replicas_on_each_clock_has_two_witnesses() -> None:
    assert [clocks_of_a_step(num) for num in range(1, 9)] == [1, 2, 3, 2, 2, 3, 3, 4]
