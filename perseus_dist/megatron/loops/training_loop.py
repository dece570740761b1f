"""Loops that call Megatron's schedules, and what is asked of one beside the training itself."""

import sys
from typing import Any, Protocol

from perseus_dist.megatron.loops.writers import Writers

_GLOBALS = "megatron.training.global_vars"


class TrainingLoop(Protocol):
    """A training loop, in this process."""

    def writers(self) -> Writers:
        """Where it writes its figures now. May raise anything."""
        ...

    def was_asked_to_end(self) -> bool:
        """Whether a handler of its own has seen a signal, after which it saves and ends."""
        ...


class MegatronLoop:
    """That of Megatron-LM, or of a program of one's own on megatron-core, which has neither writers nor a handler."""

    def writers(self) -> Writers:
        """TensorBoard's and W&B's, as ``megatron.training`` has them."""
        module = sys.modules.get(_GLOBALS)
        if module is None:
            return Writers()
        tensorboard, wandb = module.get_tensorboard_writer(), module.get_wandb_writer()
        if not (tensorboard or wandb):
            return Writers()
        return Writers(tensorboard=tensorboard, wandb=wandb, interval=module.get_args().tensorboard_log_interval)

    def was_asked_to_end(self) -> bool:
        """Whether a signal asked training to end, where ``--exit-signal-handler`` is set."""
        return has_seen_signal(getattr(sys.modules.get(_GLOBALS), "_GLOBAL_SIGNAL_HANDLER", None))


def has_seen_signal(handler: Any) -> bool:
    """Whether a ``DistributedSignalHandler`` has; asking the handler itself would ask all ranks."""
    return getattr(handler, "_signal_received", False) is True
