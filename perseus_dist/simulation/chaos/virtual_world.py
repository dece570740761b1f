"""A scenario's world made of ``VirtualJob``: simulated GPUs, agents' cores and the planner's life cycle.

It does not yet apply every kind of event; ``can_apply`` says which.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from perseus_dist.messages import NO_POINT
from perseus_dist.planner.job import Phase
from perseus_dist.planner.job_policy import Policy
from perseus_dist.planner.lifecycle_events import StragglerCleared, StragglerReported, TargetSet
from perseus_dist.simulation.chaos.errors import ScenarioError
from perseus_dist.simulation.chaos.event_fields import event_text
from perseus_dist.simulation.chaos.events import Event, HeatCap, PowerCap, SlowDown, StragglerOrder, TargetOrder
from perseus_dist.simulation.chaos.planner_view import planner_view
from perseus_dist.simulation.chaos.profile_rows import profile_rows, undisturbed_profile
from perseus_dist.simulation.chaos.scenario import SAVED, SWEEP, Scenario, ScenarioJob
from perseus_dist.simulation.chaos.target import parse_scenario_target, target_option
from perseus_dist.simulation.chaos.world import Iteration, JobEnd
from perseus_dist.simulation.job import SimulatedJob
from perseus_dist.simulation.virtual_run import VirtualJob, virtual_job
from perseus_dist.simulator.presets import find_preset

_APPLIED = (SlowDown, HeatCap, PowerCap, TargetOrder, StragglerOrder)
_SWEEPING = frozenset({Phase.PROFILING, Phase.REPROFILING})
_NEVER = 10**9


def can_apply(event: Event) -> bool:
    """Whether this world knows how to apply an event."""
    return isinstance(event, _APPLIED)


@contextmanager
def open_virtual_world(scenario: Scenario, *, with_perseus: bool) -> Iterator["VirtualWorld"]:
    """A world in which the scenario's job has not begun yet.

    Raises:
        ScenarioError: It has events that ``can_apply`` does not know.
        SimulatorError: The machine cannot be built.
        ProfileError: The scenario names a profile that cannot be read.
    """
    for event in scenario.events:
        if not can_apply(event):
            raise _refusal(event)
    job = scenario.job
    with TemporaryDirectory(prefix="perseus-chaos-") as folder:
        simulated = _simulated_job(job, scenario.iterations, Path(folder))
        # Without Perseus the baseline never ends, so that no clock is ever set.
        policy = Policy() if with_perseus else Policy(num_baseline_iterations=_NEVER)
        with virtual_job(simulated, job.gpu, policy) as running:
            yield VirtualWorld(scenario, simulated, running, with_perseus=with_perseus)


def _simulated_job(job: ScenarioJob, iterations: int, folder: Path) -> SimulatedJob:
    profile: str | None = job.profile
    if job.profile == SAVED:
        path = folder / "profile.csv"
        path.write_text(undisturbed_profile(job))
        profile = str(path)
    return SimulatedJob(
        schedule=job.make_schedule(),
        num_pipelines=job.dp,
        num_iterations=iterations,
        imbalance=job.imbalance,
        time_scale=job.time_scale,
        target=target_option(parse_scenario_target(job.target)),
        profile=None if job.profile == SWEEP else profile,
    )


class VirtualWorld:
    """One job in virtual time."""

    def __init__(self, scenario: Scenario, simulated: SimulatedJob, running: VirtualJob, *, with_perseus: bool) -> None:
        self._job = scenario.job
        self._simulated = simulated
        self._running = running
        self._with_perseus = with_perseus
        self._rng = random.Random(scenario.seed)
        self._slowdowns = [1.0] * scenario.job.num_ranks
        self._num_iterations = 0
        self._energy_j = self._total_energy_j()
        self._reports: set[int] = set()

    def apply(self, event: Event) -> JobEnd | None:
        """As ``World`` says."""
        gpus = self._running.machine.gpus
        match event:
            case SlowDown():
                for rank in event.ranks(len(gpus)):
                    self._slowdowns[rank] = event.slowdown
                    self._running.slow_down(rank, event.slowdown)
            case HeatCap():
                for rank in event.ranks(len(gpus)):
                    gpus[rank].set_thermal_cap(event.thermal_cap_mhz)
            case PowerCap():
                default_w = find_preset(self._job.gpu).power_limits_w[1]
                for rank in event.ranks(len(gpus)):
                    gpus[rank].set_power_limit_w(event.power_limit_w or default_w)
            case TargetOrder():
                self._running.planner.tell(TargetSet(target=parse_scenario_target(event.target)))
            case StragglerOrder():
                self._report_straggler(event)
            case _:
                raise _refusal(event)
        return None

    def run_iteration(self) -> Iteration:
        """As ``World`` says."""
        running = self._running
        self._add_noise()
        begin_ns, was_sweeping = running.machine.now_ns, self._is_sweeping()
        running.run_iteration()
        self._num_iterations += 1
        energy_before_j, self._energy_j = self._energy_j, self._total_energy_j()
        view = planner_view(running.planner.job) if self._with_perseus else None
        return Iteration(
            time_s=(running.machine.now_ns - begin_ns) / 1e9,
            energy_j=self._energy_j - energy_before_j,
            phase=running.planner.job.phase if self._with_perseus else "",
            is_sweep=was_sweeping or self._is_sweeping(),
            view=view,
        )

    def end(self) -> JobEnd:
        """As ``World`` says."""
        running = self._running
        running.end()
        status, plan = running.status, running.planner.job.plan
        return JobEnd(
            followed=self._followed(),
            baseline=status.baseline,
            enforced=status.enforced,
            saved_j=status.saved_j,
            profile=profile_rows(plan.profile_csv, self._simulated, self._job.gpu) if plan else (),
            clocks_left_locked=sum(not gpu.state().is_unlocked for gpu in running.machine.gpus),
        )

    def _report_straggler(self, event: StragglerOrder) -> None:
        tell = self._running.planner.tell
        if event.pipeline is not None and event.degree is not None:
            self._reports.add(event.pipeline)
            tell(
                StragglerReported(straggler_id=_report_id(event.pipeline), degree=event.degree, dp_rank=event.pipeline)
            )
            return
        over = self._reports if event.pipeline is None else self._reports & {event.pipeline}
        for pipeline in sorted(over):
            tell(StragglerCleared(straggler_id=_report_id(pipeline)))
        self._reports = self._reports - over

    def _add_noise(self) -> None:
        """A rank's instructions of an iteration are all off by one factor: as much as the mean of theirs would be."""
        if not self._job.noise_percent:
            return
        num_runs = 2 * self._job.microbatches * self._job.chunks
        deviation = self._job.noise_percent / 100 / num_runs**0.5
        for rank, slowdown in enumerate(self._slowdowns):
            self._running.slow_down(rank, slowdown * max(0.5, self._rng.gauss(1.0, deviation)))

    def _is_sweeping(self) -> bool:
        """Whether the planner waits for a sweep, and clocks are held for it."""
        is_phase = self._with_perseus and self._running.planner.job.phase in _SWEEPING
        return is_phase and any(not gpu.state().is_unlocked for gpu in self._running.machine.gpus)

    def _followed(self) -> tuple[bool, ...]:
        ranks = [
            {report.iteration for report in reports if report.point != NO_POINT} for reports in self._running.reports
        ]
        return tuple(all(number in rank for rank in ranks) for number in range(self._num_iterations))

    def _total_energy_j(self) -> float:
        return sum(gpu.state().true_energy_j for gpu in self._running.machine.gpus)


def _refusal(event: Event) -> ScenarioError:
    return ScenarioError(
        f"event {event_text(event)}: the simulator does not apply events of this kind yet; leave it out"
    )


def _report_id(pipeline: int) -> str:
    return f"pipeline-{pipeline}"
