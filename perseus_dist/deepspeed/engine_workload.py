"""Workload of a DeepSpeed pipeline engine, as far as it is known before its first batch."""

from typing import Any

from perseus_dist.fingerprint import Workload
from perseus_dist.training.rank.workload import installed_versions, known_size, num_parameters


def workload_of(engine: Any) -> Workload:
    """Read the workload. The sequence length is not known: shapes come with the batches.

    Args:
        engine: A ``PipelineEngine``. Raises what its methods raise.
    """
    parameters, layers = _of_stages(engine.module)
    precision = "bf16" if engine.bfloat16_enabled() else "fp16" if engine.fp16_enabled() else "fp32"
    return Workload(
        framework="deepspeed",
        versions=installed_versions("deepspeed"),
        precision=precision,
        microbatch_size=known_size(engine.train_micro_batch_size_per_gpu()),
        stage_parameters=parameters,
        stage_layers=layers,
        tp_size=known_size(engine.grid.get_slice_parallel_world_size()),
    )


def _of_stages(module: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parameters and layers of each of the rank's stages: two under DualPipeV, of which one is exposed at a time."""
    phases = getattr(module, "phase_funcs", None)
    if phases is None:
        num_layers = len(getattr(module, "forward_funcs", ()))
        return num_parameters([module]), (num_layers,) if num_layers else ()
    # A tied layer is its module, or a function of that.
    layers = [[getattr(layer, "args", (layer,))[0] for layer in phase] for phase in phases]
    parameters = [num_parameters(layer for layer in phase if hasattr(layer, "parameters")) for phase in layers]
    return tuple(map(sum, parameters)), tuple(map(len, layers))
