"""A whole job in virtual time: deterministic, and as exact as the model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from perseus_dist.messages import IterationReport, JobStatus, Telemetry
from perseus_dist.planner.job_policy import Policy
from perseus_dist.planner.job_status import job_status
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.moments import Moments
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.virtual_agent import VirtualAgent
from perseus_dist.simulation.virtual_planner import VirtualPlanner
from perseus_dist.simulation.virtual_training import VirtualTraining, numbers_of
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.throttle import Throttle, ThrottleScript

_LAST_WORDS_NS = 1_000_000_000


class VirtualJob(VirtualTraining):
    """A job that trains as far as it is told to, with agents and a planner.

    Attributes:
        planner: Its life cycle.
        reports: By rank, what it has told of iterations.
    """

    _with_boundaries = True

    def __init__(
        self,
        simulated: SimulatedJob,
        machine: SimulatedMachine,
        policy: Policy,
        *,
        noise_percent: float = 0.0,
        seed: int = 0,
        quick_plans: bool = False,
    ) -> None:
        """Begin.

        Args:
            simulated: As of ``VirtualTraining``.
            machine: Likewise.
            policy: The planner's.
            noise_percent: As of ``VirtualTraining``.
            seed: Likewise.
            quick_plans: Plan roughly, in a tenth of the time.
        """
        super().__init__(simulated, machine, noise_percent=noise_percent, seed=seed)
        self.planner = VirtualPlanner(simulated.job_id, policy, quick_plans=quick_plans)
        self._agents = [VirtualAgent(config.spec, gpu) for config, gpu in zip(self._configs, machine.gpus, strict=True)]
        self.reports: list[list[IterationReport]] = [[] for _ in self._agents]
        self._moments = Moments(len(self._agents) + 1)
        self._planner_number = len(self._agents)  # as an actor; agents have their ranks
        for rank, agent in enumerate(self._agents):
            agent.connect(machine.now_ns)
            self._moments.put(rank, agent.next_ns())

    @property
    def status(self) -> JobStatus:
        """As an operator would see it now."""
        return job_status(self.planner.job)

    def end(self) -> None:
        """The trainers end; what is still on its way arrives."""
        now_ns = self.machine.now_ns
        for rank, agent in enumerate(self._agents):
            agent.end(now_ns)
            self._moments.put(rank, agent.next_ns())
        until_ns = now_ns + _LAST_WORDS_NS
        while self.machine.now_ns < until_ns:
            self._pass_time(until_ns)

    @property
    def clocks_left_locked(self) -> int:
        """GPUs that are locked now."""
        return sum(not gpu.state().is_unlocked for gpu in self.machine.gpus)

    def _phase(self) -> str:
        return str(self.planner.job.phase)

    def _advance(self, until_ns: int | None) -> tuple[int, int]:
        """As ``SimulatedMachine.advance_to_mark``, with agents that see what a launch has passed a little late.

        They do when a GPU next does something, or an agent next looks at its own. What a meter reads as an iteration
        begins is then mostly clear of the clock that was asked for as the one before it ended, as it is where an
        optimizer's step lies between them.
        """
        machine = self.machine
        now_ns = machine.now_ns
        if now_ns != self._launched_ns:
            return machine.advance_to_mark(until_ns)
        looks_ns = [agent.next_look_ns(now_ns) for agent in self._agents]
        next_ns = min(time_ns for time_ns in (until_ns, machine.next_event_ns(), *looks_ns) if time_ns is not None)
        if next_ns <= now_ns:
            return now_ns, 0
        machine.advance(next_ns - now_ns)
        return machine.advance_to_mark(next_ns)

    def _pass_time(self, until_ns: int | None) -> None:
        moments, planner = self._moments, self.planner
        moments.put(self._planner_number, planner.next_ns)
        next_ns = moments.next_ns()
        if next_ns is None or (until_ns is not None and until_ns < next_ns):
            next_ns = until_ns
        now_ns, marked_gpus = self._advance(next_ns)
        due = moments.take_due(now_ns)
        due.discard(self._planner_number)
        for rank in sorted(due | numbers_of(marked_gpus)):
            passed = self._trainers[rank].passed() if marked_gpus >> rank & 1 else []
            for message in self._agents[rank].run_due(passed, now_ns):
                if isinstance(message, Telemetry):
                    self.reports[rank] += message.iterations
                planner.receive(rank, message)
            moments.put(rank, self._agents[rank].next_ns())
        if planner.next_ns <= now_ns:
            for rank, said in planner.run_due(now_ns):
                self._agents[rank].receive(said, now_ns)
                moments.put(rank, self._agents[rank].next_ns())


@contextmanager
def virtual_job(
    simulated: SimulatedJob,
    preset: str,
    policy: Policy | None = None,
    *,
    noise_percent: float = 0.0,
    seed: int = 0,
    quick_plans: bool = False,
) -> Iterator[VirtualJob]:
    """A job at its begin.

    Args:
        simulated: What to train; how many iterations, whoever drives it decides.
        preset: Of the simulated GPUs.
        policy: The planner's.
        noise_percent: As of ``VirtualTraining``.
        seed: Likewise.
        quick_plans: Plan roughly, in a tenth of the time.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    with SimulatedMachine(preset, count=simulated.num_ranks, virtual=True) as machine:
        yield VirtualJob(
            simulated,
            machine,
            policy or Policy(),
            noise_percent=noise_percent,
            seed=seed,
            quick_plans=quick_plans,
        )


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
            clocks_left_locked=job.clocks_left_locked,
            is_virtual=True,
        )
