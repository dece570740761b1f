"""Energy records that ``perseus-dist accounting`` finds, finishes and collects."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from perseus_dist.cli.jobs.accounting.errors import AccountingError
from perseus_dist.runlog.accounting.finish import finish_if_possible, finish_record
from perseus_dist.runlog.accounting.record import EnergyRecord, record_from
from perseus_dist.runlog.accounting.record_files import MAX_BYTES, may_be_read, records_in, run_folders, write_record
from perseus_dist.runlog.accounting.run_record import record_of_run
from perseus_dist.runlog.accounting.sums import is_within
from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.runlog.job import RunFilesError
from perseus_dist.runlog.json_fields import FieldsError, read_json
from perseus_dist.runlog.submission import plain

_LAST_WORD_S = 3.0
_MAX_COLLECTED_BYTES = 64 * MAX_BYTES


def find(root: Path, since: datetime | None, until: datetime | None) -> list[EnergyRecord]:
    """Records at and below a folder, of runs that ended within the bounds; each run once, a complete record first.

    A run without a record, which was killed or goes on, is read from its files; nothing is written.

    Raises:
        AccountingError: There is no such folder.
    """
    if not root.is_dir():
        raise AccountingError(
            f"{root}: no folder that can be read; expected energy records, or folders of reports: name it with "
            f"--records or $PERSEUS_RECORDS"
        )
    found: dict[tuple[str, str], EnergyRecord] = {}
    for folder in run_folders(root):
        for record in [*records_in(folder), *_unfinished(folder)]:
            key = (record.job_id, record.began_at)
            if key not in found or (record.is_complete and not found[key].is_complete):
                found[key] = record
    chosen = (record for record in found.values() if is_within(record, since, until))
    return sorted(chosen, key=lambda record: (record.ended_at, record.job_id))


def finish(folder: Path) -> str:
    """Write the record of the last run in this folder; those that are there stay as they are.

    Returns:
        All records of the folder, as JSON, one a line.

    Raises:
        AccountingError: There is no run.
        OutputError: The folder cannot be written to.
    """
    record = finish_record(folder, is_final=True)
    if record is None:
        raise AccountingError(
            f"{folder}: no run has left anything here that may be read; expected the folder that a job was given with "
            "--perseus-report, and regular files in it"
        )
    others = (other for other in records_in(folder) if other.began_at != record.began_at)
    return "\n".join(json.dumps(asdict(one)) for one in (*others, record))


def of_report(folder: Path) -> list[EnergyRecord]:
    """Records of all runs in a report's folder, once all ranks of the last one have had their last word, or 3 s later.

    Raises:
        AccountingError: There is no such folder, or no run in it.
    """
    finish_if_possible(folder, is_final=False, patience_s=_LAST_WORD_S)
    records = find(folder, None, None) if folder.is_dir() else []
    if not records:
        raise AccountingError(f"{folder}: no run has left anything here that may be read; name a report's folder")
    return records


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
    records = [replace(record, submission=replace(record.submission, **known)) for record in records]
    names = (record.submission.slurm_job_id or record.job_id for record in records)
    return "\n".join(str(write_record(root, one, name=name)) for one, name in zip(records, names, strict=True))


def _unfinished(folder: Path) -> list[EnergyRecord]:
    """The run there, if it has no record yet."""
    if not (folder / JOB_FILE).is_file() or not may_be_read(folder):
        return []
    try:
        record = record_of_run(folder)
    except RunFilesError:
        return []
    return [record]
