"""A whole job in wall time: trainers, agents, a clock daemon and a planner as real processes, on simulated GPUs."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.planner.job.measured_iterations import MeasuredIterations
from perseus_dist.planner.store.state_dir import OPERATOR_TOKEN
from perseus_dist.rpc.connection import CHANNEL_OPTIONS, authorization, read_token
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.processes import are_training, end_process, trainer_process, without_settings
from perseus_dist.simulator.machine import SimulatedMachine

T = TypeVar("T")

_START_S = 60.0
_UNLOCKED_S = 15.0
_LOOK_S = 0.2


class SupervisedPlanner:
    """A planner that is started again whenever it dies, at the same address, as systemd would."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *, options: Sequence[str] = ()) -> None:
        self._folder = folder
        self._options = options
        self._environment = {**environment, "PERSEUS_CONFIG": "off"}
        self._bind = "127.0.0.1:0"
        self.num_restarts = 0
        self._process = self._start()
        self.address = self._bind = _wait_for(self._read_address, "the planner's address")
        self.operator_token = read_token(folder / "planner" / OPERATOR_TOKEN)

    @property
    def pid(self) -> int:
        """Number of the process that runs now."""
        return self._process.pid

    def look_after(self) -> None:
        """Start it again if it has died."""
        if self._process.poll() is not None:
            self._process = self._start()
            self.num_restarts += 1

    def end(self) -> None:
        """Ask it to drain."""
        end_process(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "perseus_dist", "planner", "--bind", self._bind]
        command += ["--state-dir", str(self._folder / "planner"), "--address-file", str(self._address_file)]
        command += self._options
        with (self._folder / "planner.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stderr=log)

    @property
    def _address_file(self) -> Path:
        return self._folder / "address.json"

    def _read_address(self) -> str | None:
        if self._process.poll() is not None:
            log = (self._folder / "planner.log").read_text()[-2000:]
            raise SimulationError(f"the planner ended with status {self._process.returncode}: {log}")
        return str(json.loads(self._address_file.read_text())["address"]) if self._address_file.exists() else None


def run_wall(
    simulated: SimulatedJob,
    preset: str,
    *,
    folder: Path,
    watch: Callable[[pb.JobStatus, SupervisedPlanner], None] = lambda _status, _planner: None,
) -> Outcome:
    """Train the job.

    Args:
        simulated: What to train.
        preset: Of the simulated GPUs.
        folder: Empty, for logs and the planner's state.
        watch: Called a few times a second with the job's status.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
        SimulationError: A process that the run needs did not start, or a trainer failed.
    """
    with ExitStack() as stack:
        machine = stack.enter_context(SimulatedMachine(preset, count=simulated.num_ranks))
        clockd = stack.enter_context(
            ClockdProcess(folder, {**without_settings(os.environ), **machine.environment(cuda=True)})
        )
        planner = SupervisedPlanner(folder, clockd.environ)
        stack.callback(planner.end)
        log = stack.enter_context((folder / "trainers.log").open("wb"))
        uuids = tuple(gpu.uuid for gpu in machine.gpus)
        trainers = [
            stack.enter_context(trainer_process(config, clockd.environ, log))
            for config in simulated.trainers(uuids, planner=planner.address, run_id=secrets.token_hex(8))
        ]
        while are_training(trainers):
            time.sleep(_LOOK_S)
            planner.look_after()
            status = _status(planner, simulated.job_id)
            if status is not None:
                watch(status, planner)
        failed = [number for number, trainer in enumerate(trainers) if trainer.returncode]
        if failed:
            raise SimulationError(f"trainers of ranks {failed} failed; read {folder / 'trainers.log'}")
        _wait_until(lambda: all(gpu.state().is_unlocked for gpu in machine.gpus), _UNLOCKED_S)
        status = _wait_for(lambda: _final_status(planner, simulated.job_id), "the planner's last word")
        return Outcome(
            baseline=_measured(status.baseline),
            enforced=_measured(status.enforced),
            predicted_saving=status.predicted_saving,
            predicted_saving_low=status.predicted_saving_low,
            predicted_saving_high=status.predicted_saving_high,
            num_profiled_clocks=status.profiled_clocks,
            reason=status.reason,
            troubles=tuple(status.troubles),
            planner_restarts=planner.num_restarts,
            clocks_left_locked=sum(not gpu.state().is_unlocked for gpu in machine.gpus),
            is_virtual=False,
        )


def _measured(wire: pb.MeasuredIterations) -> MeasuredIterations:
    return MeasuredIterations(
        num_iterations=wire.num_iterations,
        time_s=wire.time_s,
        time_spread_s=wire.time_spread_s,
        energy_j=wire.energy_j,
        energy_spread_j=wire.energy_spread_j,
    )


def _final_status(planner: SupervisedPlanner, job_id: str) -> pb.JobStatus | None:
    planner.look_after()
    status = _status(planner, job_id)
    return status if status is not None and status.phase == "done" else None


def _status(planner: SupervisedPlanner, job_id: str) -> pb.JobStatus | None:
    """The job's status; None while the planner is away or does not know it."""
    import grpc

    from perseus_dist.rpc.v1.planner_pb2_grpc import PlannerStub

    with grpc.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        try:
            answer = PlannerStub(channel).ListJobs(  # type: ignore[no-untyped-call]  # generated
                pb.ListJobsRequest(), metadata=authorization(planner.operator_token), timeout=5.0
            )
        except grpc.RpcError:
            return None
    return next((job for job in answer.jobs if job.job_id == job_id), None)


def _wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    until_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def _wait_for(read: Callable[[], T | None], what: str) -> T:
    until_s = time.monotonic() + _START_S
    while (value := read()) is None:
        if time.monotonic() > until_s:
            raise SimulationError(f"{what} did not come within {_START_S:g} s")
        time.sleep(0.05)
    return value
