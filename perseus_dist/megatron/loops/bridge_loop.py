"""Megatron-Bridge's training loop."""

from typing import Any

from perseus_dist.megatron.loops.training_loop import has_seen_signal
from perseus_dist.megatron.loops.writers import Writers


class BridgeLoop:
    """``megatron.bridge.training.train``.

    Args:
        state: Its ``GlobalState``, which has all that is asked of it.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def writers(self) -> Writers:
        """TensorBoard, W&B and MLflow, as configured in ``LoggerConfig``."""
        state = self._state
        return Writers(
            tensorboard=state.tensorboard_logger,
            wandb=state.wandb_logger,
            mlflow=getattr(state, "mlflow_logger", None),
            interval=state.cfg.logger.tensorboard_log_interval,
        )

    def was_asked_to_end(self) -> bool:
        """Whether a signal asked training to end, where ``TrainingConfig.exit_signal_handler`` is set."""
        return has_seen_signal(getattr(self._state, "_signal_handler", None))
