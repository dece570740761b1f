"""Where a rank stands in a DeepSpeed job."""

import math
import os
from typing import Any

from perseus_dist.training.rank.job_member import RankIdentity, TopologyError


def place_of(engine: Any) -> RankIdentity:
    """The rank's coordinates in the engine's grid. Its axis ``model`` is tensor parallelism (DeepSpeed's slices).

    Args:
        engine: A ``PipelineEngine``.

    Raises:
        TopologyError: There is an axis besides ``pipe``, ``data`` and ``model``.
    """
    grid = engine.grid
    place = RankIdentity(
        rank=grid.get_global_rank(),
        pp_rank=grid.get_stage_id(),
        dp_rank=grid.get_data_parallel_id(),
        # get_model_parallel_rank() is the rank among pipe x model.
        tp_rank=grid.get_slice_parallel_rank(),
        pp_size=grid.get_pipe_parallel_world_size(),
        dp_size=grid.get_data_parallel_world_size(),
        tp_size=grid.get_slice_parallel_world_size(),
        # Set by every launcher, or by DeepSpeed itself under mpirun.
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )
    topology = grid.topology()
    num_ranks = math.prod(topology.dims)
    if num_ranks != place.pp_size * place.dp_size * place.tp_size:
        raise TopologyError(
            f"{num_ranks} ranks are arranged by {', '.join(topology.get_axis_names())}; plans are made for the axes "
            "pipe, data and model"
        )
    return place
