"""torchtitan's trainer, which knows of a schedule what torch does not: the optimizer, and how ranks are arranged."""

import functools
import os
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from perseus_dist.training.rank.job_member import RankIdentity, TopologyError

_TRAINER = "_perseus_titan_trainer"  # of a schedule
_REMEMBERS = "_perseus_remembers"  # of the function in the place of __init__


@dataclass(frozen=True, slots=True, kw_only=True)
class TitanTrainer:
    """The part of a trainer that its schedule is planned by.

    Attributes:
        optimizer: Ends the iteration; None where several iterations share a step, or its steps cannot be seen.
        dims: torchtitan's ``ParallelDims``.
    """

    optimizer: Any
    dims: Any

    def read_place(self, stages: list[Any]) -> RankIdentity:
        """This rank's coordinates, as ``attach`` wants them.

        Args:
            stages: The schedule's, on this rank.

        Raises:
            TopologyError: Ranks are arranged in a way that no plan is made for.
        """
        import torch.distributed as dist

        place = place_in(self.dims, rank=dist.get_rank(), local_rank=int(os.environ.get("LOCAL_RANK", "0")))
        in_group = (stages[0].group_rank, stages[0].group_size)
        if in_group != (place.pp_rank, place.pp_size) or dist.get_world_size() != self.dims.world_size:
            raise TopologyError(
                f"rank {place.rank} is {in_group[0]} of {in_group[1]} in its pipeline's group, and {place.pp_rank} of "
                f"{place.pp_size} by torchtitan's parallel dimensions; expected the same, as in torchtitan 0.3.0"
            )
        return place


def patch_trainer(module: ModuleType) -> None:
    """Have each trainer's schedule remember it.

    Args:
        module: ``torchtitan.trainer``.
    """
    init = module.Trainer.__init__
    if hasattr(init, _REMEMBERS):
        return

    @functools.wraps(init)
    def init_and_remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        schedule = getattr(self, "pp_schedule", None)
        if hasattr(schedule, "__dict__"):
            schedule.__dict__[_TRAINER] = weakref.ref(self)

    setattr(init_and_remember, _REMEMBERS, True)
    module.Trainer.__init__ = init_and_remember


def trainer_of(schedule: Any) -> TitanTrainer | None:
    """The trainer of a schedule, as it is now; None where torchtitan has not made it."""
    reference = schedule.__dict__.get(_TRAINER)
    trainer = None if reference is None else reference()
    if trainer is None:
        return None
    is_shared = getattr(trainer, "gradient_accumulation_steps", 1) > 1
    optimizer = getattr(trainer, "optimizers", None)
    return TitanTrainer(
        optimizer=None if is_shared or not hasattr(optimizer, "register_step_post_hook") else optimizer,
        dims=trainer.parallel_dims,
    )


def place_in(dims: Any, *, rank: int, local_rank: int) -> RankIdentity:
    """A rank's coordinates by torchtitan's order of dimensions, from the outermost: pp, dp_replicate, dp_shard, cp, tp.

    Ranks that execute an instruction together are one node: those of context and tensor parallelism, or of the expert
    parallelism that contains them. ``tp`` counts them, and ``dp`` counts such nodes of a stage.

    Args:
        dims: torchtitan's ``ParallelDims``.
        rank: Global rank.
        local_rank: On its host.

    Raises:
        TopologyError: Neither of the two contains the other.
    """
    layers, experts = dims.cp * dims.tp, dims.ep
    smaller, larger = sorted((layers, experts))
    if larger % smaller:
        raise TopologyError(
            f"dense layers are computed by {layers} ranks together and experts by {experts}, and plans are made where "
            "one of these groups contains the other; choose parallelism.expert_parallel_degree as a divisor or a "
            "multiple of tensor_parallel_degree x context_parallel_degree"
        )
    ranks_per_stage = dims.world_size // dims.pp
    pp_rank, place = divmod(rank, ranks_per_stage)
    dp_rank, tp_rank = divmod(place, larger)
    return RankIdentity(
        rank=rank,
        pp_rank=pp_rank,
        dp_rank=dp_rank,
        tp_rank=tp_rank,
        pp_size=dims.pp,
        dp_size=ranks_per_stage // larger,
        tp_size=larger,
        local_rank=local_rank,
    )
