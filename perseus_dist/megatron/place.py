"""Where a rank stands in a Megatron job: read from Megatron's process groups, whose order is an option of its user."""

import os
from dataclasses import dataclass
from typing import Any

from perseus_dist.training.rank.job_member import RankIdentity, TopologyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The global ranks of the groups that a rank is in, in the groups' own order.

    Attributes:
        pipeline: Its pipeline.
        layers: The ranks that compute the dense layers of its stage together: tensor and context parallelism.
        experts: The ranks that compute experts together: expert tensor and expert parallelism; may be empty.
        replicas: The rank in its place in the other ``layers`` of the stage: data parallelism, without context.
        expert_replicas: The same for ``experts``.
    """

    pipeline: tuple[int, ...]
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    replicas: tuple[int, ...]
    expert_replicas: tuple[int, ...]


def place_of(rank: int, num_ranks: int, local_rank: int, groups: Groups) -> RankIdentity:
    """A rank's coordinates.

    Ranks that execute an instruction together are one node of a plan: held together, layer by layer, by all-reduces of
    tensor parallelism, the rings of context parallelism and the all-to-alls of experts. ``tp`` counts them, and ``dp``
    counts such nodes of a stage.

    Args:
        rank: Global rank.
        num_ranks: In the job.
        local_rank: On its host.
        groups: Of this rank.

    Raises:
        TopologyError: The groups do not divide the ranks into such nodes.
    """
    smaller, larger = sorted((groups.layers, groups.experts), key=len)
    if smaller and (len(larger) % len(smaller) or not set(smaller) <= set(larger)):
        raise TopologyError(
            f"dense layers are computed by the ranks {_text(groups.layers)} together and experts by "
            f"{_text(groups.experts)}, and plans are made where one of these groups contains the other; choose "
            "--expert-tensor-parallel-size x --expert-model-parallel-size as a divisor or a multiple of "
            "--tensor-model-parallel-size x --context-parallel-size"
        )
    is_by_expert = len(groups.experts) > len(groups.layers)
    node = groups.experts if is_by_expert else groups.layers
    replicas = groups.expert_replicas if is_by_expert else groups.replicas
    if len(groups.pipeline) * len(replicas) * len(node) != num_ranks:
        raise TopologyError(
            f"{num_ranks} ranks are not {len(groups.pipeline)} pipeline stages x {len(replicas)} data-parallel "
            f"replicas x {len(node)} ranks that compute together; plans are made for tensor, context, expert, data and "
            "pipeline parallelism"
        )
    return RankIdentity(
        rank=rank,
        pp_rank=groups.pipeline.index(rank),
        dp_rank=replicas.index(rank),
        tp_rank=node.index(rank),
        pp_size=len(groups.pipeline),
        dp_size=len(replicas),
        tp_size=len(node),
        local_rank=local_rank,
    )


def read_place(collection: Any = None) -> RankIdentity:
    """This rank's coordinates, by the groups of ``megatron.core.parallel_state``.

    Args:
        collection: The ``ProcessGroupCollection`` of a schedule's call, for a job that has no others.

    Raises:
        TopologyError: As ``place_of``, or there are no groups.
    """
    import torch.distributed as dist
    from megatron.core import parallel_state as groups

    def ranks(group: object) -> tuple[int, ...]:
        return () if group is None else tuple(dist.get_process_group_ranks(group))

    def collected(name: str) -> tuple[int, ...]:
        return ranks(getattr(collection, name, None))

    if groups.model_parallel_is_initialized():
        found = Groups(
            pipeline=ranks(groups.get_pipeline_model_parallel_group()),
            layers=ranks(groups.get_tensor_and_context_parallel_group()),
            experts=ranks(groups.get_expert_tensor_and_model_parallel_group(check_initialized=False)),
            replicas=ranks(groups.get_data_parallel_group()),
            expert_replicas=ranks(groups.get_expert_data_parallel_group(check_initialized=False)),
        )
    else:
        found = Groups(
            pipeline=collected("pp"),
            layers=collected("tp_cp"),
            experts=collected("tp_ep"),
            replicas=collected("dp"),
            expert_replicas=collected("expt_dp"),
        )
    if not (found.pipeline and found.layers and found.replicas):
        raise TopologyError(
            "neither megatron.core.parallel_state nor the schedule's pg_collection has the groups that arrange ranks; "
            "call initialize_model_parallel(), or pass a collection with pp, tp_cp and dp"
        )
    return place_of(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")), found)


def _text(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
