"""The planner that rank 0's agent runs for a job without one: started again when it dies, gone with the job."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from perseus_dist.boundaries.rank_spec import RankSpec
from perseus_dist.errors import PerseusError
from perseus_dist.planning.output_file import replace_file
from perseus_dist.rpc.node_jobs import (
    RENDEZVOUS_PREFIX,
    SHARED_PORT_FILE,
    TOKEN_FILE,
    address_file,
    hold_rendezvous,
    register_job,
    state_folders,
    state_prefix,
    sweep_dead_jobs,
    sweep_state,
)

_log = logging.getLogger(__name__)

_END_S = 5.0
_FIRST_DELAY_NS = 500_000_000
_MAX_RESTARTS = 5
_STEADY_NS = 60_000_000_000  # one that has lived this long has not died of what it is


class EmbeddedPlanner:
    """A planner process. What it must remember lies in a folder of its own in the rendezvous, for its successor.

    Args:
        folder: The rendezvous; None for a private one, where no other rank looks for it.
        spec: Of rank 0.
        now_ns: CLOCK_MONOTONIC.
        is_continued: Whether an agent that was killed has run one there before: that one ends, and what it left goes.
        cache: File that keeps the job's profile and plans for its next start; None keeps nothing.

    Attributes:
        folder: The rendezvous, locked while the planner or this process lives. Removed at the end if nothing of others
            is in it.

    Raises:
        OSError, OutputError: The folder cannot be made or written to, or no process can be started. Lock, entry and
            files are released and removed then.
    """

    def __init__(
        self,
        folder: Path | None,
        spec: RankSpec,
        now_ns: int,
        *,
        is_continued: bool = False,
        cache: Path | None = None,
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix=RENDEZVOUS_PREFIX))
        self._lock: int | None = None
        self._entry: Path | None = None
        self._state: Path | None = None
        self._address_file = address_file(self.folder, spec.job_id)
        self._num_restarts = 0
        self._restart_ns: int | None = None
        self._started_ns = now_ns
        try:
            self._lock = hold_rendezvous(self.folder)
            found_by = _remove_predecessor(self.folder, spec.job_id) if is_continued else {}
            sweep_dead_jobs()
            self._entry = self._register(spec.job_id)
            state = self._state = Path(tempfile.mkdtemp(prefix=state_prefix(spec.job_id), dir=self.folder))
            for name, content in found_by.items():
                replace_file(state / name, content, mode=0o600)
            self._address_file.unlink(missing_ok=True)  # of an earlier run
            self._command = self._make_command(spec, state, cache)
            self._process = self._start()
        except BaseException:  # or commands would report a planner that is starting, for the whole job
            self._clean_up()
            raise
        self._is_running = True

    @property
    def pid(self) -> int:
        """Of the newest process."""
        return self._process.pid

    def look_after(self, now_ns: int) -> None:
        """Start it again some time after it has died, unless it dies again and again."""
        if self._restart_ns is not None and now_ns >= self._restart_ns:
            self._restart_ns, self._started_ns = None, now_ns
            try:
                self._process = self._start()
            except OSError as error:
                _log.warning("the job's planner cannot be started again: %s; the job goes on without one", error)
                return
            self._is_running = True
        elif self._is_running and self._process.poll() is not None:
            self._is_running = False
            self._remove_address()  # or the other ranks would go on trying to reach it there
            if now_ns >= self._started_ns + _STEADY_NS:
                self._num_restarts = 0
            status = self._process.returncode
            if self._num_restarts == _MAX_RESTARTS:
                _log.warning(
                    "the job's planner has ended %d times, now with status %d: the job goes on without one",
                    _MAX_RESTARTS + 1,
                    status,
                )
                return
            _log.warning("the job's planner has ended with status %d: starting it again", status)
            self._restart_ns = now_ns + (_FIRST_DELAY_NS << self._num_restarts)
            self._num_restarts += 1

    def end(self) -> None:
        """Ask it to drain and end; remove what it has written."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._remove_address()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._state is not None:
            shutil.rmtree(self._state, ignore_errors=True)
        with suppress(OSError):  # files of others are in it
            self.folder.rmdir()
        if self._entry is not None:
            with suppress(OSError):
                self._entry.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_command(self, spec: RankSpec, state: Path, cache: Path | None) -> list[str]:
        command = [sys.executable, "-P", "-m", "perseus_dist", "planner", "--embedded"]
        command += ["--parent", str(os.getpid())]
        command += ["--address-file", str(self._address_file), "--state-dir", str(state)]
        command += ["--bind", spec.options.get("planner_bind", "127.0.0.1:0")]
        command += ["--stragglers", spec.options.get("planner_stragglers", "act")]
        if "planner_share" in spec.options:
            command += ["--share", spec.options["planner_share"]]
        if cache is not None:
            command += ["--cache", str(cache), "--job", spec.job_id]
        return command

    def _start(self) -> "subprocess.Popen[bytes]":
        # The planner inherits the lock, so that the folder counts as held until agent and planner have both ended.
        held = () if self._lock is None else (self._lock,)
        return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=held)

    def _register(self, job_id: str) -> Path | None:
        """Let operators find the job by its name; without an entry they need the planner's address."""
        try:
            return register_job(job_id, self.folder)
        except (OSError, PerseusError) as error:
            _log.debug("operators' commands will not find this job by its name: %s", error)
            return None

    def _remove_address(self) -> None:
        """Unless it is another planner's by now: of the same job, begun anew."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads(self._address_file.read_text())["pid"] == self._process.pid:
                self._address_file.unlink()


def _remove_predecessor(folder: Path, job_id: str) -> dict[str, bytes]:
    """Remove what the planner of the job's killed agent has left.

    Returns:
        The files by which other nodes find its successor.
    """
    kept: dict[str, bytes] = {}
    for left in state_folders(folder, job_id):
        for name in (SHARED_PORT_FILE, TOKEN_FILE):
            with suppress(OSError):
                kept[name] = (left / name).read_bytes()
        sweep_state(left)
    return kept
