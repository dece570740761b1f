"""The order of a schedule of ``torch.distributed.pipelining``, on all ranks, as a ``Schedule``.

``Schedule1F1B`` and ``ScheduleGPipe`` are loops; their ``pipeline_order`` is a picture and not always what runs. What
they send they wait for later (``Exchange.DEFERRED``). The others run ``pipeline_order_with_comms``: sends leave at
once, and receives come some actions ahead (``Exchange.POSTED``), where torch itself has put them. Shards are no
instructions but waiting. An ``OVERLAP_F_B`` runs its forward and its backward one after the other, and both results
leave behind the second: ``0F4+ 7B1``. Where receives are elsewhere, as in an order from a file, they are not known, and
sends behind an ``OVERLAP_F_B`` are instructions, so that plans know that others wait for them:
``0F4 7B1 0SEND_F4 7SEND_B1``.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.calls.posted import posted_programs
from perseus_dist.planning.schedule.calls.program import Begin, Program
from perseus_dist.planning.schedule.instruction import (
    NO_MICROBATCH,
    SEND_BACKWARD,
    SEND_FORWARD,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.results import needs_of
from perseus_dist.planning.schedule.schedule import Exchange, Schedule, gpipe, one_f_one_b
from perseus_dist.training.rank.constant_kinds import REDUCE, REDUCE_CHUNK, STEP

OVERLAP: Final = "OVERLAP_F_B"
_REDUCE_GRAD: Final = "REDUCE_GRAD"
_RECEIVES: Final = {"RECV_F": -1, "RECV_B": 1}  # the stage that sends, from the one that receives
_WAITING: Final = frozenset({*_RECEIVES, "UNSHARD", "RESHARD"})
_SENDS: Final = frozenset({SEND_FORWARD, SEND_BACKWARD})
_SENT_AS: Final = {SEND_FORWARD: (Kind.FORWARD,), SEND_BACKWARD: (Kind.BACKWARD, Kind.INPUT_GRADIENT)}


def stages_of(schedule: Any) -> list[Any]:
    """The stages of this rank, ascending."""
    stages = schedule._stages if hasattr(schedule, "_stages") else [schedule._stage]  # noqa: SLF001 - their only names
    return sorted(stages, key=lambda stage: stage.stage_index)


def read_schedule(schedule: Any, *, has_step: bool) -> Schedule:
    """The order of an iteration's instructions, on all ranks of the pipeline.

    Args:
        schedule: As ``attach`` takes it.
        has_step: Whether the optimizer's step belongs to the iteration.

    Raises:
        ScheduleError: No plan is made for what it runs.
    """
    of_loop = _single_stage_order(schedule)
    if of_loop:
        return Schedule(ranks=_with_steps(of_loop, has_step=has_step), exchange=Exchange.DEFERRED)
    by_rank = _actions_of(schedule)
    read = Schedule(
        ranks=_with_steps(_order_of_actions(by_rank, names_sends=False), has_step=has_step),
        joint=frozenset(_joint(by_rank)),
        exchange=Exchange.POSTED,
    )
    if _asks_as_known(read, by_rank):
        return read
    return Schedule(ranks=_with_steps(_order_of_actions(by_rank, names_sends=True), has_step=has_step))


def _with_steps(orders: Iterable[tuple[Instruction, ...]], *, has_step: bool) -> tuple[tuple[Instruction, ...], ...]:
    return tuple(
        (*order, *([Instruction(_lowest_stage(order), STEP, NO_MICROBATCH)] if has_step else [])) for order in orders
    )


def _asks_as_known(schedule: Schedule, by_rank: Sequence[Iterable[Any]]) -> bool:
    """Whether receives are where ``Exchange.POSTED`` has them; a file, or torch on demand, may put them elsewhere."""
    stages = {one.stage for order in schedule.ranks for one in order}
    if stages != set(range(len(stages))):
        return False  # the caller refuses it
    following = (pair for order in schedule.ranks for pair in pairwise(order) if pair[0] in schedule.joint)
    if any((one.kind == Kind.FORWARD) == (other.kind == Kind.FORWARD) for one, other in following):
        return False  # an order from a file, with an action that is no forward and backward
    programs = posted_programs(schedule, needs_of(schedule))
    return programs is not None and all(
        list(_steps(program)) == list(_steps_of_actions(by_rank[pp_rank])) for pp_rank, program in enumerate(programs)
    )


def _steps(program: Program) -> Iterator[tuple[bool, int, bool, int]]:
    """Computations and calls: (whether it is a call, stage that makes the result, whether forward, microbatch)."""
    for one in program:
        if isinstance(one, Begin):
            yield from ((True, stage, kind == Kind.FORWARD, microbatch) for stage, kind, microbatch in one.results)
        elif isinstance(one, Instruction) and not one.is_constant:
            yield False, one.stage, one.kind == Kind.FORWARD, one.microbatch


def _steps_of_actions(actions: Iterable[Any]) -> Iterator[tuple[bool, int, bool, int]]:
    """Likewise of torch's actions."""
    for action in actions:
        name = str(action.computation_type.value)
        if name == OVERLAP:
            yield from _steps_of_actions(action.sub_actions or ())
        elif name in _SENDS or name in _RECEIVES:
            made_by = action.stage_index + _RECEIVES.get(name, 0)
            yield True, made_by, name.endswith("_F"), action.microbatch_index
        elif name in frozenset(Kind):
            yield False, action.stage_index, name == Kind.FORWARD, action.microbatch_index


