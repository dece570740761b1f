"""Energy records that ``perseus-dist accounting`` finds, finishes and collects."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from perseus_dist.cli.jobs.accounting.errors import AccountingError
from perseus_dist.runlog.accounting.finish import (
    finish_ended,
    finish_if_possible,
    finish_record,
    fresh_age_s,
    has_end,
)
from perseus_dist.runlog.accounting.record import EnergyRecord, record_from
from perseus_dist.runlog.accounting.record_files import MAX_BYTES, may_be_read, records_in, run_folders, write_record
from perseus_dist.runlog.accounting.run_record import record_of_run
from perseus_dist.runlog.accounting.sums import is_within
from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.runlog.job import RunFilesError
from perseus_dist.runlog.json_fields import FieldsError, read_json
from perseus_dist.runlog.submission import plain

_LAST_WORD_S = 3.0
_REMEDY = "expected energy records, or folders of reports: name it with --records or $PERSEUS_RECORDS"
_MODE = 0o644  # of collected records: their folder says who may read them, and not slurmd's umask
_MAX_COLLECTED_BYTES = 64 * MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """Records, and whatever is not among them.

    Attributes:
        records: By their ends.
        skipped: Paths of damaged records, of runs and of folders that cannot be read, each with the reason.
    """

    records: Sequence[EnergyRecord]
    skipped: Sequence[str]


def find(root: Path, since: datetime | None, until: datetime | None, *, remedy: str = _REMEDY) -> FoundRecords:
    """Records at and below a folder, of runs that ended within the bounds; each run once, a complete record first.

    A run without a complete record, which was killed or goes on, is read from its files; nothing is written.

    Raises:
        AccountingError: There is no such folder, or it cannot be read.
    """
    _check_folder(root, remedy)
    found: dict[tuple[str, str], EnergyRecord] = {}
    skipped: list[str] = []
    for folder in run_folders(root, skipped):
        for record in [*records_in(folder, skipped), *_unfinished(folder, skipped)]:
            key = (record.job_id, record.began_at)
            if key not in found or record.tells_more_than(found[key]):
                found[key] = record
    chosen = (record for record in found.values() if is_within(record, since, until))
    records = sorted(chosen, key=lambda record: (record.ended_at, record.job_id))
    return FoundRecords(records=records, skipped=skipped)


def _check_folder(root: Path, remedy: str) -> None:
    try:
        os.scandir(root).close()
    except OSError as error:
        raise AccountingError(f"{root}: no folder that can be read ({error.strerror}); {remedy}") from None


def finish(folder: Path, *, has_ended: bool = False) -> str:
    """Write the record of the last run in this folder; complete ones that are there stay as they are.

    Args:
        folder: The report's.
        has_ended: The caller knows that the job's processes have ended, or are about to: last words are waited for.

    Returns:
        All records of the folder, as JSON, one a line.

    Raises:
        AccountingError: There is no run, or it may still train.
        OutputError: The folder cannot be written to.
    """
    age_s = fresh_age_s(folder)
    if age_s is not None and not has_ended and not has_end(folder):
        raise AccountingError(
            f"{folder}: its job still trains, its agents wrote {age_s:.1f} s ago; wait until it has ended, or add "
            "--ended where its processes are known to have"
        )
    record = finish_record(folder, is_final=True) if age_s is None else finish_ended(folder)
    if record is None:
        raise AccountingError(
            f"{folder}: no run has left anything here that may be read; expected the folder that a job was given with "
            "--perseus-report, and regular files in it"
        )
    others = (other for other in records_in(folder) if other.began_at != record.began_at)
    return "\n".join(json.dumps(asdict(one)) for one in (*others, record))


def of_report(folder: Path) -> FoundRecords:
    """Records of all runs in a report's folder, once all ranks of the last one have had their last word, or 3 s later.

    Raises:
        AccountingError: There is no such folder, or no run in it.
    """
    remedy = "name a report's folder"
    _check_folder(folder, remedy)  # no last word is waited for where there is no folder
    finish_if_possible(folder, is_final=False, patience_s=_LAST_WORD_S)
    found = find(folder, None, None, remedy=remedy)
    if not found.records:
        why = f" ({found.skipped[0]})" if found.skipped else ""
        raise AccountingError(f"{folder}: no run has left anything here that may be read{why}; name a report's folder")
    return found


def collect(root: Path, environ: Mapping[str, str]) -> str:
    """Add the records on standard input to the records of a cluster, under the names that Slurm's epilog knows.

    What the job's user wrote of user, account and job number does not count where Slurm says it.

    Returns:
        Their files, one a line.

    Raises:
        AccountingError: There is no record, or no folder for it.
        OutputError: It cannot be written.
    """
    try:
        lines = sys.stdin.buffer.read(_MAX_COLLECTED_BYTES).splitlines()
        records = [record_from(read_json(line)) for line in lines] or [record_from(None)]
    except (ValueError, FieldsError) as error:
        raise AccountingError(f"standard input: {error}; expected what accounting --finish prints") from None
    known = {
        field: plain(environ[name])
        for field, name in (
            ("user", "SLURM_JOB_USER"),
            ("project", "SLURM_JOB_ACCOUNT"),
            ("cluster", "SLURM_CLUSTER_NAME"),
            ("slurm_job_id", "SLURM_JOB_ID"),
        )
        if environ.get(name)
    }
    if not root.is_dir():
        raise AccountingError(f"{root}: no folder is there; make it, for root alone to write, or name another")
    if root.is_symlink() and (owner := root.lstat().st_uid) not in (0, os.geteuid()):
        raise AccountingError(f"{root}: is a link of user {owner}, who may have root write anywhere; name the folder")
    records = [replace(record, submission=replace(record.submission, **known)) for record in records]
    names = (record.submission.slurm_job_id or record.job_id for record in records)
    paths = (write_record(root, one, name=name, mode=_MODE) for one, name in zip(records, names, strict=True))
    return "\n".join(map(str, paths))


def _unfinished(folder: Path, skipped: list[str]) -> list[EnergyRecord]:
    """The last run there, as its files tell of it."""
    try:
        if not (folder / JOB_FILE).is_file():
            return []
        if not may_be_read(folder):
            skipped.append(f"{folder} (it holds more than a run's regular files, or may not be read)")
            return []
        return [record_of_run(folder, may_go_on=fresh_age_s(folder) is not None)]
    except OSError as error:
        skipped.append(f"{folder / JOB_FILE} ({error.strerror})")
    except RunFilesError as error:
        skipped.append(f"{folder} ({error})")
    return []
