"""Sums of energy records by user, project or job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.record_files import moment


class Group(StrEnum):
    """By what records are summed up."""

    USER = "user"
    PROJECT = "project"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySums:
    """Sums over the runs of one user, project or job.

    Attributes:
        name: Whose; empty where that is not known.
        num_runs: All of them.
        num_incomplete: Runs that were killed or still go on: their known energy counts, their saving does not.
        num_unknown: Runs of which the energy is not known; the sums are without theirs.
        gpu_s: [s] GPUs times the time from begin to end.
        energy_j: [J] drawn.
        saved_j: [J] by measurement, of complete runs.
        saved_low_j, saved_high_j: [J] the interval of the sum: that of all runs' least and of all runs' most, since
            what makes a measured saving uncertain may have the same sign in all of them.
        saved_percent: Share of what the complete runs would have drawn at all-maximum clocks; None where unknown.
        lost_s: [s] by which iterations under plans took longer than their targets allow, of all runs.
    """

    name: str
    num_runs: int
    num_incomplete: int
    num_unknown: int
    gpu_s: float
    energy_j: float
    saved_j: float
    saved_low_j: float
    saved_high_j: float
    saved_percent: float | None
    lost_s: float


def sum_up(records: Iterable[EnergyRecord], group: Group) -> list[EnergySums]:
    """The sums, in the order of their names."""
    by_name: dict[str, list[EnergyRecord]] = {}
    for record in records:
        by_name.setdefault(_name(record, group), []).append(record)
    return [_sums(name, by_name[name]) for name in sorted(by_name)]


def sum_all(records: Sequence[EnergyRecord]) -> EnergySums:
    """The sums of all, without a name."""
    return _sums("", records)


def is_within(record: EnergyRecord, since: datetime | None, until: datetime | None) -> bool:
    """Whether the run ended at ``since`` or later, and before ``until``; one of unknown end is within no bound."""
    ended = moment(record.ended_at)
    if ended is None:
        return since is None and until is None
    return (since is None or ended >= since) and (until is None or ended < until)


def _name(record: EnergyRecord, group: Group) -> str:
    match group:
        case Group.USER:
            return record.submission.user
        case Group.PROJECT:
            return record.submission.project
        case Group.JOB:
            return record.submission.slurm_job_id or record.job_id


def _sums(name: str, records: Sequence[EnergyRecord]) -> EnergySums:
    complete = [record for record in records if record.is_complete]
    baseline_j = sum(record.baseline_j for record in complete if record.baseline_j is not None)
    saved_known_j = sum(record.saved_j for record in complete if record.baseline_j is not None)
    return EnergySums(
        name=name,
        num_runs=len(records),
        num_incomplete=len(records) - len(complete),
        num_unknown=sum(record.energy_j is None for record in records),
        gpu_s=sum(map(_gpu_s, records)),
        energy_j=sum(record.energy_j for record in records if record.energy_j is not None),
        saved_j=sum(record.saved_j for record in complete),
        saved_low_j=sum(record.saved_low_j for record in complete),
        saved_high_j=sum(record.saved_high_j for record in complete),
        saved_percent=100 * saved_known_j / baseline_j if baseline_j > 0 else None,
        lost_s=sum(record.lost_s for record in records),
    )


def _gpu_s(record: EnergyRecord) -> float:
    began, ended = moment(record.began_at), moment(record.ended_at)
    if began is None or ended is None:
        return 0.0
    return max(0.0, (ended - began).total_seconds()) * record.num_gpus
