"""Energy, clocks and the plan in Megatron's own TensorBoard and W&B writers, which live on the last rank."""

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from perseus_dist.training.rank.status_scalars import scalars

if TYPE_CHECKING:
    from perseus_dist.hooks import Hook

_log = logging.getLogger(__name__)

_GLOBALS = "megatron.training.global_vars"
_PREFIX = "perseus/"


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


def shows_job() -> bool:
    """Whether this rank writes to TensorBoard or W&B, for ``RankSpec.shows_job``. Never raises."""
    try:
        return any(_writers())
    except Exception as error:
        _log.debug("perseus: Megatron's writers cannot be had: %r", error)
        return False


def write_status(hook: "Hook", iteration: int) -> None:
    """Write the agent's newest figures, in those iterations in which Megatron writes its loss. Never raises.

    Args:
        hook: Of this rank; nothing is written where it has no writer.
        iteration: As Megatron counts it: the step of what is written.
    """
    written = _written.setdefault(hook, _Written())
    if written.has_failed:
        return
    try:
        _write(hook, iteration, written)
    except Exception as error:
        written.has_failed = True
        _log.warning("perseus: nothing more is written to Megatron's TensorBoard and W&B: %r", error)


def _write(hook: "Hook", iteration: int, written: _Written) -> None:
    tensorboard, wandb = _writers()
    if not (tensorboard or wandb) or iteration % sys.modules[_GLOBALS].get_args().tensorboard_log_interval:
        return
    status = hook.status()
    if status is None:
        return
    figures = {_PREFIX + name: value for name, value in scalars(status).items()}
    # As a number it would read like a measurement: text, where it changes.
    texts = {_PREFIX + "phase": status.phase} if status.phase != written.phase else {}
    written.phase = status.phase
    if tensorboard:
        for name, value in figures.items():
            tensorboard.add_scalar(name, value, iteration)
        for name, text in texts.items():
            tensorboard.add_text(name, text, iteration)
    if wandb and (figures or texts):
        wandb.log({**figures, **texts}, iteration)


def _writers() -> tuple[Any, Any]:
    """TensorBoard's and W&B's; None for each that is not here. Where Megatron's training loop does not run, none is."""
    module = sys.modules.get(_GLOBALS)
    return (None, None) if module is None else (module.get_tensorboard_writer(), module.get_wandb_writer())