def _single_stage_order(schedule: Any) -> list[tuple[Instruction, ...]] | None:
    """Of a schedule with one stage on each rank; None of another."""
    from torch.distributed.pipelining import Schedule1F1B, ScheduleGPipe

    if not isinstance(schedule, (Schedule1F1B, ScheduleGPipe)):
        return None
    stage = stages_of(schedule)[0]
    if stage.stage_index != stage.group_rank or stage.num_stages != stage.group_size:
        raise ScheduleError(
            f"stage {stage.stage_index} of {stage.num_stages} is on rank {stage.group_rank} of {stage.group_size}, and "
            "plans of this schedule are made for stages in the order of ranks, one on each"
        )
    make = gpipe if isinstance(schedule, ScheduleGPipe) else one_f_one_b
    made = make(pp=stage.num_stages, microbatches=schedule._n_microbatches)  # noqa: SLF001 - its only name
    has_reduction = hasattr(stage, "perform_reduce_grad")
    return [
        (*order, *([Instruction(pp_rank, REDUCE, NO_MICROBATCH)] if has_reduction else []))
        for pp_rank, order in enumerate(made.ranks)
    ]


def _actions_of(schedule: Any) -> list[Sequence[Any]]:
    """Of each rank."""
    by_rank = getattr(schedule, "pipeline_order_with_comms", None)
    if not by_rank:
        raise ScheduleError(
            f"{type(schedule).__name__} has no order of actions that could be read (pipeline_order_with_comms); plans "
            "are made for Schedule1F1B, ScheduleGPipe, and schedules that run such an order"
        )
    return [by_rank[pp_rank] for pp_rank in sorted(by_rank)]


def _order_of_actions(by_rank: Iterable[Iterable[Any]], *, names_sends: bool) -> list[tuple[Instruction, ...]]:
    return [_with_one_reduction(list(_instructions(actions, names_sends=names_sends))) for actions in by_rank]


def _joint(by_rank: Iterable[Iterable[Any]]) -> Iterator[Instruction]:
    """All but the last of each ``OVERLAP_F_B``."""
    for action in chain.from_iterable(by_rank):
        if str(action.computation_type.value) == OVERLAP:
            for part in (action.sub_actions or ())[:-1]:
                yield _instruction(part, str(part.computation_type.value))


def _instructions(actions: Iterable[Any], *, names_sends: bool) -> Iterator[Instruction]:
    """The instructions of a rank; sends behind an ``OVERLAP_F_B`` are among them if ``names_sends``."""
    overlapped: set[Instruction] = set()
    for action in actions:
        name = str(action.computation_type.value)
        if name == OVERLAP:
            pair = [_instruction(part, str(part.computation_type.value)) for part in action.sub_actions or ()]
            overlapped.update(pair)
            yield from pair
        elif name in _SENDS:
            stage, microbatch = action.stage_index, action.microbatch_index
            if names_sends and any(Instruction(stage, kind, microbatch) in overlapped for kind in _SENT_AS[name]):
                yield Instruction(stage, name, microbatch)
        elif name not in _WAITING:
            yield _instruction(action, name)


def _instruction(action: Any, name: str) -> Instruction:
    if name == _REDUCE_GRAD:
        return Instruction(action.stage_index, REDUCE, NO_MICROBATCH)
    if name not in frozenset(Kind):
        raise ScheduleError(
            f"the schedule has an action {action}, which Perseus does not know; it knows "
            f"{', '.join((*Kind, OVERLAP, _REDUCE_GRAD))}"
        )
    return Instruction(action.stage_index, name, action.microbatch_index)


def _with_one_reduction(order: list[Instruction]) -> tuple[Instruction, ...]:
    """Only in a rank's last reduction does it wait for other pipelines: after those before, it still computes."""
    last = max((place for place, instruction in enumerate(order) if instruction.kind == REDUCE), default=-1)
    return tuple(
        instruction._replace(kind=REDUCE_CHUNK) if instruction.kind == REDUCE and place < last else instruction
        for place, instruction in enumerate(order)
    )


def _lowest_stage(order: Iterable[Instruction]) -> int:
    return min(instruction.stage for instruction in order)
