"""``job.json``: what rank 0's agent knows of its job."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perseus_dist.errors import PerseusError
from perseus_dist.messages import NO_POINT, GuardFigures, MeasuredIterations, PipelineStatus
from perseus_dist.report.run_fields import Fields, FieldsError

_MAX_RANKS = 100_000
_MAX_POWER_W = 10_000.0


class RunFilesError(PerseusError):
    """A folder that holds no report of a job."""


class PhaseEntered(NamedTuple):
    """A decision of the planner. ``at`` is ISO 8601 in UTC."""

    phase: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """``job.json``. Figures are 0, and texts empty, where there is nothing yet.

    Attributes:
        schedule: As text, a line per pp_rank.
        is_simulated: Whether the GPUs are.
        enforced: Iterations under the plan in force.
        predicted_saving: Share of energy, of the plan in force against all-maximum clocks.
        profiled_clocks: How many the sweep tried.
        saved_j: [J] by measurement, since the first plan, against all-maximum clocks; 0 where it is not known.
        guard: Whether plans kept the promise.
        blocking_power_w: [W] of one GPU that waits, the mean of all.
        frontier_baseline_time_s, frontier_baseline_energy_j: One pipeline at all-maximum clocks, by the profile.
    """

    job_id: str
    phase: str
    reason: str
    schedule: str
    pp_size: int
    dp_size: int
    tp_size: int
    num_ranks: int
    target: str
    is_simulated: bool
    started_at: str
    updated_at: str
    phases: tuple[PhaseEntered, ...]
    baseline: MeasuredIterations
    enforced: MeasuredIterations
    predicted_saving: float
    profiled_clocks: int
    saved_j: float
    guard: GuardFigures
    t_min_s: float
    t_star_s: float
    table_revision: int
    missed_clocks: int
    lost_boundaries: int
    troubles: tuple[str, ...]
    pipelines: tuple[PipelineStatus, ...]
    blocking_power_w: float
    frontier_baseline_time_s: float
    frontier_baseline_energy_j: float


def read_job(path: Path) -> JobRecord:
    """Read the file.

    Raises:
        RunFilesError: It is not there, cut off, or not what an agent writes.
    """
    try:
        return _job(Fields(json.loads(path.read_bytes())))
    except OSError as error:
        raise RunFilesError(
            f"{path}: cannot be read ({error.strerror}); expected the folder that a job was given with "
            "--perseus-report, once it has begun: name that one"
        ) from None
    except FieldsError as error:
        raise RunFilesError(f"{path}: {error}; it was changed, or is of another version: run the job again") from None
    except ValueError:
        raise RunFilesError(
            f"{path}: cut off, or no JSON; expected what rank 0's agent writes: run the job again"
        ) from None


def _job(fields: Fields) -> JobRecord:
    return JobRecord(
        job_id=fields.text("job_id"),
        phase=fields.text("phase"),
        reason=fields.text("reason", ""),
        schedule=fields.text("schedule", ""),
        pp_size=fields.whole("pp_size", 1, low=1),
        dp_size=fields.whole("dp_size", 1, low=1),
        tp_size=fields.whole("tp_size", 1, low=1),
        num_ranks=fields.whole("num_ranks", low=1, high=_MAX_RANKS),
        target=fields.text("target", ""),
        is_simulated=fields.flag("simulated"),
        started_at=fields.text("started_at", ""),
        updated_at=fields.text("updated_at", ""),
        phases=tuple(
            PhaseEntered(one.text("phase"), one.text("reason", ""), one.text("at", "")) for one in fields.each("phases")
        ),
        baseline=_measured(fields.inner("baseline")),
        enforced=_measured(fields.inner("enforced")),
        predicted_saving=fields.real("predicted_saving", 0.0),
        profiled_clocks=fields.whole("profiled_clocks", 0),
        saved_j=fields.real("saved_j", 0.0),
        guard=_guard(fields.inner("guard")),
        t_min_s=fields.real("t_min_s", 0.0),
        t_star_s=fields.real("t_star_s", 0.0),
        table_revision=fields.whole("table_revision", 0),
        missed_clocks=fields.whole("missed_clocks", 0),
        lost_boundaries=fields.whole("lost_boundaries", 0),
        troubles=fields.texts("troubles"),
        pipelines=tuple(
            PipelineStatus(
                dp_rank=one.whole("dp_rank"),
                attached_ranks=one.whole("attached_ranks", 0),
                iteration=one.whole("iteration", -1, low=-1),
                time_s=one.real("time_s", 0.0),
                energy_j=one.real("energy_j", 0.0),
                table_revision=one.whole("table_revision", 0),
                point=one.whole("point", NO_POINT, low=NO_POINT),
                planned_time_s=one.real("planned_time_s", 0.0),
                planned_energy_j=one.real("planned_energy_j", 0.0),
                pipeline_time_s=one.real("pipeline_time_s", 0.0),
                is_waiting=one.flag("is_waiting"),
            )
            for one in fields.each("pipelines")
        ),
        blocking_power_w=fields.real("blocking_power_w", 0.0, low=0.0, high=_MAX_POWER_W),
        frontier_baseline_time_s=fields.real("frontier_baseline_time_s", 0.0),
        frontier_baseline_energy_j=fields.real("frontier_baseline_energy_j", 0.0),
    )


def _guard(fields: Fields) -> GuardFigures:
    return GuardFigures(
        reference_s=fields.real("reference_s", 0.0),
        lost_s=fields.real("lost_s", 0.0),
        probes=fields.whole("probes", 0),
        falls=fields.whole("falls", 0),
    )


def _measured(fields: Fields) -> MeasuredIterations:
    return MeasuredIterations(
        num_iterations=fields.whole("num_iterations", 0),
        time_s=fields.real("time_s", 0.0),
        time_spread_s=fields.real("time_spread_s", 0.0),
        energy_j=fields.real("energy_j", 0.0),
        energy_spread_j=fields.real("energy_spread_j", 0.0),
    )
