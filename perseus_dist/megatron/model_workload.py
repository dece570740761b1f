"""Workload of a call of one of Megatron's schedule functions."""

from collections.abc import Mapping
from typing import Any

from perseus_dist.fingerprint import Workload
from perseus_dist.megatron.model_schedule import chunks_of
from perseus_dist.training.rank.workload import installed_versions, known_size, num_layers, num_parameters


def workload_of(call: Mapping[str, Any], config: Any) -> Workload:
    """Read the workload.

    Args:
        call: The schedule function's arguments by name.
        config: The model's ``ModelParallelConfig``.
    """
    # Shapes that change from microbatch to microbatch have no length to compare.
    has_one_length = not getattr(config, "variable_seq_lengths", False)
    return Workload(
        framework="megatron-core",
        versions=installed_versions("megatron-core"),
        precision=_precision(config),
        microbatch_size=known_size(call.get("micro_batch_size")),
        sequence_length=known_size(call.get("seq_length")) if has_one_length else 0,
        stage_parameters=num_parameters(chunks_of(call)),
        stage_layers=num_layers(chunks_of(call)),
        tp_size=known_size(getattr(config, "tensor_model_parallel_size", None)),
        cp_size=known_size(getattr(config, "context_parallel_size", None)),
        ep_size=known_size(getattr(config, "expert_model_parallel_size", None)),
    )


def _precision(config: Any) -> str:
    for name in ("fp4", "fp8"):
        if getattr(config, name, None):
            return name
    return next((name for name in ("bf16", "fp16") if getattr(config, name, False)), "fp32")
