"""A job's report: what it took before any plan, what it took under the plan, and what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from perseus_dist.messages.job_status import JobFigures, MeasuredIterations
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.report.analysis.earlier_checks import earlier_checks
from perseus_dist.report.analysis.gpus import GpuFigures, gpu_figures
from perseus_dist.report.analysis.iterations import Iterations, Under, energy_per_token_j, iterations_of, summed_up
from perseus_dist.report.analysis.measured_execution import KeptPipelines, kept_pipelines
from perseus_dist.report.analysis.stragglers import StragglerFigures, straggler_figures
from perseus_dist.runlog.files import RunFiles, read_run
from perseus_dist.runlog.job import JobRecord

_MAX_OUTLASTING = 0.5  # of a rank's instructions
_WIDE_SPREAD = 0.05  # as the planner has it
NO_BASELINE = (
    "this run has no baseline, because too few iterations at full clocks were seen live before its plan came into "
    "force: what the plan saves and costs is not known"
)

EARLIER_PLAN = (
    "the last plan came into force too late for its energy to be measured: saving and slowdown are those of the plan "
    "before"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunReport:
    """All results of a run, for page, picture, table and ``report.json``.

    Attributes:
        run: What it was read from.
        iterations: Of the whole job.
        pipelines: The same by dp_rank, of the pipelines whose ranks are all known.
        kept: Iterations with all their instructions.
        baseline: Of this run, at full clocks; of no iterations where it has none.
        planned: Under the last plan; under the one before where no energy is known of the last one.
        gpus: By rank.
        stragglers: None where there were none.
        losses_equal: Whether the losses are those of a run without Perseus, bit by bit; None if they were not compared.
        clocks_left_locked: GPUs that were still locked afterwards; None if that was not checked.
        straggler_notes: What was not detected, a sentence each.
        output_notes: What could not be drawn or replayed, a sentence each.
    """

    run: RunFiles
    iterations: Iterations
    pipelines: Mapping[int, Iterations]
    kept: KeptPipelines
    baseline: MeasuredIterations
    planned: MeasuredIterations
    gpus: tuple[GpuFigures, ...]
    stragglers: StragglerFigures | None
    losses_equal: bool | None
    clocks_left_locked: int | None
    straggler_notes: tuple[str, ...] = ()
    output_notes: tuple[str, ...] = ()

    @property
    def job(self) -> JobRecord:
        """The job's record, by rank 0's agent."""
        return self.run.job

    @property
    def is_planned(self) -> bool:
        """Whether any iteration ran under a plan."""
        return self.planned.num_iterations > 0

    @property
    def saving_percent(self) -> float | None:
        """Energy below the baseline's; None without both."""
        return _less_percent(self.planned.energy_j, self.baseline.energy_j)

    @property
    def slowdown_percent(self) -> float | None:
        """Time above the baseline's; None without both."""
        return _more_percent(self.planned.time_s, self.baseline.time_s)

    @property
    def baseline_per_token_j(self) -> float | None:
        """[J] that the baseline's iterations drew for each token; None where the framework does not tell tokens."""
        return energy_per_token_j(self.iterations, self.iterations.is_baseline)

    @property
    def planned_per_token_j(self) -> float | None:
        """[J] for each token under the last plan; None as for the baseline."""
        return energy_per_token_j(self.iterations, self.iterations.is_in_force)

    @property
    def predicted_baseline(self) -> tuple[float, float] | None:
        """(time [s], energy of the whole job [J]) at all-maximum clocks, by the profile; None without a plan."""
        job = self.job
        if not (job.frontier_baseline_energy_j > 0 and job.frontier_baseline_time_s > 0):
            return None
        return job.frontier_baseline_time_s, job.dp_size * job.frontier_baseline_energy_j

    @property
    def predicted(self) -> tuple[float, float] | None:
        """(time [s], energy of the whole job [J]) under the plan in force, by the profile; None without one."""
        job, baseline = self.job, self.predicted_baseline
        if baseline is None or not job.pipelines or any(one.point == NO_POINT for one in job.pipelines):
            return None
        return max(one.planned_time_s for one in job.pipelines), baseline[1] * (1 - job.predicted_saving)

    @property
    def predicted_saving_percent(self) -> float | None:
        """As planned; None without a plan."""
        return None if self.predicted is None else 100 * self.job.predicted_saving

    @property
    def predicted_saving_interval_percent(self) -> tuple[float, float] | None:
        """Where that is likely to lie; None without a plan, or where it is not known."""
        low, high = self.job.predicted_saving_low, self.job.predicted_saving_high
        return None if self.predicted is None or not (low or high) else (100 * low, 100 * high)

    @property
    def predicted_slowdown_percent(self) -> float | None:
        """As planned, against all-maximum clocks; None without a plan."""
        if self.predicted is None or self.predicted_baseline is None:
            return None
        return _more_percent(self.predicted[0], self.predicted_baseline[0])

    @property
    def outlasting_percent(self) -> float | None:
        """Of a rank's simulated kernels, those that its host's real work outlasted: the most of any rank.

        None where nothing was simulated, or where that is not known.
        """
        return max((100 * pace.share for pace in self.run.host_paces.values()), default=None)

    @property
    def troubles(self) -> tuple[str, ...]:
        """Troubles of the run as a whole, a sentence each: that its figures mean nothing, and what the planner said."""
        return (*self._host_troubles(), *self.job.troubles)

    def _host_troubles(self) -> tuple[str, ...]:
        paces = self.run.host_paces
        rank = max(paces, key=lambda rank: paces[rank].share, default=None)
        if rank is None or paces[rank].share <= _MAX_OUTLASTING:
            return ()
        return (
            "times and energies of this simulated run mean nothing: the host's real work took longer than the "
            f"simulated kernel in {100 * paces[rank].share:.0f} % of the instructions of rank {rank}; give longer "
            "--forward-ms and --backward-ms, or train a smaller model",
        )

    @property
    def gpu_name(self) -> str:
        """The models of the job's GPUs, apart by commas."""
        return ", ".join(sorted({gpu.name for gpu in self.gpus if gpu.name})) or "GPU"

    @property
    def notes(self) -> tuple[str, ...]:
        """Parts that are missing from the report, a sentence each."""
        found = (
            *self._baseline_notes(),
            *self._plan_notes(),
            *self.run.notes,
            *self.kept.notes,
            *self.straggler_notes,
            *self.output_notes,
        )
        return tuple(dict.fromkeys(found))

    def _plan_notes(self) -> tuple[str, ...]:
        """Which plan was measured, where that is not the last one."""
        planned = np.flatnonzero(self.iterations.under == Under.PLAN)
        in_force = np.flatnonzero(self.iterations.is_in_force)
        return (EARLIER_PLAN,) if len(in_force) and in_force[-1] < planned[-1] else ()

    def _baseline_notes(self) -> tuple[str, ...]:
        """Doubts about the baseline that the plan is compared with, a sentence each."""
        baseline = self.baseline
        if self.is_planned and not baseline.num_iterations:
            return (NO_BASELINE,)
        if baseline.time_spread_s <= _WIDE_SPREAD * baseline.time_s:
            return ()
        percent = 100 * baseline.time_spread_s / baseline.time_s
        return (
            f"the baseline's iterations spread by {percent:.0f} % (interquartile range over median), and saving and "
            "slowdown are known no better than that",
        )

    def document(self) -> dict[str, Any]:
        """``report.json``. What is not known is null; spreads are interquartile ranges, energies of the whole job."""
        job = self.job
        return {
            "job_id": job.job_id,
            "phase": job.phase,
            "reason": job.reason,
            "simulated_gpus": job.is_simulated,
            "host_outlasting_percent": self.outlasting_percent,
            "baseline": {**_document(self.baseline), "energy_per_token_j": self.baseline_per_token_j},
            "planned": {**_document(self.planned), "energy_per_token_j": self.planned_per_token_j},
            "saving_percent": self.saving_percent,
            "slowdown_percent": self.slowdown_percent,
            "predicted_baseline": _predicted_document(self.predicted_baseline),
            "predicted": _predicted_document(self.predicted),
            "predicted_saving_percent": self.predicted_saving_percent,
            "predicted_saving_interval_percent": self.predicted_saving_interval_percent,
            "predicted_slowdown_percent": self.predicted_slowdown_percent,
            "losses_equal": self.losses_equal,
            "clocks_left_locked": self.clocks_left_locked,
            "target": job.target,
            "pp_size": job.pp_size,
            "dp_size": job.dp_size,
            "tp_size": job.tp_size,
            "num_ranks": job.num_ranks,
            "num_iterations": int(self.iterations.number.max(initial=-1)) + 1,
            "started_at": job.started_at,
            "updated_at": job.updated_at,
            "phases": [phase._asdict() for phase in job.phases],
            **_figures_document(job),
            "totals": None if self.run.totals is None else self.run.totals.document(),
            "guard": asdict(job.guard),
            "stragglers": None if self.stragglers is None else self.stragglers.document(),
            "gpus": [gpu.document() for gpu in self.gpus],
            "troubles": list(self.troubles),
            "notes": list(self.notes),
        }


