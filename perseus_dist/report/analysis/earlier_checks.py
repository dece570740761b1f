"""Checks that were made after a run, from the report that was written of it then."""

from pathlib import Path
from typing import NamedTuple

from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.file_names import REPORT_FILE
from perseus_dist.runlog.job import JobRecord
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json


class Checks(NamedTuple):
    """As ``RunReport`` has them; None for what was not checked."""

    losses_equal: bool | None = None
    clocks_left_locked: int | None = None


def earlier_checks(folder: Path, job: JobRecord) -> Checks:
    """Checks in the folder's ``report.json``, where that is of the same run; a spoilt one counts as none.

    Args:
        folder: The run's.
        job: The run, known by its name and the moment in which it began.
    """
    try:
        document = read_json(read_content(folder / REPORT_FILE))
        earlier = Fields(document)
        if (earlier.text("job_id"), earlier.text("started_at")) != (job.job_id, job.started_at):
            return Checks()
        equal, locked = (document.get(name) is not None for name in Checks._fields)
        return Checks(
            losses_equal=earlier.flag("losses_equal") if equal else None,
            clocks_left_locked=earlier.whole("clocks_left_locked") if locked else None,
        )
    except (OSError, ValueError, FieldsError):
        return Checks()
