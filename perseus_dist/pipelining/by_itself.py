"""Schedules that come under Perseus by themselves, at their first ``step``: the job asked, and not its script."""

import functools
import logging
import os
from types import ModuleType
from typing import Any

from perseus_dist.pipelining.adapter import attach_by, is_attached
from perseus_dist.pipelining.place import place_by_groups
from perseus_dist.pipelining.titan import trainer_of
from perseus_dist.training.framework_seen import is_framework_seen
from perseus_dist.training.options import PerseusOptions

_log = logging.getLogger(__name__)

_CLASSES = ("PipelineScheduleSingle", "PipelineScheduleMulti")
_ATTACHES = "_perseus_attaches"  # of the function in the place of step
_STEPS_OF_CHECKPOINT = 2  # of one optimizer: its state is read, then loaded
_HAS_TRAINED = "_perseus_has_trained"  # of a schedule; one that its script detaches later stays so

_has_pipeline = False  # this process: a schedule has begun to train


def patch_schedules(module: ModuleType, options: PerseusOptions | None) -> None:
    """Attach schedules at their first ``step`` that trains, unless their script has done so.

    What is known of the job beside its pipeline comes from torchtitan's trainer, where that has made the schedule.
    Otherwise the iteration ends with the schedule, and all ranks are one pipeline.

    Args:
        module: ``torch.distributed.pipelining.schedules``.
        options: Come before those of the environment.
    """

    def attach_once(schedule: Any) -> None:
        global _has_pipeline  # noqa: PLW0603 - of this process
        attributes = schedule.__dict__
        if _HAS_TRAINED in attributes or not getattr(schedule, "_has_backward", True):  # eval() runs step() without
            return
        _has_pipeline = attributes[_HAS_TRAINED] = True
        if is_attached(schedule):
            return
        trainer = trainer_of(schedule)
        if trainer is None:
            attach_by(schedule, options, optimizer=None, read_place=place_by_groups(None, None))
        else:
            attach_by(schedule, options, optimizer=trainer.optimizer, read_place=trainer.read_place)

    for schedule_class in (getattr(module, name) for name in _CLASSES):
        step = schedule_class.step
        if not hasattr(step, _ATTACHES):
            schedule_class.step = _attaching(step, attach_once)


def watch_optimizers(module: ModuleType) -> None:
    """Warn, once, if an optimizer steps again and again before any schedule has trained: that job has no pipeline.

    The first steps say nothing: ``torch.distributed.checkpoint`` steps an optimizer without a state of its own, with
    gradients of zero, each time that it reads its state or loads it.

    Of a job with DeepSpeed or Megatron their own adapters say it, where the environment is enabled for these.

    Args:
        module: ``torch.optim.optimizer``.
    """
    has_looked = False
    num_steps: dict[int, int] = {}  # by optimizer

    def look(optimizer: Any, *_: Any) -> None:
        # The hook stays registered: torch is going through all of them, and raises where one goes meanwhile.
        nonlocal has_looked
        if has_looked:
            return
        num_steps[id(optimizer)] = num_steps.get(id(optimizer), 0) + 1
        if num_steps[id(optimizer)] <= _STEPS_OF_CHECKPOINT and not _has_pipeline:
            return
        has_looked = True
        num_steps.clear()
        if not _has_pipeline and not is_framework_seen() and os.environ.get("RANK", "0") == "0":
            _log.warning(
                "perseus: this job has no pipeline of torch.distributed.pipelining, and clocks are planned for "
                "pipelines: training goes on without"
            )

    module.register_optimizer_step_post_hook(look)


def _attaching(step: Any, attach_once: Any) -> Any:
    @functools.wraps(step)
    def attach_and_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            attach_once(self)
        except Exception as error:
            _log.warning("perseus: clocks stay as they are: %s", error or type(error).__name__)
        return step(self, *args, **kwargs)

    setattr(attach_and_step, _ATTACHES, True)
    return attach_and_step
