"""The savings report of a job that no launcher outlives: made by rank 0 as it ends."""

import atexit
import logging
import os
import sys
from collections.abc import Callable

from perseus_dist.training.job_report import JobReport
from perseus_dist.training.options import OptionError

_log = logging.getLogger(__name__)


def make_report_at_exit(folder: str, leave: Callable[[], None]) -> None:
    """Have the report made as this process ends. A folder that cannot be written to is said now, and that is all.

    Args:
        folder: Absolute path.
        leave: Ends the rank's part in the job; called before.
    """
    try:
        report = JobReport(folder)
    except OptionError as error:
        _log.warning("perseus: there will be no report: %s", error)
        return
    atexit.register(_make, report, leave, os.getpid())


def _make(report: JobReport, leave: Callable[[], None], pid: int) -> None:
    if os.getpid() != pid:  # a fork, whose parent makes it
        return
    leave()
    if hasattr(sys, "last_value") or _was_asked_to_end():  # an exit after a traceback or a signal is not delayed
        report.tell_command()
    else:
        report.make()


def _was_asked_to_end() -> bool:
    """Whether Megatron's own handler (``--exit-signal-handler``) has seen its signal, after which it saves and ends."""
    module = sys.modules.get("megatron.training.global_vars")
    handler = getattr(module, "_GLOBAL_SIGNAL_HANDLER", None)
    return getattr(handler, "_signal_received", False) is True
