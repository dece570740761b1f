"""Training in virtual time, without Perseus: trainers on simulated GPUs, what disturbs them, what iterations take."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perseus_dist.simulation.errors import SimulationError
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.trainers.trainer_config import TrainerConfig
from perseus_dist.simulation.virtual.trainer import VirtualTrainer
from perseus_dist.simulator.machine import SimulatedMachine
from perseus_dist.simulator.presets import find_presets

NAMED_PLANNER = "planner:50051"
"""The planner's address as agents have it: a named planner outlives the job."""

Pause = tuple[float, Callable[[], object]]
"""(seconds from the begin of an iteration, what happens then)."""

_MAX_STEPS_AT_A_MOMENT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualIteration:
    """One iteration of the whole job, as it truly was.

    Attributes:
        time_s: [s] from its launch until every rank had ended it.
        energy_j: [J] that all GPUs drew meanwhile.
        phase: Of the job's life cycle at its end; empty without Perseus.
    """

    time_s: float
    energy_j: float
    phase: str = ""


class VirtualTraining:
    """Trainers alone: what a job takes without Perseus.

    Attributes:
        machine: Its GPUs.
        iterations: All that have ended.
        is_alive: The trainers' processes are there.
    """

    _with_boundaries = False
    _configs: tuple[TrainerConfig, ...]
    _trainers: list[VirtualTrainer]
    _noise: list[random.Random]

    def __init__(
        self, simulated: SimulatedJob, machine: SimulatedMachine, *, noise_percent: float = 0.0, seed: int = 0
    ) -> None:
        """Begin.

        Args:
            simulated: What to train; how many iterations, its driver decides.
            machine: In virtual time, with a GPU for each rank.
            noise_percent: Standard deviation of the factor, log-normal with mean 1, on each computation's time.
            seed: Of the noise: the same job with the same seed repeats.
        """
        self.machine = machine
        self.iterations: list[VirtualIteration] = []
        self.is_alive = True
        self._seed = seed
        self._noise_sigma = noise_percent / 100
        self._num_begun = 0
        self._num_jobs = 0
        self._launched_ns = -1
        self._at_work: list[VirtualTrainer] = []
        self._begin_job(simulated)

    def run_iteration(self, *pauses: Pause) -> VirtualIteration | None:
        """Train one.

        Args:
            pauses: Ascending; those that lie behind the iteration's end do not happen.

        Returns:
            What it took; None where the trainers died in it.

        Raises:
            SimulationError: There are no trainers, they wait for each other for ever, or time stands still.
        """
        if not self.is_alive:
            raise SimulationError("the trainers are dead; restart_trainers() or next_job() first")
        begin_ns, begin_j = self.machine.now_ns, self.machine.true_energy_j
        for trainer, noise in zip(self._trainers, self._noise, strict=True):
            trainer.launch(self._num_begun, self._factors(noise, trainer.num_kernels))
        self._num_begun += 1
        self._launched_ns = begin_ns
        self._at_work = list(self._trainers)
        waiting = list(pauses)
        before_ns, num_steps = begin_ns, 0
        while self._is_training():
            due_ns = begin_ns + round(waiting[0][0] * 1e9) if waiting else None
            now_ns = self._pass_time(due_ns)
            num_steps = num_steps + 1 if now_ns == before_ns else 0
            if num_steps > _MAX_STEPS_AT_A_MOMENT:
                raise SimulationError(f"virtual time stands still at {now_ns} ns: an actor is due and does nothing")
            before_ns = now_ns
            if due_ns is not None and now_ns >= due_ns:
                waiting.pop(0)[1]()
        if not self.is_alive:
            return None
        iteration = VirtualIteration(
            time_s=(self.machine.now_ns - begin_ns) / 1e9,
            energy_j=self.machine.true_energy_j - begin_j,
            phase=self._phase(),
        )
        self.iterations.append(iteration)
        return iteration

    def slow_down(self, rank: int, slowness: float) -> None:
        """From the next iteration on a rank's computations take so many times the usual; 1 ends it."""
        self._trainers[rank].slow_down(slowness)

    def set_transfer_s(self, rank: int, transfer_s: float) -> None:
        """From the next iteration on each result that a rank sends takes so long [s] to arrive; 0 ends it."""
        self._trainers[rank].set_transfer_s(transfer_s)

    def set_optimizer_s(self, optimizer_s: float) -> None:
        """From the next iteration on the optimizer step takes so long [s] on all ranks, at every clock; 0 ends it."""
        for trainer in self._trainers:
            trainer.set_optimizer_s(optimizer_s)

    def set_noise_percent(self, noise_percent: float) -> None:
        """From the next iteration on computations' times vary by so much, as of the constructor; 0 ends it."""
        self._noise_sigma = noise_percent / 100

    def set_thermal_cap_mhz(self, rank: int, cap_mhz: int | None) -> None:
        """A rank's GPU overheats: no clock above this one [MHz], at once. None: it has cooled down."""
        self.machine.gpu(rank).set_thermal_cap(cap_mhz)

    def set_power_limit_w(self, rank: int, limit_w: float | None) -> None:
        """A rank's GPU may draw no more than this [W], at once; None for its default."""
        default_w = self.machine.presets[rank].power_limits_w[1]
        self.machine.gpu(rank).set_power_limit_w(default_w if limit_w is None else limit_w)

    def wait(self, duration_s: float) -> None:
        """Let time pass [s] without an iteration, as between jobs."""
        until_ns = self.machine.now_ns + round(duration_s * 1e9)
        while self.machine.now_ns < until_ns:
            self._pass_time(until_ns)

    def kill_trainers(self) -> None:
        """One rank's trainer dies, and its launcher ends the others; what is on the streams ends with them."""
        self.is_alive = False
        self.machine.drop_work()
        for trainer in self._trainers:
            trainer.drop()

    def restart_trainers(self) -> None:
        """The same job is started again, under its name; its trainers number iterations from 0."""
        if not self.is_alive:
            self.is_alive = True
            self._num_begun = 0
            for trainer in self._trainers:
                trainer.drop()

    def next_job(self, simulated: SimulatedJob, preset: str | None = None, *, has_new_gpus: bool = False) -> None:
        """The job ends, and another one is started; virtual time goes on.

        Args:
            simulated: What to train now.
            preset: GPUs to train on, as ``SimulatedMachine`` takes it; None for the same. Where they are others, or
                more, or fewer, they are new ones: nothing is wrong with them.
            has_new_gpus: Whether they are new ones all the same.

        Raises:
            SimulatorError: No such preset, or too many GPUs.
        """
        self.end()
        count = simulated.num_ranks
        is_other = preset is not None and find_presets(preset, count) != self.machine.presets
        if is_other or count != len(self.machine.gpus) or has_new_gpus:
            now_ns = self.machine.now_ns
            self.machine.close()
            self.machine = SimulatedMachine(preset or self.machine.preset, count=count, virtual=True)
            self.machine.advance(now_ns - self.machine.now_ns)
        self.machine.drop_work()
        self.is_alive = True
        self._begin_job(simulated)

    def end(self) -> None:
        """The job is over."""
        self.is_alive = False

    def _begin_job(self, simulated: SimulatedJob) -> None:
        uuids = tuple(gpu.uuid for gpu in self.machine.gpus)
        self._configs = simulated.trainers(uuids, planner=NAMED_PLANNER)
        self._trainers = [
            VirtualTrainer(config, gpu.stream, with_boundaries=self._with_boundaries)
            for config, gpu in zip(self._configs, self.machine.gpus, strict=True)
        ]
        # The same with and without Perseus, and whatever came before.
        self._noise = [random.Random(f"{self._seed}/{self._num_jobs}/{rank}") for rank in range(len(self._configs))]
        self._num_begun = 0
        self._num_jobs += 1

    def _factors(self, noise: random.Random, num_kernels: int) -> list[float] | None:
        sigma = self._noise_sigma
        return [noise.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(num_kernels)] if sigma else None

    def _is_training(self) -> bool:
        """Whether the device of some rank is still at what was launched; no rank begins again by itself."""
        at_work = self._at_work
        while at_work and not at_work[-1].is_training:
            at_work.pop()
        return bool(at_work)

    def _phase(self) -> str:
        return ""

    def _pass_time(self, until_ns: int | None) -> int:
        """To the next moment at which an actor has something to do, and let it act; [ns] that moment."""
        now_ns, marked_gpus = self.machine.advance_to_mark(until_ns)
        if not marked_gpus and until_ns is None:
            raise SimulationError("the trainers wait for each other for ever; is the schedule complete?")
        for rank in numbers_of(marked_gpus):
            self._trainers[rank].drop_passed()
        return now_ns


def numbers_of(mask: int) -> list[int]:
    """Of the bits that are set, ascending."""
    numbers = []
    while mask:
        lowest = mask & -mask
        numbers.append(lowest.bit_length() - 1)
        mask ^= lowest
    return numbers


@contextmanager
def virtual_training(
    simulated: SimulatedJob, preset: str, *, noise_percent: float = 0.0, seed: int = 0
) -> Iterator[VirtualTraining]:
    """A job without Perseus, at its begin; arguments as of ``virtual_job``.

    Raises:
        SimulatorError: No such preset, or too many GPUs.
    """
    machine = SimulatedMachine(preset, count=simulated.num_ranks, virtual=True)
    training = VirtualTraining(simulated, machine, noise_percent=noise_percent, seed=seed)
    try:
        yield training
    finally:
        training.machine.close()
