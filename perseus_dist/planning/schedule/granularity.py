"""How finely clocks are chosen: for each instruction, for each phase of a rank, or once for a rank and iteration.

Where instructions cannot be seen while training runs, such as inside a CUDA graph of a whole iteration, a rank can keep
one clock all through it, or change it at a few points of time since its begin.
"""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import Final

from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule

ITERATION: Final = "ITERATION"
"""Kind, in boundaries, of all that a rank does in an iteration, where its instructions cannot be seen."""

_BACKWARDS = frozenset({Kind.BACKWARD, Kind.INPUT_GRADIENT, Kind.FORWARD_BACKWARD})
_FORWARDS = frozenset({Kind.FORWARD, Kind.FORWARD_BACKWARD})


class Granularity(StrEnum):
    """Which instructions share a clock."""

    INSTRUCTION = "instruction"
    PHASE = "phase"
    RANK = "rank"


class Phase(IntEnum):
    """Part of a pp_rank's iteration."""

    WARM_UP = 0
    STEADY = 1
    COOL_DOWN = 2


def phases_of(order: Sequence[Instruction]) -> list[Phase]:
    """The phase of each instruction of a pp_rank, in execution order.

    Warm-up is all before the first backward, cool-down all after the last forward, and the steady state lies between;
    GPipe has none.
    """
    kinds = [instruction.kind for instruction in order]
    first_backward = next((at for at, kind in enumerate(kinds) if kind in _BACKWARDS), len(kinds))
    last_forward = max((at for at, kind in enumerate(kinds) if kind in _FORWARDS), default=-1)
    return [
        Phase.WARM_UP if at < first_backward else Phase.COOL_DOWN if at > last_forward else Phase.STEADY
        for at in range(len(kinds))
    ]


def sharing(schedule: Schedule, granularity: Granularity) -> list[list[int]]:
    """Indices of the instructions that share each clock, pp_rank by pp_rank in execution order; constants have none."""
    groups: dict[tuple[int, int], list[int]] = {}
    number = 0
    for pp_rank, order in enumerate(schedule.ranks):
        for instruction, phase in zip(order, phases_of(order), strict=True):
            if not instruction.is_constant:
                of_rank = {Granularity.RANK: 0, Granularity.PHASE: int(phase), Granularity.INSTRUCTION: number}
                groups.setdefault((pp_rank, of_rank[granularity]), []).append(number)
            number += 1
    return list(groups.values())
