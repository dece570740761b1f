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

_leaving: dict[str, list[Callable[[], None]]] = {}  # by folder of which a report will be made, what is called before


def make_report_at_exit(
    folder: str, leave: Callable[[], None], *, was_asked_to_end: Callable[[], bool] = lambda: False
) -> None:
    """Make the report as this process ends; for a folder that cannot be written to, warn now and make none.

    Again for the same folder, as for a schedule that is made anew: one report has all of it, once all have left.

    Args:
        folder: Absolute path.
        leave: Ends the rank's part in the job; called before.
        was_asked_to_end: Whether the framework's own handler has seen a signal, after which it saves and ends.
    """
    if folder in _leaving:
        _leaving[folder].append(leave)
        return
    try:
        report = ReportLauncher(folder)
    except OptionError as error:
        _log.warning("perseus: there will be no report: %s", error)
        return
    _leaving[folder] = [leave]
    atexit.register(_make, report, _leaving[folder], was_asked_to_end, os.getpid())


def _make(
    report: ReportLauncher, leaving: list[Callable[[], None]], was_asked_to_end: Callable[[], bool], pid: int
) -> None:
    if os.getpid() != pid:  # a fork, whose parent makes it
        return
    with suppress(KeyboardInterrupt):  # which would be shown as an error of this function
        for leave in leaving:
            leave()
        if hasattr(sys, "last_value") or was_asked_to_end():  # an exit after a traceback or a signal is not delayed
            report.tell_command()
        else:
            report.make()
