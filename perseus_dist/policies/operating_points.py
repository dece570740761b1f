"""The operating points of a job: the iteration times that its plans give it, and what it draws in each."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perseus_dist.errors import PlanningError


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoints:
    """Points from the fastest that a job's promise wants to the least power, each slower than the one before.

    Attributes:
        times_s: (num_points) [s] an iteration, ascending.
        powers_w: (num_points) [W] mean power of all the job's GPUs, falling.
        full_time_s: [s] an iteration with every computation at the maximum clock, which slowdowns are against.
        full_power_w: [W] mean power then.
    """

    times_s: tuple[float, ...]
    powers_w: tuple[float, ...]
    full_time_s: float
    full_power_w: float

    @classmethod
    def of_plans(
        cls,
        times_s: Sequence[float],
        energies_j: Sequence[float],
        *,
        full_time_s: float,
        full_energy_j: float,
        num_pipelines: int = 1,
    ) -> "OperatingPoints":
        """The points of a frontier's plans, those beyond T* included: their energy rises, and their power still falls.

        Args:
            times_s: (num_plans) [s] ascending.
            energies_j: (num_plans) [J] of one pipeline until its iteration ends.
            full_time_s: [s] of an iteration at full clocks.
            full_energy_j: [J] the same of one pipeline.
            num_pipelines: Data-parallel ones, all under the same plan.

        Raises:
            PlanningError: No plan, or a time or energy that is not a positive number.
        """
        for name, values in (
            ("times_s", times_s),
            ("energies_j", energies_j),
            ("full_time_s", [full_time_s]),
            ("full_energy_j", [full_energy_j]),
        ):
            if not values or not all(0 < value < math.inf for value in values):
                raise PlanningError(f"{name}: expected positive numbers, at least one")
        if num_pipelines < 1:
            raise PlanningError(f"num_pipelines: saw {num_pipelines}, expected 1 or more")
        # Times shorter than that of full clocks are not promised.
        first = max(0, bisect_right(times_s, full_time_s * (1 + 1e-9)) - 1)
        kept_s, kept_w = [], [math.inf]
        for time_s, energy_j in zip(times_s[first:], energies_j[first:], strict=True):
            if (power_w := num_pipelines * energy_j / time_s) < kept_w[-1]:
                kept_s.append(time_s)
                kept_w.append(power_w)
        return cls(
            times_s=tuple(kept_s),
            powers_w=tuple(kept_w[1:]),
            full_time_s=full_time_s,
            full_power_w=num_pipelines * full_energy_j / full_time_s,
        )

    @classmethod
    def at_full_power(cls, *, full_time_s: float, full_power_w: float) -> "OperatingPoints":
        """The one point of a job without a frontier."""
        return cls(times_s=(full_time_s,), powers_w=(full_power_w,), full_time_s=full_time_s, full_power_w=full_power_w)

    def with_power(self, degree: float) -> "OperatingPoints":
        """The same points, where all that is drawn is so many times as much."""
        return replace(
            self,
            powers_w=tuple(degree * power_w for power_w in self.powers_w),
            full_power_w=degree * self.full_power_w,
        )

    def slowdown(self, point: int) -> float:
        """Share by which an iteration is longer than at full clocks; below 0 where it is shorter."""
        return self.times_s[point] / self.full_time_s - 1

    def no_slower_than(self, max_slowdown: float) -> "OperatingPoints":
        """The points up to a slowdown, at least the fastest."""
        last = max(1, bisect_right(self.times_s, (1 + max_slowdown) * self.full_time_s * (1 + 1e-9)))
        return OperatingPoints(
            times_s=self.times_s[:last],
            powers_w=self.powers_w[:last],
            full_time_s=self.full_time_s,
            full_power_w=self.full_power_w,
        )
