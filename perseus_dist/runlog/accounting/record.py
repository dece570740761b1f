"""Energy record of one run of a job: what it drew and saved, when, for whom, on what.

A run that was killed has a record too, which says that it is incomplete: what it drew is known as far as its agents
had written it, and its saving is counted by no sum.
"""

from dataclasses import dataclass
from typing import Any

from perseus_dist.runlog.json_fields import Fields, values_of
from perseus_dist.runlog.submission import NO_SUBMISSION, Submission, plain

MAX_GPUS = 4096
"""GPUs that a record lists one by one; sums are of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEnergy:
    """One rank's GPU.

    Attributes:
        energy_j: [J] of all its iterations, those of unknown energy counted as the mean of the others.
        clock_mhz: [MHz] while it computed under the plan, the mean of the iterations that were kept; 0 without one.
    """

    rank: int = 0
    uuid: str = ""
    energy_j: float | None = None
    clock_mhz: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRecord:
    """The record. What is not known is None, or empty.

    Attributes:
        job_id: The job's name at its planner.
        began_at, ended_at: ISO 8601 in UTC; the end of a run that was killed is its last sign of life.
        is_complete: Whether all ranks came to their end and its agents wrote all that they would.
        reason: Why it is not complete; empty otherwise.
        framework: Such as ``deepspeed``.
        gpu_model: All models, apart by commas.
        is_simulated: Whether the GPUs are.
        num_gpus: Ranks of the job.
        num_iterations: That were trained.
        time_s: [s] all iterations together.
        energy_j: [J] all iterations of all GPUs; None where nothing is known of one.
        without_plan_j, under_plan_j: [J] of these, by whether a plan was in force.
        num_unmeasured: Iterations of unknown energy that are counted as the mean of the others, the most of any GPU's.
        saved_j: [J] by measurement: what the iterations under plans would have drawn at all-maximum clocks, waiting
            for the same stragglers, minus what they drew.
        saved_low_j, saved_high_j: [J] the interval that the saving lies in.
        lost_s: [s] by which iterations under plans took longer than the target allows.
        lowest_clock_mhz, highest_clock_mhz: [MHz] that were requested under the plan, in the iterations that were kept.
        num_stragglers: Verdicts, and operators' reports of a degree above 1.
        gpus: By rank, ``MAX_GPUS`` at most.
    """

    job_id: str
    began_at: str
    ended_at: str
    is_complete: bool
    reason: str = ""
    submission: Submission = NO_SUBMISSION
    framework: str = ""
    gpu_model: str = ""
    is_simulated: bool = False
    num_gpus: int = 1
    num_iterations: int = 0
    time_s: float | None = None
    energy_j: float | None = None
    without_plan_j: float | None = None
    under_plan_j: float | None = None
    num_unmeasured: int = 0
    saved_j: float = 0.0
    saved_low_j: float = 0.0
    saved_high_j: float = 0.0
    lost_s: float = 0.0
    lowest_clock_mhz: int = 0
    highest_clock_mhz: int = 0
    num_stragglers: int = 0
    gpus: tuple[GpuEnergy, ...] = ()

    @property
    def baseline_j(self) -> float | None:
        """[J] that the same iterations would have drawn at all-maximum clocks; None where that is not known."""
        return self.energy_j + self.saved_j if self.is_complete and self.energy_j is not None else None

    @property
    def saved_percent(self) -> float | None:
        """The saving as a share of ``baseline_j``."""
        return 100 * self.saved_j / self.baseline_j if self.baseline_j else None

    def tells_more_than(self, other: "EnergyRecord") -> bool:
        """Whether this one is the later word on the same run: complete, or of more iterations, where that one is not.

        A complete record is the last word.
        """
        return not other.is_complete and self._extent > other._extent  # noqa: SLF001 - of the same class

    @property
    def _extent(self) -> tuple[bool, int, bool]:
        return self.is_complete, self.num_iterations, self.energy_j is not None


def record_from(document: Any) -> EnergyRecord:
    """The record that ``dataclasses.asdict`` made a document of. Texts are made fit for terminals.

    Raises:
        FieldsError: It is none.
    """
    values = values_of(EnergyRecord, Fields(document))
    submission: Submission = values["submission"]
    names = ("job_id", "reason", "framework", "gpu_model", "began_at", "ended_at")
    return EnergyRecord(
        **values
        | {name: plain(values[name]) for name in names}
        | {
            "submission": Submission(
                user=plain(submission.user),
                project=plain(submission.project),
                cluster=plain(submission.cluster),
                slurm_job_id=plain(submission.slurm_job_id),
                job_name=plain(submission.job_name),
            ),
            "gpus": values["gpus"][:MAX_GPUS],
        }
    )
