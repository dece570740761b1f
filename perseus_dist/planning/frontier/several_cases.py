"""Plans that are on time in several cases: a job runs now in one case, now in another.

Cases differ in constants, such as transfers of a slow link, which one pipeline meets and another does not, or the same
one now and then. An instruction that runs as fast as the fastest of the cases' own plans asks for is no later than
under any of them, and neither is what follows it, so that their deadlines hold in all. What that costs is energy.
Where there are too many cases to plan each, ``bounding_case`` keeps plans on time in the others.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.bounding_case import BoundingCase, Plan
from perseus_dist.planning.frontier.frontier import Frontier
from perseus_dist.planning.frontier.problem import concatenated_begin
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.units import IntArray

_MAX_LATE = 1.0005  # of another case's time over that of the first, as shares of their references
_MAX_ROUNDS = 16


class Case(NamedTuple):
    """One that plans must be on time in.

    Attributes:
        frontier: Of the case alone.
        reference_ps: [ps] at all-maximum clocks: its own iteration, or that of a pipeline beside it that it waits for.
        overlap_ps: [ps] of all its times in which the next iteration is under way, and which do not count.
    """

    frontier: Frontier
    reference_ps: int
    overlap_ps: int = 0


def on_time_in_all(first: Case, others: Sequence[Case], bounding: Sequence[BoundingCase] = ()) -> Frontier:
    """Plans of the first case that are on time in the others too.

    Args:
        first: Times and energies are this one's; its reference is its own iteration.
        others: Of the same schedule, with the same clocks of all computations.
        bounding: Likewise; each stands for cases that have no frontier.

    Returns:
        The first one's frontier with such plans. A plan's time is the share of the reference that it takes in any
        case at most, so that it may be longer than what it takes in the first.
    """
    if not others and not bounding:
        return first.frontier
    merged = _Merged(first, others, bounding)
    rows = first.frontier.clock_indices
    plans = [np.zeros_like(rows[0]), *(merged.on_time(row) for row in rows)]  # all-maximum clocks are on time in all
    return merged.frontier_of(plans)


def as_played(frontier: Frontier) -> Frontier:
    """The same plans with the times that they take in the first case alone, as saved frontiers tell them."""
    plans = list(frontier.clock_indices)
    executions = [_played(frontier, plan) for plan in plans]
    return best_of(frontier, plans, executions, [execution.time_ps for execution in executions])


class _Merged:
    """Plans of the first case, made faster where others need it."""

    def __init__(self, first: Case, others: Sequence[Case], bounding: Sequence[BoundingCase]) -> None:
        problem = first.frontier.problem
        self._first = first
        self._others = others
        self._bounding = bounding
        self._clocks_mhz = [curve.clocks_mhz for curve in problem.curves]
        self._durations_ps = np.concatenate([curve.durations_ps for curve in problem.curves])
        self._curve_of = problem.curve_of
        self._begin = concatenated_begin(self._clocks_mhz)[self._curve_of]
        self._num_scheduled = problem.dag.num_scheduled
        self._clocked_before = problem.clocked_before[: self._num_scheduled]

    def on_time(self, row: Plan) -> Plan:
        """A plan of the first case, as fast as others' plans where those need it to be.

        Changes of clocks may make it late all the same; it is made faster until it is not, where it would then be
        slower than all-maximum clocks.
        """
        share = _share(self._first, row)
        plan = row
        for case in self._others:
            if _share(case, plan) > _MAX_LATE * share:
                plan = self._faster(plan, _plan_within(case, share))
        plan = self._within_bounds(plan, share)
        if share > 1:
            return plan
        for number in range(_MAX_ROUNDS):
            late = [case for case in self._others if _share(case, plan) > _MAX_LATE * share]
            late += [self._first] if _share(self._first, plan) > share else []
            if not late:
                break
            is_changed = plan != row if number < _MAX_ROUNDS // 2 else np.ones_like(plan, dtype=np.bool_)
            for case in late:
                plan = self._with_earlier_changes(plan, is_changed, case)
            plan = self._within_bounds(plan, share)
        return plan

    def _within_bounds(self, plan: Plan, share: float) -> Plan:
        """Make the plan on time in cases without a frontier; one whose instructions share clocks stays as it is."""
        if self._first.frontier.granularity != Granularity.INSTRUCTION:
            return plan
        for one in self._bounding:
            plan = one.on_time(plan, _MAX_LATE * share)
        return plan

    def frontier_of(self, plans: Sequence[Plan]) -> Frontier:
        """The first one's frontier, of these plans alone."""
        executions = [_played(self._first.frontier, plan) for plan in plans]
        times_ps = [self._time_ps(plan, execution.time_ps) for plan, execution in zip(plans, executions, strict=True)]
        return best_of(self._first.frontier, plans, executions, times_ps)

    def _time_ps(self, plan: Plan, of_first_ps: int) -> int:
        of_first = of_first_ps / self._first.reference_ps
        shares = [_share(case, plan) for case in self._others]
        share = max([*shares, *(one.share(plan, of_first, _MAX_LATE) for one in self._bounding)])
        is_late = share > _MAX_LATE * of_first
        return math.ceil(share * self._first.reference_ps) if is_late else of_first_ps

    def _faster(self, plan: Plan, other: Plan) -> Plan:
        """Of two plans, the faster clock of each instruction."""
        scheduled = slice(self._num_scheduled)
        begin = self._begin[scheduled]
        is_slower = self._durations_ps[begin + plan[scheduled]] > self._durations_ps[begin + other[scheduled]]
        faster = plan.copy()
        faster[scheduled] = np.where(is_slower, other[scheduled], plan[scheduled])
        return faster

    def _with_earlier_changes(self, plan: Plan, is_changed: NDArray[np.bool_], case: Case) -> Plan:
        """Where clocks come too late for an instruction, the one before runs at it as well, if one of them changed."""
        execution = _played(case.frontier, plan)
        scheduled = slice(self._num_scheduled)
        taken_ps = (execution.end_ps - execution.start_ps)[scheduled]
        is_delayed = taken_ps > self._durations_ps[self._begin[scheduled] + plan[scheduled]]
        is_delayed &= (self._clocked_before >= 0) & (is_changed[scheduled] | is_changed[self._clocked_before])
        faster = plan.copy()
        for late in np.flatnonzero(is_delayed).tolist():
            before = int(self._clocked_before[late])
            clocks_mhz, before_mhz = (self._clocks_mhz[self._curve_of[one]] for one in (late, before))
            slowest = int(np.count_nonzero(before_mhz >= clocks_mhz[plan[late]])) - 1
            faster[before] = min(faster[before], max(slowest, 0))
        return faster


