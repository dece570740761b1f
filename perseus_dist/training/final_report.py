"""The savings report of a job, made by rank 0 as it ends, since no launcher of ours outlives the job."""

import atexit
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from perseus_dist.training.options import OptionError
from perseus_dist.training.report_launcher import ReportLauncher

_log = logging.getLogger(__name__)

_folders: set[str] = set()  # of which a report will be made


def make_report_at_exit(
    folder: str, leave: Callable[[], None], *, was_asked_to_end: Callable[[], bool] = lambda: False
) -> None:
    """Make the report as this process ends; for a folder that cannot be written to, warn now and make none.

    Again for the same folder, as for a schedule that is made anew: nothing, since one report has all of it.

    Args:
        folder: Absolute path.
        leave: Ends the rank's part in the job; called before.
        was_asked_to_end: Whether the framework's own handler has seen a signal, after which it saves and ends.
    """
    if folder in _folders:
        return
    try:
        report = ReportLauncher(folder)
    except OptionError as error:
        _log.warning("perseus: there will be no report: %s", error)
        return
    _folders.add(folder)
    atexit.register(_make, report, leave, was_asked_to_end, os.getpid())


def _make(report: ReportLauncher, leave: Callable[[], None], was_asked_to_end: Callable[[], bool], pid: int) -> None:
    if os.getpid() != pid:  # a fork, whose parent makes it
        return
    with suppress(KeyboardInterrupt):  # which would be shown as an error of this function
        leave()
        if hasattr(sys, "last_value") or was_asked_to_end():  # an exit after a traceback or a signal is not delayed
            report.tell_command()
        else:
            report.make()
