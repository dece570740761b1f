"""Plans that are on time in pipelines that have no frontier of their own.

One case stands for all of them, in which each transfer takes as long as in any. No path takes longer in one of them
than in that case. So a plan is on time in all where every path of the case that takes longer than it may runs as it
does at all-maximum clocks, under which none is later than the slowest of them. What runs so fast for a path that is
long in the case alone costs energy.
"""

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import ends_of, replay
from perseus_dist.units import IntArray

_MAX_ROUNDS = 16

Plan = NDArray[np.uint16]
"""(num_instructions) indices into the clocks of each instruction's curve."""


class BoundingCase:
    """The case that stands for such pipelines."""

    def __init__(self, problem: PlanningProblem, reference_ps: int, *, switch_latency_ps: int = 0) -> None:
        """Make it.

        Args:
            problem: With each transfer as long as in any of the pipelines.
            reference_ps: [ps] of an iteration at all-maximum clocks that they wait for, or less.
            switch_latency_ps: [ps] as of ``replay``.
        """
        self.problem, self.reference_ps = problem, reference_ps
        self._latency_ps = switch_latency_ps
        self._all_max = np.zeros(problem.dag.num_scheduled, dtype=np.uint16)
        self._clocked_before = problem.clocked_before
        self._at_max_ps = self._taken(self._all_max)[1]

    def on_time(self, plan: Plan, share: float) -> Plan:
        """Speed up the plan until every pipeline takes at most this share (1 or more) of the reference, or as long as
        all-maximum clocks.
        """
        faster = plan.copy()
        num_scheduled = len(self._all_max)
        for _ in range(_MAX_ROUNDS):
            late = np.flatnonzero(self._is_late(faster, share)[:num_scheduled])
            if not len(late):
                return faster
            is_slow = faster[late] > 0
            faster[late] = faster[late] * 2 // 3
            for delayed in late[~is_slow].tolist():  # its clock comes too late: the one before runs at it as well
                before = int(self._clocked_before[delayed])
                faster[before if before >= 0 else delayed] = 0
        faster[:num_scheduled] = 0
        return faster

    def share(self, plan: Plan, of_first: float, allowed: float) -> float:
        """The share of the reference that no pipeline takes more than, or a little more.

        Args:
            plan: Any.
            of_first: The share that it takes elsewhere.
            allowed: Factor by which it may take more, not counted.
        """
        least = max(of_first, 1.0)
        if not self._is_late(plan, allowed * least).any():
            return least
        return max(least, int(self._taken(plan)[0].max()) / self.reference_ps)

    def _is_late(self, plan: Plan, share: float) -> NDArray[np.bool_]:
        """(num_instructions) what is slower than at all-maximum clocks, on a path that takes longer than this share."""
        limit_ps = max(share, 1.0) * self.reference_ps
        end_ps, taken_ps = self._taken(plan)
        if int(end_ps.max()) <= limit_ps:
            return np.zeros(len(end_ps), dtype=np.bool_)
        longest_ps = end_ps + self._until_end_ps(taken_ps) - taken_ps
        return (longest_ps > limit_ps) & (taken_ps > self._at_max_ps)

    def _taken(self, plan: Plan) -> tuple[IntArray, IntArray]:
        """(num_instructions) [ps] ends, and durations."""
        clocks = np.zeros(self.problem.num_instructions, dtype=np.int32)
        clocks[: len(self._all_max)] = plan[: len(self._all_max)]
        played = replay(self.problem, clocks, switch_latency_ps=self._latency_ps)
        return played.end_ps, played.end_ps - played.start_ps

    def _until_end_ps(self, taken_ps: IntArray) -> IntArray:
        """(num_instructions) [ps] from each begin along the longest path to the end: the iteration played backwards."""
        return ends_of(taken_ps, self.problem.edge_to, self.problem.edge_from)
