"""The pictures of a run: the frontier with what was measured on it, measured timelines, and all iterations."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from perseus_dist.report.analysis.figures import RunReport
from perseus_dist.report.analysis.iterations import Iterations, summed_up
from perseus_dist.report.analysis.measured_execution import PlacedIteration, execution_of
from perseus_dist.report.plots.formatting import energy_text, time_text
from perseus_dist.report.plots.frontier_plot import MarkedPoint, plot_frontier
from perseus_dist.report.plots.iterations_plot import plot_iterations
from perseus_dist.report.plots.straggler_plot import plot_stragglers
from perseus_dist.report.plots.theme import figure_bytes
from perseus_dist.report.plots.timeline_plot import plot_timeline
from perseus_dist.runlog.job import JobRecord

_NEAR = 0.03  # nearer than that, two points' labels get into each other's way


def run_pictures(report: RunReport) -> Mapping[str, bytes]:
    """All pictures that there is something to draw for, by name, as SVG files."""
    figures = {
        "frontier": _frontier(report),
        "timeline": _timeline(report),
        "iterations": _iterations(report),
        "stragglers": _stragglers(report),
    }
    return {name: figure_bytes(figure) for name, figure in figures.items() if figure is not None}


def _frontier(report: RunReport) -> Figure | None:
    """One pipeline's frontier, as predicted; the measured baseline and plan of every pipeline as diamonds."""
    frontier, job = report.run.frontier, report.job
    if frontier is None:
        return None
    measured = _measured(report)
    all_max = MarkedPoint(
        name="all-max, predicted",
        time_s=job.frontier_baseline_time_s,
        energy_j=job.frontier_baseline_energy_j,
        is_quiet=any(_told_there(job, point) for point in measured),
    )
    followed = [
        one
        for one in job.pipelines
        # A pipeline with a slow rank may follow a plan of its own, which is not on this frontier.
        if one.planned_time_s > 0 and one.planned_energy_j > 0 and one.table_revision == job.table_revision
    ]
    plan = MarkedPoint(
        name="plan, predicted",
        time_s=followed[0].planned_time_s if followed else 0.0,
        energy_j=followed[0].planned_energy_j if followed else 0.0,
    )
    return plot_frontier(
        times_s=frontier.times_s,
        energies_j=frontier.energies_j,
        bounds_j=frontier.bounds_j,
        baselines=[all_max] if report.predicted_baseline else [],
        chosen=plan if followed else None,
        t_min_s=job.frontier_baseline_time_s or None,
        t_star_s=job.t_star_s or float(frontier.times_s[np.argmin(frontier.energies_j)]),
        measured=measured,
        title=_headline(report),
    )


def _timeline(report: RunReport) -> Figure | None:
    """A baseline iteration above one under the plan, both as they ran; of the first pipeline that kept any."""
    dag = report.kept.dag
    if dag is None:
        return None
    for dp_rank, kept in report.kept.iterations.items():
        measured = report.pipelines.get(dp_rank)
        if measured is None:
            continue
        free, planned = ([one for one in kept if one[0].kept.is_planned == is_planned] for is_planned in (False, True))
        chosen = (
            ("baseline", _typical(free, measured, measured.is_baseline)),
            ("under the plan", _typical(planned, measured, measured.is_in_force)),
        )
        executions = [
            (f"{name}, iteration {ranks[0].kept.iteration}", execution_of(dag, ranks, measured))
            for name, ranks in chosen
            if ranks is not None
        ]
        if executions:
            job = report.job
            which = f"pipeline {dp_rank} of {job.dp_size}" if job.dp_size > 1 else "the pipeline"
            return plot_timeline(executions, title=f"{which} as it was measured on {_gpus(report)}")
    return None


def _iterations(report: RunReport) -> Figure | None:
    if not len(report.iterations.number):
        return None
    title = f"every iteration of {report.job.job_id}, measured on {_gpus(report)}"
    return plot_iterations(report.iterations, baseline=report.baseline, title=title)


def _stragglers(report: RunReport) -> Figure | None:
    figures = report.stragglers
    if figures is None or not len(figures.pipelines.number):
        return None
    title = f"stragglers of {report.job.job_id}, measured on {_gpus(report)}"
    return plot_stragglers(figures, target_time_s=_target_time_s(report), title=title)


