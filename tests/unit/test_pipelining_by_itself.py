"""Schedules that come under Perseus by themselves: nothing that goes wrong with it reaches training."""

import sys
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
    hooks: list[Any] = []
    removed: list[None] = []
    handle = SimpleNamespace(remove=lambda: removed.append(None))

    def register(hook: Any) -> SimpleNamespace:
        hooks.append(hook)
        return handle

    monkeypatch.setitem(sys.modules, "deepspeed", SimpleNamespace())
    monkeypatch.setattr(framework_seen, "_is_seen", False)
    monkeypatch.setattr(by_itself, "_has_pipeline", False)
    monkeypatch.delenv("RANK", raising=False)
    if is_seen:
        framework_seen.note_framework()
    watch_optimizers(SimpleNamespace(register_optimizer_step_post_hook=register))  # type: ignore[arg-type] # as above
    for _ in range(2):
        hooks[0](None, (), {})
    assert removed == [None]
    assert ["has no pipeline" in message for message in caplog.messages] == [True] * (not is_seen)
