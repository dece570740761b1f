"""``job.json``: what rank 0's agent knows of its job."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perseus_dist.errors import PerseusError
from perseus_dist.messages.job_status import JobFigures
from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json, values_of
from perseus_dist.runlog.submission import NO_SUBMISSION, Submission

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
class JobRecord(JobFigures):
    """``job.json``. Figures are 0, and texts empty, where there is nothing yet.

    Attributes:
        schedule: As text, a line per pp_rank.
        is_simulated: Whether the GPUs are.
        started_at, updated_at: ISO 8601 in UTC.
        ended_at: The same; empty while it runs, and where its agent was killed.
        ended_in_iteration: Whether rank 0's trainer had begun an iteration that it did not end.
        framework: Such as ``deepspeed``.
        submission: Who submitted it, and as what.
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
    ended_at: str = ""
    ended_in_iteration: bool = False
    framework: str = ""
    submission: Submission = NO_SUBMISSION
    phases: tuple[PhaseEntered, ...]
    blocking_power_w: float
    frontier_baseline_time_s: float
    frontier_baseline_energy_j: float


def read_job(path: Path) -> JobRecord:
    """Read the file.

    Raises:
        RunFilesError: It is not there, cut off, or not what an agent writes.
    """
    try:
        return _job(Fields(read_json(read_content(path))))
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
        ended_at=fields.text("ended_at", ""),
        ended_in_iteration=fields.flag("ended_in_iteration"),
        framework=fields.text("framework", ""),
        submission=Submission(**values_of(Submission, fields.inner("submission"))),
        phases=tuple(
            PhaseEntered(one.text("phase"), one.text("reason", ""), one.text("at", "")) for one in fields.each("phases")
        ),
        **values_of(JobFigures, fields),
        blocking_power_w=fields.real("blocking_power_w", 0.0, low=0.0, high=_MAX_POWER_W),
        frontier_baseline_time_s=fields.real("frontier_baseline_time_s", 0.0),
        frontier_baseline_energy_j=fields.real("frontier_baseline_energy_j", 0.0),
    )
