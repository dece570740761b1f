"""Whether the host of a simulated GPU keeps up, written into the report's folder while a rank trains."""

from contextlib import suppress
from pathlib import Path
from time import monotonic

from perseus_dist.errors import OutputError
from perseus_dist.runlog.host_pace import HostPace, write_host_pace
from perseus_dist.training.rank.device import Device

_INTERVAL_S = 2.0


class HostPaceFile:
    """The file of one rank.

    Args:
        rank: The rank.
        report: The report's folder; None for no report.
    """

    def __init__(self, *, rank: int, report: str | None) -> None:
        self._rank = rank
        self._report = report
        self._due_s = monotonic() + _INTERVAL_S  # by then the agent has removed an earlier run's files

    def keep(self, device: Device | None, *, is_over: bool = False) -> None:
        """On a simulated GPU, write whether the host keeps up: every 2 s, and at the end."""
        pace = None if device is None else device.host_pace()
        now_s = monotonic()
        if pace is None or self._report is None or not (is_over or now_s >= self._due_s):
            return
        self._due_s = now_s + _INTERVAL_S
        with suppress(OutputError):  # the agent says what is wrong with the folder
            num_instructions, num_outlasting = pace
            write_host_pace(
                Path(self._report),
                self._rank,
                HostPace(num_instructions=num_instructions, num_outlasting=num_outlasting),
            )
