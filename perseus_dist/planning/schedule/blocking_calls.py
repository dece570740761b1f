"""Calls in which pp_ranks exchange tensors and wait: what has ended before each instruction, and each transfer, begins.

A transfer begins when both sides have come to it, and a pp_rank goes on when all that its call sends and receives is
over. Between two instructions lie the call that sends the first one's result and the one that receives what the second
needs. Two pp_ranks that have something for each other there, a forward's result one way and a backward's the other,
exchange it in one call, or one tensor after the other (``Exchange``):

    batched    0F1 | 0SEND_F1 | 0B0      serial    0F1 | (1SEND_B0) | 0SEND_F1 | 0B0
               1B0 | 1SEND_B0 | 1F1                1B0 |  1SEND_B0  | (0SEND_F1) | 1F1

Sources: ``send_forward_recv_backward`` and the like in ``forward_backward_pipelining_without_interleaving`` of
megatron-core 0.16.1, ``TrainSchedule`` of DeepSpeed 0.19.8.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from perseus_dist.planning.schedule.instruction import SEND_FORWARD, Instruction
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Exchange, Schedule

Inputs = dict[Instruction, list[Instruction]]


class _Call(NamedTuple):
    """A call of a pp_rank.

    Attributes:
        results: What it sends and receives.
    """

    results: tuple[Instruction, ...]


_Program = list[Instruction | _Call]


def inputs_by_calls(
    schedule: Schedule,
    needs: Mapping[Instruction, Sequence[Instruction]],
    transfers: Mapping[Instruction, Instruction],
) -> Inputs | None:
    """For each instruction and transfer, those that end before it begins.

    Args:
        schedule: One in which each pp_rank has one stage.
        needs: Of each instruction, as ``needs_of`` has them.
        transfers: Those that take time. All others, too, are asked for before the sender goes on.

    Returns:
        None where such calls would wait for each other for ever, so that the schedule cannot make them.
    """
    sent = transfers_of(schedule, timed=None)
    programs = _programs(schedule, needs, sent)
    inputs: Inputs = {instruction: [] for instruction in needs}
    of_transfers: Inputs = {transfer: [] for transfer in transfers.values()}
    comes_after: dict[Instruction, list[tuple[Instruction, ...]]] = defaultdict(list)  # of a result, both sides
    previous: list[tuple[Instruction, ...]] = [()] * schedule.num_ranks
    position = [0] * schedule.num_ranks
    has_come = [False] * schedule.num_ranks  # to the call that it is at
    ended: set[Instruction] = set()
    is_going = True
    while is_going:
        is_going = False
        for pp_rank, program in enumerate(programs):
            while position[pp_rank] < len(program):
                at = program[position[pp_rank]]
                if isinstance(at, Instruction):
                    elsewhere = [result for result in needs[at] if result not in sent]
                    if not ended.issuperset(elsewhere):
                        break
                    ended.add(at)
                    own = (result for result in needs[at] if result in sent and result.stage == at.stage)
                    inputs[at] = list(dict.fromkeys((*elsewhere, *own, *previous[pp_rank])))
                    previous[pp_rank] = (at,)
                else:
                    if not has_come[pp_rank]:
                        has_come[pp_rank] = is_going = True
                        for result in at.results:
                            comes_after[result].append(previous[pp_rank])
                    if any(len(comes_after[result]) < 2 for result in at.results):
                        break
                    has_come[pp_rank] = False
                    over: dict[Instruction, None] = {}
                    for result in at.results:
                        both = dict.fromkeys(one for side in comes_after[result] for one in side)
                        if result in transfers:
                            of_transfers[transfers[result]] = list(both)
                            over[transfers[result]] = None
                        else:
                            over |= both
                    previous[pp_rank] = tuple(over)
                position[pp_rank] += 1
                is_going = True
    if any(position[pp_rank] < len(program) for pp_rank, program in enumerate(programs)):
        return None
    return inputs | of_transfers


def _programs(
    schedule: Schedule,
    needs: Mapping[Instruction, Sequence[Instruction]],
    sent: Mapping[Instruction, Instruction],
) -> list[_Program]:
    """Instructions and calls of each pp_rank, in their order."""
    received_by: dict[Instruction, Instruction] = {}
    for instruction, needed in needs.items():  # in execution order: the first that needs it receives it
        for result in needed:
            if result in sent and result.stage != instruction.stage:
                received_by.setdefault(result, instruction)
    following = {one: after for order in schedule.ranks for one, after in pairwise(order)}
    programs: list[_Program] = []
    for order in schedule.ranks:
        program: _Program = []
        leaving: Instruction | None = None
        for instruction in order:
            arriving = [result for result in needs[instruction] if received_by.get(result) == instruction]
            calls: list[tuple[Instruction, ...]] = [(one,) for one in ([leaving] if leaving else []) + arriving]
            if leaving and any(received_by.get(leaving) == following.get(result) for result in arriving):
                if schedule.exchange == Exchange.BATCHED:
                    calls = [(leaving, *arriving)]
                elif sent[leaving].kind == SEND_FORWARD:
                    calls.reverse()
            program += (_Call(results) for results in calls)
            program.append(instruction)
            leaving = instruction if instruction in received_by else None
        if leaving:
            program.append(_Call((leaving,)))
        programs.append(program)
    return programs
