"""From readings to figures: powers, the counter's period, the moment at which kernel times change, quantiles. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perseus_dist.agent.measuring.counter import Edge
from perseus_dist.units import FloatArray

MIN_EDGES = 4
_MAX_EDGE_WIDTH_SHARE = 0.25  # of the period: a wider one came with a late reading
_MIN_CONTRAST_SIGMAS = 4.0  # of the noise of kernel times, that a change of clock must stand out by
_MIN_KERNELS = 5  # on either side of a change
_SIGMA_PER_MAD = 1.4826
_LATE_SIGMAS, _LATE_SHARE = 6.0, 0.01  # of the median, above which a run waited for its launch


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Repeated readings of one figure. Unit as its owner says.

    Attributes:
        num: How many; the others are NaN without any.
        median, p90, p99, worst: Of them.
    """

    num: int
    median: float
    p90: float
    p99: float
    worst: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        """Of any number of values."""
        if not values:
            return cls(num=0, median=float("nan"), p90=float("nan"), p99=float("nan"), worst=float("nan"))
        median, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99]).tolist()
        return cls(num=len(values), median=median, p90=p90, p99=p99, worst=max(values))


def undisturbed(times_s: Sequence[float]) -> list[float]:
    """[s] of runs without those that waited for a host that was late: far above the median. Any number of them."""
    times = np.array(times_s)
    median = float(np.median(times))
    reach_s = max(_LATE_SIGMAS * _spread(times, median), _LATE_SHARE * median)
    kept: list[float] = times[times <= median + reach_s].tolist()
    return kept


def mean_power_w(edges: Sequence[Edge], begin_ns: int, end_ns: int, period_ns: int) -> tuple[float, float] | None:
    """Mean power while the GPU did one and the same thing, and its standard error [W].

    Args:
        edges: Publications of the energy counter, ascending.
        begin_ns: From here on [ns]; what was published before is left out.
        end_ns: Until here.
        period_ns: Of the counter.

    Returns:
        None where fewer than ``MIN_EDGES`` publications are well located.
    """
    inside = [
        edge
        for edge in edges
        if edge.earliest_ns >= begin_ns
        and edge.latest_ns <= end_ns
        and edge.width_ns <= _MAX_EDGE_WIDTH_SHARE * period_ns
    ]
    if len(inside) < MIN_EDGES:
        return None
    times_s = np.array([edge.time_ns - begin_ns for edge in inside]) / 1e9
    energies_j = np.array([edge.energy_mj for edge in inside]) / 1e3
    centred_s = times_s - times_s.mean()
    power_w = float(centred_s @ energies_j / (centred_s @ centred_s))
    residuals_j = energies_j - energies_j.mean() - power_w * centred_s
    # An edge lies anywhere between its bounds; where the counter is smoother than that, the bounds count.
    from_fit_j2 = float(residuals_j @ residuals_j) / (len(inside) - 2)
    from_bounds_j2 = float(np.mean([edge.width_ns**2 for edge in inside])) / 12 / 1e18 * power_w**2
    return power_w, float(np.sqrt(max(from_fit_j2, from_bounds_j2) / (centred_s @ centred_s)))


def counter_period_s(edges: Sequence[Edge], guess_s: float) -> float | None:
    """How often the energy counter is published [s], from publications of which some may have been missed.

    Args:
        edges: Ascending, under load, so that each publication shows.
        guess_s: Right to a third.

    Returns:
        None where too few are well located.
    """
    located = [edge for edge in edges if edge.width_ns <= _MAX_EDGE_WIDTH_SHARE * guess_s * 1e9]
    steps = [(later.time_ns - earlier.time_ns) / 1e9 for earlier, later in pairwise(located)]
    periods = [step / round(step / guess_s) for step in steps if 0.6 * guess_s < step < 5.4 * guess_s]
    return float(np.median(periods)) if len(periods) >= MIN_EDGES else None


def change_ns(begins_ns: Sequence[int], ends_ns: Sequence[int], request_ns: int) -> int | None:
    """When the times of equal kernels, launched one after the other, changed to another level after a request.

    The change lies in the kernel that splits the times into two levels with the least sum of absolute deviations from
    the medians before the request and at the end; how much of that kernel ran before it follows from its own time.

    Args:
        begins_ns: (num_kernels) [ns] when each began, ascending.
        ends_ns: (num_kernels) when it ended.
        request_ns: When another clock was asked for.

    Returns:
        None where there are too few kernels, or the two levels do not stand out of the noise.
    """
    begins, ends = np.array(begins_ns, dtype=np.int64), np.array(ends_ns, dtype=np.int64)
    durations = (ends - begins).astype(np.float64)
    first = int(np.searchsorted(ends, request_ns, side="right"))  # the first that the change can touch
    after = len(durations) - first
    if first < _MIN_KERNELS or after < 2 * _MIN_KERNELS:
        return None
    old = float(np.median(durations[:first]))
    new = float(np.median(durations[-(after // 3 or 1) :]))
    noise = max(_spread(durations[:first], old), _spread(durations[-(after // 3 or 1) :], new))
    if abs(new - old) <= _MIN_CONTRAST_SIGMAS * noise:
        return None
    as_old, as_new = np.abs(durations[first:] - old), np.abs(durations[first:] - new)
    # costs[k]: the first k kernels after the request ran at the old level, the others at the new one.
    costs = np.concatenate(([0.0], np.cumsum(as_old))) + np.concatenate((np.cumsum(as_new[::-1])[::-1], [0.0]))
    split = first + int(np.argmin(costs))
    # The kernel that straddles the change counts as one of the two levels, whichever it is closer to.
    candidates = [index for index in (split - 1, split) if first <= index < len(durations)]
    straddling = max(candidates, key=lambda index: min(abs(durations[index] - old), abs(durations[index] - new)))
    share = float(np.clip((durations[straddling] - new) / (old - new), 0.0, 1.0))  # of its work, done before
    return max(request_ns, int(begins[straddling] + share * old))


def _spread(values: FloatArray, median: float) -> float:
    return _SIGMA_PER_MAD * float(np.median(np.abs(values - median)))
