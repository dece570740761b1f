"""Runs of Megatron for which no plan is made: one forward or backward cannot be distinguished from the next."""

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from perseus_dist.megatron.model_schedule import runs_pairs

_PARALLEL_STATE_ONLY = "plans are made for the process groups of megatron.core.parallel_state"


def reason_against(
    call: Mapping[str, Any], config: Any, *, knows_graph: bool = False, knows_pairs: bool = False
) -> str | None:
    """Why a schedule function's iterations cannot be planned, and what to change; None where they can.

    Args:
        call: The function's arguments by name.
        config: The model's ``ModelParallelConfig``.
        knows_graph: Whether a CUDA graph of the whole iteration is made where it can be seen when one runs.
        knows_pairs: Whether a forward and a backward that run as one are run where it can be seen.
    """
    if runs_pairs(config) and not knows_pairs:
        return (
            "--overlap-moe-expert-parallel-comm runs a forward and a backward as one, by other functions than those "
            "that Perseus knows; leave it out"
        )
    for kind in ("hybrid", "dynamic"):
        if getattr(config, f"{kind}_context_parallel", False):
            return (
                f"--{kind}-context-parallel regroups ranks from microbatch to microbatch, and plans are made for "
                "groups that stay; leave it out"
            )
    if _has_iteration_graph(config) and not knows_graph:
        return (
            "a CUDA graph of the whole iteration that megatron.core.full_cuda_graph does not make cannot be seen to "
            "run; choose another --cuda-graph-impl or --cuda-graph-scope than full_iteration"
        )
    return _reason_against_groups(call)


def reason_against_module(module: ModuleType, functions: Mapping[str, Collection[str]]) -> str | None:
    """Why a module of this Megatron cannot be hooked into; None where it can.

    Args:
        module: One of Megatron's.
        functions: The parameters that each function must have, by the function's name.
    """
    for name, parameters in functions.items():
        function = getattr(module, name, None)
        if function is None:
            return _unknown_version(module, f" has no function {name}")
        missing = [parameter for parameter in parameters if parameter not in signature(function).parameters]
        if missing:
            return _unknown_version(module, f".{name} has no parameter {missing[0]}")
    return None


def _unknown_version(module: ModuleType, finding: str) -> str:
    package, name, known = "megatron.core", "megatron-core", "0.13 to 0.19"
    if module.__name__.startswith("megatron.bridge."):
        package, name, known = "megatron.bridge", "Megatron-Bridge", "0.3"
    try:
        version = import_module(f"{package}.package_info").__version__
    except Exception:
        version = "of an unknown version"
    return f"{name} {version} is not one that Perseus knows ({module.__name__}{finding}); supported: {known}"


def _has_iteration_graph(config: Any) -> bool:
    implementation = getattr(config, "cuda_graph_impl", "none")
    if implementation == "full_iteration":  # since 0.19
        return True
    is_on = implementation not in (None, "none") or getattr(config, "enable_cuda_graph", False)
    return bool(is_on) and "full_iteration" in set(_names(getattr(config, "cuda_graph_scope", None)))


def _names(scopes: object) -> Iterable[str]:
    """A text, an enumeration's member, or several of them: it differs by version."""
    if isinstance(scopes, str):
        return scopes.split(",")
    if isinstance(scopes, list | tuple | set):
        return (getattr(scope, "name", str(scope)) for scope in scopes)
    return (getattr(scopes, "name", ""),)


def _reason_against_groups(call: Mapping[str, Any]) -> str | None:
    communicator, groups = call.get("p2p_communicator"), call.get("pg_collection")
    if "MultiModule" in type(communicator).__name__ + type(groups).__name__:
        return f"several modules are pipelined, each over ranks of its own, and {_PARALLEL_STATE_ONLY}; train one model"
    pipeline = getattr(groups, "pp", None)
    if pipeline is None:
        return None
    import torch.distributed as dist
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():  # the collection's are the only ones
        return None
    ranks = dist.get_process_group_ranks
    if ranks(pipeline) == ranks(parallel_state.get_pipeline_model_parallel_group()):
        return None
    return f"the schedule was called with a pipeline of its own, and {_PARALLEL_STATE_ONLY}; leave pg_collection out"
