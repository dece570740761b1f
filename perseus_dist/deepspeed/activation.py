"""Hooking into DeepSpeed once it is imported, however long that takes.

Neither it nor torch is imported here, and hardly anything else: this runs before the user's program does.
"""

import os
from types import ModuleType

from perseus_dist.training.disabled import is_disabled, is_enabled
from perseus_dist.training.post_import import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from perseus_dist.training.options import PerseusOptions

OPTIONS_VARIABLE = "PERSEUS_DEEPSPEED_OPTIONS"
"""Where processes find the launcher's options that its command line cannot reach."""

_options_text: str | None = None
_is_active = False


def activate(options_text: str | None = None) -> None:
    """Have DeepSpeed's engines run under Perseus in this process.

    A second call only gives options where the first gave none.

    Args:
        options_text: What the user asked for on the command line, as ``PerseusOptions.to_text`` writes it. None: only
            engines whose configuration has a ``perseus`` block, or all where ``PERSEUS_ENABLE`` is 1.
    """
    global _options_text, _is_active  # noqa: PLW0603 - as there is one of each module, so there is one of this
    if is_disabled():
        return
    if _options_text is None:
        _options_text = options_text
    if not _is_active:
        _is_active = True
        when_imported("deepspeed.runtime.pipe.engine", _patch_pipeline_engine)
        when_imported("deepspeed.runtime.engine", _patch_plain_engine)


def start() -> None:
    """Run at DeepSpeed's import in an enabled environment: ``activate``, and teach the launcher."""
    activate(os.environ.get(OPTIONS_VARIABLE))
    when_imported("deepspeed.launcher.runner", _patch_runner)  # disabled or not: it must know the options to drop them


def _patch_pipeline_engine(module: ModuleType) -> None:
    from perseus_dist.deepspeed.adapter import patch_pipeline_engine

    patch_pipeline_engine(module, _options())


def _patch_plain_engine(module: ModuleType) -> None:
    from perseus_dist.deepspeed.adapter import patch_plain_engine

    patch_plain_engine(module, _options())


def _options() -> "PerseusOptions | None":
    from perseus_dist.training.options import OptionError, PerseusOptions

    global _options_text  # noqa: PLW0603 - as above
    try:
        if _options_text is not None:
            return PerseusOptions.from_text(_options_text)
    except OptionError as error:
        import logging

        logging.getLogger(__name__).warning("training runs without Perseus: %s", error)
        _options_text = None  # said once
        return None
    return PerseusOptions() if is_enabled() else None


def _patch_runner(module: ModuleType) -> None:
    from perseus_dist.deepspeed.launcher.runner_patch import patch_runner

    patch_runner(module)
