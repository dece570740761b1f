"""Perseus in a process that may train with ``torch.distributed.pipelining``: hooks that wait for its modules.

Neither torch nor torchtitan is imported here, and hardly anything else: this runs before the user's program does.
"""

from types import ModuleType

from perseus_dist.training.disabled import is_disabled, is_enabled
from perseus_dist.training.post_import import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

_options: "PerseusOptions | None" = None
_is_active = False


def activate(options: "PerseusOptions | None" = None) -> None:
    """Have schedules of this process run under Perseus from their first ``step`` on. A second call changes nothing.

    Args:
        options: Come before those of the environment, such as ``PERSEUS_REPORT``.
    """
    global _options, _is_active
    if _is_active or is_disabled():
        return
    _options, _is_active = options, True
    when_imported("torch.distributed.pipelining.schedules", _patch_schedules)
    when_imported("torch.optim.optimizer", _watch_optimizers)
    when_imported("torchtitan.trainer", _patch_trainer)


def start() -> None:
    """Run at torch's import in an enabled environment: ``activate``, where the job asks for it."""
    if is_enabled():
        activate()


def _patch_schedules(module: ModuleType) -> None:
    from perseus_dist.pipelining.by_itself import patch_schedules

    patch_schedules(module, _options)


def _watch_optimizers(module: ModuleType) -> None:
    from perseus_dist.pipelining.by_itself import watch_optimizers

    watch_optimizers(module)


def _patch_trainer(module: ModuleType) -> None:
    from perseus_dist.pipelining.titan import patch_trainer

    patch_trainer(module)
