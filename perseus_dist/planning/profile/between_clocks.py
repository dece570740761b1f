"""Time and energy at clocks between those that were measured.

A time is convex in the clock's reciprocal, and nearly a straight line where the clock alone limits; an energy is
convex in the clock. The chord between two neighbours lies above what is true, and a parabola through three may lie
below. An energy is likely to lie halfway; of a time the chord counts, because a plan must not be late. What the two
differ by says how much is not known there. Where times are not convex, a library has picked another kernel at some
clock in between: nothing is said of clocks there.
"""

from collections.abc import Sequence
from typing import NamedTuple

_ABOVE_CHORD_SHARE = 0.007  # by how much noise alone may lift a time above its neighbours' chord
_FASTER_SHARE = 0.005  # by how much noise alone may make a lower clock seem faster


class Between(NamedTuple):
    """An unmeasured value: the likely one, by how much it may be wrong, and the greatest."""

    likely: float
    doubt: float
    most: float


def time_between(clocks_mhz: Sequence[int], times_s: Sequence[float], clock_mhz: int) -> Between:
    """[s] a time at a clock between two that were measured.

    Args:
        clocks_mhz: (num_clocks) [MHz] descending, two at least.
        times_s: (num_clocks) [s] measured.
        clock_mhz: [MHz] from the lowest to the highest.
    """
    return _between([1e3 / clock for clock in clocks_mhz], times_s, 1e3 / clock_mhz)


def energy_between(clocks_mhz: Sequence[int], energies_j: Sequence[float], clock_mhz: int) -> Between:
    """[J] an energy at such a clock, with or without what waiting draws meanwhile."""
    return _between([-clock for clock in clocks_mhz], energies_j, -clock_mhz)


def irregular_intervals(clocks_mhz: Sequence[int], times_s: Sequence[float], errors_s: Sequence[float]) -> set[int]:
    """Intervals, each by the index of its higher clock, in which times do not follow the clock as one kernel's do.

    Args:
        clocks_mhz: (num_clocks) [MHz] descending.
        times_s: (num_clocks) [s] measured.
        errors_s: (num_clocks) [s] standard errors.
    """
    return {i for k in slow_points(clocks_mhz, times_s, errors_s) for i in (k - 1, k) if 0 <= i < len(clocks_mhz) - 1}


def slow_points(clocks_mhz: Sequence[int], times_s: Sequence[float], errors_s: Sequence[float]) -> set[int]:
    """Indices of clocks at which a computation is slower than its times at other clocks allow.

    A clock takes no longer than a lower one, nor than a higher one in proportion to the clocks, nor than the chord of
    its neighbours. Arguments as of ``irregular_intervals``.
    """
    slow: set[int] = set()
    for i in range(len(clocks_mhz) - 1):
        doubt_s = 2 * (errors_s[i] + errors_s[i + 1])
        if times_s[i + 1] < (1 - _FASTER_SHARE) * times_s[i] - doubt_s:
            slow.add(i)
        slowest_s = times_s[i] * clocks_mhz[i] / clocks_mhz[i + 1]
        if times_s[i + 1] > (1 + _ABOVE_CHORD_SHARE) * slowest_s + doubt_s:
            slow.add(i + 1)
    for i in range(1, len(clocks_mhz) - 1):
        share = (clocks_mhz[i - 1] - clocks_mhz[i]) / (clocks_mhz[i - 1] - clocks_mhz[i + 1])
        chord_s = times_s[i - 1] + share * (times_s[i + 1] - times_s[i - 1])
        doubt_s = 2 * (errors_s[i] + (1 - share) * errors_s[i - 1] + share * errors_s[i + 1])
        if times_s[i] > (1 + _ABOVE_CHORD_SHARE) * chord_s + doubt_s:
            slow.add(i)
    return slow


def _between(places: Sequence[float], values: Sequence[float], place: float) -> Between:
    """A value at a place between two of ascending places."""
    last = len(places) - 2
    i = next((k for k in range(last) if place < places[k + 1]), last)
    share = (place - places[i]) / (places[i + 1] - places[i])
    chord = values[i] + share * (values[i + 1] - values[i])
    above, below = (_parabola(places, values, first, place) for first in (i - 1, i))
    if above is None and below is None:
        return Between(chord, 0.0, chord)
    if above is None or below is None:
        curved = above if below is None else below
        assert curved is not None
    else:
        curved = (1 - share) * above + share * below
    return Between((chord + curved) / 2, abs(chord - curved) / 2, chord)


def _parabola(places: Sequence[float], values: Sequence[float], first: int, place: float) -> float | None:
    """Through three neighbours, the first of them by its index; None where there are none."""
    if not 0 <= first <= len(places) - 3:
        return None
    (a, b, c), (x, y, z) = places[first : first + 3], values[first : first + 3]
    slope, next_slope = (y - x) / (b - a), (z - y) / (c - b)
    curvature = (next_slope - slope) / (c - a)
    return x + slope * (place - a) + curvature * (place - a) * (place - b)
