"""Which clocks are to be measured next: first a few, then where its curves are still uncertain.

Pure: the same measurements always lead to the same clocks, so that a restarted planner goes on where it was.

Between two measured clocks a plan is made with what lies between them (``planning.profile.between_clocks``). Its doubt
in energy, and in time by what that time would save, is what a plan may lose there. An interval in which that is too
much is halved; a half has a quarter of the doubt, so that several clocks can be asked for at once.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.planning.profile.between_clocks import energy_between, irregular_intervals, time_between

_SHARE_OF_HALF = 0.25
_LOWEST_SHARE = 0.55  # of the maximum clock; minima of energy lie about there
_LOWER_SHARE = 0.85  # of the lowest clock, where energy still falls there
_FALLING_SHARE = 0.01  # of an instruction's energy at the maximum clock; less is not worth a slower clock


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCurve:
    """One computation of a stage at all clocks at which it was measured.

    Attributes:
        clocks_mhz: (num_clocks) [MHz] descending.
        times_s: (num_clocks) [s].
        energies_j: (num_clocks) [J].
        time_errors_s: (num_clocks) [s] standard errors.
        energy_errors_j: (num_clocks) [J] the same.
        blocking_power_w: [W] of one GPU.
    """

    clocks_mhz: tuple[int, ...]
    times_s: tuple[float, ...]
    energies_j: tuple[float, ...]
    time_errors_s: tuple[float, ...]
    energy_errors_j: tuple[float, ...]
    blocking_power_w: float


def first_clocks(menu_mhz: Sequence[int], num_clocks: int) -> tuple[int, ...]:
    """The maximum clock, one near the least energy, and others evenly between.

    Args:
        menu_mhz: [MHz] descending, all that can be set.
        num_clocks: That many, or the whole menu where that is shorter.
    """
    if num_clocks >= len(menu_mhz):
        return tuple(menu_mhz)
    step = (1 - _LOWEST_SHARE) / max(num_clocks - 1, 1)
    wanted_mhz = [menu_mhz[0] * (1 - k * step) for k in range(num_clocks)]
    found = {min(menu_mhz, key=lambda clock: abs(clock - wanted)) for wanted in wanted_mhz}
    return tuple(sorted(found, reverse=True))


def next_clocks(
    menu_mhz: Sequence[int],
    curves: Sequence[MeasuredCurve],
    *,
    max_doubt: float,
    num_clocks: int,
) -> tuple[int, ...]:
    """Clocks at which stages are to be measured next, descending; none where they are known well enough.

    Args:
        menu_mhz: [MHz] descending, all that can be set.
        curves: Of the stages' computations.
        max_doubt: Share of the energy at the maximum clock that may be lost in an interval, on the mean of the curves.
        num_clocks: At most.
    """
    measured = sorted(set.intersection(*(set(curve.clocks_mhz) for curve in curves)) if curves else (), reverse=True)
    if len(measured) < 2:
        return ()
    at = [_at_clocks(curve, measured) for curve in curves]
    chosen: list[int] = []
    lower = _lower_clock(menu_mhz, measured, at)
    if lower and num_clocks:
        chosen.append(lower)
    doubts: dict[tuple[int, int], float] = {}  # by (higher, lower) clock
    for i, (high, low) in enumerate(itertools.pairwise(measured)):
        if _middle(menu_mhz, high, low):
            doubts[high, low] = _doubt(menu_mhz, measured, at, i)
    while doubts and len(chosen) < num_clocks:
        (high, low), doubt = max(doubts.items(), key=lambda item: item[1])
        if doubt <= max_doubt:
            break
        del doubts[high, low]
        middle = _middle(menu_mhz, high, low)
        chosen.append(middle)
        for half in ((high, middle), (middle, low)):
            if _middle(menu_mhz, *half):
                doubts[half] = _SHARE_OF_HALF * doubt if doubt < 1 else max_doubt
    return tuple(sorted(chosen, reverse=True))


def _at_clocks(curve: MeasuredCurve, clocks_mhz: Sequence[int]) -> MeasuredCurve:
    kept = [curve.clocks_mhz.index(clock) for clock in clocks_mhz]
    return MeasuredCurve(
        clocks_mhz=tuple(clocks_mhz),
        times_s=tuple(curve.times_s[k] for k in kept),
        energies_j=tuple(curve.energies_j[k] for k in kept),
        time_errors_s=tuple(curve.time_errors_s[k] for k in kept),
        energy_errors_j=tuple(curve.energy_errors_j[k] for k in kept),
        blocking_power_w=curve.blocking_power_w,
    )


def _middle(menu_mhz: Sequence[int], high_mhz: int, low_mhz: int) -> int:
    """The clock of the menu in the middle of two; 0 where there is none between them."""
    inside = [clock for clock in menu_mhz if low_mhz < clock < high_mhz]
    return min(inside, key=lambda clock: abs(2 * clock - high_mhz - low_mhz)) if inside else 0


def _doubt(menu_mhz: Sequence[int], measured: Sequence[int], curves: Sequence[MeasuredCurve], i: int) -> float:
    """Loss of plans in an interval at most, as a share of all energy at the maximum clock; 1 for all of it."""
    doubt_j = 0.0
    middle = _middle(menu_mhz, measured[i], measured[i + 1])
    for curve in curves:
        times_s = curve.times_s
        if i in irregular_intervals(measured, times_s, curve.time_errors_s):
            return 1.0
        effective_j = [e - curve.blocking_power_w * t for e, t in zip(curve.energies_j, times_s, strict=True)]
        longer_s = times_s[i + 1] - times_s[i]
        saved_w = max(0.0, effective_j[i] - effective_j[i + 1]) / longer_s if longer_s > 0 else 0.0
        energy, time = energy_between(measured, effective_j, middle), time_between(measured, times_s, middle)
        noise_j = (curve.energy_errors_j[i] + curve.energy_errors_j[i + 1]) / 4
        noise_s = (curve.time_errors_s[i] + curve.time_errors_s[i + 1]) / 4
        doubt_j += max(0.0, energy.doubt - noise_j) + saved_w * max(0.0, time.doubt - noise_s)
    return doubt_j / sum(curve.energies_j[0] for curve in curves)


def _lower_clock(menu_mhz: Sequence[int], measured: Sequence[int], curves: Sequence[MeasuredCurve]) -> int:
    """A clock below the lowest one measured, if some instruction's energy still falls there; else 0."""
    below = [clock for clock in menu_mhz if clock < measured[-1]]
    if not below or not any(_falls(curve) for curve in curves):
        return 0
    return min(below, key=lambda clock: abs(clock - _LOWER_SHARE * measured[-1]))


def _falls(curve: MeasuredCurve) -> bool:
    noise_j = 2 * (curve.energy_errors_j[-1] + curve.energy_errors_j[-2])
    return curve.energies_j[-2] - curve.energies_j[-1] > _FALLING_SHARE * curve.energies_j[0] + noise_j
