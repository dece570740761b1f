"""The baselines that do not look at the schedule: Zeus-global and Zeus-per-stage.

Each is a set of choices, (num_instructions) indices into the clocks of each instruction's curve, to be realised by
``replay`` like any plan. All-max is ``replay_all_max``, and EnvPipe has a module of its own.

Source: Perseus, SOSP '24, after Zeus, NSDI '23.
"""

from collections.abc import Iterable

import numpy as np

from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.planning.schedule.dag import Int32Array
from perseus_dist.planning.schedule.instruction import Kind


def zeus_global(problem: PlanningProblem) -> tuple[Int32Array, ...]:
    """One clock for all GPUs: a choice for every clock that any of them has, from the highest down.

    An instruction without that clock takes its nearest one.
    """
    computations = [curve for curve in problem.curves if curve.kind in set(Kind)]
    clocks_mhz = sorted({clock for curve in computations for clock in curve.clocks_mhz.tolist()}, reverse=True)
    return tuple(
        _of_instructions(problem, (_nearest(curve, clock) for curve in problem.curves)) for clock in clocks_mhz
    )


def zeus_per_stage(problem: PlanningProblem) -> tuple[Int32Array, ...]:
    """One clock for each stage: a choice for every clock of the heaviest stage, from the highest down.

    The heaviest stage has the longest forward at the maximum clock. Every stage runs all its work at its lowest clock
    at which its forward takes no longer than the heaviest one's. Backward is not looked at, nor how long the first
    microbatch is under way, so that even the first choice can be later than all-max. Stages are virtual: the chunks of
    an interleaved schedule are balanced too.
    """
    forwards = {curve.stage: curve for curve in problem.curves if curve.kind == Kind.FORWARD}
    heaviest = max(forwards.values(), key=lambda curve: int(curve.durations_ps[curve.at_max]))
    choices = []
    for target_ps in heaviest.durations_ps.tolist():
        clock_of = {stage: curve.clocks_mhz[_lowest_within(curve, target_ps)] for stage, curve in forwards.items()}
        choices.append(
            _of_instructions(problem, (_nearest(curve, int(clock_of[curve.stage])) for curve in problem.curves))
        )
    return tuple(choices)


def _of_instructions(problem: PlanningProblem, index_of_curve: Iterable[int]) -> Int32Array:
    return np.fromiter(index_of_curve, dtype=np.int32)[problem.curve_of]


def _nearest(curve: CostCurve, clock_mhz: int) -> int:
    """Index of the clock nearest to the one asked for, the higher of two; 0 for a constant instruction."""
    return int(np.argmin(np.abs(curve.clocks_mhz - clock_mhz)))


def _lowest_within(curve: CostCurve, target_ps: int) -> int:
    """Index of the lowest clock at which it takes no longer than the target, or of the fastest where none does."""
    within = np.flatnonzero(curve.durations_ps <= target_ps)
    return int(within[-1]) if len(within) else int(np.argmin(curve.durations_ps))
