"""A run in which GPUs were throttled on purpose, read from its report's folder: what it took, and what it saved.

Each injection begins a stretch of iterations. Nothing in here takes the run's word for what was slow and when: that is
what ``injected.jsonl`` says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.report.analysis.iterations import iterations_of
from perseus_dist.report.analysis.pipelines import FollowedSwitch, PipelineIterations, followed_switches, side_by_side
from perseus_dist.runlog.events import Injection
from perseus_dist.runlog.files import read_run
from perseus_dist.runlog.frontier_csv import FrontierPoints
from perseus_dist.simulation.errors import SimulationError

NUM_SETTLING = 8
"""Iterations at the begin of a stretch that its figures leave out: the answer is on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationWindow:
    """Iterations from one injection until the next.

    Attributes:
        injection: That it begins with; None before the first.
        first, last: Iterations that are in it, the settling ones left out.
    """

    injection: Injection | None
    first: int
    last: int

    @property
    def name(self) -> str:
        """Name of the period in a table's row."""
        if self.injection is None:
            return "before"
        cap_mhz = self.injection.thermal_cap_mhz
        return "lifted" if cap_mhz is None else f"{cap_mhz} MHz"


@dataclass(frozen=True, kw_only=True)
class ThrottledRun:
    """One run.

    Attributes:
        injections: In order; all on GPUs of one pipeline.
        slow_pipeline: That pipeline.
        pipelines: All iterations.
        events: As the planner told them.
        switches: As they were followed.
        frontier: One pipeline's plans; None in a run without.
        all_maximum_s: [s] its iteration at all-maximum clocks, by the profile.
        blocking_w: [W] of a pipeline whose GPUs all wait.
    """

    injections: tuple[Injection, ...]
    slow_pipeline: int
    pipelines: PipelineIterations
    events: tuple[JobEvent, ...]
    switches: tuple[FollowedSwitch, ...]
    frontier: FrontierPoints | None
    all_maximum_s: float
    blocking_w: float

    @classmethod
    def read(cls, folder: Path) -> "ThrottledRun":
        """Read what agents and the harness have left.

        Raises:
            OutputError: There is no ``job.json``.
            SimulationError: Nothing was injected, or into several pipelines.
        """
        run = read_run(folder)
        dp_rank_of = {rank: timeline.dp_rank for rank, timeline in run.timelines.items()}
        slow = {dp_rank_of[injection.rank] for injection in run.injections if injection.rank in dp_rank_of}
        if len(slow) != 1:
            raise SimulationError(f"{folder}: throttles were injected into {len(slow)} pipelines; expected one")
        ranks_of = {
            dp_rank: [rank for rank in sorted(dp_rank_of) if dp_rank_of[rank] == dp_rank]
            for dp_rank in sorted(set(dp_rank_of.values()))
        }
        pipelines = side_by_side({dp_rank: iterations_of(run, ranks) for dp_rank, ranks in ranks_of.items()})
        return cls(
            injections=run.injections,
            slow_pipeline=slow.pop(),
            pipelines=pipelines,
            events=tuple(kept.event for kept in run.events),
            switches=followed_switches(run.events, pipelines),
            frontier=run.frontier,
            all_maximum_s=run.job.frontier_baseline_time_s,
            blocking_w=run.job.blocking_power_w * run.job.pp_size * run.job.tp_size,
        )

    @property
    def stretches(self) -> tuple[IterationWindow, ...]:
        """Before the first injection as many iterations as settle after it; the run's last iteration is left out."""
        begins = [injection.iteration for injection in self.injections]
        ends = [*begins[1:], int(self.pipelines.number.max(initial=0))]
        before = IterationWindow(injection=None, first=begins[0] - NUM_SETTLING, last=begins[0] - 1)
        return (
            before,
            *(
                IterationWindow(injection=injection, first=injection.iteration + NUM_SETTLING, last=end - 1)
                for injection, end in zip(self.injections, ends, strict=True)
            ),
        )

    def time_s(self, stretch: IterationWindow) -> float:
        """[s] the median iteration."""
        return float(np.median(self.pipelines.time_s[self._rows(stretch)]))

    def energy_j(self, stretch: IterationWindow, *, of_slow: bool = False) -> float:
        """[J] the mean iteration of the other pipelines, or of the slow one; of one pipeline."""
        rows = self.pipelines.energy_j[self._which(of_slow)]
        return float(np.nanmean(rows[:, self._rows(stretch)]))

    def own_time_s(self, stretch: IterationWindow, *, of_slow: bool = False) -> float:
        """[s] the median of the slowest of the other pipelines, or of the slow one, until it waits for the rest."""
        rows = self.pipelines.own_time_s[self._which(of_slow)]
        return float(np.median(rows[:, self._rows(stretch)].max(axis=0)))

    def told_after(self, stretch: IterationWindow) -> int | None:
        """Iterations from the injection until the planner told of it."""
        kind = "recovered" if stretch.name == "lifted" else "verdict"
        told = (event for event in self._since(stretch) if event.kind == kind)
        event = next(told, None)
        return None if event is None else event.iteration - self._begin(stretch)

    def switched_after(self, stretch: IterationWindow) -> int | None:
        """Iterations from the injection until all ranks followed the answer: another T', or none once it is lifted."""
        is_lifted, revisions = stretch.name == "lifted", {event.switch_revision for event in self._since(stretch)}
        for switch in self.switches:
            is_answer = switch.event.switch_revision in revisions and (switch.event.t_prime_s == 0) == is_lifted
            if is_answer and switch.first_iteration is not None:
                return switch.first_iteration - self._begin(stretch)
        return None

    def waiting_j(self, time_s: float) -> tuple[float, float]:
        """[J] of one pipeline until ``time_s``: under the plan for T_min, and under the best that is no later.

        Raises:
            SimulationError: The run has no frontier.
        """
        points = self.frontier
        if points is None:
            raise SimulationError("a run without plans promises nothing")
        until_j = points.energies_j + self.blocking_w * (time_s - points.times_s)
        at_t_min = max(0, int(np.searchsorted(points.times_s, self.all_maximum_s, side="right")) - 1)
        in_time = max(at_t_min, int(np.searchsorted(points.times_s, time_s, side="right")) - 1)
        return float(until_j[at_t_min]), float(until_j[at_t_min : in_time + 1].min())

    def _which(self, is_slow: bool) -> NDArray[np.bool_]:  # noqa: FBT001 - one pipeline, or the others
        return np.asarray((np.array(self.pipelines.dp_ranks) == self.slow_pipeline) == is_slow)

    def _rows(self, stretch: IterationWindow) -> NDArray[np.bool_]:
        number = self.pipelines.number
        return np.asarray((number >= stretch.first) & (number <= stretch.last))

    def _since(self, stretch: IterationWindow) -> Sequence[JobEvent]:
        """Events of a stretch; those of the iteration before may come late."""
        begin = self._begin(stretch)
        return [event for event in self.events if begin <= event.iteration <= stretch.last]

    @staticmethod
    def _begin(stretch: IterationWindow) -> int:
        if stretch.injection is None:
            raise SimulationError("nothing was injected before the first injection")
        return stretch.injection.iteration
