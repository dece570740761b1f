"""Real torchtitan 0.3.0 on a machine without a GPU, with gloo, and with torch 2.13. For demonstrations and tests.

    torchrun ... -m perseus_dist.simulation.torchtitan_on_cpu -m torchtitan.train --module llama3 ...
    torchrun ... -m perseus_dist.simulation.torchtitan_on_cpu -m perseus_dist.pipelining -m torchtitan.train ...

torchtitan takes the first accelerator that torch finds, and CUDA where there is none; it imports triton; and it is made
for a newer torch: with ``torch.distributed.set_timeout``, and schedules whose ``step`` takes microbatches that are
split already. These are supplied, in torch, and torchtitan stays as it is. What each is for was found by leaving it
out. Its models attend by flex attention, whose backward torch has for GPUs alone: a configuration names another.
"""

import functools
import inspect
import sys
import types
from collections.abc import Sequence
from typing import Any

from perseus_dist.simulation.frameworks.on_cpu import prepare_for_cpu, run_on_cpu
from perseus_dist.training.post_import import when_imported


def main(arguments: Sequence[str]) -> int:
    """Run a script or a module with it, as Python would. Arguments and result as ``run_program`` has them."""
    return run_on_cpu(arguments, "perseus_dist.simulation.torchtitan_on_cpu", enable)


@functools.cache
def enable() -> None:
    """Change torch. Again: nothing. For the whole of the process."""
    prepare_for_cpu("torchtitan")
    import torch
    import torch.distributed

    torch._utils._get_available_device_type = lambda: "cpu"  # noqa: SLF001 - torchtitan asks this function
    _describe_device(torch.cpu)
    if not hasattr(torch.distributed, "set_timeout"):
        torch.distributed.set_timeout = _set_timeout
    when_imported("torch.distributed.pipelining.schedules", _accept_microbatches)
    when_imported("torch.distributed.fsdp", _reduce_by_sums)


def _describe_device(cpu: Any) -> None:
    """Functions by which the log of torchtitan describes a device and its memory."""
    described: dict[str, Any] = {
        "get_device_name": lambda device=None: "cpu",  # noqa: ARG005
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: types.SimpleNamespace(name="cpu", total_memory=1 << 34),  # noqa: ARG005
        "memory_stats": lambda device=None: {},  # noqa: ARG005
        "reset_peak_memory_stats": lambda device=None: None,  # noqa: ARG005
        "empty_cache": lambda: None,
    }
    for name, value in described.items():
        setattr(cpu, name, value)


def _set_timeout(timeout: Any, group: Any = None) -> None:
    from torch.distributed import distributed_c10d

    distributed_c10d._set_pg_timeout(timeout, group)  # noqa: SLF001 - its name up to 2.13


def _reduce_by_sums(module: Any) -> None:
    """FSDP with a divisor of its own multiplies and sums in one collective, which gloo does not have."""
    divide = module.FSDPModule.set_gradient_divide_factor

    @functools.wraps(divide)
    def divide_and_sum(self: Any, factor: float) -> None:
        divide(self, factor)
        self.set_force_sum_reduction_for_comms(True)

    module.FSDPModule.set_gradient_divide_factor = divide_and_sum


class _Split(list[Any]):
    """Microbatches, where torch 2.13 expects a batch to split."""


def _accept_microbatches(module: Any) -> None:
    if "arg_mbs" in inspect.signature(module.PipelineScheduleSingle.step).parameters:
        return
    for schedule_class in (module.PipelineScheduleSingle, module.PipelineScheduleMulti):
        schedule_class.step = _with_microbatches(schedule_class.step)
    split_inputs, split_tensor = module._PipelineSchedule._split_inputs, module._split_tensor  # noqa: SLF001 - their names

    def split_inputs_once(self: Any, args: Any, kwargs: Any) -> Any:
        return args if args and isinstance(args[0], _Split) else split_inputs(self, args, kwargs)

    def split_tensor_once(tensor: Any, *args: Any) -> Any:
        return tensor if isinstance(tensor, _Split) else split_tensor(tensor, *args)

    module._PipelineSchedule._split_inputs = split_inputs_once  # noqa: SLF001 - as above
    module._split_tensor = split_tensor_once  # noqa: SLF001 - as above


def _with_microbatches(step: Any) -> Any:
    @functools.wraps(step)
    def step_with_microbatches(
        self: Any, *args: Any, arg_mbs: Any = None, kwarg_mbs: Any = None, target_mbs: Any = None, **kwargs: Any
    ) -> Any:
        if arg_mbs is None and kwarg_mbs is None and target_mbs is None:
            return step(self, *args, **kwargs)
        num = self._n_microbatches
        target = None if target_mbs is None else _Split(target_mbs)
        return step(self, _Split(arg_mbs or [()] * num), _Split(kwarg_mbs or [{}] * num), target=target, **kwargs)

    return step_with_microbatches


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
