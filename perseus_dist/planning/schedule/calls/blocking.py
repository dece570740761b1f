"""Calls in which pp_ranks exchange tensors and wait, as 1F1B makes them.

A pp_rank goes on when all that its call sends and receives is over. Between two instructions lie the call that sends
the first one's result and the one that receives what the second needs. Two pp_ranks that have something for each other
there, a forward's result one way and a backward's the other, exchange it in one call, or one tensor after the other
(``Exchange``):

    batched    0F1 | 0SEND_F1 | 0B0      serial    0F1 | (1SEND_B0) | 0SEND_F1 | 0B0
               1B0 | 1SEND_B0 | 1F1                1B0 |  1SEND_B0  | (0SEND_F1) | 1F1

Sources: ``send_forward_recv_backward`` and the like in ``forward_backward_pipelining_without_interleaving`` of
megatron-core 0.16.1, ``TrainSchedule`` of DeepSpeed 0.19.8.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from perseus_dist.planning.schedule.calls.program import Program, blocking
from perseus_dist.planning.schedule.instruction import SEND_FORWARD, Instruction
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Exchange, Schedule


def blocking_programs(schedule: Schedule, needs: Mapping[Instruction, Sequence[Instruction]]) -> list[Program]:
    """Instructions and calls of each pp_rank, in their order.

    Args:
        schedule: One in which each pp_rank has one stage.
        needs: Of each instruction, as ``needs_of`` has them.
    """
    sent = transfers_of(schedule, timed=None)
    received_by: dict[Instruction, Instruction] = {}
    for instruction, needed in needs.items():  # in execution order: the first that needs it receives it
        for result in needed:
            if result in sent and result.stage != instruction.stage:
                received_by.setdefault(result, instruction)
    following = {one: after for order in schedule.ranks for one, after in pairwise(order)}
    programs: list[Program] = []
    for order in schedule.ranks:
        program: Program = []
        leaving: Instruction | None = None
        for instruction in order:
            arriving = [result for result in needs[instruction] if received_by.get(result) == instruction]
            calls: list[tuple[Instruction, ...]] = [(one,) for one in ([leaving] if leaving else []) + arriving]
            if leaving and any(received_by.get(leaving) == following.get(result) for result in arriving):
                if schedule.exchange == Exchange.BATCHED:
                    calls = [(leaving, *arriving)]
                elif sent[leaving].kind == SEND_FORWARD:
                    calls.reverse()
            for results in calls:
                program += blocking(*results)
            program.append(instruction)
            leaving = instruction if instruction in received_by else None
        if leaving:
            program += blocking(leaving)
        programs.append(program)
    return programs
