"""Schedules that come under Perseus by themselves: nothing that goes wrong with it reaches training."""

import sys
from collections import OrderedDict
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.pipelining import by_itself
from perseus_dist.pipelining.by_itself import patch_schedules, watch_optimizers
from perseus_dist.pipelining.titan import patch_trainer
from perseus_dist.training import framework_seen


class Schedule:
    """As torch's, as far as it is looked at before anything is attached."""

    def __init__(self) -> None:
        self._has_backward = True

    def step(self, x: int) -> int:
        return x + 1


class Optimizers:
    """``torch.optim.optimizer``, as far as it keeps and calls hooks of all optimizers."""

    def __init__(self) -> None:
        self._hooks: OrderedDict[int, Any] = OrderedDict()

    def register_optimizer_step_post_hook(self, hook: Any) -> Any:
        number = len(self._hooks)
        self._hooks[number] = hook
        return SimpleNamespace(remove=lambda: self._hooks.pop(number, None))

    def step(self) -> None:
        for hook in chain((), self._hooks.values()):
            hook(self, (), {})


@pytest.fixture
def schedules() -> Any:
    module = SimpleNamespace(
        PipelineScheduleSingle=type("Single", (Schedule,), {}), PipelineScheduleMulti=type("Multi", (Schedule,), {})
    )
    patch_schedules(module, None)  # type: ignore[arg-type] # it has what is asked for
    return module


def test_a_trainer_that_is_another_one_costs_one_line(schedules: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.pp_schedule = schedules.PipelineScheduleMulti()

    patch_trainer(SimpleNamespace(Trainer=Trainer))  # type: ignore[arg-type] # as above
    trainer = Trainer()  # which has no parallel dimensions
    assert [trainer.pp_schedule.step(x) for x in (1, 2)] == [2, 3]
    (line,) = caplog.messages
    assert "no attribute 'parallel_dims'" in line


def test_a_second_patch_changes_nothing(schedules: Any) -> None:
    step = schedules.PipelineScheduleSingle.step
    patch_schedules(schedules, None)
    assert schedules.PipelineScheduleSingle.step is step


@pytest.mark.parametrize("is_seen", [True, False], ids=["adapted", "imported alone"])
def test_a_frameworks_own_adapter_speaks_for_it(
    is_seen: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A framework that is imported, in an environment that is not enabled for it, has no adapter that would."""
    optimizers = Optimizers()
    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace())
    monkeypatch.setattr(framework_seen, "_is_seen", False)
    monkeypatch.setattr(by_itself, "_has_pipeline", False)
    monkeypatch.delenv("RANK", raising=False)
    if is_seen:
        framework_seen.note_framework()
    watch_optimizers(optimizers)  # type: ignore[arg-type] # as above
    for _ in range(4):
        optimizers.step()
    assert ["has no pipeline" in message for message in caplog.messages] == [True] * (not is_seen)


def test_hooks_of_optimizers_that_others_register_run_in_every_step() -> None:
    """torch refuses a step in which one of its hooks goes before the last has run."""
    optimizers, steps = Optimizers(), []
    watch_optimizers(optimizers)  # type: ignore[arg-type] # it has what is asked for
    optimizers.register_optimizer_step_post_hook(lambda *_: steps.append("theirs"))
    for _ in range(2):
        optimizers.step()
    assert steps == ["theirs"] * 2


def test_a_checkpoint_that_steps_optimizers_before_the_schedule_trains_is_no_job_without_a_pipeline(
    schedules: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optimizers of several model parts, whose states are read and then loaded."""
    monkeypatch.setattr(framework_seen, "_is_seen", False)
    monkeypatch.setattr(by_itself, "_has_pipeline", False)
    monkeypatch.setattr(by_itself, "attach_by", lambda *_, **__: None)
    monkeypatch.delenv("RANK", raising=False)
    optimizers = [Optimizers(), Optimizers()]
    look: list[Any] = []
    watch_optimizers(SimpleNamespace(register_optimizer_step_post_hook=look.append))  # type: ignore[arg-type] # as above
    for optimizer in optimizers * 2:
        look[0](optimizer, (), {})
    schedules.PipelineScheduleSingle().step(1)
    for optimizer in optimizers * 2:
        look[0](optimizer, (), {})
    assert caplog.messages == []
