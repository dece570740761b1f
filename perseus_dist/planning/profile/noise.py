"""How noisy a profile is: figures and warnings for people. Nothing is smoothed or left out because of them."""

import math
from bisect import bisect
from dataclasses import dataclass

import numpy as np

from perseus_dist.planning.profile.profile import Measurements
from perseus_dist.planning.profile.samples import SIGMA_PER_MAD
from perseus_dist.units import FloatArray, IntArray

NUM_NEIGHBOURS = 8
MIN_EACH_SIDE = 2
MIN_CLOCKS = 6  # a quadratic through the neighbours of each needs some to spare
MIN_INSIDE_SHARE = 0.75  # of the clocks: no more than a quarter can be called off the trend
SUSPICIOUS_SIGMAS = 6.0
SUSPICIOUS_SHARE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspiciousPoint:
    """A point measured once that lies far off the trend of its neighbours.

    Attributes:
        index: Into ``Measurements.clocks_mhz``.
        gpu: Index into ``Measurements.gpus``.
        quantity: "time" or "energy".
        deviation: Measured over expected, minus 1.
    """

    index: int
    gpu: int
    quantity: str
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of one instruction's measurements.

    Attributes:
        non_monotone_share: Of all steps to the next lower clock, the share in which the time falls (0 to 1).
        suspicious: Points to measure again.
    """

    non_monotone_share: float
    suspicious: tuple[SuspiciousPoint, ...]


def noise(measurements: Measurements) -> Noise:
    """Judge the measurements of one instruction."""
    falls = np.diff(measurements.times_s, axis=1) < 0
    suspicious = []
    for gpu in range(len(measurements.gpus)):
        for quantity, values in (("time", measurements.times_s), ("energy", measurements.energies_j)):
            for index, deviation in _off_trend(measurements.clocks_mhz, values[gpu]):
                if measurements.num_samples[gpu, index] == 1:
                    suspicious.append(SuspiciousPoint(index=index, gpu=gpu, quantity=quantity, deviation=deviation))
    return Noise(non_monotone_share=float(falls.mean()) if falls.size else 0.0, suspicious=tuple(suspicious))


def trend_scatter(clocks_mhz: IntArray, values: FloatArray) -> float | None:
    """Relative standard deviation of values about a quadratic, in logarithms, through each one's neighbours.

    Bends and steps of the true curve count as scatter, so that it is rather too large.

    Args:
        clocks_mhz: (num_clocks) [MHz] in any order.
        values: (num_clocks) times or energies, above 0.

    Returns:
        The root of the mean square; None of fewer than ``MIN_CLOCKS``.
    """
    if len(values) < MIN_CLOCKS:
        return None
    x, y, inside = np.log(clocks_mhz), np.log(values), list(range(len(values)))
    return float(np.sqrt(np.mean([_residual(x, y, index, inside)[1] ** 2 for index in inside])))


def _off_trend(clocks_mhz: IntArray, values: FloatArray) -> list[tuple[int, float]]:
    """(index, deviation) of the values that lie far off a quadratic, in logarithms, through their nearest neighbours.

    One outlier bends the trend of all its neighbours. So the worst candidates are set aside one by one, and then judged
    by the trend and the scatter of those that stay. Those without neighbours on both sides go free: real curves have
    kinks, and a trend that is drawn out beyond one accuses honest points.
    """
    if len(values) < MIN_CLOCKS:  # a transfer has one clock, 0
        return []
    x, y = np.log(clocks_mhz), np.log(values)
    inside = list(range(len(x)))
    aside: list[int] = []
    min_inside = max(MIN_CLOCKS, round(MIN_INSIDE_SHARE * len(x)))
    while len(inside) >= min_inside:
        residuals, sigmas = np.array([_residual(x, y, index, inside) for index in inside]).T
        candidates = np.where(np.abs(residuals) > math.log1p(SUSPICIOUS_SHARE), np.abs(sigmas), 0.0)
        worst = int(np.argmax(candidates))
        if candidates[worst] == 0:
            break
        aside.append(inside.pop(worst))
    if not aside:
        return []
    reach = SUSPICIOUS_SIGMAS * SIGMA_PER_MAD * float(np.median(np.abs(sigmas)))
    found = []
    for index in sorted(aside):
        residual, sigma = _residual(x, y, index, inside)
        between = MIN_EACH_SIDE <= bisect(inside, index) <= len(inside) - MIN_EACH_SIDE
        if between and abs(sigma) > reach and abs(residual) > math.log1p(SUSPICIOUS_SHARE):
            found.append((index, math.expm1(residual)))
    return found


def _residual(x: FloatArray, y: FloatArray, index: int, inside: list[int]) -> tuple[float, float]:
    """Measured minus predicted from the nearest others inside: in y, and in its standard deviations up to a factor."""
    others = sorted((other for other in inside if other != index), key=lambda other: abs(x[other] - x[index]))
    neighbours = others[:NUM_NEIGHBOURS]
    offset = x[neighbours] - x[index]
    offset = offset / np.abs(offset).max()
    weights = np.linalg.pinv(np.vander(offset, 3, increasing=True))[0]  # the quadratic's value at offset 0
    residual = float(y[index] - weights @ y[neighbours])
    return residual, residual / math.sqrt(1 + weights @ weights)
