"""A rehearsal of production: several jobs on several simulated nodes, against a planner that runs already.

```
 planner (real, anywhere) <--- gRPC, TLS, token --- agents
 node 0: clockd   rank 0 .. 2 of job 1                      one simulated machine: job 1 has GPUs 0 to 3,
 node 1: clockd   rank 3 of job 1, rank 0 and 1 of job 2    job 2 the next, and so on; nodes have equal
 node 2: clockd   ...                                       shares of them, and a lease daemon each
```
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perseus_dist.device.lease.clockd_process import ClockdProcess
from perseus_dist.rpc.v1 import planner_pb2 as pb
from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.outcome import percent_less
from perseus_dist.simulation.processes import are_training, trainer_process
from perseus_dist.simulator.machine import MAX_GPUS, SimulatedMachine
from perseus_dist.simulator.native_library import NUM_SEMAPHORES

if TYPE_CHECKING:
    import subprocess

_ATTACHED_S = 60.0
_ENDED_S = 60.0
_LOOK_S = 0.5

JobStatuses = Mapping[str, pb.JobStatus]
"""By job_id; jobs that the planner does not know, and all while it is away, are not in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Jobs, nodes and the planner of a rehearsal.

    Attributes:
        jobs: Their names differ.
        num_nodes: With equal shares of the jobs' GPUs.
        planner: ``HOST:PORT``.
        token_file: For agents; None without.
        options: Of agents, such as ``tls_ca``.
    """

    jobs: tuple[SimulatedJob, ...]
    num_nodes: int
    planner: str
    token_file: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what a simulated machine cannot hold.

        Raises:
            SimulationError: Too many GPUs or semaphores, or more nodes than GPUs.
        """
        num_gpus = sum(job.num_ranks for job in self.jobs)
        if num_gpus > MAX_GPUS:
            raise SimulationError(
                f"{len(self.jobs)} jobs of {self.jobs[0].num_ranks} ranks need {num_gpus} simulated GPUs, and there "
                f"are at most {MAX_GPUS}; rehearse fewer jobs, or smaller ones"
            )
        if self.num_nodes > num_gpus:
            raise SimulationError(
                f"{self.num_nodes} nodes share {num_gpus} simulated GPUs: give at least one GPU to each, with fewer "
                "nodes or more jobs"
            )
        if sum(map(_num_semaphores, self.jobs)) > NUM_SEMAPHORES:
            raise SimulationError("the jobs have too many stages together; rehearse fewer jobs, or smaller ones")


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedJob:
    """Outcome of one job.

    Attributes:
        num_ranks: Of the job.
        nodes: That had ranks of it, ascending from 0.
        status: The planner's last word; None where the planner never knew the job.
        fault: Why the rehearsal of this job failed, in a sentence; empty where it did not.
    """

    job_id: str
    num_ranks: int
    nodes: tuple[int, ...]
    status: pb.JobStatus | None
    fault: str

    @property
    def slowdown_percent(self) -> float:
        """Iteration time under the plan above the baseline's; 0 without both."""
        return 0.0 - percent_less(self._of("enforced", "time_s"), self._of("baseline", "time_s"))  # not -0.0

    @property
    def saving_percent(self) -> float:
        """Energy of an iteration under the plan below the baseline's; 0 without both."""
        return percent_less(self._of("enforced", "energy_j"), self._of("baseline", "energy_j"))

    def document(self) -> dict[str, Any]:
        """The job as ``--json`` prints it."""
        status = self.status or pb.JobStatus()
        return {
            "job_id": self.job_id,
            "ranks": self.num_ranks,
            "nodes": list(self.nodes),
            "phase": status.phase,
            "baseline_iterations": status.baseline.num_iterations,
            "baseline_time_s": status.baseline.time_s,
            "planned_iterations": status.enforced.num_iterations,
            "planned_time_s": status.enforced.time_s,
            "slowdown_percent": self.slowdown_percent,
            "saving_percent": self.saving_percent,
            "predicted_saving_percent": 100 * status.predicted_saving,
            "lost_boundaries": status.lost_boundaries,
            "troubles": list(status.troubles),
            "fault": self.fault,
        }

    def _of(self, iterations: str, quantity: str) -> float:
        return float(getattr(getattr(self.status, iterations), quantity)) if self.status is not None else 0.0


def run_rehearsal(
    rehearsal: Rehearsal,
    preset: str,
    *,
    folder: Path,
    read_jobs: Callable[[], JobStatuses],
    watch: Callable[[JobStatuses], None] = lambda _statuses: None,
) -> tuple[RehearsedJob, ...]:
    """Train all jobs at once, until they end or one is in trouble that does not pass.

    Args:
        rehearsal: Jobs, nodes and planner.
        preset: Of the simulated GPUs.
        folder: Empty, for logs, and for the sockets and lease files of the nodes.
        read_jobs: Asks the planner.
        watch: Called about twice a second with the jobs of the rehearsal.

    Raises:
        SimulationError: More than a simulated machine holds.
        SimulatorError: No such preset.
        ClockdError: A lease daemon does not start.
    """
    rehearsal.check()
    with ExitStack() as stack:
        run = _Run(rehearsal, preset, folder, stack)
        wanted = {job.job_id for job in rehearsal.jobs}
        statuses: JobStatuses = {}
        began_s = time.monotonic()
        while run.is_training():
            time.sleep(_LOOK_S)
            statuses = newest_statuses(statuses, {name: job for name, job in read_jobs().items() if name in wanted})
            watch(statuses)
            if time.monotonic() - began_s > _ATTACHED_S and statuses.keys() != wanted:
                jobs = run.judge(statuses)
                run.abandon()
                return jobs
        until_s = time.monotonic() + _ENDED_S
        while True:
            time.sleep(_LOOK_S)
            statuses = newest_statuses(statuses, {name: job for name, job in read_jobs().items() if name in wanted})
            # The planner hears of nothing more after this.
            if time.monotonic() > until_s or _have_ended(statuses, run):
                break
        watch(statuses)
        return run.judge(statuses)


