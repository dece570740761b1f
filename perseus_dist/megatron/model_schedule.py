"""The schedule of a Megatron iteration, as a ``Schedule``.

Megatron's schedules are functions, not data: their orders are those of ``schedule``, and what really runs is
compared with them as it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from perseus_dist.errors import ScheduleError
from perseus_dist.planning.schedule.instruction import NO_MICROBATCH, Instruction
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
    overlapped,
)
from perseus_dist.training.rank.constant_kinds import REDUCE, STEP

INTERLEAVED: Final = "forward_backward_pipelining_with_interleaving"
NO_PIPELINING: Final = "forward_backward_no_pipelining"
SCHEDULE_FUNCTIONS: Final = (NO_PIPELINING, "forward_backward_pipelining_without_interleaving", INTERLEAVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingIteration:
    """Facts that decide the order of an iteration's instructions.

    Attributes:
        is_interleaved: Whether ranks hold several model chunks in turn.
        num_microbatches: In the iteration.
        num_chunks: Model chunks on each rank.
        group_size: Microbatches that a chunk runs before the next one's turn; None: as many as there are ranks.
        has_joint_exchanges: Interleaved, and activations and gradients are exchanged together.
        exchange: How ranks exchange them otherwise.
        has_pairs: Whether a forward and a backward of the steady state run as one.
        has_reduction: Whether the schedule ends with the reduction of gradients.
        has_step: Whether the optimizer's step is the iteration's.
        token_copies: Ranks that compute on the same tokens: those of tensor parallelism, unless sequence parallelism
            divides the tokens among them.
    """

    is_interleaved: bool
    num_microbatches: int
    num_chunks: int
    group_size: int | None
    has_joint_exchanges: bool
    exchange: Exchange
    has_pairs: bool
    has_reduction: bool
    has_step: bool
    token_copies: int = 1


def read_iteration(
    function: str, call: Mapping[str, Any], config: Any, *, core_version: tuple[int, ...], has_step: bool
) -> TrainingIteration:
    """The iteration that a call of a schedule function begins.

    Args:
        function: Its name.
        call: Its arguments by name.
        config: The model's ``ModelParallelConfig``.
        core_version: Of megatron-core: major, minor.
        has_step: As in ``TrainingIteration``.

    Raises:
        ScheduleError: It is none of ``SCHEDULE_FUNCTIONS``.
    """
    if function not in SCHEDULE_FUNCTIONS:
        raise ScheduleError(f"the iteration runs {function or 'a function without a name'}, whose order is not known")
    is_interleaved = function == INTERLEAVED
    has_pairs = runs_pairs(config) and function in (NO_PIPELINING, INTERLEAVED)
    return TrainingIteration(
        is_interleaved=is_interleaved,
        num_microbatches=int(call["num_microbatches"]),
        num_chunks=len(chunks_of(call)),
        group_size=getattr(config, "microbatch_group_size_per_vp_stage", None),
        has_joint_exchanges=is_interleaved and not config.overlap_p2p_comm,
        exchange=_exchange(config, core_version) if is_interleaved and not has_pairs else Exchange.BATCHED,
        has_pairs=has_pairs,
        has_reduction=config.finalize_model_grads_func is not None,
        has_step=has_step,
        token_copies=1 if config.sequence_parallel else config.tensor_model_parallel_size,
    )


def _exchange(config: Any, core_version: tuple[int, ...]) -> Exchange:
    """Of the interleaved schedule. Of calls that overlap warm-up and cool-down as well no waits are known."""
    if not config.overlap_p2p_comm or getattr(config, "overlap_p2p_comm_warmup_flush", False):
        return Exchange.BATCHED
    frees_what_is_sent = core_version >= (0, 18) and config.deallocate_pipeline_outputs
    return Exchange.OVERLAPPED_BACKWARDS if frees_what_is_sent else Exchange.OVERLAPPED


def runs_pairs(config: Any) -> bool:
    """Whether a model's schedules run a forward and a backward as one, where they can."""
    return bool(getattr(config, "overlap_moe_expert_parallel_comm", False))


def chunks_of(call: Mapping[str, Any]) -> list[Any]:
    """The model chunks that a schedule function was called with."""
    model = call["model"]
    return model if isinstance(model, list) else [model]


def read_schedule(iteration: TrainingIteration, pp_size: int) -> Schedule:
    """The order of its instructions, on all pp_ranks.

    Raises:
        ScheduleError: Sizes for which no order is known.
    """
    schedule = _computations(iteration, pp_size)
    if iteration.has_pairs:
        schedule = overlapped(schedule)
    kinds = [REDUCE] * iteration.has_reduction + [STEP] * iteration.has_step
    return replace(
        schedule,
        exchange=iteration.exchange,
        ranks=tuple(
            (*order, *(Instruction(pp_rank, kind, NO_MICROBATCH) for kind in kinds))
            for pp_rank, order in enumerate(schedule.ranks)
        ),
    )


def _computations(iteration: TrainingIteration, pp_size: int) -> Schedule:
    if not iteration.is_interleaved:
        return one_f_one_b(pp=pp_size, microbatches=iteration.num_microbatches)
    if iteration.num_chunks == 1:
        raise ScheduleError(
            "the interleaved schedule runs with one model chunk per rank, and plans are made for two or more; use the "
            "schedule without interleaving"
        )
    schedule = interleaved(
        pp=pp_size,
        microbatches=iteration.num_microbatches,
        chunks=iteration.num_chunks,
        microbatch_group_size=iteration.group_size,
    )
    return joint_exchanges(schedule) if iteration.has_joint_exchanges else schedule
