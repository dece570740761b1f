"""A scenario's world in virtual time: simulated GPUs, agents' cores and the planner's life cycle, or trainers alone."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from perseus_dist.messages.from_agent import IterationReport
from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Phase
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.scenario.events import Event, NextJob, Process, ProcessEvent
from perseus_dist.simulation.chaos.scenario.scenario import SAVED, SWEEP, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.scenario.target import parse_scenario_target, target_option
from perseus_dist.simulation.chaos.world.planner_view import planner_view
from perseus_dist.simulation.chaos.world.profile_rows import profile_in_force, undisturbed_profile
from perseus_dist.simulation.chaos.world.world import Iteration, JobEnd
from perseus_dist.simulation.chaos.world.world_faults import WorldFaults
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual.lease import LEASE_NS
from perseus_dist.simulation.virtual.run import UNLOCKED_S, VirtualJob, virtual_job
from perseus_dist.simulation.virtual.training import VirtualTraining, virtual_training

DOWN = "down"
_LAST_WORDS_S = 0.001
_SWEEPING = frozenset({Phase.PROFILING, Phase.REPROFILING})


@contextmanager
def open_virtual_world(scenario: Scenario, *, with_perseus: bool) -> Iterator["VirtualWorld"]:
    """A world in which the scenario's job has not begun yet.

    Raises:
        SimulatorError: The machine cannot be built.
        ProfileError: The scenario names a profile that cannot be read.
    """
    job, noise_percent, seed = scenario.job, scenario.job.noise_percent, scenario.seed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="perseus-chaos-")))
        simulated = _simulated_job(job, scenario.iterations, folder)
        training: VirtualTraining
        if with_perseus:
            training = stack.enter_context(
                virtual_job(
                    simulated,
                    job.gpus,
                    noise_percent=noise_percent,
                    seed=seed,
                    quick_plans=True,
                    planning_s=scenario.planning_s,
                )
            )
        else:
            training = stack.enter_context(
                virtual_training(simulated, job.gpus, noise_percent=noise_percent, seed=seed)
            )
        yield VirtualWorld(scenario, simulated, training, folder)


def _simulated_job(job: ScenarioJob, iterations: int, folder: Path) -> SimulatedJob:
    simulated = SimulatedJob(
        schedule=job.make_schedule(),
        num_pipelines=job.dp,
        num_iterations=iterations,
        imbalance=job.imbalance,
        time_scale=job.time_scale,
        target=target_option(parse_scenario_target(job.target)),
        layers=job.layers_of_stages,
        tensor_parallel=job.tp,
    )
    if job.profile == SWEEP:
        return simulated
    if job.profile != SAVED:
        return replace(simulated, profile=job.profile)
    path = folder / "profile.csv"
    path.write_text(undisturbed_profile(simulated, job.gpu, job.noise_percent))
    return replace(simulated, profile=str(path))


class VirtualWorld:
    """One job after the other in virtual time."""

    def __init__(self, scenario: Scenario, simulated: SimulatedJob, training: VirtualTraining, folder: Path) -> None:
        self._scenario = scenario
        self._job = scenario.job
        self._simulated = simulated
        self._training = training
        self._folder = folder
        self._faults = WorldFaults(training)
        self._num_iterations = 0  # of this job
        self._starts: list[tuple[int, list[int]]] = [(0, [0] * self._job.num_ranks)]
        self._saved_before_j = self._doubt_before_j = 0.0  # in earlier runs of this job

    def apply(self, event: Event) -> JobEnd | None:
        """As ``World`` says."""
        if isinstance(event, NextJob):
            return self._begin_next(event)
        was_alive = self._training.is_alive
        if isinstance(event, ProcessEvent) and event.process is Process.TRAINER and not was_alive:
            self._end_run()
        self._faults.apply(event)
        if self._training.is_alive and not was_alive:  # its iterations are numbered from 0 again
            self._starts.append((self._num_iterations, [len(reports) for reports in self._reports]))
        return None

    def run_iteration(self) -> Iteration:
        """As ``World`` says."""
        training = self._training
        if not training.is_alive:
            raise ScenarioError("the trainers are dead; restart one before the next iteration")
        was_sweeping = self._is_sweeping()
        trained = training.run_iteration()
        assert trained is not None, "nothing kills trainers within an iteration"
        self._num_iterations += 1
        if not isinstance(training, VirtualJob):
            return Iteration(time_s=trained.time_s, energy_j=trained.energy_j)
        is_there = training.planner.is_alive
        return Iteration(
            time_s=trained.time_s,
            energy_j=trained.energy_j,
            phase=trained.phase if is_there else DOWN,
            is_sweep=was_sweeping or self._is_sweeping(),
            view=planner_view(training.planner.job) if is_there else None,
            locked_without_lease=training.locked_without_lease,
        )

    def end(self) -> JobEnd:
        """As ``World`` says."""
        training = self._training
        training.end()
        if not isinstance(training, VirtualJob):
            return JobEnd(followed=(), baseline=MeasuredIterations(), enforced=MeasuredIterations())
        status = training.status
        acknowledged, durable = training.planner.facts_acknowledged()
        if training.locked_after_lease:  # an agent that was stopped just before the end still has its lease
            training.wait(LEASE_NS / 1e9 + UNLOCKED_S)
        return JobEnd(
            followed=self._followed(),
            baseline=status.baseline,
            enforced=status.enforced,
            saved_j=self._saved_before_j + status.saved_j,
            saved_doubt_j=self._doubt_before_j + status.saved_doubt_j,
            profile=profile_in_force(training.planner.job, self._simulated, self._job.gpu, self._job.noise_percent),
            acknowledged=acknowledged,
            durable=durable,
            went_back=training.went_back,
            clocks_left_locked=training.locked_after_lease,
            unheeded_orders=self._faults.unheeded_orders(),
        )

    def _begin_next(self, event: NextJob) -> JobEnd:
        end = self.end()
        before, self._job = self._job, replace(self._job, **event.changes)
        self._simulated = _simulated_job(self._job, self._scenario.iterations, self._folder)
        is_other_shape = (self._job.pp, self._job.dp, self._job.tp) != (before.pp, before.dp, before.tp)
        self._training.next_job(self._simulated, self._job.gpus, has_new_gpus=is_other_shape)
        self._faults.begin_job(is_other_gpu=is_other_shape or self._job.gpu != before.gpu)
        self._num_iterations = 0
        self._starts = [(0, [0] * self._job.num_ranks)]
        self._saved_before_j = self._doubt_before_j = 0.0
        return end

    def _end_run(self) -> None:
        """The trainers are dead: what they left behind arrives, and the planner counts anew with the next ones."""
        training = self._training
        if isinstance(training, VirtualJob):
            training.wait(_LAST_WORDS_S)
            self._saved_before_j += training.status.saved_j
            self._doubt_before_j += training.status.saved_doubt_j

    @property
    def _reports(self) -> list[list[IterationReport]]:
        return self._training.reports if isinstance(self._training, VirtualJob) else []

    def _is_sweeping(self) -> bool:
        """Whether the planner waits for a sweep, and clocks are held for it."""
        training = self._training
        if not isinstance(training, VirtualJob):
            return False
        return training.planner.job.phase in _SWEEPING and training.clocks_left_locked > 0

    def _followed(self) -> tuple[bool, ...]:
        """(iterations) whether every rank followed a plan, by what it reported live since the start they belong to."""
        of_ranks: list[set[int]] = [set() for _ in self._reports]
        for rank, reports in enumerate(self._reports):
            for (first, num_before), (_, num_after) in zip(
                self._starts, [*self._starts[1:], (0, [len(reports)] * len(of_ranks))], strict=True
            ):
                mine = reports[num_before[rank] : num_after[rank]]
                of_ranks[rank] |= {
                    first + report.iteration for report in mine if report.point != NO_POINT and report.is_live
                }
        return tuple(all(number in rank for rank in of_ranks) for number in range(self._num_iterations))
