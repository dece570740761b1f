"""Workload of a rank's stages, by their modules and the first microbatch."""

from typing import Any

from perseus_dist.fingerprint import Workload
from perseus_dist.training.rank.iteration_work import first_tensor
from perseus_dist.training.rank.workload import installed_versions, known_size, num_layers, num_parameters

_PRECISIONS = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}


def workload_of(stages: list[Any], microbatch: Any, tp_size: int) -> Workload:
    """Read the workload.

    Args:
        stages: The schedule's, on this rank.
        microbatch: This rank's part of the first microbatch; empty on ranks between first and last.
        tp_size: Ranks that compute together.
    """
    modules = [stage.submod for stage in stages]
    parameter = next((parameter for module in modules for parameter in module.parameters()), None)
    shape = tuple(getattr(first_tensor(microbatch), "shape", ()))
    return Workload(
        framework="torch.distributed.pipelining",
        versions=installed_versions(),
        precision=_PRECISIONS.get(str(getattr(parameter, "dtype", "")), ""),
        microbatch_size=known_size(shape[0]) if shape else 0,
        sequence_length=known_size(shape[1]) if len(shape) > 1 else 0,
        stage_parameters=num_parameters(modules),
        stage_layers=num_layers(modules),
        tp_size=known_size(tp_size),
    )
