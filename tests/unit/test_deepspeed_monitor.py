"""Figures in DeepSpeed's monitor: when they are written, and what a monitor that fails costs."""

from types import SimpleNamespace
from typing import Any

import pytest

from perseus_dist.deepspeed.monitor import write_status


class Status:
    """A hook that knows one figure."""

    def status(self) -> Any:
        return SimpleNamespace()


class Monitor:
    enabled = True

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self.written: list[Any] = []

    def write_events(self, events: list[Any]) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.written += events


def engine(monitor: Monitor, *, step: int = 10, rank: int = 0) -> Any:
    return SimpleNamespace(
        global_rank=rank, monitor=monitor, steps_per_print=lambda: 10, global_steps=step, global_samples=80
    )


@pytest.fixture(autouse=True)
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perseus_dist.deepspeed.monitor.scalars", lambda _: {"energy_j": 5.0})


@pytest.mark.parametrize(("step", "rank", "is_written"), [(10, 0, True), (11, 0, False), (10, 1, False)])
def test_rank_0_writes_in_steps_that_the_engine_prints(step: int, rank: int, *, is_written: bool) -> None:
    monitor = Monitor()
    write_status(engine(monitor, step=step, rank=rank), Status())  # type: ignore[arg-type]
    assert monitor.written == ([("Train/Samples/perseus_energy_j", 5.0, 80)] if is_written else [])


def test_a_monitor_that_fails_is_told_once_and_written_to_no_more(caplog: pytest.LogCaptureFixture) -> None:
    monitor, hook, other = Monitor(is_full=True), Status(), Status()
    for _ in range(2):
        write_status(engine(monitor), hook)  # type: ignore[arg-type]
    assert caplog.messages == [
        "perseus: nothing more is written to DeepSpeed's monitor: OSError(28, 'No space left on device')"
    ]
    monitor.is_full = False
    write_status(engine(monitor), hook)  # type: ignore[arg-type]
    assert not monitor.written
    write_status(engine(monitor), other)  # type: ignore[arg-type]
    assert monitor.written
