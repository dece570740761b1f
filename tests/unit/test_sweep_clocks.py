"""Which clocks a sweep measures, what lies between them, and who measures them: pure functions."""

import random

import numpy as np
import pytest

from perseus_dist.planner.lifecycle.sweeping.next_clocks import MeasuredCurve, first_clocks, next_clocks
from perseus_dist.planner.lifecycle.sweeping.replica_shares import shares
from perseus_dist.planner.worker.unmeasured_clocks import with_clocks_between
from perseus_dist.planning.profile.between_clocks import (
    energy_between,
    irregular_intervals,
    slow_points,
    time_between,
)
from perseus_dist.planning.profile.profile import Measurements

MENU_MHZ = tuple(range(1980, 400, -75))


def time_s(clock_mhz: int) -> float:
    """A fifth is bound by memory."""
    return 0.1 * (0.2 + 0.8 * MENU_MHZ[0] / clock_mhz)


def power_w(clock_mhz: int) -> float:
    """The voltage has a floor at six tenths of the maximum clock."""
    share = clock_mhz / MENU_MHZ[0]
    return 190 + 440 * share * max(share, 0.6) ** 2


def curve(clocks_mhz: tuple[int, ...], *, noise: float = 0.0, seed: int = 1) -> MeasuredCurve:
    rng = random.Random(seed)
    times_s = tuple(time_s(clock) * (1 + rng.gauss(0, noise)) for clock in clocks_mhz)
    energies_j = tuple(power_w(clock) * time for clock, time in zip(clocks_mhz, times_s, strict=True))
    return MeasuredCurve(
        clocks_mhz=clocks_mhz,
        times_s=times_s,
        energies_j=energies_j,
        time_errors_s=tuple(noise * one for one in times_s),
        energy_errors_j=tuple(noise * one for one in energies_j),
        blocking_power_w=130.0,
    )


def measured_in_rounds(num_first: int = 5, max_doubt: float = 0.007, noise: float = 0.0) -> list[tuple[int, ...]]:
    rounds = [first_clocks(MENU_MHZ, num_first)]
    for _ in range(4):
        measured = tuple(sorted(set().union(*rounds), reverse=True))
        found = next_clocks(MENU_MHZ, [curve(measured, noise=noise)], max_doubt=max_doubt, num_clocks=8 - len(measured))
        if not found:
            break
        rounds.append(found)
    return rounds


def test_the_first_clocks_reach_from_the_maximum_to_about_the_least_energy() -> None:
    assert first_clocks(MENU_MHZ, 5) == (1980, 1755, 1530, 1305, 1080)
    assert first_clocks((1400, 1200, 1000), 5) == (1400, 1200, 1000)
    assert first_clocks(MENU_MHZ, 1) == (1980,)


def test_rounds_end_and_never_repeat_a_clock() -> None:
    for num_first in range(2, 8):
        for noise in (0.0, 0.005, 0.02):
            rounds = measured_in_rounds(num_first, noise=noise)
            together = [clock for clocks in rounds for clock in clocks]
            assert len(together) == len(set(together)) <= 8
            assert set(together) <= set(MENU_MHZ)


def test_less_doubt_needs_more_clocks_and_noise_none() -> None:
    num = [len(set().union(*measured_in_rounds(max_doubt=doubt))) for doubt in (0.05, 0.007, 0.001)]
    assert num == sorted(num)
    assert num[0] < num[-1]
    assert len(set().union(*measured_in_rounds(noise=0.02))) <= num[1]


def test_no_clock_below_the_least_energy_is_asked_for() -> None:
    flat = MENU_MHZ[:12]  # down to 1155 MHz, where energy is least
    low = next_clocks(MENU_MHZ, [curve(flat[::2])], max_doubt=1.0, num_clocks=3)
    assert low == () or min(low) > 900
    assert next_clocks(MENU_MHZ, [curve((1980, 1755, 1530, 1305, 1080))], max_doubt=1.0, num_clocks=3) == ()


def test_where_energy_still_falls_a_lower_clock_is_asked_for() -> None:
    (lower,) = next_clocks(MENU_MHZ, [curve((1980, 1830, 1680))], max_doubt=1.0, num_clocks=1)
    assert lower < 1680


def test_nothing_is_asked_for_without_an_interval() -> None:
    assert next_clocks(MENU_MHZ, [], max_doubt=0.001, num_clocks=3) == ()
    assert next_clocks(MENU_MHZ, [curve((1980,))], max_doubt=0.001, num_clocks=3) == ()
    assert next_clocks(MENU_MHZ[:2], [curve((1980, 1905))], max_doubt=0.0, num_clocks=3) == ()


