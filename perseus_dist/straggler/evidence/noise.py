"""How noisy evidence is, and how much one iteration resembles the one before it.

Noise is measured by differences between successive values, which a straggler that comes and stays does not widen.
Values that drift hide some of their noise from differences, and their medians some more: both are mended by the
correlation of successive values, which a group of places has in common.
"""

import math

import numpy as np
from numpy.typing import NDArray

from perseus_dist.units import FloatArray

_PRIOR_SIGMA, _PRIOR_WEIGHT = 0.02, 1
_MIN_SIGMA = 0.002
_MEMORY = 64
_POOL_WEIGHT = 12  # values of its own that a place must have to count as much as its group
# Mean absolute difference of two normal values over their standard deviation.
_MEAN_DIFFERENCE = 2 / math.sqrt(math.pi)
_FORGETTING = 0.99
_PRIOR_CORRELATION, _PRIOR_PAIRS, _MAX_CORRELATION = 0.2, 24.0, 0.9


class Noise:
    """Noise of many places.

    Attributes:
        num_taken: (num_places) values so far.
        sigma: (num_places) standard deviation of a single value.
        variance_of_mean: (num_places) of the mean of ``n`` successive values, times ``n``.
    """

    def __init__(self, groups: NDArray[np.integer]) -> None:
        """Args: (num_places) the group of each place, whose noise is pooled."""
        num_places = len(groups)
        self._group, self._num_groups = np.asarray(groups, dtype=np.intp), 1 + int(groups.max())
        self._num_in_group = self._sum(np.ones(num_places))
        self._difference = np.full(num_places, _PRIOR_SIGMA * _MEAN_DIFFERENCE)
        self._last = np.full(num_places, np.nan)
        self._squares, self._products, self._num_pairs = np.zeros((3, self._num_groups))
        self.num_taken = np.zeros(num_places, dtype=np.intp)
        self._conclude()

    def take(self, values: FloatArray, unusual: float, is_straggler: NDArray[np.bool_]) -> None:
        """Take note of one iteration.

        Args:
            values: (num_places) NaN where there is none.
            unusual: Values above this, and above 3 standard deviations, may be a straggler's.
            is_straggler: (num_places) known ones: that their values resemble each other is no noise.
        """
        is_there = ~np.isnan(values)
        self.num_taken += is_there
        steps = np.abs(values - self._last)
        is_pair = ~np.isnan(steps)
        weights = 1 / (_PRIOR_WEIGHT + np.minimum(self.num_taken, _MEMORY))
        bounded = np.minimum(steps, 4 * self._difference)  # one outlier must not make a place deaf
        self._difference[is_pair] += (weights * (bounded - self._difference))[is_pair]
        self._correlate(values, np.where(is_straggler, 0.0, np.maximum(unusual, 3 * self.sigma)))
        self._last = np.where(is_there, values, self._last)
        self._conclude()

    def _correlate(self, values: FloatArray, limit: FloatArray) -> None:
        is_usual = np.maximum(np.abs(values), np.abs(self._last)) < limit  # NaN compares false
        now, before = np.where(is_usual, values, 0.0), np.where(is_usual, self._last, 0.0)
        self._squares = _FORGETTING * self._squares + self._sum((now**2 + before**2) / 2)
        self._products = _FORGETTING * self._products + self._sum(now * before)
        self._num_pairs = _FORGETTING * self._num_pairs + self._sum(is_usual.astype(np.float64))

    def _conclude(self) -> None:
        measured = self._products / np.maximum(self._squares, 1e-18)
        mixed = self._num_pairs * measured + _PRIOR_PAIRS * _PRIOR_CORRELATION
        correlation = np.clip(mixed / (self._num_pairs + _PRIOR_PAIRS), 0, _MAX_CORRELATION)[self._group]
        own = np.maximum(self._difference / _MEAN_DIFFERENCE, _MIN_SIGMA) ** 2
        pooled = (self._sum(own) / np.maximum(self._num_in_group, 1))[self._group]
        num = np.minimum(self.num_taken, _MEMORY)
        held = np.maximum((num * own + _POOL_WEIGHT * pooled) / (num + _POOL_WEIGHT), pooled / 2)
        self.sigma = np.sqrt(held / (1 - correlation))
        self.variance_of_mean = self.sigma**2 * (1 + correlation) / (1 - correlation)

    def _sum(self, values: FloatArray) -> FloatArray:
        sums: FloatArray = np.bincount(self._group, weights=values, minlength=self._num_groups).astype(np.float64)
        return sums
