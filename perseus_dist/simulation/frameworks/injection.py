"""Throttles in mid-run: done when training has come so far, and written down beside the job's report."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from perseus_dist.runlog.file_names import INJECTED_FILE
from perseus_dist.simulator.throttle import ThrottleScript


class Injection:
    """Follows a job, and writes a line for each throttle.

    The line has ``at`` (ISO 8601), ``iteration`` begun by then, ``gpu``, and ``thermal_cap_mhz`` or null.

    Args:
        script: When, in iterations.
        folder: Where to write; what an earlier run has left there goes.
        newest_iteration: The newest that has begun; -1 before the first.
    """

    def __init__(self, script: ThrottleScript, folder: Path, newest_iteration: Callable[[], int]) -> None:
        self._script = script
        self._path = folder / INJECTED_FILE
        self._path.unlink(missing_ok=True)
        self._newest_iteration = newest_iteration

    def look(self) -> None:
        """Do what is due; wanted a few times an iteration."""
        iteration = self._newest_iteration()
        for throttle in self._script.apply_due(iteration):
            line = {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "iteration": iteration,
                "gpu": throttle.gpu,
                "thermal_cap_mhz": throttle.cap_mhz,
            }
            with self._path.open("a") as file:
                file.write(json.dumps(line) + "\n")
