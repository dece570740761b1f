"""A scenario: one job, and everything that happens to it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from perseus_dist.planning.schedule.named import make_schedule
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob
from perseus_dist.simulation.job import as_simulated
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S
from perseus_dist.simulator.gpu_preset import GpuPreset
from perseus_dist.simulator.presets import find_presets

SWEEP, SAVED = "sweep", "saved"
"""Where the profile comes from: the job's own sweep, or measured beforehand on the undisturbed machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioJob:
    """The trained job and its GPUs.

    Attributes:
        schedule: One of ``SCHEDULE_NAMES``.
        chunks: Model chunks on each rank; 1 but for the interleaved schedule.
        pp, dp, tp: Sizes of the pipeline-, data- and tensor-parallel groups.
        gpu: The preset of all GPUs, or (pp), with commas between, that of each rank of a pipeline.
        imbalance: By how much the last stage is heavier than the first, as a share.
        layers: Of the model, split as evenly as stages allow, the first ones taking one more; the last stage's head is
            what ``imbalance`` says then. 0: stages are whole ones, as of ``SimulatedJob``.
        time_scale: Instructions take so many times the simulator's usual, which is a forward of 50 ms.
        noise_percent: Standard deviation of an instruction's time.
        profile: ``SWEEP``, ``SAVED``, or the path of a CSV.
        target: As ``parse_scenario_target`` reads it.
    """

    schedule: str
    pp: int
    microbatches: int
    chunks: int = 1
    dp: int = 1
    tp: int = 1
    gpu: str = "a100"
    imbalance: float = 0.1
    time_scale: float = 1.0
    noise_percent: float = 0.0
    profile: str = SWEEP
    target: str = "t_min"
    layers: int = 0

    @property
    def num_ranks(self) -> int:
        """GPUs of the whole job."""
        return self.pp * self.dp * self.tp

    @property
    def gpus(self) -> str:
        """The presets as a simulated machine of all ranks takes them."""
        if "," not in self.gpu:
            return self.gpu
        return ",".join([name for name in self.gpu.split(",") for _ in range(self.tp)] * self.dp)

    def presets_of(self, ranks: Iterable[int]) -> tuple[GpuPreset, ...]:
        """Each preset that some of the ranks have, once.

        Raises:
            SimulatorError: There is no such preset, or there are neither one nor ``pp`` names.
        """
        of_pipeline = find_presets(self.gpu, self.pp)
        return tuple(dict.fromkeys(of_pipeline[self.pp_rank_of(rank)] for rank in ranks))

    def pp_rank_of(self, rank: int) -> int:
        """The pp_rank of a global rank."""
        return rank % self.ranks_per_pipeline // self.tp

    def group_of(self, dp_rank: int, pp_rank: int) -> range:
        """The global ranks of a tensor-parallel group."""
        first = dp_rank * self.ranks_per_pipeline + pp_rank * self.tp
        return range(first, first + self.tp)

    @property
    def ranks_per_pipeline(self) -> int:
        """GPUs of one data-parallel replica."""
        return self.pp * self.tp

    @property
    def num_stages(self) -> int:
        """Number of model stages of a pipeline: ranks times the model chunks of each."""
        return self.pp * (2 if self.schedule == "dualpipev" else self.chunks)

    @property
    def layers_of_stages(self) -> tuple[int, ...]:
        """Of each stage; empty where the model's are not known."""
        each, more = divmod(self.layers, self.num_stages)
        return tuple(each + (stage < more) for stage in range(self.num_stages)) if self.layers else ()

    def make_schedule(self) -> Schedule:
        """The schedule itself, as simulated ranks run it.

        Raises:
            ScheduleError: None of this name has these sizes.
        """
        return as_simulated(
            make_schedule(self.schedule, pp=self.pp, microbatches=self.microbatches, chunks=self.chunks), is_named=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job and its history.

    Attributes:
        job: The one that it begins with.
        iterations: To train in all; numbering goes on across restarts and jobs.
        seed: Of all noise.
        planning_s: [s] that the planner takes for a plan; a whole frontier behind a first plan takes a minute.
        events: Ascending in iteration.
    """

    job: ScenarioJob
    iterations: int
    seed: int = 0
    planning_s: float = USUAL_PLANNING_S
    events: tuple[Event, ...] = ()

    def jobs(self) -> tuple[tuple[int, ScenarioJob], ...]:
        """(first iteration, job) of every job of the name, in order."""
        jobs = [(0, self.job)]
        for event in self.events:
            if isinstance(event, NextJob):
                jobs.append((event.iteration, replace(jobs[-1][1], **event.changes)))
        return tuple(jobs)

    def job_at(self, iteration: int) -> ScenarioJob:
        """The job that trains an iteration."""
        return [job for first, job in self.jobs() if first <= iteration][-1]
