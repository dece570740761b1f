"""The savings report at the end of a Megatron job."""

import sys
from collections.abc import Callable

from perseus_dist.training import final_report


def make_report_at_exit(folder: str, leave: Callable[[], None]) -> None:
    """As ``training.final_report.make_report_at_exit``."""
    final_report.make_report_at_exit(folder, leave, was_asked_to_end=_was_asked_to_end)


def _was_asked_to_end() -> bool:
    """Whether Megatron's own handler (``--exit-signal-handler``) has seen its signal, after which it saves and ends."""
    module = sys.modules.get("megatron.training.global_vars")
    handler = getattr(module, "_GLOBAL_SIGNAL_HANDLER", None)
    return getattr(handler, "_signal_received", False) is True
