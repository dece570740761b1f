"""Schedules: which instructions each pp_rank runs, in which order; GPipe, 1F1B and Megatron's interleaved 1F1B.

A schedule is data. What waits for what is said in ``dag`` alone. Standard library only: the trainer's adapters
import this module.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from itertools import chain

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.instruction import OVERLAPPED_FORWARD, Instruction, Kind


class Exchange(StrEnum):
    """How pp_ranks exchange tensors where that takes time."""

    BATCHED = "batched"
    """One call sends and receives what two pp_ranks have for each other, and they go on when all of it is over: 1F1B as
    Megatron-LM runs it. Where a pp_rank has several stages, or backwards in two parts, it sends while it computes."""

    SERIAL = "serial"
    """The same, one tensor after the other, as DeepSpeed's engine: the sender of a forward's result receives first."""

    OVERLAPPED = "overlapped"
    """Interleaved 1F1B as Megatron-LM runs it with ``overlap_p2p_comm``: calls of warm-up and cool-down block; in the
    steady state a pp_rank waits for a send when it has begun the next one the same way."""

    OVERLAPPED_BACKWARDS = "overlapped-backwards"
    """The same, and a forward's result has been sent before the pp_rank goes on: Megatron-LM from 0.18 on, where it
    frees what it has sent (``deallocate_pipeline_outputs``)."""

    DEFERRED = "deferred"
    """GPipe and 1F1B as torch.distributed.pipelining runs them: what is sent by itself is waited for some instructions
    later, as ``calls.deferred`` says."""

    POSTED = "posted"
    """An order of actions as torch.distributed.pipelining runs it: what is received is asked for ahead, where
    ``calls.posted`` says, and no send is waited for before the end."""

    DUALPIPEV = "dualpipev"
    """DualPipeV as DeepSpeed runs it: calls that block, between the instructions that ``calls.dualpipev`` says."""

    SENDER = "sender"
    """The sender goes on when the transfer is over, whether or not it has been asked for: how frontiers were planned
    that were saved before the others were known."""

    @property
    def overlaps(self) -> bool:
        """Whether it is Megatron-LM's interleaved schedule's alone, with ``overlap_p2p_comm``."""
        return self in {Exchange.OVERLAPPED, Exchange.OVERLAPPED_BACKWARDS}

    @property
    def holds_up(self) -> bool:
        """Whether it says when instructions begin even where transfers take no time."""
        return self.overlaps or self in {Exchange.DEFERRED, Exchange.POSTED, Exchange.DUALPIPEV}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One training iteration of a pipeline.

    Attributes:
        ranks: ``ranks[pp_rank]`` holds its instructions in execution order. A stage belongs to one pp_rank.
        joint: Instructions that exchange jointly with the next one on their pp_rank: what either needs from other
            pp_ranks has arrived before the first begins, and the results of both leave after the second. With
            ``Exchange.POSTED`` those that torch runs in one action: what the second needs may come later.
        exchange: How pp_ranks exchange tensors where that takes time.
    """

    ranks: tuple[tuple[Instruction, ...], ...]
    joint: frozenset[Instruction] = frozenset()
    exchange: Exchange = Exchange.BATCHED

    @property
    def num_ranks(self) -> int:
        """Number of pipeline ranks of the schedule."""
        return len(self.ranks)

    @property
    def num_stages(self) -> int:
        """Number of virtual stages over the whole model."""
        return 1 + max(instruction.stage for instruction in chain.from_iterable(self.ranks))

    @property
    def num_microbatches(self) -> int:
        """Number of microbatches in the iteration."""
        return 1 + max(instruction.microbatch for instruction in chain.from_iterable(self.ranks))

    @property
    def rank_of_stage(self) -> tuple[int, ...]:
        """(num_stages) the pp_rank that each stage belongs to."""
        owner = {instruction.stage: pp_rank for pp_rank, order in enumerate(self.ranks) for instruction in order}
        return tuple(owner[stage] for stage in range(len(owner)))

    @property
    def sends_block(self) -> bool:
        """Whether a pp_rank goes on only when its result has been sent, as Megatron-LM and DeepSpeed do in 1F1B.

        Where a pp_rank has several stages, or backwards in two parts, frameworks send while they compute. Joint
        instructions have a rule of their own, and so has torch's pipelining.
        """
        if self.joint or self.exchange in {Exchange.DEFERRED, Exchange.POSTED}:
            return False
        whole = all(i.kind != Kind.INPUT_GRADIENT for order in self.ranks for i in order)
        return whole and self.num_stages == self.num_ranks

    def digest(self) -> str:
        """SHA-256 of the lines of the text form, in hexadecimal: the same on every rank that runs the same schedule."""
        return sha256(_lines(self).encode()).hexdigest()