def build_report(folder: Path, *, losses_equal: bool | None = None, clocks_left_locked: int | None = None) -> RunReport:
    """Read what a job left in its report folder.

    Args:
        folder: What the job was given as its report.
        losses_equal: See ``RunReport``; None for what an earlier report of this run in the folder knows.
        clocks_left_locked: Likewise.

    Raises:
        RunFilesError: The folder holds no report of a job.
    """
    run = read_run(folder)
    job = run.job
    iterations = _energies_if_whole(
        iterations_of(run, sorted(run.iterations)), is_whole=len(run.iterations) == job.num_ranks
    )
    pipelines = {dp_rank: iterations_of(run, ranks) for dp_rank, ranks in _ranks_of_pipelines(run).items()}
    straggler_notes: list[str] = []
    checked = earlier_checks(folder, job)
    of_ranks = {rank: iterations_of(run, [rank]) for rank in run.iterations}
    return RunReport(
        run=run,
        iterations=iterations,
        pipelines=pipelines,
        kept=kept_pipelines(run),
        baseline=job.baseline if job.baseline.num_iterations else summed_up(iterations, iterations.is_baseline),
        planned=_planned(job, summed_up(iterations, iterations.is_in_force)),
        gpus=gpu_figures(run, of_ranks),
        stragglers=straggler_figures(run, pipelines, straggler_notes),
        losses_equal=checked.losses_equal if losses_equal is None else losses_equal,
        clocks_left_locked=checked.clocks_left_locked if clocks_left_locked is None else clocks_left_locked,
        straggler_notes=tuple(straggler_notes),
    )


