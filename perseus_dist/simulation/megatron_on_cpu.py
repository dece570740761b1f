"""Real Megatron-LM and Megatron-Bridge without a GPU: ``cuda`` means the CPU. For demonstrations and tests, with gloo.

    torchrun ... -m perseus_dist.simulation.megatron_on_cpu pretrain_gpt.py --distributed-backend gloo ...
    torchrun ... -m perseus_dist.simulation.megatron_on_cpu -m perseus_dist.megatron pretrain_gpt.py ...

Torch is changed at once, Megatron's modules as they are imported. Of Megatron it needs the local transformer
implementation, float32 and no fused kernels. What each change is for was found by leaving it out.
"""

import functools
import os
import subprocess
import sys
import sysconfig
import time
import types
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from perseus_dist.simulation.frameworks.missing_modules import supply_what_bridge_misses
from perseus_dist.simulation.frameworks.on_cpu import prepare_for_cpu, run_on_cpu
from perseus_dist.training.post_import import when_imported


def main(arguments: Sequence[str]) -> int:
    """Run a script or a module with it, as Python would. Arguments and result as ``run_program`` has them."""
    return run_on_cpu(arguments, "perseus_dist.simulation.megatron_on_cpu", enable)


@functools.cache
def enable() -> None:
    """Change torch, and Megatron when it comes. Again: nothing. For the whole of the process."""
    prepare_for_cpu("megatron")
    import torch

    _device_mode().__enter__()
    _replace_cuda(torch.cuda)
    torch.nn.Module.cuda = lambda self, device=None: self  # noqa: ARG005
    torch.Tensor.record_stream = lambda self, stream: None  # noqa: ARG005 - of tensors of CUDA alone
    _copy_before_isend()
    _split_by_numbers()
    when_imported("megatron.core.tensor_parallel.random", _use_cpu_generator)
    when_imported("megatron.core.datasets.utils", _make_helper)
    when_imported("megatron.legacy.fused_kernels", _skip_fused_kernels)
    when_imported("megatron.core.full_cuda_graph", _run_instead_of_replay)
    when_imported("megatron.training.training", _allow_no_cuda)
    supply_what_bridge_misses()
    when_imported("megatron.bridge.training.initialize", _use_gloo)
    when_imported("megatron.bridge.training.setup", _allow_no_cuda)


# ---- torch ----------------------------------------------------------------------------------------------------------


def _device_mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    cpu = torch.device("cpu")
    to, to_cuda, type_of = torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.type

    def is_cuda(device: object) -> bool:
        """An integer is a CUDA device's index."""
        if device is None or isinstance(device, bool):
            return False
        return isinstance(device, int) or (isinstance(device, str | torch.device) and str(device).startswith("cuda"))

    class CudaMeansCpu(TorchFunctionMode):  # type: ignore[misc] # torch is Any
        """Called for all that torch does, an attribute of a tensor's included, so it does little."""

        def __torch_function__(
            self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if function is to_cuda:
                return args[0]
            if function is to and len(args) > 1 and is_cuda(args[1]):
                args = (args[0], cpu, *args[2:])
            if not kwargs:
                # Megatron's optimizers want parameters of torch.cuda.FloatTensor.
                is_question = function is type_of and len(args) == 1
                return function(*args).replace("torch.", "torch.cuda.", 1) if is_question else function(*args)
            if is_cuda(kwargs.get("device")):
                kwargs = {**kwargs, "device": cpu}
            return function(*args, **kwargs)

    return CudaMeansCpu()


class _Stream:
    """One queue, so that everything is in order."""

    def __init__(self, *_: object, **__: object) -> None: ...
    def wait_stream(self, stream: object) -> None: ...
    def wait_event(self, event: object) -> None: ...
    def synchronize(self) -> None: ...
    def record_event(self, event: "_Event | None" = None) -> "_Event":
        return event or _Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event:
    """When the host was there."""

    def __init__(self, *_: object, **__: object) -> None:
        self.at_s = 0.0

    def record(self, stream: object = None) -> None:  # noqa: ARG002
        self.at_s = time.perf_counter()

    def synchronize(self) -> None: ...
    def wait(self, stream: object = None) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, other: "_Event") -> float:
        return (other.at_s - self.at_s) * 1e3


