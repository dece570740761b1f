"""A job's pace where prices are forecast: at each slot's begin the rest of the way is planned anew, and one slot gone.

The forecasts may be wrong; the finish is not: what the fastest point can still do in the slots that are left is counted
in each plan, so no forecast makes a job late that could have been on time.
"""

from collections.abc import Callable, Sequence

from perseus_dist.policies.operating_points import OperatingPoints
from perseus_dist.policies.pace import Pace, Slot, Stretch, follow, pace

Forecast = Callable[[int], Sequence[float]]
"""Slot's index -> prices of it and of all slots behind it, as they are known at its begin."""


def rolling_pace(points: OperatingPoints, slots: Sequence[Slot], iterations: float, forecast: Forecast) -> Pace:
    """Go through slots by forecasts, and pay the prices that come.

    Args:
        points: Of the job.
        slots: With the prices that are paid.
        iterations: To be done by the end of the last slot.
        forecast: What is known of prices when.

    Returns:
        The pace that was kept, with what it cost.
    """
    stretches: list[tuple[Stretch, ...]] = []
    done = 0.0
    for first in range(len(slots)):
        left = iterations - done
        if left <= 1e-9 * iterations:
            break
        prices = forecast(first)
        expected = [
            Slot(duration_s=slot.duration_s, price=price) for slot, price in zip(slots[first:], prices, strict=True)
        ]
        stretches.append(pace(points, expected, left).stretches[0])
        done += sum(stretch.duration_s / points.times_s[stretch.point] for stretch in stretches[-1])
    return follow(points, slots, stretches, iterations)
