"""A whole job in virtual time: deterministic, and as exact as the model."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.job_status import JobStatus
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.lifecycle.status.job_status import job_status
from perseus_dist.planning.schedule.granularity import Granularity
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.outcome import Outcome
from perseus_dist.simulation.virtual.agent import VirtualAgent
from perseus_dist.simulation.virtual.faults import VirtualFaults
from perseus_dist.simulation.virtual.link import VirtualLink
from perseus_dist.simulation.virtual.moments import Moments
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S, VirtualPlanner
from perseus_dist.simulation.virtual.rank import VirtualRank
from perseus_dist.simulation.virtual.training import VirtualTraining, numbers_of
from perseus_dist.simulator.gpu_preset import Timing
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.throttle import Throttle, ThrottleScript

_LAST_WORDS_S = 1.0
UNLOCKED_S = 0.2
"""[s] after which a GPU whose lease is over must be unlocked: the call's latency, ten times."""


class VirtualJob(VirtualTraining):
    """A job that trains as far as its driver lets it, with agents and a planner.

    Attributes:
        planner: Its life cycle.
        faults: What can happen to agents, leases, planner and the network between them.
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
        planning_s: float = USUAL_PLANNING_S,
    ) -> None:
        """Begin.

        Args:
            simulated: As of ``VirtualTraining``.
            machine: Likewise.
            policy: The planner's.
            noise_percent: As of ``VirtualTraining``.
            seed: Likewise.
            quick_plans: Plan roughly, in a tenth of the time.
            planning_s: [s] that planning takes.
        """
        self.planner = VirtualPlanner(simulated.job_id, policy, quick_plans=quick_plans, planning_s=planning_s)
        self._streams = count()
        self._incarnations = count(1)
        self._runs = count(1)
        super().__init__(simulated, machine, noise_percent=noise_percent, seed=seed)

    @property
    def status(self) -> JobStatus:
        """As an operator would see it now."""
        return job_status(self.planner.job)

    @property
    def reports(self) -> list[list[IterationReport]]:
        """By rank, what the planner has heard of iterations of this job."""
        return [rank.reports for rank in self._ranks]

    @property
    def clocks_left_locked(self) -> int:
        """GPUs that are locked now."""
        return sum(not gpu.state().is_unlocked for gpu in self.machine.gpus)

    @property
    def locked_without_lease(self) -> int:
        """GPUs that are locked although their lease has been over for longer than unlocking takes, however it ended."""
        now_ns = self.machine.now_ns
        ranks = zip(self._ranks, self.machine.gpus, strict=True)
        return sum(rank.unleased_s(now_ns) > UNLOCKED_S and not gpu.state().is_unlocked for rank, gpu in ranks)

    @property
    def locked_after_lease(self) -> int:
        """GPUs that would stay locked if the job ended now: those that are, unless their lease's holder is stopped."""
        ranks = zip(self._ranks, self.machine.gpus, strict=True)
        return sum(not (rank.is_lease_stopped or gpu.state().is_unlocked) for rank, gpu in ranks)

    @property
    def went_back(self) -> tuple[str, ...]:
        """A sentence for each revision of a table or switch that an agent held and then held a lower one."""
        return tuple(sentence for rank in self._ranks for sentence in rank.went_back)

    def end(self) -> None:
        """The trainers end; what is still on its way arrives."""
        if self.is_alive:
            now_ns = self.machine.now_ns
            for rank in self._ranks:
                rank.end_training("finished", now_ns)
            super().end()
            self.touched()
            self.wait(_LAST_WORDS_S)

    def kill_trainers(self) -> None:
        """As without Perseus; agents end with their trainers."""
        super().kill_trainers()
        self._end_agents("the trainer's process has ended")

    def restart_trainers(self) -> None:
        """As without Perseus; each trainer has an agent of its own."""
        if not self.is_alive:
            super().restart_trainers()
            self._start_agents()

    def touched(self) -> None:
        """Something was done to ranks or planner from outside: everybody looks again when something is due."""
        for number, rank in enumerate(self._ranks):
            self._moments.put(number, rank.next_ns())

    def _begin_job(self, simulated: SimulatedJob) -> None:
        if self._num_jobs:
            self._end_agents("finished")
        super()._begin_job(simulated)
        self._ranks = [
            VirtualRank(config.spec, gpu, self._new_link(config.spec.rank), VirtualAgent)
            for config, gpu in zip(self._configs, self.machine.gpus, strict=True)
        ]
        self._moments = Moments(len(self._ranks) + 1)
        self._planner_number = len(self._ranks)  # as an actor; agents have their ranks
        self._rank_of_stream: dict[int, int] = {}
        self.faults = VirtualFaults(self, self._ranks, self.planner, self._incarnations)
        self._start_agents()

    def _new_link(self, rank: int) -> VirtualLink:
        def new_stream() -> int:
            stream = next(self._streams)
            self._rank_of_stream[stream] = rank
            return stream

        name = f"{self._seed}/{self._num_jobs}"
        noise, chance = (random.Random(f"{name}/{of}/{rank}") for of in ("link", "messages"))
        return VirtualLink(new_stream, noise, chance)

    def _start_agents(self) -> None:
        run_id = f"run {next(self._runs)}"
        for rank in self._ranks:
            rank.begin_run(run_id)
            rank.start_agent(self.machine.now_ns, next(self._incarnations), is_planner_there=self.planner.is_alive)
        self.touched()

    def _end_agents(self, reason: str) -> None:
        for rank in self._ranks:
            for event in rank.leave(reason, self.machine.now_ns):
                self.planner.tell(event)
        self.touched()

    def _phase(self) -> str:
        return str(self.planner.job.phase)

    def _advance(self, until_ns: int | None) -> tuple[int, int]:
        """As ``SimulatedMachine.advance_to_mark``, with agents that see what a launch has passed a little late.

        They do when a GPU next does something, or an agent next looks at its own. What a meter reads as an iteration
        begins is then mostly clear of the clock that was asked for as the one before it ended, as it is where an
        optimizer's step lies between them.
        """
        machine = self.machine
        if self._launched_ns < 0:
            return machine.advance_to_mark(until_ns)
        now_ns = machine.now_ns
        if now_ns != self._launched_ns:
            self._launched_ns = -1
            return machine.advance_to_mark(until_ns)
        looks_ns = [rank.next_look_ns(now_ns) for rank in self._ranks]
        next_ns = min(time_ns for time_ns in (until_ns, machine.next_event_ns(), *looks_ns) if time_ns is not None)
        if next_ns <= now_ns:
            return now_ns, 0
        machine.advance(next_ns - now_ns)
        return machine.advance_to_mark(next_ns)

    def _pass_time(self, until_ns: int | None) -> int:
        moments, planner, trainers, ranks = self._moments, self.planner, self._trainers, self._ranks
        moments.put(self._planner_number, planner.next_ns)
        next_ns = moments.next_ns()
        if next_ns is None or (until_ns is not None and until_ns < next_ns):
            next_ns = until_ns
        now_ns, marked_gpus = self._advance(next_ns)
        due = moments.take_due(now_ns) & ~(1 << self._planner_number)
        for number in numbers_of(due | marked_gpus):
            passed = trainers[number].passed() if marked_gpus >> number & 1 else []
            rank = ranks[number]
            for event in rank.run_due(passed, now_ns):
                planner.tell(event)
            moments.put(number, rank.next_ns())
        if planner.next_ns <= now_ns:
            for stream, said in planner.run_due(now_ns):
                number = self._rank_of_stream[stream]
                rank = self._ranks[number]
                for event in rank.hear(stream, said, now_ns):
                    planner.tell(event)
                moments.put(number, rank.next_ns())
        return now_ns


