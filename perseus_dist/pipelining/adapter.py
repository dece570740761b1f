"""How a schedule of ``torch.distributed.pipelining`` comes under Perseus: by ``attach``, until ``detach``."""

import logging
from collections.abc import Callable
from typing import Any

from perseus_dist.pipelining.attachment import Attachment
from perseus_dist.pipelining.place import place_by_groups
from perseus_dist.training.disabled import is_disabled
from perseus_dist.training.options import PerseusOptions, options_from_environment
from perseus_dist.training.rank.job_member import RankIdentity

_log = logging.getLogger(__name__)

_ATTACHMENT = "_perseus_attachment"  # of a schedule


def attach(
    schedule: Any,
    options: PerseusOptions | None = None,
    *,
    optimizer: Any = None,
    dp_group: Any = None,
    tp_group: Any = None,
) -> Attachment:
    """Put a pipeline schedule under Perseus: once it is made, before its first ``step``, on every rank.

    Never raises: where it cannot be, rank 0 says why, and training goes on at full clocks. A schedule that is attached
    already stays as it is; ``detach`` it first to attach it anew. ``PERSEUS_DISABLE=1`` makes it nothing.

    Args:
        schedule: Of ``torch.distributed.pipelining``: ``Schedule1F1B``, ``ScheduleGPipe``, or one that runs an order
            of actions, such as ``ScheduleInterleaved1F1B``, ``ScheduleInterleavedZeroBubble``,
            ``ScheduleZBVZeroBubble`` and ``ScheduleDualPipeV``.
        options: Come before those of the environment, such as ``PERSEUS_REPORT``.
        optimizer: Steps once after each ``step`` of the schedule: then it belongs to the iteration, which ends with
            it. Leave it out where several iterations share a step. On all ranks, or on none.
        dp_group: The process group of the ranks that hold the same stages in other pipelines.
        tp_group: The process group of the ranks that compute the same stages together with this one.
    """
    return attach_by(schedule, options, optimizer=optimizer, read_place=place_by_groups(dp_group, tp_group))


def attach_by(
    schedule: Any,
    options: PerseusOptions | None,
    *,
    optimizer: Any,
    read_place: Callable[[list[Any]], RankIdentity],
) -> Attachment:
    """As ``attach``, where something else than process groups says how ranks are arranged.

    Args:
        schedule: As there.
        options: As there.
        optimizer: As there.
        read_place: This rank's coordinates, by the schedule's stages on it. May raise ``PerseusError``.
    """
    attributes = getattr(schedule, "__dict__", {})
    before: Attachment | None = attributes.get(_ATTACHMENT)
    if before is not None:
        if before.is_newest:  # as on all ranks: they number their members alike
            return before
        before.remove()
    attachment = attributes[_ATTACHMENT] = Attachment(schedule)
    if not is_disabled():
        try:
            asked = (options or PerseusOptions()).over(options_from_environment())
            attachment.install(asked, optimizer=optimizer, read_place=read_place)
        except Exception as error:
            attachment.remove()
            if _is_first_rank():
                _log.warning("perseus: clocks stay as they are: %s", error or type(error).__name__)
    return attachment


def is_attached(schedule: Any) -> bool:
    """Whether ``attach`` was called for it, also where it has been refused since."""
    return _ATTACHMENT in getattr(schedule, "__dict__", {})


def detach(schedule: Any) -> None:
    """Release the clocks and leave the schedule as it was before ``attach``. Harmless where it is not attached."""
    attachment: Attachment | None = getattr(schedule, "__dict__", {}).pop(_ATTACHMENT, None)
    if attachment is not None:
        attachment.detach()


def _is_first_rank() -> bool:
    import torch.distributed as dist

    return not dist.is_initialized() or dist.get_rank() == 0
