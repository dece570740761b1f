"""How engines come under Perseus: by ``attach``, or by themselves at their first iteration once classes are patched.

The launcher has the engines' modules patched when they are imported. ``PERSEUS_DISABLE=1`` disables all of it.
"""

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from perseus_dist.deepspeed.attachment import Attachment
from perseus_dist.training.disabled import is_disabled
from perseus_dist.training.framework_seen import note_framework
from perseus_dist.training.options import PerseusOptions, options_from_block, options_from_environment

_log = logging.getLogger(__name__)

_ATTACHMENT = "_perseus_attachment"  # of an engine
_BY_ITSELF = "_perseus_by_itself"  # of the function in the place of train_batch: attaches an engine, or not
_SAYS = "_perseus_says"  # of the function in the place of step


def attach(engine: Any, options: PerseusOptions | None = None) -> Attachment:
    """Put an engine under Perseus: after ``deepspeed.initialize``, before its first ``train_batch``, on every rank.

    Never raises: where it cannot be, rank 0 says why. An engine that is attached already stays as it is.

    Args:
        engine: A ``PipelineEngine``.
        options: Come before those of the ``perseus`` block in DeepSpeed's configuration.
    """
    before: Attachment | None = engine.__dict__.get(_ATTACHMENT)
    if before is not None and before.is_active:
        return before
    attachment: Attachment = Attachment(engine)
    engine.__dict__[_ATTACHMENT] = attachment
    if not is_disabled():
        note_framework()
        try:
            _install(attachment, engine, options)
        except Exception as error:
            attachment.remove()
            _say(engine, f"clocks stay as they are: {error or type(error).__name__}")
    return attachment


def detach(engine: Any) -> None:
    """Release the clocks and leave the engine as it was before ``attach``. Harmless where it is not attached."""
    attachment: Attachment | None = engine.__dict__.get(_ATTACHMENT)
    if attachment is not None:
        attachment.remove()


def patch_pipeline_engine(module: ModuleType, options: PerseusOptions | None) -> None:
    """Attach pipeline engines at their first iteration.

    Args:
        module: ``deepspeed.runtime.pipe.engine``.
        options: For every engine; None attaches those that a ``perseus`` block in their configuration asks for.
    """

    def attach_by_itself(engine: Any) -> Attachment:
        try:
            is_wanted = options is not None or _options_of(engine) is not None
        except Exception as error:
            is_wanted = False
            _say(engine, f"clocks stay as they are: {error}")
        if is_wanted:
            return attach(engine, options)
        attachment = engine.__dict__[_ATTACHMENT] = Attachment(engine)
        return attachment

    setattr(_patch_train_batch(module.PipelineEngine), _BY_ITSELF, attach_by_itself)


def patch_plain_engine(module: ModuleType, options: PerseusOptions | None) -> None:
    """Warn once when an engine without a pipeline takes a step although Perseus was requested.

    Args:
        module: ``deepspeed.runtime.engine``.
        options: As in ``patch_pipeline_engine``.
    """
    engine_class = module.DeepSpeedEngine
    step = engine_class.step
    if hasattr(step, _SAYS):
        return

    @functools.wraps(step)
    def step_and_say(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _ATTACHMENT not in self.__dict__:
            self.__dict__[_ATTACHMENT] = Attachment(self)
            if not is_disabled() and (options is not None or _block_of(self) is not None):
                note_framework()
                _say_without_pipeline(self)
        return step(self, *args, **kwargs)

    setattr(step_and_say, _SAYS, True)
    engine_class.step = step_and_say


def _install(attachment: Attachment, engine: Any, options: PerseusOptions | None) -> None:
    from deepspeed.runtime.pipe.engine import PipelineEngine

    if not isinstance(engine, PipelineEngine):
        _say_without_pipeline(engine)
        return
    _patch_train_batch(PipelineEngine)
    asked = (options or PerseusOptions()).over(options_from_environment())
    attachment.install(asked.over(_options_of(engine) or PerseusOptions()))


def _patch_train_batch(engine_class: Any) -> Callable[..., Any]:
    """Once for a class; the function in the method's place."""
    original: Callable[..., Any] = engine_class.train_batch
    if hasattr(original, _BY_ITSELF):
        return original

    @functools.wraps(original)
    def train_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        attachment: Attachment | None = self.__dict__.get(_ATTACHMENT)
        if attachment is None:
            attach_by_itself = getattr(train_batch, _BY_ITSELF)
            if attach_by_itself is None:
                return original(self, *args, **kwargs)
            attachment = attach_by_itself(self)
        return attachment.run_iteration(functools.partial(original, self, *args, **kwargs))

    setattr(train_batch, _BY_ITSELF, None)
    engine_class.train_batch = train_batch
    return train_batch


def _options_of(engine: Any) -> PerseusOptions | None:
    """Options of the engine's configuration; None where it does not ask for Perseus.

    Raises:
        OptionError: Its ``perseus`` block cannot be used.
    """
    block = _block_of(engine)
    return None if block is None else options_from_block(block)


def _block_of(engine: Any) -> Any:
    """The ``perseus`` block, which DeepSpeed keeps and does not read; None where there is none."""
    config = getattr(engine, "_config", None)
    return (getattr(config, "_param_dict", None) or {}).get("perseus")


def _say_without_pipeline(engine: Any) -> None:
    _say(
        engine,
        "this engine has no pipeline, and clocks are planned for pipelines: training goes on without; make the model "
        "a deepspeed.pipe.PipelineModule",
    )


def _say(engine: Any, sentence: str) -> None:
    """On rank 0: other ranks have nothing else to say."""
    if getattr(engine, "global_rank", 0) == 0:
        _log.warning("perseus: %s", sentence)
