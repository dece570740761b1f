"""Finishes a run's record, for its agents, its report, the next run or the node's epilog."""

import os
import time
from contextlib import suppress
from pathlib import Path

from perseus_dist.runlog.accounting.record import EnergyRecord
from perseus_dist.runlog.accounting.record_files import may_be_read, records_in, write_record
from perseus_dist.runlog.accounting.run_record import record_of_run
from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.file_names import JOB_FILE, totals_file
from perseus_dist.runlog.job import RunFilesError, read_job
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json

_POLL_S = 0.1
_FRESH_S = 10.0
_LAST_WORDS_S = 6.0  # an agent has 5 s for its last figures
_QUIET_S = 2.0
_NS_PER_S = 10**9


def finish_record(folder: Path, *, is_final: bool) -> EnergyRecord | None:
    """The record of the last run in a report folder, written if it is not there yet or tells less than is known now.

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
    known = next((record for record in records_in(folder) if record.began_at == job.started_at), None)
    if known is not None and known.is_complete:
        return known
    if not is_final and not job.ended_at:
        return known
    if not is_final and not _have_all_ended(folder, job.num_ranks):
        return None
    record = record_of_run(folder)
    if known is not None and not record.tells_more_than(known):
        return known
    write_record(folder, record)
    return record


def finish_ended(folder: Path) -> EnergyRecord | None:
    """As ``finish_record``, of a run whose job has ended, while agents of other nodes may still write their last words.

    Waits until all ranks have ended, or no file has changed for 2 s where rank 0's agent was killed: 6 s at most.

    Raises:
        OutputError, RunFilesError: As there.
    """
    began_s = changed_s = time.monotonic()
    seen = _state_of(folder)
    while may_be_read(folder):
        record, is_over = finish_record(folder, is_final=False), has_end(folder)
        if record is not None and (record.is_complete or is_over):
            return record
        now_s, now = time.monotonic(), _state_of(folder)
        if now != seen:
            seen, changed_s = now, now_s
        if now_s > began_s + _LAST_WORDS_S or (now_s > changed_s + _QUIET_S and not is_over):
            break
        time.sleep(_POLL_S)
    return finish_record(folder, is_final=True)


def fresh_age_s(folder: Path) -> float | None:
    """[s] since agents last wrote into a report folder; None after 10 s, when none will write again."""
    newest_s = max((written_ns for _, written_ns, _ in _state_of(folder)), default=0) / _NS_PER_S
    age_s = time.time() - newest_s
    return max(age_s, 0.0) if age_s < _FRESH_S else None


def has_end(folder: Path) -> bool:
    """Whether rank 0's agent has written the end of the run in a report folder."""
    try:
        return may_be_read(folder) and bool(read_job(folder / JOB_FILE).ended_at)
    except RunFilesError:
        return False


def _state_of(folder: Path) -> list[tuple[str, int, int]]:
    """(name, time of the last change [ns], size) of each file that agents write."""
    state = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == JOB_FILE or entry.name.startswith(("rank-", "totals-")):
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    state.append((entry.name, found.st_mtime_ns, found.st_size))
    return sorted(state)


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
            ends.add(Fields(read_json(read_content(folder / totals_file(rank)))).whole("last_iteration", low=-1))
        except (OSError, ValueError, FieldsError):
            return False
    return len(ends) == 1
