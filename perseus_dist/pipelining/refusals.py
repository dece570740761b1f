"""Schedules for which no plan is made: their forwards and backwards cannot be seen, or are no training."""

from collections.abc import Iterator
from typing import Any

from perseus_dist.pipelining.schedule_order import OVERLAP, stages_of
from perseus_dist.planning.schedule.instruction import Kind

_OF_SCHEDULE = ("_step_microbatches", "_maybe_compute_loss", "_n_microbatches", "_has_backward")
_OF_STAGE = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk", "group_rank", "group_size")
_UNSEEN = frozenset({*map(str, Kind), OVERLAP})


def reason_against(schedule: Any, optimizer: Any) -> str | None:
    """Why a schedule's iterations cannot be planned, and what to change; None where they can.

    Args:
        schedule: As ``attach`` takes it.
        optimizer: As there.
    """
    missing = next(_missing(schedule), None)
    if missing is not None:
        return missing
    if not schedule._has_backward:  # noqa: SLF001 - as below, its only name
        return "the schedule has no loss function, so that it never trains; give it loss_fn="
    custom = getattr(schedule, "_comp_type_to_function_map", {})
    unseen = sorted(_UNSEEN & {str(kind.value) for kind in custom})
    if unseen:
        return (
            f"a custom function is registered for {unseen[0]}, and what it runs cannot be seen; plans are made for "
            "torch's own"
        )
    if optimizer is not None and not hasattr(optimizer, "register_step_post_hook"):
        return (
            f"optimizer= is a {type(optimizer).__name__}, whose steps cannot be seen; give a torch.optim.Optimizer, or "
            "leave it out"
        )
    return None


def _missing(schedule: Any) -> Iterator[str]:
    import torch

    if not (hasattr(schedule, "_stage") or getattr(schedule, "_stages", None)):
        yield (
            f"attach() was given a {type(schedule).__name__}; expected a schedule of torch.distributed.pipelining, "
            "such as Schedule1F1B"
        )
        return
    parts = [(schedule, _OF_SCHEDULE), *((stage, _OF_STAGE) for stage in stages_of(schedule))]
    for owner, names in parts:
        for name in names:
            if not hasattr(owner, name):
                yield (
                    f"{type(owner).__name__} of torch {torch.__version__} has no {name}, by which Perseus knows what "
                    "runs; torch 2.13 is supported"
                )
