"""A small linear programme by an interior-point method: shares of choices, groups that sum to 1, paths within a time.

    minimise  cost . x    where  the shares x of each group sum to 1 and are not negative, and for each path
                                 sum over classes of count x (sum over choices of duration x share)  <=  limit

Source: Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2 (1992). Groups and
classes are eliminated block by block, so that a step costs a few passes over the choices and one system of equations
with an unknown for each path.
"""

from typing import NamedTuple

import numpy as np

from perseus_dist.units import FloatArray

_MAX_STEPS = 60
_SHARE_OF_STEP = 0.995
_LEAST = 1e-12
_REGULAR = 1e-12


class Solution(NamedTuple):
    """The end of the method; whatever was not reached, ``prices`` make a valid bound.

    Attributes:
        shares: (num_groups, num_choices) from 0, of each group 1 in all.
        prices: (num_paths) from 0, cost that one unit more of each limit saves.
    """

    shares: FloatArray
    prices: FloatArray


class _Point(NamedTuple):
    """Where the method stands, or the direction that it takes.

    Attributes:
        x: (num_groups, num_choices) shares.
        s: (num_paths) what limits leave.
        u: (num_groups) prices of the groups' sums.
        price: (num_paths) prices of the limits.
        z: (num_groups, num_choices) reduced costs.
    """

    x: FloatArray
    s: FloatArray
    u: FloatArray
    price: FloatArray
    z: FloatArray


class _Equations(NamedTuple):
    """The system of a step: what is eliminated, its matrix, and what the point lacks."""

    theta: FloatArray
    total: FloatArray
    load: FloatArray
    matrix: FloatArray
    missing: FloatArray
    over: FloatArray
    dual: FloatArray


def solve(
    cost: FloatArray, durations: FloatArray, counts: FloatArray, limits: FloatArray, *, tolerance: float
) -> Solution:
    """Solve; costs and limits should be of the order of 1.

    Args:
        cost: (num_groups, num_choices).
        durations: (num_groups, num_classes_of_each, num_choices).
        counts: (num_paths, num_groups, num_classes_of_each).
        limits: (num_paths).
        tolerance: Difference of cost from the bound at which the method ends.
    """
    num_paths = len(limits)
    of_group = np.ascontiguousarray(counts.transpose(1, 0, 2))  # (num_groups, num_paths, num_classes_of_each)

    def along_paths(shares: FloatArray) -> FloatArray:
        per_class = np.matmul(durations, shares[:, :, None])[:, :, 0]
        times: FloatArray = np.einsum("pgk,gk->p", counts, per_class)
        return times

    def priced(prices: FloatArray) -> FloatArray:
        per_class = np.einsum("p,pgk->gk", prices, counts)
        costs: FloatArray = np.matmul(per_class[:, None, :], durations)[:, 0, :]
        return costs

    def direction(point: _Point, of: _Equations, xz: FloatArray, sl: FloatArray) -> _Point:
        """To where the products x z and s price are more by these."""
        t = xz / point.x - of.dual
        behind = (of.missing - (of.theta * t).sum(axis=1)) / of.total
        right = of.load @ behind - of.over + along_paths(of.theta * t) + sl / point.price
        price = np.linalg.solve(of.matrix, right)
        u = behind + (price @ of.load) / of.total
        x = of.theta * (u[:, None] - priced(price) + t)
        return _Point(x, (sl - point.s * price) / point.price, u, price, (xz - point.z * x) / point.x)

    x = np.full_like(cost, 1 / cost.shape[1])
    price = np.full(num_paths, 0.1 / num_paths)
    reduced = cost + priced(price)
    u = reduced.min(axis=1) - 0.05
    at = _Point(x, np.maximum(limits - along_paths(x), 0.05), u, price, reduced - u[:, None])
    for _ in range(_MAX_STEPS):
        missing = 1 - at.x.sum(axis=1)
        over = limits - along_paths(at.x) - at.s
        gap = float((at.x * at.z).sum() + at.s @ at.price)
        if max(gap, np.abs(missing).max(), np.abs(over).max()) < tolerance:
            break
        theta = at.x / at.z
        total = theta.sum(axis=1)
        mean = np.matmul(durations, theta[:, :, None])[:, :, 0]
        block = np.matmul(durations * theta[:, None, :], durations.transpose(0, 2, 1))
        block -= mean[:, :, None] * (mean / total[:, None])[:, None, :]
        matrix = np.einsum("gpk,gqk->pq", np.matmul(of_group, block), of_group)
        matrix[np.diag_indices(num_paths)] += at.s / at.price + _REGULAR * (1 + np.trace(matrix) / num_paths)
        load = np.einsum("gpk,gk->pg", of_group, mean)
        dual = cost - at.u[:, None] + priced(at.price) - at.z
        equations = _Equations(theta, total, load, matrix, missing, over, dual)
        ahead = direction(at, equations, -at.x * at.z, -at.s * at.price)
        primal, length = _lengths(at, ahead)
        after = ((at.x + primal * ahead.x) * (at.z + length * ahead.z)).sum()
        after += (at.s + primal * ahead.s) @ (at.price + length * ahead.price)
        target = gap / (at.x.size + at.s.size) * (after / gap) ** 3
        taken = direction(
            at,
            equations,
            target - at.x * at.z - ahead.x * ahead.z,
            target - at.s * at.price - ahead.s * ahead.price,
        )
        primal, length = _lengths(at, taken)
        at = _Point(
            x=np.maximum(at.x + primal * taken.x, _LEAST),
            s=np.maximum(at.s + primal * taken.s, _LEAST),
            u=at.u + length * taken.u,
            price=np.maximum(at.price + length * taken.price, _LEAST),
            z=np.maximum(at.z + length * taken.z, _LEAST),
        )
    return Solution(at.x / at.x.sum(axis=1, keepdims=True), at.price)


def _lengths(at: _Point, by: _Point) -> tuple[float, float]:
    """How far shares and prices may go."""
    return _length((at.x, by.x), (at.s, by.s)), _length((at.z, by.z), (at.price, by.price))


def _length(*pairs: tuple[FloatArray, FloatArray]) -> float:
    """The longest step, at most 1, after which every value is still positive."""
    most = 1.0
    for values, steps in pairs:
        falls = steps < 0
        if falls.any():
            most = min(most, _SHARE_OF_STEP * float((-values[falls] / steps[falls]).min()))
    return most