def _share(case: Case, plan: Plan) -> float:
    return (_played(case.frontier, plan).time_ps - case.overlap_ps) / (case.reference_ps - case.overlap_ps)


def _plan_within(case: Case, share: float) -> Plan:
    """The case's own plan that takes at most this share of its reference, or its fastest one."""
    frontier = case.frontier
    allowed_ps = case.overlap_ps + round(share * (case.reference_ps - case.overlap_ps))
    deadline_ps = max(frontier.fastest_ps, allowed_ps)
    row: Plan = frontier.clock_indices[frontier.point_for_deadline(deadline_ps)]
    return row


def _played(frontier: Frontier, plan: Plan) -> Execution:
    """A plan of a problem that may have other constants at its end."""
    clocks = np.zeros(frontier.problem.num_instructions, dtype=np.uint16)
    num_scheduled = frontier.problem.dag.num_scheduled
    clocks[:num_scheduled] = plan[:num_scheduled]
    return replay(frontier.problem, clocks, switch_latency_ps=frontier.switch_latency_ps)


def best_of(
    frontier: Frontier, plans: Sequence[Plan], executions: Sequence[Execution], times_ps: Sequence[int]
) -> Frontier:
    """The frontier of these plans, without those that are neither earlier nor take less energy than another."""
    effective_uj = [execution.effective_uj for execution in executions]
    kept: list[int] = []
    for at in sorted(range(len(plans)), key=lambda at: (times_ps[at], effective_uj[at])):
        if not kept or effective_uj[at] < effective_uj[kept[-1]]:
            kept.append(at)
    return replace(
        frontier,
        time_ps=_integers([times_ps[at] for at in kept]),
        effective_uj=_integers([effective_uj[at] for at in kept]),
        num_changes=np.array([executions[at].changes.sum() for at in kept], dtype=np.int32),
        clock_indices=np.array([plans[at] for at in kept], dtype=np.uint16),
    )


def _integers(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