def format_schedule(schedule: Schedule) -> str:
    """The text form: a line per pp_rank, its instructions in execution order, apart by single spaces.

    A ``+`` after an instruction says that it exchanges jointly with the next: ``0F4+ 4B0``. A comment at the end says
    how pp_ranks exchange, unless that is ``Exchange.BATCHED``: ``# exchange: serial``.
    """
    is_usual = schedule.exchange == Exchange.BATCHED
    return _lines(schedule) + ("" if is_usual else f"# exchange: {schedule.exchange}\n")


def _lines(schedule: Schedule) -> str:
    joint = schedule.joint
    return "".join(" ".join(f"{i}+" if i in joint else str(i) for i in order) + "\n" for order in schedule.ranks)


def gpipe(*, pp: int, microbatches: int) -> Schedule:
    """All forwards, then all backwards, both by ascending microbatch as ``torch.distributed.pipelining`` runs them.

    Raises:
        ScheduleError: A size is not positive.
    """
    return _one_chunk(pp, microbatches, [microbatches] * pp)


def one_f_one_b(*, pp: int, microbatches: int) -> Schedule:
    """1F1B as Megatron-LM and DeepSpeed run it: on each pp_rank as many warm-up forwards as stages come after it.

    Raises:
        ScheduleError: A size is not positive.
    """
    return _one_chunk(pp, microbatches, [pp - pp_rank - 1 for pp_rank in range(pp)])


def interleaved(*, pp: int, microbatches: int, chunks: int, microbatch_group_size: int | None = None) -> Schedule:
    """The order of Megatron-LM's interleaved 1F1B: stage ``chunk * pp + pp_rank``, microbatches in groups by chunk.

    Source: ``get_schedule_table``, ``get_pp_rank_microbatches`` and the checks of
    ``forward_backward_pipelining_with_interleaving`` in megatron-core 0.16.1.

    Args:
        pp: Number of pp_ranks, 2 or more.
        microbatches: Number of microbatches.
        chunks: Model chunks per pp_rank (Megatron's virtual pipeline size), 2 or more.
        microbatch_group_size: Microbatches that a chunk runs before the next chunk's turn (Megatron's
            ``microbatch_group_size_per_vp_stage``); ``pp`` unless given.

    Raises:
        ScheduleError: Sizes that Megatron refuses.
    """
    _check_interleaved(pp, microbatches, chunks, microbatch_group_size)
    group = microbatch_group_size or pp
    table = [
        (chunk, microbatch)
        for first in range(0, microbatches, group)
        for chunk in range(chunks)
        for microbatch in range(first, min(first + group, microbatches))
    ]
    ranks = []
    for pp_rank in range(pp):
        forwards = [Instruction(chunk * pp + pp_rank, Kind.FORWARD, microbatch) for chunk, microbatch in table]
        backwards = [
            Instruction((chunks - 1 - chunk) * pp + pp_rank, Kind.BACKWARD, microbatch) for chunk, microbatch in table
        ]
        ranks.append(_alternate(forwards, backwards, interleaved_warm_up(pp, pp_rank, chunks, group)))
    return Schedule(ranks=tuple(ranks))


def joint_exchanges(schedule: Schedule) -> Schedule:
    """An interleaved schedule as Megatron-LM runs it without ``overlap_p2p_comm``: each steady-state pair is joint.

    After the last warm-up forward, and after each forward and backward of the steady state, one call sends what both
    made and waits for what the next two need. Source: ``send_forward_backward_recv_forward_backward`` in
    ``forward_backward_pipelining_with_interleaving`` of megatron-core 0.16.1.

    Args:
        schedule: One of ``interleaved``; constants may come after the last backward of a pp_rank.

    Raises:
        ScheduleError: The order is another.
    """
    group = interleaved_group(schedule)
    if group is None:
        raise ScheduleError(
            "joint exchanges are Megatron's interleaved schedule's alone, and the order is another: give one of "
            "schedule=interleaved, or leave overlap_p2p=False out"
        )
    pp, chunks = schedule.num_ranks, schedule.num_stages // schedule.num_ranks
    joint = (
        instruction
        for pp_rank, order in enumerate(schedule.ranks)
        for instruction in order[interleaved_warm_up(pp, pp_rank, chunks, group) :]
        if instruction.kind == Kind.FORWARD
    )
    return replace(schedule, joint=frozenset(joint))


