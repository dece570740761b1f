"""Where the planner is: where the user said, or in the folder where the embedded one of rank 0 leaves its address."""

import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perseus_dist.agent.link import PlannerAddress
from perseus_dist.boundaries.rank_spec import RankSpec

_log = logging.getLogger(__name__)

_END_S = 5.0

FindPlanner = Callable[[], PlannerAddress | None]


def find_named(address: str, token_file: str | None) -> FindPlanner:
    """The planner that the user named; its token is read each time, since it may change."""

    def find() -> PlannerAddress:
        from perseus_dist.rpc.connection import read_token

        return PlannerAddress(address, "" if token_file is None else read_token(Path(token_file)))

    return find


def find_in_folder(folder: Path, job_id: str) -> FindPlanner:
    """The planner that rank 0 starts, as soon as its file is there."""
    path = address_file(folder, job_id)

    def find() -> PlannerAddress | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text())
            return PlannerAddress(str(found["address"]), str(found["token"]))
        return None

    return find


def address_file(folder: Path, job_id: str) -> Path:
    """Where a job's embedded planner leaves its address and token."""
    return folder / f"perseus-planner-{job_id}.json"


class EmbeddedPlanner:
    """A planner that rank 0's agent starts for a job without one; it ends with the agent.

    Args:
        folder: The rendezvous; None for a private one, where no other rank looks for it.
        spec: Of rank 0.
    """

    def __init__(self, folder: Path | None, spec: RankSpec) -> None:
        self._private = None
        if folder is None:
            self._private = tempfile.TemporaryDirectory(prefix="perseus-")
            folder = Path(self._private.name)
        self.folder = folder
        self._address_file = address_file(self.folder, spec.job_id)
        self._address_file.unlink(missing_ok=True)  # of an earlier run
        command = [sys.executable, "-m", "perseus_dist", "planner", "--embedded"]
        command += ["--address-file", str(self._address_file)]
        command += ["--bind", spec.options.get("planner_bind", "127.0.0.1:0")]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _log.info("planner embedded, process %d", self._process.pid)

    def end(self) -> None:
        """Ask it to drain and end."""
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            self._address_file.unlink(missing_ok=True)
        if self._private is not None:
            self._private.cleanup()
