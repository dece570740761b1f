"""Calls of schedules that torch.distributed.pipelining runs as an order of actions (``_PipelineScheduleRuntime``).

A pp_rank sends a result at once and waits for no send before the end. It asks for a result some instructions before it
needs it, and waits right before: where it asks, torch has decided beforehand, by letting all pp_ranks take one action
after the other in turns. As soon as one has made a result, the other asks for it next:

    0F0 | begin 0SEND_F0 | 0F1 | begin 0SEND_F1 | begin to receive for 2F0 | 2F0 needs it: wait

Turns are also taken by what makes no call here: stages that are gathered and given up, of which three are kept, and
reductions of gradients. Source: ``_add_unshard_reshard``, ``_add_reduce_grad`` and ``_add_send_recv`` of torch 2.13.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from perseus_dist.planning.schedule.calls.program import Begin, Program, Wait
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Schedule

_MAX_ACTIVE_STAGES = 3
_LAST_OF_MICROBATCH = frozenset({Kind.BACKWARD, Kind.WEIGHT_GRADIENT})
_REDUCTIONS = frozenset({"REDUCE", "REDUCE_CHUNK"})

_Turn = Instruction | None  # None makes no call


def posted_programs(schedule: Schedule, needs: Mapping[Instruction, Sequence[Instruction]]) -> list[Program] | None:
    """Instructions and calls of each pp_rank, in their order; None where pp_ranks would wait for ever.

    Args:
        schedule: The schedule. Constants behind a pp_rank's last reduction come when all that it has sent is over.
        needs: Of each instruction, as ``needs_of`` has them.
    """
    sent = transfers_of(schedule, timed=None)
    rank_of_stage = schedule.rank_of_stage
    left = [deque(_turns(order, schedule.num_microbatches)) for order in schedule.ranks]
    programs: list[Program] = [[] for _ in left]
    known: list[set[Instruction]] = [set() for _ in left]  # made on a pp_rank, or asked for
    while any(left):
        is_going = False
        for pp_rank, turns in enumerate(left):
            if not turns:
                continue
            turn = turns[0]
            if turn is not None and not known[pp_rank].issuperset(needs[turn]):
                continue
            turns.popleft()
            is_going = True
            if turn is None:
                continue
            elsewhere = (result for result in needs[turn] if result in sent and result.stage != turn.stage)
            programs[pp_rank] += [*map(Wait, elsewhere), turn]
            known[pp_rank].add(turn)
            if turn in sent:
                receiver = rank_of_stage[turn.stage + (1 if turn.kind == Kind.FORWARD else -1)]
                for side in (pp_rank, receiver):
                    programs[side].append(Begin((turn,)))
                known[receiver].add(turn)
        if not is_going:
            return None
    return [_with_last_waits(program, order, sent) for program, order in zip(programs, schedule.ranks, strict=True)]


def _with_last_waits(
    program: Program, order: Sequence[Instruction], sent: Mapping[Instruction, Instruction]
) -> Program:
    is_behind = [one.is_constant and one.kind not in _REDUCTIONS for one in order]
    num_behind = next((place for place, one in enumerate(reversed(is_behind)) if not one), len(order))
    at = program.index(order[-num_behind]) if num_behind else len(program)
    return [*program[:at], *(Wait(one) for one in reversed(order) if one in sent), *program[at:]]


def _turns(order: Sequence[Instruction], num_microbatches: int) -> list[_Turn]:
    """The instructions of a pp_rank, and turns that it takes for something else."""
    coming = _stages_coming(order)
    turns: list[_Turn] = []
    active: set[int] = set()
    num_over: Counter[int] = Counter()
    for place, instruction in enumerate(order):
        if instruction.is_constant:
            turns.append(instruction)
            continue
        gathered = coming[place]
        turns += [None] * len(active.symmetric_difference(gathered))
        active = set(gathered)
        turns.append(instruction)
        num_over[instruction.stage] += instruction.kind in _LAST_OF_MICROBATCH
        is_reduced = order[place + 1].kind in _REDUCTIONS if place + 1 < len(order) else False
        if instruction.kind in _LAST_OF_MICROBATCH and num_over[instruction.stage] == num_microbatches:
            turns += [] if is_reduced else [None]
    return turns


def _stages_coming(order: Sequence[Instruction]) -> list[list[int]]:
    """At each instruction, the next stages that compute."""
    found: list[list[int]] = []
    stages: list[int] = []
    for instruction in reversed(order):
        if not instruction.is_constant:
            stages = [instruction.stage, *(one for one in stages if one != instruction.stage)]
        found.append(stages[:_MAX_ACTIVE_STAGES])
    return found[::-1]
