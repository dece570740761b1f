"""The beginning of a run of a real framework on a machine without a GPU."""

import functools
import gc
import os
from collections.abc import Callable, Sequence

from perseus_dist.simulation.frameworks.missing_modules import supply_what_is_missing
from perseus_dist.training.runner import TARGET, run_program


@functools.cache
def prepare_for_cpu(framework: str) -> None:
    """Supply modules that a framework imports and a CPU has no use for; make torch quick to start. Again: nothing.

    Args:
        framework: Package to which missing modules are supplied: ``megatron`` or ``torchtitan``.
    """
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than a small model trains
    gc.set_threshold(50_000, 20, 50)  # what imports make stays: looking for garbage takes an eighth of their time
    supply_what_is_missing(framework)
    import torch

    torch.set_num_threads(1)


def run_on_cpu(arguments: Sequence[str], runner: str, enable: Callable[[], None]) -> int:
    """Run a script or a module with a framework changed for the CPU. Arguments and result as ``run_program`` has them.

    Args:
        arguments: Of the command, without the runner.
        runner: Module that was started by ``python -m``, for the usage.
        enable: Changes the framework, in the process that runs the script.
    """
    usage = f"usage: python -m {runner} {TARGET}"
    return run_program([*arguments], runner=runner, usage=usage, activate=enable)
