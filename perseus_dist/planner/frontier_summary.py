"""What the planner keeps of a frontier: times and energies of its plans, enough to choose a point without numpy."""

from bisect import bisect_right
from dataclasses import dataclass


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
    """

    time_ps: tuple[int, ...]
    total_uj: tuple[int, ...]
    lower_bound_uj: tuple[int, ...]
    baseline_time_ps: int
    baseline_uj: int
    total_blocking_uw: int
    solve_seconds: float = 0.0
    realise_seconds: float = 0.0

    @property
    def t_min_ps(self) -> int:
        """[ps] iteration time of the fastest plan."""
        return self.time_ps[0]

    @property
    def t_star_ps(self) -> int:
        """[ps] iteration time of the plan with the least total energy."""
        return self.time_ps[self._least(len(self.time_ps))]

    def point_for_deadline(self, deadline_ps: int) -> int:
        """The plan with the least total energy within a deadline; the fastest where none is within it."""
        return self._least(max(1, bisect_right(self.time_ps, deadline_ps)))

    def point_for_straggler(self, t_prime_ps: int) -> int:
        """The plan with the least energy where everybody waits until T' anyway; the fastest where none is within it."""
        return max(1, bisect_right(self.time_ps, t_prime_ps)) - 1

    def _least(self, num_points: int) -> int:
        """The fastest of the plans that draw least among the first ``num_points``."""
        return min(range(num_points), key=self.total_uj.__getitem__)
