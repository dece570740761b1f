"""The report at the end of a job, made by a process of its own, so that it delays no exit that must not be delayed."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from perseus_dist.runlog.file_names import JOB_FILE
from perseus_dist.training.options import OptionError

_log = logging.getLogger(__name__)

LONGEST_AFTER_FAILURE_S = 2.5
"""How long the end of a job that failed, or was asked to end, waits for its report."""

_FIRST_WAIT_S = 2.0
"""How long rank 0's agent may take for its first word; a short job ends before that."""
_LAST_WAIT_S = 8.0
"""How long it may take for its last word; it gives itself 5 s."""
_SILENCE_S = 6.0
"""After so long without a word, longer than it waits for the other ranks' end, it was ended together with its rank."""
_POLL_S = 0.1
_NO_FILE = (0, 0)


class ReportLauncher:
    """A folder that a job's agents write to, and what is made of it in the end. Its trouble is never the job's.

    Args:
        folder: Absolute path; made where it is not there yet.

    Raises:
        OptionError: It cannot be written to.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"--perseus-report {folder}: no folder can be made there ({error.strerror})") from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise OptionError(f"--perseus-report {folder}: this user may not write there")
        self._before = _version(self._folder)

    def make(self, *, longest_s: float | None = None) -> None:
        """Wait for the agents' last word, then run ``perseus-dist report`` on the folder.

        Args:
            longest_s: After that the report is made in the background, and the caller goes on.
        """
        # -P: modules in the working directory must not stand in for installed ones.
        command = [sys.executable, "-P", "-m", __name__, str(self._folder), *map(str, self._before)]
        process = None
        try:
            # A session of its own: Ctrl-C reaches us, and we end it.
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
            process.wait(longest_s)
        except subprocess.TimeoutExpired:
            assert process is not None
            process.returncode = 0  # it outlives this object on purpose, which would otherwise warn of that
            _log.warning(
                "the report is made in the background; if it does not come: perseus-dist report %s", self._folder
            )
        except KeyboardInterrupt:
            if process is not None:  # else it came while the process was started, which then goes on by itself
                process.kill()
                process.wait()
            self.tell_command()
            raise
        except OSError as error:
            _log.warning("no report was made of %s: %s", self._folder, error)

    def tell_command(self) -> None:
        """Say how to make the report: an interrupted job does not wait for it."""
        if _version(self._folder) != self._before:
            _log.warning("no report was made; to make it: perseus-dist report %s", self._folder)


def await_last_word(folder: Path, before: tuple[int, int]) -> bool:
    """Wait until a job's agents have written all that they will.

    Args:
        folder: Where they write.
        before: The version of ``job.json`` that an earlier job left there.

    Returns:
        Whether there is anything to report; if not, a warning has said why.
    """
    if not _wait_for_change(folder, before, _FIRST_WAIT_S):
        _log.warning(
            "no report: no job wrote %s. It ended before its first iteration, trained without a pipeline, "
            "or ran on hosts that do not share the folder",
            _job_file(folder),
        )
        return False
    deadline = time.monotonic() + _LAST_WAIT_S
    while not _has_ended(folder) and time.monotonic() < deadline:
        if not _wait_for_change(folder, _version(folder), _SILENCE_S):
            break
    return True


def _job_file(folder: Path) -> Path:
    return folder / JOB_FILE


def _version(folder: Path) -> tuple[int, int]:
    """Changes whenever the job's file is replaced."""
    try:
        status = _job_file(folder).stat()
    except OSError:
        return _NO_FILE
    return status.st_ino, status.st_mtime_ns


def _has_ended(folder: Path) -> bool:
    try:
        job = json.loads(_job_file(folder).read_bytes())
        return job["phase"] == "done" or job["ended_at"] is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _wait_for_change(folder: Path, version: tuple[int, int], longest_s: float) -> bool:
    """Whether the job's file became another than it was, within that time."""
    deadline = time.monotonic() + longest_s
    while _version(folder) == version and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return _version(folder) != version


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if not await_last_word(Path(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3]))):
        sys.exit(2)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "perseus_dist", "report", sys.argv[1]])
