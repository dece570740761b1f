"""How training comes under Perseus: Megatron's functions are replaced in their modules, where it looks each of them up.

A function's signature differs by version, so arguments are found by name.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import signature
from types import ModuleType
from typing import Any

from perseus_dist.boundaries.record import Mark
from perseus_dist.megatron import requested
from perseus_dist.megatron.attachment import Attachment
from perseus_dist.megatron.loops.bridge_loop import BridgeLoop
from perseus_dist.megatron.model_schedule import SCHEDULE_FUNCTIONS
from perseus_dist.megatron.refusals import reason_against_module
from perseus_dist.training.framework_seen import note_framework

_SCHEDULES: dict[str, tuple[str, ...]] = {
    "forward_step": ("model", "current_microbatch", "input_tensor"),
    "backward_step": ("output_tensor",),
    **dict.fromkeys(SCHEDULE_FUNCTIONS, ("model", "num_microbatches", "forward_only")),
}
_PAIR = "combined_forward_backward_step"
_WAITS = ("pre_forward", "pre_backward", "post_forward")
_TENSORS = ("f_model", "b_model", "current_microbatch", "input_tensor", "b_output_tensor")
_TRAINING: dict[str, tuple[str, ...]] = {
    "train_step": ("optimizer",),
    "training_log": ("iteration",),
    "save_checkpoint_and_time": (),
}
_BRIDGE: dict[str, tuple[str, ...]] = {
    "train": (),
    "train_step": ("optimizer", "global_state"),
    "training_log": ("global_state",),
    "save_checkpoint_and_time": (),
}
_IS_OURS = "_perseus_is_ours"  # of a function in the place of Megatron's

_Function = Callable[..., Any]
_attachment = Attachment()


def patch_schedules(module: ModuleType) -> None:
    """Hook into schedules and their forward and backward steps. A second call changes nothing.

    Args:
        module: ``megatron.core.pipeline_parallel.schedules``; another Megatron than the known ones is refused.
    """
    wrappers: dict[str, Callable[[_Function], _Function]] = {
        "forward_step": _wrap_forward_step,
        "backward_step": _wrap_backward_step,
        **dict.fromkeys(SCHEDULE_FUNCTIONS, _wrap_schedule),
    }
    _patch(module, _SCHEDULES, wrappers)


def patch_pairs(module: ModuleType) -> None:
    """Hook into what runs a forward and a backward as one. A second call changes nothing.

    Args:
        module: ``megatron.core.pipeline_parallel.combined_1f1b``; with another one than the known, what uses it is
            refused.
    """
    function = getattr(module, _PAIR, None)
    if function is None or not {*_TENSORS, *_WAITS} <= signature(function).parameters.keys():
        return
    if not hasattr(function, _IS_OURS):
        run = _wrap_pair(function)
        setattr(run, _IS_OURS, True)
        setattr(module, _PAIR, run)
    _attachment.knows_pairs = True


def patch_training(module: ModuleType) -> None:
    """Hook into the optimizer's step, checkpoints and the log. A second call changes nothing.

    Args:
        module: ``megatron.training.training``; another Megatron than the known ones is refused.
    """
    wrappers = {
        "train_step": _wrap_train_step,
        "training_log": _wrap_training_log,
        "save_checkpoint_and_time": _wrap_save_checkpoint,
    }
    _patch(module, _TRAINING, wrappers)


def patch_bridge(module: ModuleType) -> None:
    """Hook into the same of Megatron-Bridge. A second call changes nothing.

    Args:
        module: ``megatron.bridge.training.train``; another Bridge than the known ones is refused.
    """
    wrappers = {
        "train": _wrap_bridge_train,
        "train_step": _wrap_bridge_step,
        "training_log": _wrap_bridge_log,
        "save_checkpoint_and_time": _wrap_save_checkpoint,
    }
    _patch(module, _BRIDGE, wrappers)


def mark(phase: str) -> None:
    """As ``Attachment.mark``, of this process."""
    _attachment.mark(phase)


def patch_graphs(module: ModuleType) -> None:
    """Hook into CUDA graphs of whole iterations. A second call changes nothing.

    Args:
        module: ``megatron.core.full_cuda_graph``; with another one than the known, such graphs are refused.
    """
    wrapper: Any = getattr(module, "FullCudaGraphWrapper", None)
    is_known = hasattr(wrapper, "curr_iter") and "cuda_graph_warmup_steps" in signature(wrapper).parameters
    if is_known and not hasattr(wrapper.__call__, _IS_OURS):
        run = _wrap_graph(wrapper.__call__)
        setattr(run, _IS_OURS, True)
        wrapper.__call__ = run


def _patch(
    module: ModuleType,
    functions: Mapping[str, tuple[str, ...]],
    wrappers: Mapping[str, Callable[[_Function], _Function]],
) -> None:
    """All of a module's functions or none."""
    reason = reason_against_module(module, functions)
    if reason is not None:
        requested.report_refusal(reason)
        return
    for name, wrap in wrappers.items():
        function = getattr(module, name)
        if not hasattr(function, _IS_OURS):
            wrapper = wrap(function)
            setattr(wrapper, _IS_OURS, True)
            setattr(module, name, wrapper)


