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


Span = tuple[int, int]
"""Begin and end [ns], CLOCK_MONOTONIC."""


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
    kept: list[float] = times[times <= _late_from(times)].tolist()
    return kept


def busy_spans(begins_ns: Sequence[int], ends_ns: Sequence[int], settle_ns: int) -> list[Span]:
    """When the device worked without a pause, from runs of the same kind, one after the other.

    A host that is late leaves the device idle, within a run or before the next one. Either makes the time from one
    begin to the next far longer than the median, and ends a span.

    Args:
        begins_ns: (num_runs) [ns] of each run, ascending; at least one.
        ends_ns: (num_runs) [ns] of each.
        settle_ns: Left out at the begin of each span: the device had another power just before.

    Returns:
        [ns] begin and end of each, ascending.
    """
    bounds_ns = np.array([*begins_ns, ends_ns[-1]], dtype=np.int64)
    steps_ns = np.diff(bounds_ns).astype(np.float64)
    late = np.flatnonzero(steps_ns > _late_from(steps_ns)).tolist()
    spans = zip([0, *(index + 1 for index in late)], [*late, len(steps_ns)], strict=True)
    found = [(int(bounds_ns[first]) + settle_ns, int(bounds_ns[last])) for first, last in spans]
    return [(begin_ns, end_ns) for begin_ns, end_ns in found if begin_ns < end_ns]


def mean_power_w(edges: Sequence[Edge], spans: Sequence[Span], period_ns: int) -> tuple[float, float] | None:
    """Mean power while the GPU did one and the same thing, and its standard error [W].

    Args:
        edges: Publications of the energy counter, ascending.
        spans: When it did [ns]: one line is fitted to the energies in each, all with the same slope. What was published
            outside is left out.
        period_ns: Of the counter.

    Returns:
        None where fewer than ``MIN_EDGES`` publications are well located.
    """
    located = [edge for edge in edges if edge.width_ns <= _MAX_EDGE_WIDTH_SHARE * period_ns]
    inside = [
        [edge for edge in located if edge.earliest_ns >= begin_ns and edge.latest_ns <= end_ns]
        for begin_ns, end_ns in spans
    ]
    inside = [of_span for of_span in inside if len(of_span) > 1]
    num_edges = sum(map(len, inside))
    num_free = num_edges - len(inside) - 1
    if num_edges < MIN_EDGES or num_free < 1:
        return None
    times_s = np.concatenate([_centred([edge.time_ns for edge in of_span]) for of_span in inside]) / 1e9
    energies_j = np.concatenate([_centred([edge.energy_mj for edge in of_span]) for of_span in inside]) / 1e3
    power_w = float(times_s @ energies_j / (times_s @ times_s))
    residuals_j = energies_j - power_w * times_s
    # An edge lies anywhere between its bounds; where the counter is smoother than that, the bounds count.
    from_fit_j2 = float(residuals_j @ residuals_j) / num_free
    widths_ns = np.array([edge.width_ns for of_span in inside for edge in of_span], dtype=np.float64)
    from_bounds_j2 = float(np.mean(widths_ns**2)) / 12 / 1e18 * power_w**2
    return power_w, float(np.sqrt(max(from_fit_j2, from_bounds_j2) / (times_s @ times_s)))


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


def _centred(values: Sequence[int]) -> FloatArray:
    """Differences to the mean; exact before the mean is taken, as times of CLOCK_MONOTONIC are large."""
    centred: FloatArray = np.array([value - values[0] for value in values], dtype=np.float64)
    centred -= centred.mean()
    return centred


def _late_from(times: FloatArray) -> float:
    """Above which times are those of runs that waited for their launch, in the times' unit."""
    median = float(np.median(times))
    return median + max(_LATE_SIGMAS * _spread(times, median), _LATE_SHARE * median)


def _spread(values: FloatArray, median: float) -> float:
    return _SIGMA_PER_MAD * float(np.median(np.abs(values - median)))
