"""Figures of each GPU of a run: energy before and under the plan, waiting, and who set its clocks."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from perseus_dist.report.analysis.iterations import Iterations, summed_up
from perseus_dist.runlog.files import RunFiles
from perseus_dist.runlog.ranks import RankTimeline
from perseus_dist.runlog.timed_iteration import TimedIteration, mean_clock_mhz


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """One rank's GPU; None where something is not known.

    Attributes:
        pp_rank, dp_rank, tp_rank: Its places; None where its timeline is missing.
        control: Who sets its clocks.
        refusal: Why its clocks are not set; empty otherwise.
        baseline_j, planned_j: [J] of an iteration, the median.
        baseline_waiting, planned_waiting: Share of an iteration without any instruction, of those that were kept.
        planned_clock_mhz: [MHz] while it computes under the plan, the mean over time.
    """

    rank: int
    pp_rank: int | None
    dp_rank: int | None
    tp_rank: int | None
    uuid: str
    name: str
    control: str
    refusal: str
    baseline_j: float | None
    planned_j: float | None
    baseline_waiting: float | None
    planned_waiting: float | None
    planned_clock_mhz: float | None

    @property
    def saving_percent(self) -> float | None:
        """Energy below its own baseline's; None without both."""
        return 100 * (1 - self.planned_j / self.baseline_j) if self.planned_j and self.baseline_j else None

    def document(self) -> dict[str, Any]:
        """The GPU as it stands in ``report.json``."""
        return {**asdict(self), "saving_percent": self.saving_percent}


def gpu_figures(run: RunFiles, iterations: Mapping[int, Iterations]) -> tuple[GpuFigures, ...]:
    """One for each rank that left anything.

    Args:
        run: The run.
        iterations: By rank.
    """
    return tuple(_figures(rank, run, iterations) for rank in sorted(iterations.keys() | run.timelines.keys()))


def _figures(rank: int, run: RunFiles, iterations: Mapping[int, Iterations]) -> GpuFigures:
    timeline, own = run.timelines.get(rank), iterations.get(rank)
    kept = timeline.iterations if timeline else ()
    free, planned = ([one for one in kept if one.is_planned is is_planned] for is_planned in (False, True))
    return GpuFigures(
        rank=rank,
        **_place(timeline),
        baseline_j=summed_up(own, own.is_baseline).energy_j or None if own else None,
        planned_j=summed_up(own, own.is_in_force).energy_j or None if own else None,
        baseline_waiting=_waiting(free),
        planned_waiting=_waiting(planned),
        planned_clock_mhz=mean_clock_mhz(planned),
    )


def _place(timeline: RankTimeline | None) -> dict[str, Any]:
    if timeline is None:
        unknown = dict.fromkeys(("pp_rank", "dp_rank", "tp_rank"))
        return {**unknown, "uuid": "", "name": "", "control": "", "refusal": ""}
    return {
        "pp_rank": timeline.pp_rank,
        "dp_rank": timeline.dp_rank,
        "tp_rank": timeline.tp_rank,
        "uuid": timeline.gpu_uuid,
        "name": timeline.gpu_name,
        "control": timeline.gpu_control,
        "refusal": timeline.gpu_refusal,
    }


def _waiting(kept: Iterable[TimedIteration]) -> float | None:
    shares = [
        1 - sum(run.end_ns - run.begin_ns for run in one.runs) / (one.end_ns - one.begin_ns)
        for one in kept
        if one.end_ns > one.begin_ns
    ]
    return min(1.0, max(0.0, fmean(shares))) if shares else None
