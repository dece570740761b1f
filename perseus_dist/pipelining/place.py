"""Where a rank stands in a job of ``torch.distributed.pipelining``, which knows of pipelines alone."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from perseus_dist.training.rank.job_member import RankIdentity, TopologyError


def place_by_groups(dp_group: Any, tp_group: Any) -> Callable[[list[Any]], RankIdentity]:
    """``place_of`` for the schedule's stages, once they are known."""
    return partial(place_of, dp_group=dp_group, tp_group=tp_group)


def place_of(stages: list[Any], dp_group: Any, tp_group: Any) -> RankIdentity:
    """This rank's coordinates.

    Args:
        stages: The schedule's, on this rank.
        dp_group: As in ``attach``.
        tp_group: As there.

    Raises:
        TopologyError: The groups do not account for all ranks.
    """
    import torch.distributed as dist

    def place_in(group: Any) -> tuple[int, int]:
        return (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))

    (dp_rank, dp_size), (tp_rank, tp_size) = place_in(dp_group), place_in(tp_group)
    place = RankIdentity(
        rank=dist.get_rank(),
        pp_rank=stages[0].group_rank,
        dp_rank=dp_rank,
        tp_rank=tp_rank,
        pp_size=stages[0].group_size,
        dp_size=dp_size,
        tp_size=tp_size,
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )
    num_ranks = dist.get_world_size()
    if num_ranks != place.pp_size * dp_size * tp_size:
        raise TopologyError(
            f"{num_ranks} ranks are not {place.pp_size} pipeline ranks x {dp_size} data-parallel replicas x {tp_size} "
            "ranks that compute together; give attach() dp_group= and tp_group= as the job has them"
        )
    return place
