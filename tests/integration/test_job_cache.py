"""A job that is started again goes on under the plan of the start before, without a planner that is named."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from embedded_job import SCHEDULE, Job
from waiting import wait_until

from perseus_dist.simulator.machine import SimulatedMachine

LONGER = "0F0 0F1 0B0 0B1 0F2 0B2\n1F0 1B0 1F1 1B1 1F2 1B2\n"


class Start(Protocol):
    """Starts the job in a folder of its own; whatever ran before has ended."""

    def __call__(self, number: int, schedule: str = SCHEDULE) -> Job: ...


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=2))

        def started(number: int, schedule: str = SCHEDULE) -> Job:
            name = f"start-{number}"
            return Job(
                tmp_path / name,
                machine,
                stack,
                name=name,
                cache=tmp_path / "cache",
                schedule=schedule,
                number=number,
            )

        yield started


def phases(job: Job) -> list[str]:
    return [phase["phase"] for phase in job.told()["phases"]]


def is_enforcing(job: Job) -> bool:
    return bool(job.told()["phase"] == "enforcing")


def end(job: Job) -> None:
    """End the job; its planner writes the last of the cache as it ends."""
    planner = job.pid_of_planner()
    for trainer in job.trainers:
        trainer.kill()
    wait_until(lambda: job.told()["ended_at"])
    wait_until(lambda: not Path(f"/proc/{planner}").exists())


def test_each_start_goes_on_where_the_one_before_has_ended(start: Start, tmp_path: Path) -> None:
    first = start(0)
    wait_until(first.are_locked)
    wait_until(lambda: list((tmp_path / "cache").glob("simulated-*.job")))
    wait_until(lambda: first.told()["phase"] == "enforcing" and first.told()["enforced"]["num_iterations"] >= 2)
    end(first)
    (cached,) = (tmp_path / "cache").iterdir()
    assert cached.stat().st_mode & 0o777 == 0o600

    second = start(1)
    wait_until(second.are_locked)
    wait_until(lambda: second.told()["phase"] == "enforcing" and second.told()["baseline"]["num_iterations"] >= 2)
    assert not {"profiling", "re-profiling"} & set(phases(second))
    told = second.told()["phases"][: phases(second).index("enforcing")]
    # On a busy machine a transfer may seem slower than planned.
    assert [phase for phase in told if phase["phase"] == "planning" and "transfers" not in phase["reason"]] == []
    end(second)

    third = start(2, LONGER)
    wait_until(third.are_locked)
    wait_until(lambda: third.told()["phase"] == "enforcing")
    assert not {"profiling", "re-profiling"} & set(phases(third))
    end(third)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.stress
def test_a_job_that_comes_back_with_a_pipeline_less_is_planned_with_what_was_measured_of_its_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine("a100", count=4))
        for number, (dp, schedule) in enumerate(((2, SCHEDULE), (1, LONGER), (2, SCHEDULE))):
            job = Job(
                tmp_path / f"start-{number}", machine, stack, name=f"start-{number}", cache=tmp_path / "cache",
                schedule=schedule, number=number, dp=dp, is_swept=True,
            )  # fmt: skip
            wait_until(partial(is_enforcing, job))
            assert ("profiling" in phases(job)) == (number == 0)
            assert number < 2 or "planning" not in phases(job), "the third has a file of its own shape"
            wait_until(job.are_locked)
            end(job)
            wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_cache_that_is_cut_off_is_replaced(start: Start, tmp_path: Path) -> None:
    first = start(0)
    wait_until(first.are_locked)
    wait_until(lambda: list((tmp_path / "cache").glob("simulated-*.job")))
    planner = first.pid_of_planner()
    assert planner is not None
    os.kill(planner, signal.SIGKILL)
    end(first)
    (cached,) = (tmp_path / "cache").iterdir()
    whole = cached.read_bytes()
    cached.write_bytes(whole[: len(whole) // 2])
    second = start(1)
    wait_until(second.are_locked)
    assert "is not used, and will be replaced" in second.said(0)
    wait_until(lambda: cached.read_bytes()[:16] == whole[:16] and len(cached.read_bytes()) > len(whole) // 2)
    end(second)
