"""Histograms of durations: counts in fixed buckets, as Prometheus shows them."""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

ITERATION_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
SWITCH_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PLANNING_BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(slots=True)
class DurationHistogram:
    """Durations by bucket; each takes one binary search.

    Attributes:
        bounds_s: [s] upper bounds of the buckets, included in them, ascending; longer ones are counted above the last.
        sum_s: [s] of all durations.
    """

    bounds_s: tuple[float, ...]
    sum_s: float = 0.0
    _counts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds_s) + 1)

    def observe(self, duration_s: float) -> None:
        """Count one duration [s] in its bucket."""
        self._counts[bisect_left(self.bounds_s, duration_s)] += 1
        self.sum_s += duration_s

    @property
    def num(self) -> int:
        """Number of durations counted."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, float]]:
        """Upper bound as text, ``+Inf`` the last, and how many durations were at most that."""
        names = [*map(str, self.bounds_s), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))
