"""Perseus in a process that may train with Megatron: hooks that wait for its modules, and what was asked for.

Neither Megatron nor torch is imported here, and hardly anything else: this runs before the user's program does.
"""

import os
from types import ModuleType

from perseus_dist.training.disabled import is_disabled
from perseus_dist.training.post_import import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

_is_active = False
_options: "PerseusOptions | None" = None
_refusal: str | None = None
_is_refusal_said = False


def install(options: "PerseusOptions | None" = None) -> None:
    """Make this process ready for Perseus, anywhere before training starts. Again: changes nothing but the options.

    Args:
        options: What Perseus is asked for; options on Megatron's command line come before them. None: nothing is asked
            for unless that command line has ``--enable-perseus``. A program whose own loop runs megatron-core has no
            such command line and gives options, of which ``PerseusOptions()`` says nothing in particular.
    """
    activate()
    if options is not None:
        ask(options)


def activate() -> None:
    """Have Megatron's parser know the options and its schedules tell what they run. Again: changes nothing."""
    global _is_active  # noqa: PLW0603 - as there is one of each module, so there is one of this
    if _is_active:
        return
    _is_active = True
    when_imported("megatron.training.arguments", _patch_arguments)  # disabled or not: a flag must not end the job
    if not is_disabled():
        when_imported("megatron.core.pipeline_parallel.schedules", _patch_schedules)
        when_imported("megatron.training.training", _patch_training)


def start() -> None:
    """What an enabled environment does as soon as Megatron is imported."""
    activate()


def ask(options: "PerseusOptions") -> None:
    """Perseus is asked for, with these options in the place of earlier ones. ``PERSEUS_DISABLE``: it is not."""
    global _options  # noqa: PLW0603 - as above
    if not is_disabled():
        _options = options
        _say_refusal()


def asked() -> "PerseusOptions | None":
    """What Perseus was asked for in this process; None where it was not."""
    return _options


def refuse(sentence: str) -> None:
    """The hooks cannot work with this Megatron, once and for all. Rank 0 says so, and only where Perseus is asked for.

    Args:
        sentence: Why, and what to do; the first one stays.
    """
    global _refusal  # noqa: PLW0603 - as above
    if _refusal is None:
        _refusal = sentence
        _say_refusal()


def refusal() -> str | None:
    """Why the hooks cannot work; None where they can."""
    return _refusal


def _say_refusal() -> None:
    global _is_refusal_said  # noqa: PLW0603 - as above
    if _options is None or _refusal is None or _is_refusal_said:
        return
    _is_refusal_said = True
    if os.environ.get("RANK", "0") == "0":
        import logging

        logging.getLogger(__name__).warning("perseus: clocks stay as they are: %s", _refusal)


def _patch_arguments(module: ModuleType) -> None:
    from perseus_dist.megatron.arguments import patch_arguments

    patch_arguments(module)


def _patch_schedules(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_schedules

    patch_schedules(module)


def _patch_training(module: ModuleType) -> None:
    from perseus_dist.megatron.adapter import patch_training

    patch_training(module)