def _target_time_s(report: RunReport) -> float:
    """[s] that the frontier promises for the plan that all pipelines followed while none straggled; 0 if unknown."""
    frontier, figures = report.run.frontier, report.stragglers
    usual = [one.event.points for one in figures.switches if not one.event.t_prime_s] if figures else []
    num = len(frontier.times_s) if frontier is not None else 0
    points = [point for point in usual[-1] if 0 <= point < num] if usual else []
    if frontier is None or not points:
        return 0.0
    return float(frontier.times_s[min(points)])


def _gpus(report: RunReport) -> str:
    simulated = "simulated " if report.job.is_simulated else ""
    return f"{report.job.num_ranks} {simulated}GPUs ({report.gpu_name})"


def _headline(report: RunReport) -> str:
    """The result in a line; saving and slowdown together."""
    saving, slowdown = report.saving_percent, report.slowdown_percent
    if saving is None or slowdown is None:
        return f"{report.job.job_id}: no plan was measured"
    predicted = report.predicted_saving_percent
    told = "" if predicted is None else f" (predicted {predicted:z.1f} %)"
    headline = (
        f"{report.job.job_id}: measured saving {saving:z.1f} %{told}, slowdown {slowdown:z.2f} %, on {_gpus(report)}"
    )
    num_pipelines = report.job.dp_size
    return headline + (f"; below, one of its {num_pipelines} pipelines" if num_pipelines > 1 else "")


def _measured(report: RunReport) -> list[MarkedPoint]:
    """Baseline and plan of every pipeline whose energy is known; the one in the middle carries the name for all."""
    num = report.job.dp_size
    if num == 1:
        pairs = [(0, report.baseline, report.planned)]
    else:
        pairs = [
            (d, summed_up(of, of.is_baseline), summed_up(of, of.is_in_force)) for d, of in report.pipelines.items()
        ]
    pairs.sort(key=lambda pair: pair[2].energy_j)
    points = []
    for place, (dp_rank, *both) in enumerate(pairs):
        whose = f", pipeline {dp_rank} of {num}" if num > 1 else ""
        is_quiet = place != len(pairs) // 2
        against = None
        for name, one in zip(("measured baseline", "measured under the plan"), both, strict=True):
            if one.energy_j > 0 and one.time_s > 0:
                point = MarkedPoint(
                    name=name + whose, time_s=one.time_s, energy_j=one.energy_j, against=against, is_quiet=is_quiet
                )
                if _told_there(report.job, point):
                    told = f"{time_text(report.job.frontier_baseline_time_s)}"
                    told += f", {energy_text(report.job.frontier_baseline_energy_j)}"
                    point = replace(point, name=f"all-max, predicted: {told}\n{point.name}")
                points.append(point)
                against = point
    return points


def _told_there(job: JobRecord, point: MarkedPoint) -> bool:
    """Whether a measured baseline is where it was predicted to be, so that one label tells both."""
    return (
        not point.is_quiet
        and point.against is None
        and abs(point.time_s - job.frontier_baseline_time_s) < _NEAR * point.time_s
        and abs(point.energy_j - job.frontier_baseline_energy_j) < _NEAR * point.energy_j
    )


def _typical(
    kept: Sequence[tuple[PlacedIteration, ...]], measured: Iterations, chosen: NDArray[np.bool_]
) -> tuple[PlacedIteration, ...] | None:
    """The iteration that is nearest to the median in time and energy; one whose energy is known, if there is any."""
    usual = summed_up(measured, chosen)

    def distance(ranks: tuple[PlacedIteration, ...]) -> tuple[bool, float]:
        at = np.flatnonzero(measured.number == ranks[0].kept.iteration)
        if not len(at) or np.isnan(measured.energy_j[at[0]]) or not usual.energy_j or not usual.time_s:
            return True, 0.0
        time_s, energy_j = float(measured.time_s[at[0]]), float(measured.energy_j[at[0]])
        return False, abs(time_s / usual.time_s - 1) + abs(energy_j / usual.energy_j - 1)

    return min(kept, key=distance, default=None)
