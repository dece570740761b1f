"""Divides one resource over convex costs at the least total cost: the engine of every policy.

Each curve says what an amount of the resource costs: a job's slowdown by its watts, a half-hour's grams of CO2 by its
iterations. The curves are convex and piecewise linear, so the cheapest division goes along their segments in the order
of slopes, and ends within one of them: at most one curve is between two of its points, and the slope there is the
multiplier, the price of one unit more of the resource.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvexCurve:
    """A lower convex hull.

    Attributes:
        amounts: (num_vertices) ascending.
        costs: (num_vertices) with ascending slopes between them.
        points: (num_vertices) index of each vertex among the points that the hull is of.
    """

    amounts: tuple[float, ...]
    costs: tuple[float, ...]
    points: tuple[int, ...]

    def slope(self, vertex: int) -> float:
        """Cost of one unit more between a vertex and the next."""
        return (self.costs[vertex + 1] - self.costs[vertex]) / (self.amounts[vertex + 1] - self.amounts[vertex])


@dataclass(frozen=True, slots=True)
class Position:
    """A place on a curve.

    Attributes:
        vertex: The last one reached.
        share: Of the segment behind it, below 1; 0 at the vertex itself.
    """

    vertex: int
    share: float


@dataclass(frozen=True, slots=True)
class Division:
    """The cheapest division of an amount.

    Attributes:
        positions: (num_curves) at most one of them is between two vertices.
        amount: Divided.
        cost: Of all curves together; no other division of this amount costs less.
        multiplier: Cost of one unit more; 0 where the curves' ends leave none to give.
    """

    positions: tuple[Position, ...]
    amount: float
    cost: float
    multiplier: float


def lower_hull(amounts: Sequence[float], costs: Sequence[float]) -> ConvexCurve:
    """The lower convex hull of points.

    Args:
        amounts: (num_points) in any order, at least one; of points with the same amount the cheapest counts.
        costs: (num_points).
    """
    hull: list[int] = []
    for point in sorted(range(len(amounts)), key=lambda point: (amounts[point], costs[point])):
        if hull and amounts[point] == amounts[hull[-1]]:
            continue
        while len(hull) > 1 and _is_above(amounts, costs, hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return ConvexCurve(
        amounts=tuple(amounts[point] for point in hull),
        costs=tuple(costs[point] for point in hull),
        points=tuple(hull),
    )


def divide(curves: Sequence[ConvexCurve], amount: float) -> Division:
    """Divide an amount over curves at the least total cost.

    Args:
        curves: At least one.
        amount: At least the sum of the curves' least amounts; less counts as that sum, and more than the sum of their
            greatest amounts as that one.
    """
    vertices = [0] * len(curves)
    left = amount - sum(curve.amounts[0] for curve in curves)
    cost = sum(curve.costs[0] for curve in curves)
    shares = [0.0] * len(curves)
    multiplier = 0.0
    segments = sorted(
        (curve.slope(vertex), index, vertex)
        for index, curve in enumerate(curves)
        for vertex in range(len(curve.amounts) - 1)
    )
    for slope, index, vertex in segments:
        length = curves[index].amounts[vertex + 1] - curves[index].amounts[vertex]
        if left < length:
            shares[index] = max(0.0, left) / length
            cost += slope * max(0.0, left)
            left, multiplier = min(0.0, left), slope
            break
        vertices[index] = vertex + 1
        cost += slope * length
        left -= length
    return Division(
        positions=tuple(Position(vertex, share) for vertex, share in zip(vertices, shares, strict=True)),
        amount=amount - left,
        cost=cost,
        multiplier=multiplier,
    )


def _is_above(amounts: Sequence[float], costs: Sequence[float], first: int, middle: int, last: int) -> bool:
    """Whether the middle one of three points lies on or above the line through the others."""
    rise = (costs[middle] - costs[first]) * (amounts[last] - amounts[first])
    return rise >= (costs[last] - costs[first]) * (amounts[middle] - amounts[first])
