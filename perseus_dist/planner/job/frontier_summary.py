"""The planner's summary of a frontier: times and energies of its plans, enough to choose a point without numpy."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise

from perseus_dist.units import PS_PER_S

SLOW_FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0)
"""The slownesses of a rank for which ``slow_rank_ps`` is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierSummary:
    """The points of a plan table, ascending in time and falling in effective energy; one pipeline, all its GPUs.

    Attributes:
        time_ps: (num_points) [ps] iteration time of each plan.
        total_uj: (num_points) [uJ] drawn until the pipeline's own iteration ends.
        lower_bound_uj: (num_points) [uJ] that any execution of that time draws at least.
        baseline_time_ps: [ps] at all-maximum clocks, by the profile.
        baseline_uj: [uJ] the same.
        total_blocking_uw: [uW] of all GPUs waiting.
        solve_seconds, realise_seconds: [s] what planning took.
        kind_shares: Of each ``Kind``, in their order, the share in all computation at maximum clocks; empty where a
            planner of before did not write them.
        tail_ps: [ps] of the baseline after its last computation, as for gradients and the optimizer.
        slow_rank_ps: (pp_size, len(SLOW_FACTORS)) [ps] of the baseline with one rank so many times as slow; empty of
            a first plan, and where a planner of before did not write it.
        slowest_case_ps: [ps] the same as ``baseline_time_ps`` in the slowest case that plans are on time in, as with a
            slow link; 0 where there is one case, and where a planner of before did not write it.
        saving_low, saving_high: (num_points) where each plan's saving is likely to lie, by the profile's errors; empty
            where the profile does not show them, of a first plan, and where a planner of before did not write them.
        gained_ps: [ps] less than ``baseline_time_ps`` from one iteration's begin to the next one's, where they overlap.
        margin: That plans keep for noise, as of ``planning.frontier.noise_margin``; 0 for none.
        noise: Standard deviation of an iteration's time that it is for, as a share; 0 where that is not known.
        least_margin: The margin that was asked for at least.
        own_noise: The same, of what each instruction has by itself: pipelines beside each other vary apart by it. 0
            where it is not worth reckoning with, or not known.
        late_by: (num_points) shares by which iterations under each plan last longer on the mean for such noise; empty
            where ``own_noise`` is 0.
        is_by_phase: Whether clocks change by time within an iteration whose instructions cannot be seen.
    """

    time_ps: tuple[int, ...]
    total_uj: tuple[int, ...]
    lower_bound_uj: tuple[int, ...]
    baseline_time_ps: int
    baseline_uj: int
    total_blocking_uw: int
    solve_seconds: float = 0.0
    realise_seconds: float = 0.0
    kind_shares: tuple[float, ...] = ()
    tail_ps: int = 0
    slow_rank_ps: tuple[tuple[int, ...], ...] = ()
    slowest_case_ps: int = 0
    saving_low: tuple[float, ...] = ()
    saving_high: tuple[float, ...] = ()
    is_by_phase: bool = False
    gained_ps: int = 0
    margin: float = 0.0
    noise: float = 0.0
    least_margin: float = 0.0
    own_noise: float = 0.0
    late_by: tuple[float, ...] = ()

    @property
    def fastest_ps(self) -> int:
        """[ps] iteration time of the fastest plan."""
        return self.time_ps[0]

    @property
    def of_many(self) -> float:
        """Time from one begin to the next over that of one iteration alone, at all-maximum clocks."""
        return 1.0 - self.gained_ps / self.baseline_time_ps

    @property
    def full_point(self) -> int:
        """The point that stands for all-maximum clocks: one past the last plan."""
        return len(self.time_ps)

    def planned_ps(self, point: int) -> int:
        """[ps] iteration time of a plan, or at all-maximum clocks."""
        return self.baseline_time_ps if point == self.full_point else self.time_ps[point]

    def planned_uj(self, point: int) -> int:
        """[uJ] that a plan draws until the pipeline's own iteration ends, or all-maximum clocks do."""
        return self.baseline_uj if point == self.full_point else self.total_uj[point]

    @property
    def t_star_ps(self) -> int:
        """[ps] iteration time of the plan with the least total energy."""
        return self.time_ps[self._least(len(self.time_ps))]

    def point_for_deadline(self, deadline_ps: int) -> int:
        """The plan with the least total energy within a deadline; the fastest where none is within it."""
        return self._least(max(1, bisect_right(self.time_ps, deadline_ps)))

    @property
    def case_factor(self) -> float:
        """Times its own time that a plan takes in the slowest case, at most."""
        return max(1.0, self.slowest_case_ps / self.baseline_time_ps)

    def point_for_straggler(self, t_prime_ps: int) -> int:
        """The plan with the least energy where everybody waits until T' anyway; the fastest where none is within it."""
        return max(1, bisect_right(self.time_ps, t_prime_ps)) - 1

    def point_beside_straggler(self, t_prime_ps: float) -> int:
        """The same where iterations last longer for noise than is planned: on the mean, the plan ends by T'."""
        if not self.late_by:
            return self.point_for_straggler(round(t_prime_ps))
        return self.point_for_straggler(
            max(
                (one for one, late in zip(self.time_ps, self.late_by, strict=True) if one * (1 + late) <= t_prime_ps),
                default=0,
            )
        )

    def pipeline_degree(self, pp_rank: int, degree: float) -> float:
        """How many times as long a pipeline computes at least, at maximum clocks, with a rank that is so slow.

        A stage may have time to spare. The iteration time is convex in the degree, so that the lines through what is
        known to either side are never above it.
        """
        if not self.slow_rank_ps:
            return degree
        known = list(zip(SLOW_FACTORS, self.slow_rank_ps[pp_rank], strict=True))
        least_ps = float(self.baseline_time_ps)
        for (low, low_ps), (high, high_ps) in pairwise(known):
            if not low < degree < high:
                least_ps = max(least_ps, low_ps + (high_ps - low_ps) * (degree - low) / (high - low))
        return (least_ps - self.tail_ps) / (self.baseline_time_ps - self.tail_ps)

    def with_extra(self, extra_ps: int) -> "FrontierSummary":
        """The same where every iteration lasts longer by ``extra_ps``, in which all GPUs wait."""
        if not extra_ps:
            return self
        extra_uj = self.total_blocking_uw * extra_ps // PS_PER_S
        diluted = self.baseline_uj / (self.baseline_uj + extra_uj)  # a saving is a share of all energy
        return replace(
            self,
            time_ps=tuple(one + extra_ps for one in self.time_ps),
            total_uj=tuple(one + extra_uj for one in self.total_uj),
            lower_bound_uj=tuple(one + extra_uj for one in self.lower_bound_uj),
            baseline_time_ps=self.baseline_time_ps + extra_ps,
            baseline_uj=self.baseline_uj + extra_uj,
            tail_ps=self.tail_ps + extra_ps,
            slow_rank_ps=tuple(tuple(one + extra_ps for one in of_rank) for of_rank in self.slow_rank_ps),
            slowest_case_ps=self.slowest_case_ps + extra_ps if self.slowest_case_ps else 0,
            saving_low=tuple(diluted * one for one in self.saving_low),
            saving_high=tuple(diluted * one for one in self.saving_high),
        )

    def _least(self, num_points: int) -> int:
        """The fastest of the plans that draw least among the first ``num_points``."""
        return min(range(num_points), key=self.total_uj.__getitem__)
