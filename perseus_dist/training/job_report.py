"""The report at the end of a job, made by whoever outlives the job's agents: its launcher, or its first rank."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from perseus_dist.training.options import OptionError

_log = logging.getLogger(__name__)

_FIRST_WAIT_S = 2.0
"""How long rank 0's agent may take for its first word; a short job ends before that."""
_LAST_WAIT_S = 8.0
"""How long it may take for its last word; it gives itself 5 s."""
_SILENCE_S = 6.0
"""After so long without a word, longer than it waits for the other ranks' end, it was ended together with its rank."""
_POLL_S = 0.1


class JobReport:
    """A folder that a job's agents write to, and what is made of it in the end. Its trouble is never the job's.

    Args:
        folder: Absolute path; made where it is not there yet.

    Raises:
        OptionError: It cannot be written to.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._job = self._folder / "job.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"--perseus-report {folder}: no folder can be made there ({error.strerror})") from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise OptionError(f"--perseus-report {folder}: this user may not write there")
        self._before = self._version()

    def make(self) -> None:
        """Wait for the agents' last word, then run ``perseus-dist report`` on the folder."""
        try:
            if not self._wait_for_change(self._before, _FIRST_WAIT_S):
                _log.warning(
                    "no report: no job wrote %s. It ended before its first iteration, trained without a pipeline, "
                    "or ran on hosts that do not share the folder",
                    self._job,
                )
                return
            deadline = time.monotonic() + _LAST_WAIT_S
            while not self._has_ended() and time.monotonic() < deadline:
                if not self._wait_for_change(self._version(), _SILENCE_S):
                    break
            # -P: modules in the working directory must not stand in for installed ones.
            subprocess.run([sys.executable, "-P", "-m", "perseus_dist", "report", str(self._folder)], check=False)
        except Exception as error:
            _log.warning("no report was made of %s: %s", self._folder, error)

    def tell_command(self) -> None:
        """Say how to make the report: whoever interrupts a job does not want to wait for it."""
        if self._version() != self._before:
            _log.warning("interrupted; for the report: perseus-dist report %s", self._folder)

    def _version(self) -> tuple[int, int] | None:
        """Changes whenever the file is replaced; None where there is none."""
        try:
            status = self._job.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def _has_ended(self) -> bool:
        try:
            job = json.loads(self._job.read_bytes())
            return job["phase"] == "done" or job["ended_at"] is not None
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _wait_for_change(self, version: tuple[int, int] | None, longest_s: float) -> bool:
        """Whether the file became another than it was, within that time."""
        deadline = time.monotonic() + longest_s
        while self._version() == version and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self._version() != version
