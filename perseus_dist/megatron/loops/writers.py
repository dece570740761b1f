"""Energy, clocks and the plan in the writers that a training loop has, which live on the last rank."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from perseus_dist.training.rank.status_scalars import scalars

if TYPE_CHECKING:
    from perseus_dist.hooks import Hook

_log = logging.getLogger(__name__)

_PREFIX = "perseus/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writers:
    """Writers of this rank; None for each that is not here.

    Attributes:
        tensorboard: A ``SummaryWriter``.
        wandb, mlflow: The modules, with a run in progress.
        interval: Iterations from one write of the loop's to the next.
    """

    tensorboard: Any = None
    wandb: Any = None
    mlflow: Any = None
    interval: int = 1

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.tensorboard or self.wandb or self.mlflow)


@dataclass(slots=True)
class _Written:
    """Scalars written for a hook.

    Attributes:
        phase: The newest.
        has_failed: Nothing more is written.
    """

    phase: str = ""
    has_failed: bool = False


_written: "WeakKeyDictionary[Hook, _Written]" = WeakKeyDictionary()


def shows_job(find_writers: Callable[[], Writers]) -> bool:
    """Whether this rank writes anywhere, for ``RankSpec.shows_job``. Never raises.

    Args:
        find_writers: The training loop's.
    """
    try:
        return bool(find_writers())
    except Exception as error:
        _log.debug("perseus: Megatron's writers cannot be had: %r", error)
        return False


def write_status(hook: "Hook", iteration: int, find_writers: Callable[[], Writers]) -> None:
    """Write the agent's newest figures, in those iterations in which the loop writes its loss. Never raises.

    Args:
        hook: Of this rank; nothing is written where it has no writer.
        iteration: As the loop counts it: the step of what is written.
        find_writers: The training loop's.
    """
    written = _written.setdefault(hook, _Written())
    if written.has_failed:
        return
    try:
        _write(hook, iteration, find_writers(), written)
    except Exception as error:
        written.has_failed = True
        _log.warning("perseus: nothing more is written to Megatron's TensorBoard, W&B and MLflow: %r", error)


def _write(hook: "Hook", iteration: int, writers: Writers, written: _Written) -> None:
    if not writers or iteration % writers.interval:
        return
    status = hook.status()
    if status is None:
        return
    figures = {_PREFIX + name: value for name, value in scalars(status).items()}
    # As a number it would read like a measurement: text, where it changes.
    texts = {_PREFIX + "phase": status.phase} if status.phase != written.phase else {}
    written.phase = status.phase
    if writers.tensorboard:
        for name, value in figures.items():
            writers.tensorboard.add_scalar(name, value, iteration)
        for name, text in texts.items():
            writers.tensorboard.add_text(name, text, iteration)
    if writers.wandb and (figures or texts):
        writers.wandb.log({**figures, **texts}, iteration)
    if writers.mlflow and figures:
        writers.mlflow.log_metrics(figures, step=iteration)
    if writers.mlflow and texts:
        writers.mlflow.set_tags(texts)
