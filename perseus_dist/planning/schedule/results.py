"""Results: which instruction makes them, which need them, and which transfer takes them to another pp_rank.

``dag`` says when instructions begin, and ``calls`` how pp_ranks that wait for their transfers exchange.
"""

from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet
from itertools import pairwise

from perseus_dist.planning.schedule.instruction import (
    LOAD,
    OVERLAPPED_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.schedule import Exchange, Schedule

# The dependency rules, all of them; rank order comes on top. An instruction of the kind on the left waits for those on
# the right, (stages away, kind) with the same microbatch, as far as the schedule has them: it writes a backward as B,
# or as I and W, and has SEND_F and SEND_B only where a transfer between stages blocks the sender. Of a forward and a
# backward that run as one, OVERLAP_F and FB, both begin when both can, and both results are there when FB ends.
_OF_FORWARD = ((-1, Kind.FORWARD), (-1, OVERLAPPED_FORWARD), (-1, SEND_FORWARD))
_OF_BACKWARD = (
    (0, Kind.FORWARD),
    (0, OVERLAPPED_FORWARD),
    (1, Kind.BACKWARD),
    (1, Kind.INPUT_GRADIENT),
    (1, Kind.FORWARD_BACKWARD),
    (1, SEND_BACKWARD),
)
_WAITS_FOR: dict[str, tuple[tuple[int, str], ...]] = {
    Kind.FORWARD: _OF_FORWARD,
    OVERLAPPED_FORWARD: _OF_FORWARD,
    Kind.BACKWARD: _OF_BACKWARD,
    Kind.INPUT_GRADIENT: _OF_BACKWARD,
    Kind.FORWARD_BACKWARD: _OF_BACKWARD,
    Kind.WEIGHT_GRADIENT: ((0, Kind.INPUT_GRADIENT),),
    SEND_FORWARD: ((0, Kind.FORWARD), (0, OVERLAPPED_FORWARD)),
    SEND_BACKWARD: ((0, Kind.BACKWARD), (0, Kind.INPUT_GRADIENT), (0, Kind.FORWARD_BACKWARD)),
}
# By the kind that makes a result: the send that carries it, and how many stages on it goes.
_SENT_AS: dict[str, tuple[str, int]] = {
    Kind.FORWARD: (SEND_FORWARD, 1),
    OVERLAPPED_FORWARD: (SEND_FORWARD, 1),
    Kind.BACKWARD: (SEND_BACKWARD, -1),
    Kind.INPUT_GRADIENT: (SEND_BACKWARD, -1),
    Kind.FORWARD_BACKWARD: (SEND_BACKWARD, -1),
}

Timed = AbstractSet[tuple[int, str]]
"""Transfers that take time, and time between iterations: as (sending stage, ``SEND_F`` or ``SEND_B``)."""


def waits_for(instruction: Instruction, scheduled: Container[Instruction]) -> Iterator[Instruction]:
    """The instructions whose results an instruction needs, rank order aside.

    Args:
        instruction: Any instruction; a constant other than ``SEND_F`` and ``SEND_B`` needs no result.
        scheduled: All instructions of the schedule.
    """
    stage, kind, microbatch = instruction
    for distance, needed_kind in _WAITS_FOR.get(kind, ()):
        needed = (stage + distance, needed_kind, microbatch)
        if needed in scheduled:  # most are not; a tuple that equals the instruction is cheaper to ask with
            yield Instruction(*needed)


def needs_of(schedule: Schedule) -> dict[Instruction, list[Instruction]]:
    """The results that each instruction needs, by pp_rank in execution order.

    A ``LOAD`` right before its forward comes after the receive: it needs what the forward needs, as DeepSpeed and
    Megatron-LM load. Not so in a schedule of ``Exchange.SENDER``.
    """
    needs: dict[Instruction, list[Instruction]] = {instruction: [] for order in schedule.ranks for instruction in order}
    for instruction, needed in needs.items():
        needed.extend(waits_for(instruction, needs))
    if schedule.exchange != Exchange.SENDER:
        for order in schedule.ranks:
            for before, instruction in pairwise(order):
                if before == (instruction.stage, LOAD, instruction.microbatch):
                    needs[before] += needs[instruction]
    return needs


def transfers_of(schedule: Schedule, timed: Timed | None) -> dict[Instruction, Instruction]:
    """The transfer that takes each result to another pp_rank, of those that take time, by pp_rank in execution order.

    A transfer that the schedule runs as an instruction of its own, or that stays on its pp_rank, is none of them.

    Args:
        schedule: The schedule.
        timed: Those that take time; None for all, whether they take time or not.
    """
    if timed is not None and not timed:
        return {}
    scheduled = frozenset(instruction for order in schedule.ranks for instruction in order)
    rank_of_stage = dict(enumerate(schedule.rank_of_stage))
    transfers = {}
    for pp_rank, order in enumerate(schedule.ranks):
        for instruction in order:
            kind, distance = _SENT_AS.get(instruction.kind, ("", 0))
            transfer = Instruction(instruction.stage, kind, instruction.microbatch)
            is_timed = (timed is None or (instruction.stage, kind) in timed) and transfer not in scheduled
            if kind and is_timed and rank_of_stage.get(instruction.stage + distance, pp_rank) != pp_rank:
                transfers[instruction] = transfer
    return transfers


def ends_with_of(schedule: Schedule) -> dict[Instruction, Instruction]:
    """The ``FB`` that runs the forward of each ``OVERLAP_F``: the next instruction on its pp_rank."""
    return {
        instruction: following
        for order in schedule.ranks
        for instruction, following in pairwise(order)
        if instruction.kind == OVERLAPPED_FORWARD
    }