@contextmanager
def virtual_job(
    simulated: SimulatedJob,
    preset: str,
    policy: Policy | None = None,
    *,
    noise_percent: float = 0.0,
    seed: int = 0,
    quick_plans: bool = False,
    planning_s: float = USUAL_PLANNING_S,
    timing: Timing | None = None,
) -> Iterator[VirtualJob]:
    """A job at its begin.

    Args:
        simulated: What to train; how many iterations, its driver decides.
        preset: Of the simulated GPUs.
        policy: The planner's.
        noise_percent: As of ``VirtualTraining``.
        seed: Likewise.
        quick_plans: Plan roughly, in a tenth of the time.
        planning_s: [s] that planning takes.
        timing: Of the GPUs, instead of the preset's.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    job = VirtualJob(
        simulated,
        SimulatedMachine(preset, count=simulated.num_ranks, virtual=True, timing=timing),
        policy or Policy(),
        noise_percent=noise_percent,
        seed=seed,
        quick_plans=quick_plans,
        planning_s=planning_s,
    )
    try:
        yield job
    finally:
        job.machine.close()


def run_virtual(
    simulated: SimulatedJob,
    preset: str,
    *,
    profile_csv: Path | None = None,
    throttles: Sequence[Throttle] = (),
    timing: Timing | None = None,
) -> Outcome:
    """Train the job.

    One whose instructions cannot be seen is first trained where they can be, until its profile has been measured.

    Args:
        simulated: What to train.
        preset: Of the simulated GPUs.
        profile_csv: Where to leave the profile that was measured.
        throttles: As iterations begin.
        timing: Of the GPUs, instead of the preset's.

    Raises:
        SimulatorError: No such preset, too many GPUs, or throttles that cannot be.
    """
    seen = replace(simulated, granularity=Granularity.INSTRUCTION)
    with virtual_job(seen, preset, timing=timing) as job:
        if simulated != seen:
            while job.planner.job.plan is None and len(job.iterations) < simulated.num_iterations:
                job.run_iteration()
            job.next_job(simulated)
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
            predicted_saving_low=status.predicted_saving_low,
            predicted_saving_high=status.predicted_saving_high,
            num_profiled_clocks=status.profiled_clocks,
            reason=status.reason,
            troubles=status.troubles,
            planner_restarts=0,
            clocks_left_locked=job.clocks_left_locked,
            is_virtual=True,
        )
