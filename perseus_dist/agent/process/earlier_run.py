"""An earlier run in the folder that a job was given for its report: its record is written before its files go.

Rank 0's agent writes it, from the files of all ranks. The other agents keep theirs until it has.
"""

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.runlog.file_names import JOB_FILE

if TYPE_CHECKING:
    from perseus_dist.runlog.job import JobRecord

_MAX_RANKS = 64
"""Of an earlier run that is read here, some 20 ms each: larger ones wait for their report or epilog."""

_FRESH_S = 3.0
_LAST_WORD_S = 2.0
_TAKEN_OVER_S = 4.0  # by rank 0's agent, which may wait itself, and reads the files of many ranks
_POLL_S = 0.05


def finish_predecessor(folder: Path, *, is_continued: bool) -> "JobRecord | None":
    """Write the record of an earlier run in a report folder before its files go, as rank 0's agent.

    Where that run was written a moment ago, as behind a change of the batch, its agents may still write their last
    words: they have 2 s.

    Args:
        folder: Of the report.
        is_continued: Whether the run is this one, of an agent that was killed: what that knew of it is returned.
    """
    from perseus_dist.runlog.accounting.finish import finish_if_possible
    from perseus_dist.runlog.accounting.record_files import moment
    from perseus_dist.runlog.job import RunFilesError, read_job

    with suppress(RunFilesError, OSError, ValueError, OverflowError):
        if not (folder / JOB_FILE).is_file():  # a pipe there would be waited for
            return None
        job = read_job(folder / JOB_FILE)
        if is_continued:
            datetime.fromisoformat(job.started_at)  # raises where it is damaged
            return job
        if job.num_ranks <= _MAX_RANKS:
            written_at = moment(job.updated_at)
            is_fresh = written_at is not None and abs((datetime.now(UTC) - written_at).total_seconds()) < _FRESH_S
            finish_if_possible(folder, is_final=False, patience_s=_LAST_WORD_S if is_fresh else 0.0)
            finish_if_possible(folder, is_final=True)
    return None


def wait_until_finished(folder: Path, run_id: str, *, longest_s: float = _TAKEN_OVER_S) -> None:
    """Wait until rank 0's agent has read what the files of an earlier run say, as another rank's agent.

    Args:
        folder: Of the report.
        run_id: Of this run.
        longest_s: Rank 0 may write its files elsewhere, or not at all.
    """
    until_s = time.monotonic() + longest_s
    while is_of_another_run(folder, run_id) and time.monotonic() < until_s:
        time.sleep(_POLL_S)


def is_of_another_run(folder: Path, run_id: str) -> bool:
    """Whether a report folder holds what rank 0's agent of another run has written; not where it holds nothing."""
    path = folder / JOB_FILE
    with suppress(OSError, ValueError, RecursionError):
        document = json.loads(path.read_bytes()) if path.is_file() else None
        return isinstance(document, dict) and document.get("run_id", "") != run_id
    return False
