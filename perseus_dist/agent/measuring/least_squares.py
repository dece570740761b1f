"""Weighted least squares for a handful of unknowns, in plain Python, so that an agent needs no numpy to start fast."""

import math
from collections.abc import Sequence
from operator import mul, sub
from typing import NamedTuple

_BLUR_Z = 3.0


class Observation(NamedTuple):
    """``value`` is the sum of unknowns times ``factors``, plus its group's offset, with this standard error.

    The factor of unknown ``blurred`` is measured itself, with the standard error ``blur``; -1 where none is.
    """

    factors: Sequence[float]
    value: float
    error: float
    blurred: int = -1
    blur: float = 0.0


class Unknown(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


class LeastSquares:
    """Collects observations in groups; each group has an offset of its own, which is not estimated."""

    def __init__(self, num_unknowns: int) -> None:
        self._size = num_unknowns
        self._normal = [[0.0] * num_unknowns for _ in range(num_unknowns)]
        self._right = [0.0] * num_unknowns
        self._blur = [0.0] * num_unknowns
        self._squares = 0.0
        self._freedom = 0

    def add_group(self, group: Sequence[Observation]) -> None:
        """Add observations that share an offset: what counts is how they differ from their mean."""
        weights = [1 / observation.error**2 for observation in group]
        total = math.fsum(weights)
        mean = math.fsum(map(mul, weights, [observation.value for observation in group])) / total
        columns = zip(*[observation.factors for observation in group], strict=True)
        means = [math.fsum(map(mul, weights, column)) / total for column in columns]
        right, normal = self._right, self._normal
        for weight, observation in zip(weights, group, strict=True):
            value = observation.value - mean
            if observation.blurred >= 0:
                self._blur[observation.blurred] += weight * observation.blur**2
            factors = list(map(sub, observation.factors, means))
            self._squares += weight * value**2
            for row, factor in enumerate(factors):
                weighted, entries = weight * factor, normal[row]
                right[row] += weighted * value
                for column in range(row + 1):
                    entries[column] += weighted * factors[column]
        self._freedom += len(group) - 1

    def solve(self, priors: Sequence[Unknown]) -> list[Unknown]:
        """The unknowns, each believed to be its prior as far as the observations do not say better.

        Where a factor varies little more than its own blur, that variation is noise and would pull the unknown to 0.
        It is pulled to the prior instead, with the weight of ``_BLUR_Z`` blurs.
        """
        beliefs = [1 / prior.error**2 + _BLUR_Z**2 * blur for prior, blur in zip(priors, self._blur, strict=True)]
        normal = [row[:] for row in self._normal]
        for k in self._range:
            normal[k][k] += beliefs[k]
        lower = _cholesky(normal)
        columns = [_solve(lower, [float(row == column) for row in self._range]) for column in self._range]
        right = [self._right[k] + (beliefs[k] + self._blur[k]) * priors[k].value for k in self._range]
        values = [math.fsum(columns[k][j] * right[j] for j in self._range) for k in self._range]
        # Scatter beyond the stated errors tells that these were too small; less of it is luck.
        scatter = math.sqrt(max(1.0, self._residual_squares(values) / max(1, self._freedom - self._size)))
        return [Unknown(values[k], scatter * math.sqrt(columns[k][k])) for k in self._range]

    @property
    def _range(self) -> range:
        return range(self._size)

    def _residual_squares(self, values: Sequence[float]) -> float:
        fitted = math.fsum(
            (1 if row == column else 2) * values[row] * values[column] * self._normal[row][column]
            for row in self._range
            for column in range(row + 1)
        )
        return self._squares + fitted - 2 * math.fsum(v * r for v, r in zip(values, self._right, strict=True))


def _cholesky(lower_half: Sequence[Sequence[float]]) -> list[list[float]]:
    """The lower triangle whose product with its transpose is a positive definite matrix."""
    factor: list[list[float]] = []
    for row, entries in enumerate(lower_half):
        factor.append([0.0] * len(lower_half))
        for column in range(row + 1):
            rest = entries[column] - math.fsum(factor[row][k] * factor[column][k] for k in range(column))
            factor[row][column] = math.sqrt(rest) if row == column else rest / factor[column][column]
    return factor


def _solve(lower: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Forward, then backward substitution."""
    size = len(right)
    forward: list[float] = []
    for row in range(size):
        rest = right[row] - math.fsum(lower[row][k] * forward[k] for k in range(row))
        forward.append(rest / lower[row][row])
    solution = [0.0] * size
    for row in reversed(range(size)):
        rest = forward[row] - math.fsum(lower[k][row] * solution[k] for k in range(row + 1, size))
        solution[row] = rest / lower[row][row]
    return solution