def _is_wanted() -> bool:
    return requested.requested_options() is not None and requested.refusal() is None


def _finder(function: _Function, name: str) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Any]:
    """A function that finds an argument among those of a call; None where it was left out."""
    position = list(signature(function).parameters).index(name)
    return lambda args, kwargs: args[position] if position < len(args) else kwargs.get(name)


def _wrap_schedule(function: _Function) -> _Function:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not _is_wanted():
            return function(*args, **kwargs)
        note_framework()
        # Its arguments have no places, only names.
        return _attachment.run_schedule(functools.partial(function, *args), function.__name__, kwargs)

    return run


def _wrap_graph(function: _Function) -> _Function:
    @functools.wraps(function)
    def run(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_wanted():
            return function(wrapper, *args, **kwargs)
        # As of a schedule, its arguments have no places.
        return _attachment.run_graph(functools.partial(function, wrapper, *args), wrapper, kwargs)

    return run


def _wrap_forward_step(function: _Function) -> _Function:
    find_model, find_microbatch = _finder(function, "model"), _finder(function, "current_microbatch")
    find_input = _finder(function, "input_tensor")

    @functools.wraps(function)
    def forward_step(*args: Any, **kwargs: Any) -> Any:
        call = functools.partial(function, *args, **kwargs)
        model, microbatch = find_model(args, kwargs), find_microbatch(args, kwargs)
        return _attachment.run_forward(call, model, microbatch, find_input(args, kwargs))

    return forward_step


def _wrap_backward_step(function: _Function) -> _Function:
    find_output = _finder(function, "output_tensor")

    @functools.wraps(function)
    def backward_step(*args: Any, **kwargs: Any) -> Any:
        call = functools.partial(function, *args, **kwargs)
        return _attachment.run_backward(call, find_output(args, kwargs))

    return backward_step


def _wrap_pair(function: _Function) -> _Function:
    """Of a step with a forward, a backward, or both."""
    of = signature(function)

    @functools.wraps(function)
    def combined_forward_backward_step(*args: Any, **kwargs: Any) -> Any:
        call = functools.partial(function, *args, **kwargs)
        given = of.bind(*args, **kwargs)
        given.apply_defaults()
        model, microbatch, received, output = (
            given.arguments[name] for name in ("f_model", "current_microbatch", "input_tensor", "b_output_tensor")
        )
        if given.arguments["b_model"] is None:
            return _attachment.run_forward(call, model, microbatch, received)
        if model is None:
            return _attachment.run_backward(call, output)
        waits = {name: given.arguments[name] for name in _WAITS if given.arguments[name] is not None}

        def run(**hooks: Any) -> Any:
            given.arguments.update(hooks)
            return function(*given.args, **given.kwargs)

        return _attachment.run_pair(run, waits, model, microbatch, received, output)

    return combined_forward_backward_step


def _wrap_train_step(function: _Function) -> _Function:
    find_optimizer = _finder(function, "optimizer")

    @functools.wraps(function)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        if not _is_wanted():
            return function(*args, **kwargs)
        return _attachment.run_step(functools.partial(function, *args, **kwargs), find_optimizer(args, kwargs))

    return train_step


def _wrap_training_log(function: _Function) -> _Function:
    find_iteration = _finder(function, "iteration")

    @functools.wraps(function)
    def training_log(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with suppress(Exception):
            _attachment.write_status(int(find_iteration(args, kwargs)))
        return result

    return training_log


def _wrap_bridge_step(function: _Function) -> _Function:
    find_optimizer, find_state = _finder(function, "optimizer"), _finder(function, "global_state")

    @functools.wraps(function)
    def train_step(*args: Any, **kwargs: Any) -> Any:
        if not _is_wanted():
            return function(*args, **kwargs)
        call, loop = functools.partial(function, *args, **kwargs), BridgeLoop(find_state(args, kwargs))
        return _attachment.run_step(call, find_optimizer(args, kwargs), loop)

    return train_step


def _wrap_bridge_log(function: _Function) -> _Function:
    find_state = _finder(function, "global_state")

    @functools.wraps(function)
    def training_log(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        with suppress(Exception):
            _attachment.write_status(int(find_state(args, kwargs).train_state.step))
        return result

    return training_log


def _wrap_bridge_train(function: _Function) -> _Function:
    @functools.wraps(function)
    def train(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        _attachment.mark(Mark.CHECKPOINT)  # the last one follows, and evaluation
        return result

    return train


def _wrap_save_checkpoint(function: _Function) -> _Function:
    @functools.wraps(function)
    def save_checkpoint_and_time(*args: Any, **kwargs: Any) -> Any:
        _attachment.mark(Mark.CHECKPOINT)
        return function(*args, **kwargs)

    return save_checkpoint_and_time