class _Run:
    """Machine, nodes and trainers while they are there."""

    def __init__(self, rehearsal: Rehearsal, preset: str, folder: Path, stack: ExitStack) -> None:
        self._rehearsal = rehearsal
        self._folder = folder
        num_gpus = sum(job.num_ranks for job in rehearsal.jobs)
        self._machine = stack.enter_context(SimulatedMachine(preset, count=num_gpus))
        environment = {**os.environ, **self._machine.environment(cuda=True)}
        self._node_of_gpu = [gpu * rehearsal.num_nodes // num_gpus for gpu in range(num_gpus)]
        nodes = [self._start_node(number, environment, stack) for number in range(rehearsal.num_nodes)]
        self._trainers: dict[str, list[subprocess.Popen[str]]] = {}
        self._gpus: dict[str, range] = {}
        first_gpu, first_semaphore = 0, 0
        for job in rehearsal.jobs:
            self._gpus[job.job_id] = gpus = range(first_gpu, first_gpu + job.num_ranks)
            log = stack.enter_context(self._log_path(job.job_id).open("wb"))
            uuids = tuple(self._machine.gpus[gpu].uuid for gpu in gpus)
            configs = job.trainers(uuids, planner=rehearsal.planner, run_id=secrets.token_hex(8))
            self._trainers[job.job_id] = [
                stack.enter_context(
                    trainer_process(
                        replace(
                            config,
                            gpu=gpu,
                            first_semaphore=first_semaphore,
                            spec=replace(
                                config.spec,
                                local_rank=gpu,
                                token_file=None if rehearsal.token_file is None else str(rehearsal.token_file),
                                options={**config.spec.options, **rehearsal.options},
                            ),
                        ),
                        nodes[self._node_of_gpu[gpu]].environ,
                        log,
                    )
                )
                for gpu, config in zip(gpus, configs, strict=True)
            ]
            first_gpu += job.num_ranks
            first_semaphore += _num_semaphores(job)

    def is_training(self) -> bool:
        """Whether a job trains of which no trainer has failed."""
        return any(map(are_training, self._trainers.values()))

    def abandon(self) -> None:
        """Ask all trainers to end, all at once."""
        for trainer in (one for trainers in self._trainers.values() for one in trainers):
            if trainer.poll() is None:
                trainer.terminate()

    def locked_gpus(self, job_id: str) -> int:
        """How many of the job's GPUs have locked clocks."""
        return sum(not self._machine.gpus[gpu].state().is_unlocked for gpu in self._gpus[job_id])

    def judge(self, statuses: JobStatuses) -> tuple[RehearsedJob, ...]:
        """Outcomes, in the order of the jobs."""
        return tuple(
            RehearsedJob(
                job_id=job.job_id,
                num_ranks=job.num_ranks,
                nodes=tuple(sorted({self._node_of_gpu[gpu] for gpu in self._gpus[job.job_id]})),
                status=statuses.get(job.job_id),
                fault=self._fault(job.job_id, statuses.get(job.job_id)),
            )
            for job in self._rehearsal.jobs
        )

    def _fault(self, job_id: str, status: pb.JobStatus | None) -> str:
        failed = [rank for rank, trainer in enumerate(self._trainers[job_id]) if trainer.poll()]
        if failed:
            return f"trainers of ranks {failed} failed; read {self._log_path(job_id)}"
        if status is None:
            return f"its agents did not reach the planner: {self._last_words(job_id)}"
        if status.phase != "done":
            return f"it has not come to its end: {status.phase}: {status.reason}"
        if not status.enforced.num_iterations:
            return f"no iteration ran under a plan ({status.reason}); give more --iterations, or read its log"
        locked = self.locked_gpus(job_id)
        return f"the clocks of {locked} GPUs are left locked" if locked else ""

    def _last_words(self, job_id: str) -> str:
        lines = self._log_path(job_id).read_text(errors="replace").splitlines()
        return lines[-1][:300] if lines else f"nothing was written to {self._log_path(job_id)}"

    def _start_node(self, number: int, environment: Mapping[str, str], stack: ExitStack) -> ClockdProcess:
        folder = self._folder / f"node{number}"
        folder.mkdir()
        return stack.enter_context(ClockdProcess(folder, {**environment, "PERSEUS_NODE": f"node{number}"}))

    def _log_path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.log"


def rehearsal_passed(jobs: Sequence[RehearsedJob]) -> bool:
    """Whether every job came under a plan and to its end, and left no clock locked."""
    return not any(job.fault for job in jobs)


def newest_statuses(before: JobStatuses, now: JobStatuses) -> JobStatuses:
    """The newest status of each job, with the figures of the plan before where no iteration has run under its own."""
    for job_id in before.keys() & now.keys():
        if not now[job_id].enforced.num_iterations:
            now[job_id].enforced.CopyFrom(before[job_id].enforced)
            now[job_id].predicted_saving = before[job_id].predicted_saving
    return {**before, **now}


def _have_ended(statuses: JobStatuses, run: _Run) -> bool:
    return all(status.phase == "done" and not run.locked_gpus(job_id) for job_id, status in statuses.items())


def _num_semaphores(job: SimulatedJob) -> int:
    """At least as many as its trainers wait for each other with: one for all, one a pipeline, stage and kind."""
    sources = {(instruction.stage, instruction.kind) for order in job.schedule.ranks for instruction in order}
    return 1 + job.num_pipelines * len(sources)
