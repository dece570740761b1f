"""Simulated work of real processes, which get in each other's way and are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from waiting import wait_until

from perseus_dist.simulator import Load, SimulatedMachine, SimulatedWork, SimulatorError, work_environment

RANK = """\
import signal, sys
from perseus_dist.simulator import SimulatedWork
work = SimulatedWork.from_environment(gpu=int(sys.argv[1]), num_stages=2)
for _ in range(int(sys.argv[2])):
    work.begin("F", 0)
    work.end()
print("blocked", flush=True)
signal.pause()
"""
WORK = work_environment(forward_s=0.01, backward_s=0.02)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedMachine]:
    with SimulatedMachine("a100", count=2) as made:
        for name, value in {**made.environment(), **WORK}.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def start_rank() -> Iterator[Callable[[int, int], "subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []

    def start(gpu: int, num_forwards: int) -> "subprocess.Popen[str]":
        """Returns once its stream waits for a host that will never come back."""
        command = [sys.executable, "-c", RANK, str(gpu), str(num_forwards)]
        rank = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, text=True)
        started.append(rank)
        assert rank.stdout is not None
        assert rank.stdout.readline() == "blocked\n"
        return rank

    yield start
    for rank in started:
        rank.kill()
        rank.communicate()


def work_once(gpu: int) -> None:
    work = SimulatedWork.from_environment(gpu=gpu, num_stages=1)
    assert work is not None
    for kind in ("F", "B", "STEP"):
        work.begin(kind, 0)
        work.end()
    work.close()


@pytest.mark.usefixtures("machine")
def test_a_gpu_that_another_process_uses_is_refused(start_rank: Callable[[int, int], "subprocess.Popen[str]"]) -> None:
    rank = start_rank(0, 1)
    with pytest.raises(SimulatorError, match=f"simulated GPU 0 is used by process {rank.pid}; give each process"):
        SimulatedWork.from_environment(gpu=0, num_stages=2)
    work_once(1)


def test_a_rank_that_is_killed_disturbs_nobody(
    machine: SimulatedMachine, start_rank: Callable[[int, int], "subprocess.Popen[str]"]
) -> None:
    for num_forwards in (3, 1):
        rank = start_rank(0, num_forwards)
        assert machine.gpu(0).state().load is Load.BLOCKED
        rank.send_signal(signal.SIGKILL)
        work_once(1)
        # Nobody has waited for it yet, so it is a zombie, as ranks are whose launcher was killed too.
        wait_until(lambda: machine.gpu(0).state().load is Load.IDLE)
    before_s = machine.gpu(0).state().running_s
    assert before_s == pytest.approx(0.04)
    work_once(0)
    assert machine.gpu(0).state().running_s - before_s == pytest.approx(0.03)
    wait_until(lambda: machine.gpu(0).state().load is Load.IDLE)


def test_a_rank_killed_in_the_middle_of_its_kernels(machine: SimulatedMachine) -> None:
    code = RANK.replace('print("blocked", flush=True)\nsignal.pause()', "").replace(
        "for _", 'print("begun", flush=True)\nfor _'
    )
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", code, "0", "100000"], env=dict(os.environ), stdout=subprocess.PIPE, text=True
        ) as rank:
            assert rank.stdout is not None
            rank.stdout.readline()
            time.sleep(0.03)
            rank.kill()
        work_once(0)
        work_once(1)
    wait_until(lambda: machine.gpu(0).state().load is Load.IDLE)


def test_what_a_wrong_environment_says(machine: SimulatedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulatorError, match="GPU 2: the simulated machine has 2, counted from 0"):
        SimulatedWork.from_environment(gpu=2, num_stages=4)
    monkeypatch.setenv("PERSEUS_SIM_WORK", "35 ms")
    with pytest.raises(SimulatorError, match="PERSEUS_SIM_WORK=35 ms: expected a JSON object"):
        SimulatedWork.from_environment(gpu=0, num_stages=4)
    monkeypatch.setenv("PERSEUS_SIM_WORK", WORK["PERSEUS_SIM_WORK"])
    machine.close()
    with pytest.raises(SimulatorError, match="names no simulated machine"):
        SimulatedWork.from_environment(gpu=0, num_stages=4)
    for variable in ("PERSEUS_SIM_STATE", "PERSEUS_SIM_WORK"):
        with monkeypatch.context() as without:
            without.delenv(variable)
            assert SimulatedWork.from_environment(gpu=0, num_stages=4) is None


def test_work_goes_on_after_the_machine_is_gone(machine: SimulatedMachine) -> None:
    work = SimulatedWork.from_environment(gpu=0, num_stages=1)
    assert work is not None
    work.begin("F", 0)
    machine.close()
    work.end()
    work.begin("B", 0)
    work.end()
    work.close()
