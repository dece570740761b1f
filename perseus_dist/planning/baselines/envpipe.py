"""EnvPipe, the baseline that starts at least energy and speeds up the critical path, one clock at a time.

Source: EnvPipe, ATC '23, in the offline form that Perseus (SOSP '24) is compared with. It takes the last stage for the
heaviest, so that no critical path can be shorter than the outer envelope:

    stage 0   |F0|F1|F2|      |B0|   |B1|   |B2|      in the envelope: F0 of every stage,
    stage 1      |F0|F1|   |B0|F2|B1|   |B2|          all that the last stage does,
    stage 2         |F0|B0|F1|B1|F2|B2|               and the last microbatch's backward of every stage
"""

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import Execution, replay
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.units import IntArray


def envpipe(problem: PlanningProblem) -> Int32Array:
    """The clocks that EnvPipe chooses.

    The outer envelope runs at the maximum clock. All else starts at the clock with the least measured energy of its
    stage and kind: EnvPipe does not know what waiting costs. Then, round by round, the computations that have the
    lowest clock on a critical path go up by one clock, until nothing on it can go up: it lies inside the envelope or,
    where another stage than the last is the heaviest, is at the maximum clock outside it too. Each round takes a clock
    up and none down, so there is an end, and the path that stands at the end lasts as long as under all-max: EnvPipe is
    never later than all-max as long as clock changes take no time, which is all that it knows of them.

    Returns:
        (num_instructions) index into the clocks of each instruction's curve.
    """
    adjustable = _adjustable(problem)
    least_energy = np.array([int(np.argmin(curve.energies_uj)) for curve in problem.curves])
    clock_indices = np.where(adjustable, least_energy[problem.curve_of], 0).astype(np.int32)
    source, target = _edges_by_preference(problem, adjustable)
    while True:
        execution = replay(problem, clock_indices)
        path = _critical_path(execution, source, target)
        slow = path[adjustable[path] & (clock_indices[path] > 0)]
        if not len(slow):
            return clock_indices
        clocks_mhz = execution.clocks_mhz[slow]
        clock_indices[slow[clocks_mhz == clocks_mhz.min()]] -= 1


def _adjustable(problem: PlanningProblem) -> NDArray[np.bool_]:
    """(num_instructions) the computations outside the envelope."""
    schedule = problem.dag.schedule
    last_stage, last_microbatch = schedule.num_stages - 1, schedule.num_microbatches - 1

    def is_adjustable(instruction: Instruction) -> bool:
        at_the_edge = instruction.microbatch == (0 if instruction.kind == Kind.FORWARD else last_microbatch)
        return not (instruction.is_constant or instruction.stage == last_stage or at_the_edge)

    return np.array([is_adjustable(instruction) for instruction in problem.dag.instructions])


def _edges_by_preference(problem: PlanningProblem, adjustable: NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """The edges, those from the envelope last, so that a path prefers it where two predecessors end together."""
    source, target = problem.dag.edges.T.astype(np.int64)
    order = np.argsort(~adjustable[source], kind="stable")
    return source[order], target[order]


def _critical_path(execution: Execution, source: IntArray, target: IntArray) -> IntArray:
    """Indices of one longest path, from its end to its start; each starts when the next one in the array ends."""
    tight = execution.end_ps[source] == execution.start_ps[target]
    before = np.full(len(execution.end_ps), -1, dtype=np.int64)
    before[target[tight]] = source[tight]  # of several to the same target, the last one written stays
    path = [int(np.argmax(execution.end_ps))]
    while (previous := int(before[path[-1]])) >= 0:
        path.append(previous)
    return np.array(path)
