"""A whole job in virtual time: deterministic, and as exact as the model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perseus_dist.messages import IterationReport, JobStatus, Telemetry
from perseus_dist.planner.job_policy import Policy
from perseus_dist.planner.job_status import job_status
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.virtual_planner import VirtualPlanner
from perseus_dist.simulation.virtual_rank import VirtualRank
from perseus_dist.simulator.machine import SimulatedMachine, load_nvml
from perseus_dist.simulator.throttle import Throttle, ThrottleScript

_LAST_WORDS_NS = 1_000_000_000


class VirtualJob:
    """A job that trains as far as it is told to.

    Attributes:
        machine: Its GPUs.
        planner: Its life cycle.
        reports: By rank, what it has told of iterations.
    """

    def __init__(self, simulated: SimulatedJob, machine: SimulatedMachine, policy: Policy) -> None:
        self.machine = machine
        self.planner = VirtualPlanner(simulated.job_id, policy)
        trainers = simulated.trainers(tuple(gpu.uuid for gpu in machine.gpus))
        self._ranks = [VirtualRank(config, gpu) for config, gpu in zip(trainers, machine.gpus, strict=True)]
        self.reports: list[list[IterationReport]] = [[] for _ in self._ranks]
        self._num_begun = 0
        for rank in self._ranks:
            rank.connect(machine.now_ns)

    @property
    def status(self) -> JobStatus:
        """As an operator would see it now."""
        return job_status(self.planner.job)

    def slow_down(self, rank: int, slowness: float) -> None:
        """From the next iteration on a rank's computations take so many times the usual; 1 ends it."""
        self._ranks[rank].slow_down(slowness)

    def run_iteration(self, *pauses: tuple[float, Callable[[], object]]) -> None:
        """Train one.

        Args:
            pauses: (seconds from its begin, what happens then), ascending.
        """
        begin_ns = self.machine.now_ns
        for rank in self._ranks:
            rank.enqueue_iteration(self._num_begun)
        self._num_begun += 1
        waiting = list(pauses)
        while any(rank.is_training for rank in self._ranks):
            due_ns = begin_ns + round(waiting[0][0] * 1e9) if waiting else None
            self._pass_time(due_ns)
            if due_ns is not None and self.machine.now_ns >= due_ns:
                waiting.pop(0)[1]()

    def end(self) -> None:
        """The trainers end; what is still on its way arrives."""
        for rank in self._ranks:
            rank.end(self.machine.now_ns)
        until_ns = self.machine.now_ns + _LAST_WORDS_NS
        while self.machine.now_ns < until_ns:
            self._pass_time(until_ns)

    def _pass_time(self, until_ns: int | None) -> None:
        """To the next moment at which anything happens, and let it happen."""
        machine, planner = self.machine, self.planner
        due = [until_ns, machine.next_event_ns(), planner.next_ns, *(rank.next_ns() for rank in self._ranks)]
        next_ns = min(time_ns for time_ns in due if time_ns is not None)
        machine.advance(max(0, next_ns - machine.now_ns))
        now_ns = machine.now_ns
        for number, rank in enumerate(self._ranks):
            for message in rank.run_due(now_ns):
                if isinstance(message, Telemetry):
                    self.reports[number] += message.iterations
                planner.receive(number, message)
        for number, said in planner.run_due(now_ns):
            self._ranks[number].receive(said, now_ns)


@contextmanager
def virtual_job(simulated: SimulatedJob, preset: str, policy: Policy | None = None) -> Iterator[VirtualJob]:
    """A job at its begin.

    Args:
        simulated: What to train; how many iterations, whoever drives it decides.
        preset: Of the simulated GPUs.
        policy: The planner's.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    with SimulatedMachine(preset, count=simulated.num_ranks, virtual=True) as machine, load_nvml(machine):
        yield VirtualJob(simulated, machine, policy or Policy())


def run_virtual(
    simulated: SimulatedJob, preset: str, *, profile_csv: Path | None = None, throttles: Sequence[Throttle] = ()
) -> Outcome:
    """Train the job.

    Args:
        simulated: What to train.
        preset: Of the simulated GPUs.
        profile_csv: Where to leave the profile that was measured.
        throttles: As iterations begin.

    Raises:
        SimulatorError: No such preset, too many GPUs, or throttles that cannot be.
    """
    with virtual_job(simulated, preset) as job:
        script = ThrottleScript(throttles, job.machine.gpus)
        for iteration in range(simulated.num_iterations):
            script.apply_due(iteration)
            job.run_iteration()
        job.end()
        status = job.status
        if profile_csv is not None and job.planner.job.plan is not None:
            profile_csv.write_bytes(job.planner.job.plan.profile_csv)
        return Outcome(
            baseline=status.baseline,
            enforced=status.enforced,
            predicted_saving=status.predicted_saving,
            num_profiled_clocks=status.profiled_clocks,
            reason=status.reason,
            planner_restarts=0,
            clocks_left_locked=sum(not gpu.state().is_unlocked for gpu in job.machine.gpus),
            is_virtual=True,
        )
