"""Energy record of a run, from the folder that it left behind: a pure function of its files."""

from pathlib import Path

from perseus_dist.messages.job_status import JobEvent
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.accounting.record import MAX_GPUS, EnergyRecord, GpuEnergy
from perseus_dist.runlog.files import RunFiles, read_run
from perseus_dist.runlog.timed_iteration import TimedRun, mean_clock_mhz
from perseus_dist.runlog.totals import RunTotals, TotalFigures

_DONE = "done"  # the planner's phase of a job whose ranks have all come to their end
_UNATTACHED = "unattached"  # that of a job which no planner answered


def record_of_run(folder: Path, *, may_go_on: bool = False) -> EnergyRecord:
    """The record of the last run in a report folder, as far as it is known now.

    Args:
        folder: The report's.
        may_go_on: Its agents have just written: a run without an end may still train.

    Raises:
        RunFilesError: The folder holds no report of a job.
    """
    run = read_run(folder)
    job, totals = run.job, run.totals
    without_plan = None if totals is None else totals.without_plan
    under_plan = None if totals is None else totals.under_plan
    ranks = [one for one in run.rank_totals.values() if one is not None]
    are_all = len(ranks) == job.num_ranks
    without_plan_j = _all([_energy_j(one.without_plan) for one in ranks]) if are_all else None
    under_plan_j = _all([_energy_j(one.under_plan) for one in ranks]) if are_all else None
    reason = _reason(run, may_go_on=may_go_on)
    clocks_mhz = [clock_mhz for one in _planned_runs(run) if (clock_mhz := one.requested_mhz)]
    return EnergyRecord(
        job_id=job.job_id,
        began_at=job.started_at,
        ended_at=job.ended_at or job.updated_at,
        is_complete=not reason,
        reason=reason,
        submission=job.submission,
        framework=job.framework,
        gpu_model=", ".join(sorted({one.gpu_name for one in run.timelines.values() if one.gpu_name})),
        is_simulated=job.is_simulated,
        num_gpus=job.num_ranks,
        num_iterations=sum(one.num_iterations for one in (without_plan, under_plan) if one is not None),
        time_s=None if without_plan is None or under_plan is None else without_plan.time_s + under_plan.time_s,
        energy_j=_sum(without_plan_j, under_plan_j),
        without_plan_j=without_plan_j,
        under_plan_j=under_plan_j,
        num_unmeasured=max(map(_num_unmeasured, ranks), default=0),
        saved_j=job.saved_j,
        saved_low_j=job.saved_j - job.saved_doubt_j,
        saved_high_j=job.saved_j + job.saved_doubt_j,
        lost_s=job.guard.lost_s,
        lowest_clock_mhz=min(clocks_mhz, default=0),
        highest_clock_mhz=max(clocks_mhz, default=0),
        num_stragglers=sum(_names_straggler(kept.event) for kept in run.events),
        gpus=tuple(_gpu(run, rank) for rank in range(min(job.num_ranks, MAX_GPUS))),
    )


def _names_straggler(event: JobEvent) -> bool:
    # By a report of degree 1 the operator says that there is none, or none any more.
    return event.kind == "verdict" or (event.kind == "reported" and event.degree > 1)


def _reason(run: RunFiles, *, may_go_on: bool) -> str:
    """Why the run is not complete; empty if it is."""
    job = run.job
    if not job.ended_at:
        if may_go_on:
            return "it still runs, or was killed a few seconds ago"
        return "its agents were ended before they could write its end"
    if job.phase not in (_DONE, _UNATTACHED):
        return f"its ranks ended without a word of their end, while it was {job.phase}"
    if job.ended_in_iteration:
        return "its trainer ended within an iteration"
    return ""


def _gpu(run: RunFiles, rank: int) -> GpuEnergy:
    timeline, totals = run.timelines.get(rank), run.rank_totals.get(rank)
    kept = timeline.iterations if timeline is not None else ()
    return GpuEnergy(
        rank=rank,
        uuid=timeline.gpu_uuid if timeline is not None else "",
        energy_j=None if totals is None else _rank_energy_j(totals),
        clock_mhz=mean_clock_mhz([one for one in kept if one.is_planned]) or 0.0,
    )


def _rank_energy_j(totals: RunTotals) -> float | None:
    return _sum(_energy_j(totals.without_plan), _energy_j(totals.under_plan))


def _energy_j(figures: TotalFigures) -> float | None:
    """An iteration of unknown energy counts as the mean of the others; unknown where all are."""
    if figures.num_energies == 0:
        return None if figures.num_iterations else 0.0
    return figures.energy_j * figures.num_iterations / figures.num_energies


def _num_unmeasured(totals: RunTotals) -> int:
    return sum(one.num_iterations - one.num_energies for one in (totals.without_plan, totals.under_plan))


def _all(energies_j: list[float | None]) -> float | None:
    known = [energy_j for energy_j in energies_j if energy_j is not None]
    return sum(known) if len(known) == len(energies_j) else None


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _planned_runs(run: RunFiles) -> list[TimedRun]:
    kept = (one for timeline in run.timelines.values() for one in timeline.iterations)
    return [timed for one in kept if one.point != NO_POINT for timed in one.runs]
