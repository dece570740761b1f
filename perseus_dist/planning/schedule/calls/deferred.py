"""Calls of GPipe and 1F1B as torch.distributed.pipelining makes them: a send is waited for some instructions later.

GPipe sends by itself, and waits for all that it has sent when the last forward is over, and the last backward. 1F1B
waits for a send of the warm-up, or the cool-down, when the next instruction is over; between the two, one call sends
and receives, and blocks:

    GPipe    0F0 | begin 0SEND_F0 | 0F1 | begin 0SEND_F1 | wait for 0SEND_F0, 0SEND_F1 | receive for 0B0 | 0B0
    1F1B     0F0 | begin 0SEND_F0 | 0F1 | wait for 0SEND_F0 | send 0SEND_F1, receive for 0B0 | 0B0

Source: ``ScheduleGPipe`` and ``Schedule1F1B`` of torch 2.13, ``_step_microbatches``.
"""

from collections.abc import Iterable, Sequence

from perseus_dist.planning.schedule.calls.program import Begin, Program, Wait, blocking, with_constants
from perseus_dist.planning.schedule.instruction import Instruction, Kind
from perseus_dist.planning.schedule.schedule import Schedule, gpipe, one_f_one_b


def deferred_programs(schedule: Schedule) -> list[Program] | None:
    """Instructions and calls of each pp_rank, in their order; None where the order is another.

    Args:
        schedule: One of ``gpipe`` or ``one_f_one_b``, with whatever constants.
    """
    pp, microbatches = schedule.num_ranks, schedule.num_microbatches
    if schedule.num_stages != pp or microbatches < 1:
        return None
    computations = tuple(tuple(one for one in order if not one.is_constant) for order in schedule.ranks)
    if computations == gpipe(pp=pp, microbatches=microbatches).ranks:
        programs = [_gpipe(order, pp) for order in computations]
    elif computations == one_f_one_b(pp=pp, microbatches=microbatches).ranks:
        programs = [_one_f_one_b(order, pp) for order in computations]
    else:
        return None
    return [with_constants(order, program) for order, program in zip(schedule.ranks, programs, strict=True)]


def _gpipe(order: Sequence[Instruction], pp: int) -> Program:
    program: Program = []
    for kind in (Kind.FORWARD, Kind.BACKWARD):
        sent: list[Instruction] = []
        for instruction in order:
            if instruction.kind == kind:
                made = _sent(instruction, pp)
                program += [*blocking(_received(instruction, pp)), instruction, *_begin(made)]
                sent += made
        program += map(Wait, sent)
    return program


def _one_f_one_b(order: Sequence[Instruction], pp: int) -> Program:
    """A pp_rank that runs its first backward behind the warm-up, and its last forward before the cool-down."""
    kinds = [one.kind for one in order]
    warm_up = kinds.index(Kind.BACKWARD)
    cool_down = len(order) - kinds[::-1].index(Kind.FORWARD) + 1
    program: Program = []
    before: list[Instruction] = []  # what is sent and not waited for
    for place, instruction in enumerate(order):
        is_alone = place < warm_up or place >= cool_down
        if is_alone:
            program += [*blocking(_received(instruction, pp)), instruction, *map(Wait, before)]
            before = _sent(instruction, pp)
            program += _begin(before if place != warm_up - 1 else ())
        else:
            program += [*blocking(*before, _received(instruction, pp)), instruction]
            before = _sent(instruction, pp)
            program += _begin(before if place == cool_down - 1 else ())
    return [*program, *map(Wait, before)]


def _begin(results: Iterable[Instruction]) -> Program:
    begun = tuple(results)
    return [Begin(begun)] if begun else []


def _sent(instruction: Instruction, pp: int) -> list[Instruction]:
    """The instruction where its result goes to another pp_rank."""
    ends_at = pp - 1 if instruction.kind == Kind.FORWARD else 0
    return [] if instruction.stage == ends_at else [instruction]


def _received(instruction: Instruction, pp: int) -> Instruction | None:
    """The result of another pp_rank that an instruction needs."""
    begins_at, step = (0, -1) if instruction.kind == Kind.FORWARD else (pp - 1, 1)
    return None if instruction.stage == begins_at else instruction._replace(stage=instruction.stage + step)
