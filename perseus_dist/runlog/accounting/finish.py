"""The end of a run's record: by its agents, by its report, by the run that follows it, or by the node's epilog."""

import time
from contextlib import suppress
from pathlib import Path

from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.record_files import may_be_read, records_in, write_record
from perseus_dist.runlog.accounting.run_record import record_of_run
from perseus_dist.runlog.file_names import JOB_FILE, totals_file
from perseus_dist.runlog.job import RunFilesError, read_job
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json

_POLL_S = 0.1


def finish_record(folder: Path, *, is_final: bool) -> EnergyRecord | None:
    """The record of the last run in a report folder, written if it is not there yet.

    Args:
        folder: The report's.
        is_final: Nothing more will come of the run. Otherwise the record waits for the last word of every rank.

    Returns:
        None where there is no run that can be read, or where it is not over yet.

    Raises:
        OutputError: The folder cannot be written to.
        RunFilesError: Another process is just removing the run.
    """
    if not may_be_read(folder):
        return None
    try:
        job = read_job(folder / JOB_FILE)
    except RunFilesError:
        return None
    known = [record for record in records_in(folder) if record.began_at == job.started_at]
    if known:
        return known[0]
    if not is_final and not (job.ended_at and _have_all_ended(folder, job.num_ranks)):
        return None
    record = record_of_run(folder)
    write_record(folder, record)
    return record


def finish_if_possible(folder: Path, *, is_final: bool, patience_s: float = 0.0) -> None:
    """As ``finish_record``, without a word where it cannot be written now: another will, or say why. Never raises.

    Args:
        folder: The report's.
        is_final: As there.
        patience_s: How long to wait for the other ranks.
    """
    until_s = time.monotonic() + patience_s
    with suppress(Exception):  # whatever a folder holds, the job ends as it would have
        while finish_record(folder, is_final=is_final) is None and time.monotonic() < until_s:
            time.sleep(_POLL_S)


def _have_all_ended(folder: Path, num_ranks: int) -> bool:
    """Whether all ranks have summed up the same iterations; those on hosts with other files never will."""
    ends = set()
    for rank in range(num_ranks):
        try:
            ends.add(Fields(read_json((folder / totals_file(rank)).read_bytes())).whole("last_iteration", low=-1))
        except (OSError, ValueError, FieldsError):
            return False
    return len(ends) == 1
