"""How fast one job goes while the price of its energy changes: least cost for a finish time.

Each slot of time has a price. A job at an operating point does 1/T iterations a second for P(T) watts, so a slot has a
convex curve of cost by iterations, and the cheapest way to a number of iterations is water-filling over the slots: in
dear ones the job goes slower, in cheap ones faster, and in at most one it is between two points of its hull. Within a
slot the job may go at one point first and at the other afterwards, so the curve between them is real. Where a price is
negative, the hull of a slot is its slowest and its fastest point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perseus_dist.errors import PlanningError
from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.water_filling import ConvexCurve, divide, lower_hull

_IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A stretch of time with one price.

    Attributes:
        duration_s: [s] positive.
        price: Of a joule, in any unit: dollars, grams of CO2. It may be negative.
    """

    duration_s: float
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a slot at one operating point.

    Attributes:
        duration_s: [s].
        point: Of the job's operating points.
    """

    duration_s: float
    point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A job's way through slots.

    Attributes:
        stretches: (num_slots) of one or two stretches each; none once the job has finished.
        finish_s: [s] from the first slot's begin until the last iteration ends.
        iterations: Done by then; fewer than asked for only where even the fastest point does not do them in all slots.
        cost: Of the energy until then.
        energy_j: [J] until then.
    """

    stretches: tuple[tuple[Stretch, ...], ...]
    finish_s: float
    iterations: float
    cost: float
    energy_j: float


def pace(points: OperatingPoints, slots: Sequence[Slot], iterations: float) -> Pace:
    """The cheapest pace that does so many iterations by the end of the last slot.

    A job that is done earlier draws no power any more, so ends within each slot are tried, from the last one on.

    Args:
        points: Of the job.
        slots: At least one.
        iterations: To be done; positive. What cannot be done in all slots is done as fast as possible.

    Raises:
        PlanningError: A number out of its range, or no slot.
    """
    _check(slots, iterations)
    curves = [_curve(points, slot) for slot in slots]
    idle_curves = [_with_idling(curve) for curve in curves]
    best: Pace | None = None
    for num_slots in range(_last_end(curves, iterations), 0, -1):
        if best is not None and _least_cost(idle_curves[:num_slots], iterations) >= best.cost:
            break
        last = num_slots - 1
        found = _pace_within(points, slots[:num_slots], [*curves[:last], idle_curves[last]], iterations)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None  # there is a slot
    idle: tuple[tuple[Stretch, ...], ...] = ((),) * (len(slots) - len(best.stretches))
    return Pace(
        stretches=best.stretches + idle,
        finish_s=best.finish_s,
        iterations=best.iterations,
        cost=best.cost,
        energy_j=best.energy_j,
    )


def constant_pace(points: OperatingPoints, slots: Sequence[Slot], iterations: float, finish_s: float) -> Pace:
    """The pace that does not look at prices and finishes at the same time: the same mix of two points in every slot.

    Args:
        points: Of the job.
        slots: At least one.
        iterations: To be done; positive.
        finish_s: [s] from the first slot's begin; earlier than the fastest point allows counts as that.

    Raises:
        PlanningError: A number out of its range, or no slot.
    """
    _check(slots, iterations)
    curve = _curve(points, Slot(duration_s=1.0, price=1.0))
    rate = min(max(iterations / finish_s, curve.amounts[0]), curve.amounts[-1])
    mix = divide([curve], rate).positions[0]
    stretches = []
    for slot in slots:
        duration_s = min(slot.duration_s, max(0.0, finish_s))
        finish_s -= duration_s
        # Beyond the finish there is nothing to do, but for what rounding has left.
        duration_s = duration_s or slot.duration_s
        stretches.append(_stretches(duration_s, curve, mix.vertex, mix.share))
    return follow(points, slots, stretches, iterations)