def test_between_two_clocks_times_are_never_too_short_and_energies_near() -> None:
    measured = first_clocks(MENU_MHZ, 5)
    times, energies = [time_s(c) for c in measured], [time_s(c) * power_w(c) for c in measured]
    for clock in MENU_MHZ:
        if clock >= measured[-1]:
            time, energy = time_between(measured, times, clock), energy_between(measured, energies, clock)
            assert time.most == pytest.approx(time_s(clock)), "a straight line in the clock's reciprocal"
            assert energy.likely == pytest.approx(time_s(clock) * power_w(clock), rel=0.025)
            assert time.doubt == pytest.approx(0, abs=1e-12)


def test_where_memory_limits_above_some_clock_times_between_are_too_long_rather_than_too_short() -> None:
    def limited_s(clock_mhz: int) -> float:
        return max(0.11, 0.1 * MENU_MHZ[0] / clock_mhz)

    measured = first_clocks(MENU_MHZ, 5)
    times = [limited_s(clock) for clock in measured]
    for clock in MENU_MHZ:
        if clock >= measured[-1]:
            told_s = time_between(measured, times, clock).most
            assert limited_s(clock) <= told_s * (1 + 1e-12) <= 1.02 * limited_s(clock)
    assert max(time_between(measured, times, clock).doubt for clock in MENU_MHZ[1:4]) > 0


def test_a_jump_in_times_is_no_place_to_guess() -> None:
    clocks = (1740, 1515, 1365, 1140, 990, 840)
    times = (1.0, 1.03, 1.08, 1.17, 1.12, 1.27)  # another kernel from 1050 MHz down
    assert slow_points(clocks, times, (0.0,) * 6) == {3}
    assert irregular_intervals(clocks, times, (0.0,) * 6) == {2, 3}
    doubtful = next_clocks(
        clocks + tuple(range(1290, 990, -75)),
        [
            MeasuredCurve(
                clocks_mhz=clocks,
                times_s=times,
                energies_j=tuple(200 * t for t in times),
                time_errors_s=(0.0,) * 6,
                energy_errors_j=(0.0,) * 6,
                blocking_power_w=70.0,
            )
        ],
        max_doubt=0.5,
        num_clocks=2,
    )
    assert doubtful
    assert all(990 < clock < 1365 for clock in doubtful)


def test_a_time_beyond_the_ratio_of_clocks_is_slow() -> None:
    assert slow_points((1400, 1000), (1.0, 1.5), (0.0, 0.0)) == {1}
    assert slow_points((1400, 1000), (1.0, 1.5), (0.0, 0.1)) == set()


def test_a_profile_gets_rows_between_and_keeps_what_was_measured() -> None:
    clocks = first_clocks(MENU_MHZ, 5)
    row = np.array([[time_s(clock) for clock in clocks]])
    measured = Measurements(
        clocks_mhz=np.array(clocks),
        gpus=("0",),
        times_s=row,
        energies_j=300 * row,
        num_samples=np.full((1, 5), 16.0),
        time_std_s=np.full((1, 5), np.nan),
        energy_std_j=np.full((1, 5), np.nan),
    )
    filled = with_clocks_between(measured, MENU_MHZ)
    assert filled.clocks_mhz.tolist() == [clock for clock in MENU_MHZ if clock >= clocks[-1]]
    for column, clock in enumerate(filled.clocks_mhz.tolist()):
        if clock in clocks:
            assert filled.times_s[0, column] == time_s(clock)
            assert filled.num_samples[0, column] == 16
        else:
            assert filled.num_samples[0, column] == 1
    assert with_clocks_between(measured, ()) is measured
    assert with_clocks_between(measured, clocks) is measured


@pytest.mark.parametrize("num_replicas", range(1, 9))
@pytest.mark.parametrize("num_clocks", range(1, 8))
def test_every_clock_has_a_witness_and_steps_go_down(num_replicas: int, num_clocks: int) -> None:
    clocks = MENU_MHZ[:num_clocks]
    found = shares(clocks, range(num_replicas), {})
    assert set().union(*found.values()) == set(clocks)
    num_steps = {len(own) for own in found.values()}
    assert len(num_steps) == 1, "nobody idles in a step"
    for own in found.values():
        assert list(own) == sorted(set(own), reverse=True)
    for step in range(num_steps.pop()):
        at = [own[step] for own in found.values()]
        between_them = [clock for clock in clocks if min(at) <= clock <= max(at)]
        assert set(at) == set(between_them), "replicas of a step run at neighbouring clocks"
        if num_replicas >= 4:
            assert all(at.count(clock) >= 2 for clock in at)


def test_what_a_replica_has_measured_is_measured_again_by_another() -> None:
    assert shares((1200, 1000), (0, 1), {1200: {0}, 1000: {1}}) == {0: (1000,), 1: (1200,)}
    assert shares((1200, 1000), (0, 1), {1200: {1}, 1000: {0}}) == {0: (1200,), 1: (1000,)}
    assert shares((), (0, 1), {}) == {}
    assert shares((1200,), (), {}) == {}
