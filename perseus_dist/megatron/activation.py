"""Perseus in a process that may train with Megatron: hooks that wait for its modules.

Neither Megatron nor torch is imported here, and hardly anything else: this runs before the user's program does.
"""

from types import ModuleType

from perseus_dist.megatron.requested import request_options, requested_options
from perseus_dist.training.disabled import is_disabled, is_enabled
from perseus_dist.training.post_import import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

_is_active = False


def install(options: "PerseusOptions | None" = None) -> None:
    """Make this process ready for Perseus, anywhere before training starts. A second call changes the options alone.

    Args:
        options: What Perseus is asked for; options on Megatron's command line come before them. None: nothing is asked
            for unless that command line has ``--enable-perseus``, or ``PERSEUS_ENABLE`` is 1. A program whose own
            loop runs megatron-core has no such command line and gives options, of which ``PerseusOptions()`` has the
            defaults.
    """
    activate()
    if options is not None:
        request_options(options)


def activate() -> None:
    """Hook into Megatron's parser, schedules and loops once they are imported. A second call changes nothing."""
    global _is_active  # noqa: PLW0603 - as there is one of each module, so there is one of this
    if _is_active:
        return
    _is_active = True
    when_imported("megatron.training.arguments", _patch_arguments)  # disabled or not: a flag must not end the job
    if not is_disabled():
        when_imported("megatron.core.pipeline_parallel.schedules", _patch_schedules)
        when_imported("megatron.core.pipeline_parallel.combined_1f1b", _patch_pairs)
        when_imported("megatron.core.full_cuda_graph", _patch_graphs)
        when_imported("megatron.training.training", _patch_training)
        when_imported("megatron.bridge.training.train", _patch_bridge)
    if is_enabled() and requested_options() is None:
        from perseus_dist.training.options import PerseusOptions

        request_options(PerseusOptions())


def start() -> None:
    """Run at Megatron's import in an enabled environment."""
    activate()


def _patch_arguments(module: ModuleType) -> None:
    from perseus_dist.megatron.arguments import patch_arguments

    patch_arguments(module)


def _patch_schedules(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_schedules

    patch_schedules(module)


def _patch_pairs(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_pairs

    patch_pairs(module)


def _patch_graphs(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_graphs

    patch_graphs(module)


def _patch_training(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_training

    patch_training(module)


def _patch_bridge(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_bridge

    patch_bridge(module)
