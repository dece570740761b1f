"""When the instructions of a schedule run if a forward takes one unit of time, for pictures that need no profile."""

from collections import defaultdict
from dataclasses import dataclass
from graphlib import TopologicalSorter

import numpy as np

from perseus_dist.planning.schedule.dag import Dag, build_dag
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.units import FloatArray

UNITS: dict[str, float] = {
    Kind.FORWARD: 1.0,
    Kind.BACKWARD: 2.0,
    Kind.INPUT_GRADIENT: 1.0,
    Kind.WEIGHT_GRADIENT: 1.0,
    Kind.FORWARD_BACKWARD: 3.0,
}
"""Durations in forwards; constants take none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnitTimes:
    """One iteration of a schedule, in units of a forward.

    Attributes:
        dag: The instructions and their precedence; arrays below are indexed like ``dag.instructions``.
        starts: (num_instructions) when each begins.
        ends: (num_instructions) when each ends.
    """

    dag: Dag
    starts: FloatArray
    ends: FloatArray

    @property
    def time(self) -> float:
        """When the last instruction ends."""
        return float(self.ends.max())

    @property
    def waiting_shares(self) -> FloatArray:
        """(num_ranks) the share of the iteration in which each pp_rank waits, 0 to 1."""
        busy = np.bincount(self.dag.pp_rank, weights=self.ends - self.starts, minlength=self.dag.schedule.num_ranks)
        waits: FloatArray = 1 - busy / self.time if self.time else np.zeros_like(busy)
        return waits


def unit_times(schedule: Schedule) -> UnitTimes:
    """Each instruction begins as soon as all that it waits for has ended; transfers take no time."""
    dag = build_dag(schedule)
    before: dict[int, list[int]] = defaultdict(list)
    for source, target in dag.edges.tolist():
        before[target].append(source)
    order = TopologicalSorter({index: before[index] for index in range(len(dag.instructions))}).static_order()
    starts, ends = np.zeros(len(dag.instructions)), np.zeros(len(dag.instructions))
    for index in order:
        starts[index] = max((ends[source] for source in before[index]), default=0.0)
        ends[index] = starts[index] + UNITS.get(dag.instructions[index].kind, 0.0)
    return UnitTimes(dag=dag, starts=starts, ends=ends)
