"""Energy and clocks in DeepSpeed's own monitor: TensorBoard, W&B, CSV, Comet."""

import logging
import weakref
from typing import TYPE_CHECKING, Any

from perseus_dist.training.rank.status_scalars import scalars

if TYPE_CHECKING:
    from perseus_dist.hooks import Hook

_PREFIX = "Train/Samples/perseus_"
_log = logging.getLogger(__name__)
_failed: "weakref.WeakSet[Hook]" = weakref.WeakSet()  # of which nothing more is written


def write_status(engine: Any, hook: "Hook") -> None:
    """Write the agent's newest figures where the engine writes its loss, as often as it prints. Never raises.

    Args:
        engine: A ``PipelineEngine``; only rank 0's writes.
        hook: Of this rank.
    """
    if hook in _failed:
        return
    try:
        _write(engine, hook)
    except Exception as error:
        _failed.add(hook)
        _log.warning("perseus: nothing more is written to DeepSpeed's monitor: %r", error)


def _write(engine: Any, hook: "Hook") -> None:
    if engine.global_rank != 0 or not engine.monitor.enabled:
        return
    steps_per_print = engine.steps_per_print()
    if steps_per_print and engine.global_steps % steps_per_print:
        return
    status = hook.status()
    if status is not None:
        samples = engine.global_samples
        engine.monitor.write_events([(_PREFIX + name, value, samples) for name, value in scalars(status).items()])
