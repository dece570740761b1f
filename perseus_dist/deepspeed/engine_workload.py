"""Workload of a DeepSpeed pipeline engine, as far as it is known before its first batch."""

from typing import Any

from perseus_dist.fingerprint import Workload
from perseus_dist.training.rank.workload import installed_versions, known_size, num_parameters


def workload_of(engine: Any) -> Workload:
    """Read the workload. The sequence length is not known: shapes come with the batches.

    Args:
        engine: A ``PipelineEngine``. Raises what its methods raise.
    """
    num_layers = len(getattr(engine.module, "forward_funcs", ()))
    precision = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    return Workload(
        framework="deepspeed",
        versions=installed_versions("deepspeed"),
        precision=precision,
        microbatch_size=known_size(engine.train_micro_batch_size_per_gpu()),
        stage_parameters=num_parameters([engine.module]),
        stage_layers=(num_layers,) if num_layers else (),
        tp_size=known_size(engine.grid.get_slice_parallel_world_size()),
    )
