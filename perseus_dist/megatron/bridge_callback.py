"""Perseus as a callback of Megatron-Bridge."""

from typing import Any

from megatron.bridge.training.callbacks import Callback

from perseus_dist.boundaries.record import Mark
from perseus_dist.megatron.activation import install
from perseus_dist.megatron.adapter import mark
from perseus_dist.training.options import PerseusOptions


class PerseusCallback(Callback):  # type: ignore[misc] # Bridge is Any
    """Puts a job under Perseus: ``pretrain(config, forward_step, callbacks=[PerseusCallback()])``.

    Args:
        options: Such as the folder of the report; those of the environment, ``PERSEUS_REPORT``, come after them.
    """

    def __init__(self, options: PerseusOptions | None = None) -> None:
        install(options or PerseusOptions())

    def on_train_end(self, context: Any) -> None:  # noqa: ARG002 - as Bridge calls it
        """Run what follows, the last checkpoint and evaluation, at full clocks."""
        mark(Mark.CHECKPOINT)