def _planned(job: JobRecord, reported: MeasuredIterations) -> MeasuredIterations:
    """Iterations under the last plan: the planner's, unless only those that ranks have reported tell an energy."""
    is_told = job.enforced.energy_j > 0 or not reported.energy_j > 0
    return job.enforced if job.enforced.num_iterations and is_told else reported


def _energies_if_whole(iterations: Iterations, *, is_whole: bool) -> Iterations:
    """The energy of some ranks is not that of the job."""
    return iterations if is_whole else replace(iterations, energy_j=np.full(len(iterations.number), np.nan))


def _ranks_of_pipelines(run: RunFiles) -> dict[int, Sequence[int]]:
    """By dp_rank, the pipelines whose ranks are all there."""
    job = run.job
    if job.dp_size == 1:
        return {0: range(job.num_ranks)} if len(run.iterations) == job.num_ranks else {}
    ranks: dict[int, list[int]] = {}
    for rank in sorted(run.iterations.keys() & run.timelines.keys()):
        ranks.setdefault(run.timelines[rank].dp_rank, []).append(rank)
    return {dp_rank: ranks[dp_rank] for dp_rank in sorted(ranks) if len(ranks[dp_rank]) == job.pp_size * job.tp_size}


def _figures_document(job: JobFigures) -> dict[str, float | int | None]:
    """Figures that the planner counts: each number under its name."""
    numbers = {field.name: getattr(job, field.name) for field in fields(JobFigures) if field.type in (int, float)}
    return {name: value if isinstance(value, int) else value or None for name, value in numbers.items()}


def _document(measured: MeasuredIterations) -> dict[str, float | int | None]:
    return {
        "num_iterations": measured.num_iterations,
        "iteration_time_s": measured.time_s or None,
        "iteration_time_spread_s": measured.time_spread_s if measured.time_s else None,
        "energy_j": measured.energy_j or None,
        "energy_spread_j": measured.energy_spread_j if measured.energy_j else None,
    }


def _predicted_document(predicted: tuple[float, float] | None) -> dict[str, float] | None:
    return None if predicted is None else {"iteration_time_s": predicted[0], "energy_j": predicted[1]}


def _less_percent(value: float, reference: float) -> float | None:
    return 100 * (1 - value / reference) if value > 0 and reference > 0 else None


def _more_percent(value: float, reference: float) -> float | None:
    return 100 * (value / reference - 1) if value > 0 and reference > 0 else None