def _replace_cuda(cuda: Any) -> None:
    import torch

    generator = torch.default_generator
    stream = _Stream()
    replaced: dict[str, Any] = {
        "current_device": lambda: 0,
        "set_device": lambda device: None,  # noqa: ARG005
        # Otherwise Megatron initialises no process groups.
        "device_count": lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "synchronize": lambda device=None: None,  # noqa: ARG005
        "empty_cache": lambda: None,
        "memory_stats": lambda device=None: defaultdict(int),  # noqa: ARG005
        "get_device_properties": lambda device=None: types.SimpleNamespace(  # noqa: ARG005
            name="cpu", total_memory=1 << 34, major=8, minor=0, multi_processor_count=1
        ),
        "get_device_capability": lambda device=None: (8, 0),  # noqa: ARG005
        "Stream": _Stream,
        "Event": _Event,
        "current_stream": lambda device=None: stream,  # noqa: ARG005
        "default_stream": lambda device=None: stream,  # noqa: ARG005
        "set_stream": lambda stream: None,  # noqa: ARG005
        "stream": lambda stream: _Stream(),  # noqa: ARG005
    }
    amounts = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
    replaced |= dict.fromkeys((*amounts, "device_memory_used"), lambda device=None: 0)  # noqa: ARG005
    random = {
        "get_rng_state": lambda device="cuda": generator.get_state(),  # noqa: ARG005
        "set_rng_state": lambda state, device="cuda": generator.set_state(state),  # noqa: ARG005
        "manual_seed": lambda seed: generator.manual_seed(int(seed)),
    }
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_: None
    for name, value in {**replaced, **random}.items():
        setattr(cuda, name, value)
    for name, value in random.items():
        setattr(cuda.random, name, value)


def _copy_before_isend() -> None:
    """Gloo reads a buffer after isend has returned; Megatron before 0.18 frees it at once, and NaN is sent."""
    import torch.distributed
    from torch.distributed import distributed_c10d

    isend = torch.distributed.isend

    @functools.wraps(isend)
    def isend_copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return isend(tensor.detach().clone(), *args, **kwargs)

    torch.distributed.isend = distributed_c10d.isend = isend_copy  # P2POp compares with the latter


def _split_by_numbers() -> None:
    """Megatron's token dispatcher hands on sizes as a tensor, of which gloo's all-to-all takes numbers alone."""
    import torch.distributed

    exchange = torch.distributed.all_to_all_single

    def numbers(sizes: Any) -> Any:
        return sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes

    @functools.wraps(exchange)
    def all_to_all_single(*tensors: Any, **options: Any) -> Any:
        sizes = {
            name: numbers(options[name]) for name in ("output_split_sizes", "input_split_sizes") if name in options
        }
        return exchange(*tensors, **options | sizes)

    torch.distributed.all_to_all_single = all_to_all_single


# ---- Megatron -------------------------------------------------------------------------------------------------------


def _use_cpu_generator(module: Any) -> None:
    import torch

    generator = torch.default_generator
    module._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: generator.set_state(state)  # noqa: ARG005, SLF001
    module._get_cuda_rng_state = lambda device="cuda", clone=False, graph_safe=False: generator.get_state()  # noqa: ARG005, SLF001
    initialize = module.initialize_rng_tracker  # for CUDA graphs it wants generators of CUDA
    module.initialize_rng_tracker = lambda te=False, inference=False, graphs=False, **reset: initialize(  # noqa: ARG005
        te, inference, **reset
    )


def _make_helper(module: Any) -> None:
    """Packages hold the compiled helper; a checkout's Makefile makes it for whichever ``python3-config`` comes first.

    It wants pybind11. Without it, scripts with datasets of their own still run.
    """
    folder = Path(module.__file__).parent
    command = ["make", "-C", str(folder), f"LIBEXT={sysconfig.get_config_var('EXT_SUFFIX')}"]
    is_checkout = (folder / "Makefile").exists()
    module.compile_helpers = lambda: subprocess.run(command, check=False) if is_checkout else None


def _skip_fused_kernels(module: Any) -> None:
    """Up to 0.16 nvcc is asked for its version even where no fused kernel is wanted."""
    module.load = lambda args: None  # noqa: ARG005


def _run_instead_of_replay(module: Any) -> None:
    """A CUDA graph of the whole iteration: there is no device to record on, so what it would replay runs as it is."""

    def run(wrapper: Any, **call: Any) -> Any:
        result = wrapper.forward_backward_func(**call)
        wrapper.next_iter("validation" if call["forward_only"] else "training")
        return result

    module.FullCudaGraphWrapper.__call__ = run


def _allow_no_cuda(module: Any) -> None:
    module.initialize_megatron = functools.partial(module.initialize_megatron, allow_no_cuda=True)


def _use_gloo(module: Any) -> None:
    """Bridge's decentralized process groups are NCCL's, whatever the configuration says."""
    import torch.distributed

    module.HyperCommGrid = functools.partial(_with_gloo, module.HyperCommGrid)
    make_groups = torch.distributed.new_subgroups_by_enumeration
    torch.distributed.new_subgroups_by_enumeration = functools.partial(_with_gloo, make_groups)


def _with_gloo(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("backend") == "nccl":
        kwargs["backend"] = "gloo"
    return function(*args, **kwargs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
