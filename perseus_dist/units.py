"""Conversions between the integers that planning counts in and the floats that people and files use.

Time is counted in picoseconds: profiles give seconds as decimals, an iteration sums hundreds of them, and a plan for
the deadline "2.836530123 s" must be judged at the nanosecond that was written. Energy is counted in microjoules, power
in microwatts, so that slopes are integers too (1 uJ / 1 ps = 1e12 uW).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perseus_dist import unit_scales

PS_PER_S = unit_scales.PS_PER_S
PS_PER_NS = unit_scales.PS_PER_NS
PS_PER_MS = unit_scales.PS_PER_MS
UJ_PER_J = unit_scales.UJ_PER_J
UW_PER_W = unit_scales.UW_PER_W

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def ps_from_s(time_s: ArrayLike) -> IntArray:
    """Seconds to picoseconds, rounded to the nearest. Any shape."""
    return np.rint(np.asarray(time_s, dtype=np.float64) * PS_PER_S).astype(np.int64)


def s_from_ps(time_ps: ArrayLike) -> FloatArray:
    """Picoseconds to seconds. Any shape."""
    return np.asarray(time_ps, dtype=np.float64) / PS_PER_S


def uj_from_j(energy_j: ArrayLike) -> IntArray:
    """Joules to microjoules, rounded to the nearest. Any shape."""
    return np.rint(np.asarray(energy_j, dtype=np.float64) * UJ_PER_J).astype(np.int64)


def j_from_uj(energy_uj: ArrayLike) -> FloatArray:
    """Microjoules to joules. Any shape."""
    return np.asarray(energy_uj, dtype=np.float64) / UJ_PER_J


def uw_from_w(power_w: ArrayLike) -> IntArray:
    """Watts to microwatts, rounded to the nearest. Any shape."""
    return np.rint(np.asarray(power_w, dtype=np.float64) * UW_PER_W).astype(np.int64)


def w_from_uw(power_uw: ArrayLike) -> FloatArray:
    """Microwatts to watts. Any shape."""
    return np.asarray(power_uw, dtype=np.float64) / UW_PER_W


def deadline_ps_from_s(deadline_s: float) -> int:
    """A deadline as people write it: it names a nanosecond, and any time that rounds to that one meets it."""
    return round(deadline_s * 1e9) * PS_PER_NS + PS_PER_NS // 2


def ms_from_ps(time_ps: ArrayLike) -> FloatArray:
    """Picoseconds to milliseconds. Any shape."""
    return np.asarray(time_ps, dtype=np.float64) / PS_PER_MS


def energy_uj(power_uw: int, time_ps: int) -> int:
    """Energy of a constant power over a time [uJ], rounded; in Python integers, because 64 bits would overflow."""
    return (power_uw * time_ps + PS_PER_S // 2) // PS_PER_S