def overlapped(schedule: Schedule) -> Schedule:
    """A schedule as Megatron-LM runs it with ``overlap_moe_expert_parallel_comm``, a forward and a backward as one.

    One forward more than otherwise comes before the first backward, so that the two of a pair need nothing of each
    other; each forward from then on runs as one with the backward that comes next. Source: ``combined_1f1b.py`` and
    ``get_pp_rank_microbatches`` in ``megatron.core.pipeline_parallel`` of megatron-core 0.16.1.

    Args:
        schedule: Of ``one_f_one_b`` with one pp_rank, or of ``interleaved``, and then also of ``joint_exchanges``.
    """
    ranks = []
    for order in schedule.ranks:
        forwards = [i for i in order if i.kind == Kind.FORWARD]
        backwards = [i for i in order if i.kind == Kind.BACKWARD]
        warm_up = order.index(backwards[0])  # as many forwards: one more than before
        num_pairs = len(forwards) - warm_up
        beside = [i._replace(kind=OVERLAPPED_FORWARD) for i in forwards[warm_up:]]
        pairs = [i._replace(kind=Kind.FORWARD_BACKWARD) for i in backwards[:num_pairs]]
        ranks.append(_alternate(forwards[:warm_up] + beside, pairs + backwards[num_pairs:], warm_up))
    joint = {i._replace(kind=OVERLAPPED_FORWARD) for i in schedule.joint}
    return replace(schedule, ranks=tuple(ranks), joint=frozenset(joint.intersection(chain.from_iterable(ranks))))


def interleaved_group(schedule: Schedule) -> int | None:
    """The microbatch group size of a schedule of ``interleaved``, None of any other.

    Constants may come after the last backward of a pp_rank. Order alone does not tell a single pair of the steady state
    from all forwards and then all backwards; the sizes do.
    """
    pp, chunks = schedule.num_ranks, schedule.num_stages // schedule.num_ranks
    group = next((i for i, instruction in enumerate(schedule.ranks[0]) if instruction.stage), 0)
    microbatches = schedule.num_microbatches
    try:
        known = interleaved(pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=group).ranks
    except ScheduleError:
        return None
    return group if tuple(order[: 2 * microbatches * chunks] for order in schedule.ranks) == known else None


def interleaved_warm_up(pp: int, pp_rank: int, chunks: int, group: int) -> int:
    """Forwards of a pp_rank before the steady state of ``interleaved``, if it has so many."""
    return 2 * (pp - pp_rank - 1) + (chunks - 1) * group


def _one_chunk(pp: int, microbatches: int, warm_ups: Sequence[int]) -> Schedule:
    _check_positive(pp=pp, microbatches=microbatches)
    return Schedule(
        ranks=tuple(
            _alternate(
                [Instruction(pp_rank, Kind.FORWARD, microbatch) for microbatch in range(microbatches)],
                [Instruction(pp_rank, Kind.BACKWARD, microbatch) for microbatch in range(microbatches)],
                warm_up,
            )
            for pp_rank, warm_up in enumerate(warm_ups)
        )
    )


def _alternate(
    forwards: Sequence[Instruction], backwards: Sequence[Instruction], warm_up: int
) -> tuple[Instruction, ...]:
    """Warm-up forwards, then one forward and one backward in turn, then the backwards that are left."""
    num_pairs = max(0, len(forwards) - warm_up)
    pairs = zip(forwards[warm_up:], backwards[:num_pairs], strict=True)
    return (*forwards[:warm_up], *chain.from_iterable(pairs), *backwards[num_pairs:])


def _check_positive(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ScheduleError(f"{name}={size}: expected a positive integer")


def _check_interleaved(pp: int, microbatches: int, chunks: int, microbatch_group_size: int | None) -> None:
    """Refuse the sizes that Megatron refuses, before any GPU is taken for them."""
    _check_positive(pp=pp, microbatches=microbatches, chunks=chunks, microbatch_group_size=microbatch_group_size)
    if pp == 1 or chunks == 1:
        raise ScheduleError(
            f"schedule=interleaved with pp={pp} chunks={chunks}: Megatron interleaves 2 chunks or more on "
            "2 pp_ranks or more; give both, or use schedule=1f1b"
        )
    if microbatches < pp:
        raise ScheduleError(
            f"microbatches={microbatches} with pp={pp}: Megatron interleaves no fewer microbatches than pp_ranks; "
            f"give microbatches={pp} or more, or use schedule=1f1b"
        )
    group = microbatch_group_size or pp
    if not pp <= group <= microbatches:
        raise ScheduleError(
            f"microbatch_group_size={group}: Megatron wants it from pp={pp} to microbatches={microbatches}; "
            "give one of these, or leave it out"
        )
    rest = microbatches % group
    if 0 < rest < pp:
        possible = next(size for size in range(pp, microbatches + 1) if not 0 < microbatches % size < pp)
        raise ScheduleError(
            f"microbatches={microbatches} leaves a last group of {rest} after groups of {group} "
            f"(microbatch_group_size=, or pp=), where Megatron wants none or at least pp={pp}: give microbatches="
            f"{microbatches - rest} or {microbatches - rest + group}, or microbatch_group_size={possible}"
        )