def follow(
    points: OperatingPoints, slots: Sequence[Slot], stretches: Sequence[Sequence[Stretch]], iterations: float
) -> Pace:
    """Go through slots at given points until the iterations are done.

    Args:
        points: Of the job.
        slots: (num_slots) with the prices that are paid.
        stretches: (num_slots or fewer) what is done in each.
        iterations: To be done.

    Returns:
        The pace that was kept, cut off where the last iteration ends.
    """
    done = cost = energy_j = now_s = 0.0
    kept: list[tuple[Stretch, ...]] = []
    for slot, planned in zip(slots, stretches, strict=False):
        gone: list[Stretch] = []
        for stretch in planned:
            time_s = points.times_s[stretch.point]
            duration_s = min(stretch.duration_s, (iterations - done) * time_s)
            if duration_s <= 0:
                break
            gone.append(Stretch(duration_s=duration_s, point=stretch.point))
            drawn_j = duration_s * points.powers_w[stretch.point]
            done, now_s = done + duration_s / time_s, now_s + duration_s
            energy_j, cost = energy_j + drawn_j, cost + drawn_j * slot.price
        kept.append(tuple(gone))
    return Pace(stretches=tuple(kept), finish_s=now_s, iterations=done, cost=cost, energy_j=energy_j)


def _check(slots: Sequence[Slot], iterations: float) -> None:
    if not slots:
        raise PlanningError("slots: saw none, expected one or more")
    if not 0 < iterations < math.inf:
        raise PlanningError(f"iterations: saw {iterations:g}, expected a positive number")
    for slot in slots:
        if not 0 < slot.duration_s < math.inf or not math.isfinite(slot.price):
            raise PlanningError(
                f"slots: saw {slot.duration_s:g} s at a price of {slot.price:g}, expected a positive duration and a "
                "finite price"
            )


def _last_end(curves: Sequence[ConvexCurve], iterations: float) -> int:
    """The most slots that make a difference: with more, a job at its slowest is done before the last one begins."""
    done = 0.0
    for num_before, curve in enumerate(curves):
        if done > (1 + 1e-9) * iterations:
            return num_before + 1
        done += curve.amounts[0]
    return len(curves)


def _curve(points: OperatingPoints, slot: Slot) -> ConvexCurve:
    """Cost by iterations of a slot."""
    return lower_hull(
        [slot.duration_s / time_s for time_s in points.times_s],
        [slot.duration_s * slot.price * power_w for power_w in points.powers_w],
    )


def _with_idling(curve: ConvexCurve) -> ConvexCurve:
    """The curve of a slot within which the job may end; its vertex without iterations is of the point ``_IDLE``."""
    hull = lower_hull((0.0, *curve.amounts), (0.0, *curve.costs))
    points = tuple(curve.points[vertex - 1] if vertex else _IDLE for vertex in hull.points)
    return ConvexCurve(amounts=hull.amounts, costs=hull.costs, points=points)


def _least_cost(idle_curves: Sequence[ConvexCurve], iterations: float) -> float:
    """The least that so many iterations can cost by the end of these slots, if a job could stop in each of them."""
    division = divide(idle_curves, iterations)
    return division.cost if division.amount >= (1 - 1e-12) * iterations else math.inf


def _stretches(duration_s: float, curve: ConvexCurve, vertex: int, share: float) -> tuple[Stretch, ...]:
    """The two points that a place on a slot's curve lies between, the faster first."""
    mixed = [(share, curve.points[vertex + 1])] if share else []
    mixed.append((1 - share, curve.points[vertex]))
    return tuple(Stretch(duration_s=part * duration_s, point=point) for part, point in mixed if point != _IDLE)


def _pace_within(
    points: OperatingPoints, slots: Sequence[Slot], curves: Sequence[ConvexCurve], iterations: float
) -> Pace:
    positions = divide(curves, iterations).positions
    stretches = [
        _stretches(slot.duration_s, curve, at.vertex, at.share)
        for slot, curve, at in zip(slots, curves, positions, strict=True)
    ]
    return follow(points, slots, stretches, iterations)
