"""One kind of evidence about many places: its noise, and what its latest values say.

A value is a logarithm: how much slower than a reference a place was in one iteration. Medians over a few iterations
are judged, because a single hiccup (a collection of garbage, a retransmission) is no straggler however long it takes.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_dist.straggler.evidence.noise import Noise
from perseus_dist.straggler.policy import StragglerPolicy
from perseus_dist.units import FloatArray

BoolArray = NDArray[np.bool_]

# Variance of a median over that of a mean, of normal values.
_MEDIAN_INFLATION = math.pi / 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Medians of the last values, and how wrong they can be. Logarithms, NaN where there are too few values.

    Attributes:
        median: (num_places).
        error: (num_places) standard error by the noise.
        doubt: (num_places) what may be wrong however many iterations there are.
    """

    median: FloatArray
    error: FloatArray
    doubt: FloatArray

    def lower(self, z: float) -> FloatArray:
        """(num_places) lower end of the interval, ``z`` standard errors away."""
        return self.median - z * self.error - self.doubt

    def upper(self, z: float) -> FloatArray:
        """(num_places) upper end of the interval."""
        return self.median + z * self.error + self.doubt


class EvidenceSeries:
    """History of one kind of evidence.

    Attributes:
        noise: Of each place.
    """

    def __init__(self, groups: NDArray[np.integer], policy: StragglerPolicy) -> None:
        """Args: (num_places) the group of each place, whose noise is pooled; when to believe."""
        num_places = len(groups)
        self._policy = policy
        self._values = np.full((policy.windows[-1], num_places), np.nan)
        self._doubts = np.zeros((policy.windows[-1], num_places))
        self._num_passes = np.zeros(num_places, dtype=np.intp)
        self._num_excused_passes = np.zeros(num_places, dtype=np.intp)
        self._num_known = np.zeros(num_places, dtype=np.intp)
        self.noise = Noise(groups)

    def take(
        self,
        values: FloatArray,
        is_straggler: BoolArray,
        doubts: FloatArray | float = 0.0,
        num_compared: NDArray[np.intp] | int = 0,
    ) -> None:
        """Take note of one iteration.

        Args:
            values: (num_places) above what is usual; NaN where there is none.
            is_straggler: (num_places) known ones.
            doubts: (num_places) how wrong a value may be for reasons that more iterations do not mend.
            num_compared: (num_places) iterations so far in which a place was compared, with a value or without.
        """
        self._values[:-1], self._doubts[:-1] = self._values[1:].copy(), self._doubts[1:].copy()
        self._values[-1], self._doubts[-1] = values, doubts
        self._num_known = np.minimum(self._num_known + ~np.isnan(values), len(self._values))
        need = math.log(self._policy.min_degree)
        self.noise.take(values, need, is_straggler)
        latest = self.estimate(self._policy.latest_window)
        is_ripe = np.maximum(self.noise.num_taken, num_compared) >= self._policy.min_history
        candidates = np.flatnonzero(is_ripe & (latest.median > need))  # NaN compares false; what is over is none
        plain = np.zeros(len(candidates), dtype=bool)
        tests = zip(self._policy.windows, self._policy.z, strict=True) if len(candidates) else ()
        for window, z in tests:
            estimate = self.estimate(window, candidates)
            plain |= (estimate.lower(self._policy.interval_z) > need) & (estimate.lower(z) > 0)
        excused = plain | (latest.lower(self._policy.excused_z)[candidates] > need)
        self._num_passes = _counted(self._num_passes, candidates[plain])
        self._num_excused_passes = _counted(self._num_excused_passes, candidates[excused])

    def estimate(self, window: int, places: NDArray[np.integer] | None = None) -> Estimate:
        """The estimate from the last ``window`` iterations; more than half of them must be there.

        Args:
            window: Iterations.
            places: Those asked about; all where left out.
        """
        rows, doubts, variance = self._values[-window:], self._doubts[-window:], self.noise.variance_of_mean
        if places is not None:
            rows, doubts, variance = rows[:, places], doubts[:, places], variance[places]
        num = np.count_nonzero(~np.isnan(rows), axis=0)
        ascending = np.sort(rows, axis=0)  # NaN at the end
        lower, upper = np.maximum(num - 1, 0) // 2, np.minimum(num // 2, window - 1)
        columns = np.arange(rows.shape[1])
        median = (ascending[lower, columns] + ascending[upper, columns]) / 2
        median[2 * num <= window] = np.nan
        error = np.sqrt(_MEDIAN_INFLATION * variance / np.maximum(num, 1))
        return Estimate(median=median, error=error, doubt=doubts.sum(axis=0) / window)

    def is_raised(self, is_excused: BoolArray) -> BoolArray:
        """(num_places) where the evidence has sufficed often enough; less is asked where NVML says throttled."""
        need = self._policy.num_passes
        raised: BoolArray = (self._num_passes >= need) | (is_excused & (self._num_excused_passes >= need))
        return raised

    def forget(self, place: int) -> None:
        """Evidence of what is over must not count again; the usual level and the noise stay known."""
        self._values[:, place] = np.nan
        self._num_passes[place] = self._num_excused_passes[place] = self._num_known[place] = 0

    def num_known(self, place: int) -> int:
        """Values of one place since what was before was forgotten, as far back as any are kept."""
        return int(self._num_known[place])

    @property
    def unusual(self) -> FloatArray:
        """(num_places) what a value of one iteration must be above to be more than noise, and worth acting upon."""
        more: FloatArray = np.maximum(math.log(self._policy.min_degree), 3 * self.noise.sigma)
        return more

    @property
    def is_suspect(self) -> BoolArray:
        """(num_places) where the latest iteration may be evidence, if not enough yet: nothing usual to learn from."""
        is_unusual = self._values[-1] > self.unusual
        suspect: BoolArray = (self._num_passes > 0) | (self._num_excused_passes > 0) | is_unusual
        return suspect

    def since(self, place: int, above: float) -> int:
        """How many of the last iterations at one place were all above a value, missing ones passed over."""
        num = 0
        for age, value in enumerate(self._values[::-1, place].tolist(), start=1):
            if value <= above:
                break
            if value == value:  # not NaN
                num = age
        return num


def _counted(num_passes: NDArray[np.intp], passing: NDArray[np.intp]) -> NDArray[np.intp]:
    """One more for those that pass, none for all others."""
    counted = np.zeros_like(num_passes)
    counted[passing] = num_passes[passing] + 1
    return counted
