"""A schedule with other microbatches, or other pp_ranks: the same kind, its constants where they stand now.

Only schedules of a kind that is known are made again: the kind must give the schedule itself, instruction by
instruction, at the sizes that it has.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.dualpipev import dualpipev
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, OVERLAPPED_FORWARD, Instruction
from perseus_dist.planning.schedule.schedule import (
    Schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
    overlapped,
)

_Maker = Callable[[int, int], Schedule]  # of pp_ranks and microbatches
_Role = tuple[bool, bool]  # whether a pp_rank is the first, and the last

_NO_CONSTANTS: tuple[str, ...] = ()


def resized(schedule: Schedule, *, microbatches: int, pp: int | None = None) -> Schedule | None:
    """The schedule of the same kind in other sizes; None where its kind is not known, or has no such sizes.

    Args:
        schedule: GPipe, 1F1B, interleaved 1F1B or DualPipeV, with whatever constants.
        microbatches: To have.
        pp: Number of pp_ranks to have; as many as now unless given.
    """
    kind = _kind_of(schedule)
    if kind is None:
        return None
    try:
        return kind(schedule.num_ranks if pp is None else pp, microbatches)
    except (ScheduleError, KeyError):  # sizes that it cannot have, or no pp_rank to take constants from
        return None


def _kind_of(schedule: Schedule) -> _Maker | None:
    computations = replace(schedule, ranks=tuple(tuple(filter(_is_of_kind, order)) for order in schedule.ranks))
    for make in _makers(computations):
        try:
            kind = partial(_with_constants, make, schedule)
            if kind(schedule.num_ranks, schedule.num_microbatches) == schedule:
                return kind
        except (ScheduleError, KeyError):
            continue
    return None


def _is_of_kind(instruction: Instruction) -> bool:
    return not instruction.is_constant or instruction.kind == OVERLAPPED_FORWARD


def _makers(computations: Schedule) -> list[_Maker]:
    """Of computations alone."""
    chunks = computations.num_stages // computations.num_ranks
    if chunks == 1:
        return [_one_f_one_b, _gpipe, lambda pp, microbatches: overlapped(_one_f_one_b(pp, microbatches))]
    group = next((i for i, instruction in enumerate(computations.ranks[0]) if instruction.stage), 0)
    own_group = None if group == computations.num_ranks else group  # as many as pp_ranks, whatever these are

    def plain(pp: int, microbatches: int) -> Schedule:
        return interleaved(pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=own_group)

    return [
        lambda pp, microbatches: dualpipev(pp=pp, microbatches=microbatches),
        plain,
        lambda pp, microbatches: joint_exchanges(plain(pp, microbatches)),
        lambda pp, microbatches: overlapped(plain(pp, microbatches)),
        lambda pp, microbatches: overlapped(joint_exchanges(plain(pp, microbatches))),
    ]


def _one_f_one_b(pp: int, microbatches: int) -> Schedule:
    return one_f_one_b(pp=pp, microbatches=microbatches)


def _gpipe(pp: int, microbatches: int) -> Schedule:
    return gpipe(pp=pp, microbatches=microbatches)


def _with_constants(make: _Maker, model: Schedule, pp: int, microbatches: int) -> Schedule:
    """The order that ``make`` gives, with the constants of ``model`` at each computation, and behind the last one."""
    bare = make(pp, microbatches)
    model_pp = model.num_ranks
    of_role = {_role(pp_rank, model_pp): order for pp_rank, order in enumerate(model.ranks)}
    ranks = []
    for pp_rank, order in enumerate(bare.ranks):
        pattern = model.ranks[pp_rank] if pp == model_pp else of_role[_role(pp_rank, pp)]
        before, behind = _constants(pattern, model_pp)
        at_end = (Instruction(one.stage // model_pp * pp + pp_rank, one.kind, NO_MICROBATCH) for one in behind)
        ranks.append((*_placed(order, before, pp), *at_end))
    return replace(bare, ranks=tuple(ranks), exchange=model.exchange)


def _role(pp_rank: int, pp: int) -> _Role:
    return pp_rank == 0, pp_rank == pp - 1


def _constants(
    order: Iterable[Instruction], pp: int
) -> tuple[dict[tuple[int, str], tuple[str, ...]], list[Instruction]]:
    """Constants of a microbatch by the chunk and kind of the computation that follows them; and those at the end."""
    before: dict[tuple[int, str], tuple[str, ...]] = {}
    waiting: list[Instruction] = []
    for instruction in order:
        if not _is_of_kind(instruction):
            waiting.append(instruction)
            continue
        before[instruction.stage // pp, instruction.kind] = tuple(one.kind for one in waiting)
        waiting.clear()
    return before, waiting


def _placed(
    order: Iterable[Instruction], before: dict[tuple[int, str], tuple[str, ...]], pp: int
) -> Iterable[Instruction]:
    for instruction in order:
        for kind in before.get((instruction.stage // pp, instruction.kind), _NO_CONSTANTS):
            yield Instruction(instruction.stage, kind, instruction.microbatch)
        yield instruction
