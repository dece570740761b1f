"""Calls of schedules that torch.distributed.pipelining runs as an order of actions (``_PipelineScheduleRuntime``).

A pp_rank sends a result at once and waits for no send before the end. It asks for a result some instructions before it
needs it, and waits right before: where it asks, torch has decided beforehand, by letting all pp_ranks take one action
after the other in turns. As soon as one has made a result, the other asks for it next:

    0F0 | begin 0SEND_F0 | 0F1 | begin 0SEND_F1 | begin to receive for 2F0 | 2F0 needs it: wait

A forward and a backward that torch runs in one action (``OVERLAP_F_B``, here ``Schedule.joint``) take one turn: it
comes when both have been asked for, either waits for its own right before it, and both results leave behind the second:

    wait | 0F4 | wait | 7B1 | begin 0SEND_F4 | begin 7SEND_B1

Turns are also taken by what makes no call here: stages that are gathered and given up, of which three are kept, and
reductions of gradients. Source: ``_add_unshard_reshard``, ``_add_reduce_grad`` and ``_add_send_recv`` of torch 2.13.
"""

from collections import Counter, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from perseus_dist.planning.schedule.calls.program import Begin, Program, Wait
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import Schedule

_MAX_ACTIVE_STAGES = 3
_LAST_OF_MICROBATCH = frozenset({Kind.BACKWARD, Kind.WEIGHT_GRADIENT})
_REDUCTIONS = frozenset({"REDUCE", "REDUCE_CHUNK"})

_Turn = tuple[Instruction, ...]  # one instruction, or those of one action; none make no call


def posted_programs(schedule: Schedule, needs: Mapping[Instruction, Sequence[Instruction]]) -> list[Program] | None:
    """Instructions and calls of each pp_rank, in their order; None where pp_ranks would wait for ever.

    Args:
        schedule: The schedule. Constants behind a pp_rank's last reduction come when all that it has sent is over.
        needs: Of each instruction, as ``needs_of`` has them.
    """
    sent = transfers_of(schedule, timed=None)
    rank_of_stage = schedule.rank_of_stage
    left = [deque(_turns(order, schedule.joint, schedule.num_microbatches)) for order in schedule.ranks]
    programs: list[Program] = [[] for _ in left]
    known: list[set[Instruction]] = [set() for _ in left]  # made on a pp_rank, or asked for
    while any(left):
        is_going = False
        for pp_rank, turns in enumerate(left):
            if not turns:
                continue
            turn = turns[0]
            if not all(one in known[pp_rank] or one in turn for made in turn for one in needs[made]):
                continue
            turns.popleft()
            is_going = True
            for made in turn:
                elsewhere = (result for result in needs[made] if result in sent and result.stage != made.stage)
                programs[pp_rank] += [*map(Wait, elsewhere), made]
                known[pp_rank].add(made)
            for made in turn:
                if made in sent:
                    receiver = rank_of_stage[made.stage + (1 if made.kind == Kind.FORWARD else -1)]
                    for side in (pp_rank, receiver):
                        programs[side].append(Begin((made,)))
                    known[receiver].add(made)
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


def _turns(order: Sequence[Instruction], joint: AbstractSet[Instruction], num_microbatches: int) -> list[_Turn]:
    """The instructions of a pp_rank, and turns that it takes for something else."""
    actions = list(joint_runs(order, joint))
    coming = _stages_coming(actions)
    turns: list[_Turn] = []
    active: set[int] = set()
    num_over: Counter[int] = Counter()
    for place, action in enumerate(actions):
        if action[0].is_constant:
            turns.append(action)
            continue
        gathered = coming[place]
        turns += [()] * len(active.symmetric_difference(gathered))
        active = set(gathered)
        turns.append(action)
        is_reduced = actions[place + 1][0].kind in _REDUCTIONS if place + 1 < len(actions) else False
        for one in action:
            num_over[one.stage] += one.kind in _LAST_OF_MICROBATCH
            if one.kind in _LAST_OF_MICROBATCH and num_over[one.stage] == num_microbatches and not is_reduced:
                turns.append(())
    return turns


def joint_runs(order: Sequence[Instruction], joint: Container[Instruction]) -> Iterator[tuple[Instruction, ...]]:
    """A pp_rank's order in parts: instructions that exchange jointly, and each other instruction by itself."""
    run: list[Instruction] = []
    for instruction in order:
        run.append(instruction)
        if instruction not in joint:
            yield tuple(run)
            run = []


def _stages_coming(actions: Sequence[_Turn]) -> list[list[int]]:
    """At each action, the next stages that compute: three, and what computes in one action with the third."""
    found: list[list[int]] = []
    stages: list[int] = []
    next_at: dict[int, int] = {}  # the action in which a stage computes next
    for place in reversed(range(len(actions))):
        if not actions[place][0].is_constant:
            computing = list(dict.fromkeys(one.stage for one in actions[place]))
            next_at.update(dict.fromkeys(computing, place))
            stages = [*computing, *(one for one in stages if one not in computing)]
        count = _MAX_ACTIVE_STAGES
        while count < len(stages) and next_at[stages[count]] == next_at[stages[count - 1]]:
            count += 1
        found.append(stages[:count])
    return found[::-1]
