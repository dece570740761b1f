"""A rank on a simulated GPU writes whether its host keeps up, now and then and at the end."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from perseus_dist.runlog.host_pace import HostPace, read_host_pace
from perseus_dist.training.rank import host_pace
from perseus_dist.training.rank.device import Host, SimulatedGpu
from perseus_dist.training.rank.host_pace import HostPaceFile

if TYPE_CHECKING:
    from perseus_dist.simulator.work import SimulatedWork


@dataclass
class Counts:
    """The two counts of ``SimulatedWork``."""

    num_instructions: int
    num_outlasting: int


def gpu(num_instructions: int, num_outlasting: int) -> SimulatedGpu:
    return SimulatedGpu(cast("SimulatedWork", Counts(num_instructions, num_outlasting)))


def test_it_is_written_every_two_seconds_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = [100.0]
    monkeypatch.setattr(host_pace, "monotonic", lambda: clock_s[-1])
    file = HostPaceFile(rank=3, report=str(tmp_path))
    seen = []
    for now_s, instructions in ((101.9, 10), (102.1, 20), (103.0, 30), (104.2, 40)):
        clock_s.append(now_s)
        file.keep(gpu(instructions, 1))
        seen.append(read_host_pace(tmp_path, 3, []))
    file.keep(gpu(50, 2), is_over=True)
    seen.append(read_host_pace(tmp_path, 3, []))
    written = [None if pace is None else (pace.num_instructions, pace.num_outlasting) for pace in seen]
    assert written == [None, (20, 1), (20, 1), (40, 1), (50, 2)]
    assert seen[-1] == HostPace(num_instructions=50, num_outlasting=2)


def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    HostPaceFile(rank=0, report=None).keep(gpu(1, 0), is_over=True)
    HostPaceFile(rank=0, report=str(tmp_path)).keep(None, is_over=True)
    HostPaceFile(rank=0, report=str(tmp_path)).keep(Host(), is_over=True)
    HostPaceFile(rank=0, report=str(tmp_path / "missing")).keep(gpu(1, 0), is_over=True)
    assert list(tmp_path.iterdir()) == []
