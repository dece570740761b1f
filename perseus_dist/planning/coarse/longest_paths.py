"""The longest paths through a DAG, as how many instructions of each class they have."""

import numpy as np

from perseus_dist.planning.coarse.clock_groups import ClockGroups
from perseus_dist.planning.frontier.replay import ends_of
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.units import IntArray


class LongestPaths:
    """Finds the longest path of a DAG whose classes last given times."""

    def __init__(self, groups: ClockGroups) -> None:
        problem = groups.problem
        self._class_of = groups.class_of
        self._num_classes = groups.choice_ps[:, :, 0].size + len(groups.constant_ps)
        self._edges = (problem.edge_from, problem.edge_to)
        self._before = _neighbours(problem.edge_from, problem.edge_to, problem.num_instructions)

    def time_ps(self, class_ps: IntArray) -> int:
        """[ps] of the longest path."""
        return int(self._ends(class_ps).max())

    def critical(self, class_ps: IntArray) -> IntArray:
        """(1, num_classes) instructions of each class on the longest path."""
        ends = self._ends(class_ps).tolist()
        node = ends.index(max(ends))
        nodes = [node]
        while neighbours := self._before[node]:
            node = max(neighbours, key=ends.__getitem__)
            nodes.append(node)
        return np.bincount(self._class_of[nodes], minlength=self._num_classes)[None, :].astype(np.int64)

    def _ends(self, class_ps: IntArray) -> IntArray:
        """(num_instructions) [ps] ends."""
        return ends_of(class_ps[self._class_of], *self._edges)


def _neighbours(source: Int32Array, target: Int32Array, num_instructions: int) -> list[list[int]]:
    """By target, its sources."""
    found: list[list[int]] = [[] for _ in range(num_instructions)]
    for before, after in zip(source.tolist(), target.tolist(), strict=True):
        found[after].append(before)
    return found
