"""A process that runs cases with real schedules of ``torch.distributed.pipelining``, so that tests import no torch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S

HARNESS = Path(__file__).parents[1] / "integration" / "pipelining_harness.py"
STEPS = ("train", "attach", "train", "train", "eval", "train", "detach", "train")

Seen = dict[str, Any]


class Harness:
    """A process with torch imported."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PERSEUS_")}
        read_fd, write_fd = os.pipe()
        self._answers = os.fdopen(read_fd)
        self._process = subprocess.Popen(
            [sys.executable, str(HARNESS), str(write_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_fd,),
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        os.close(write_fd)
        self._answer()

    def run(self, schedules: tuple[str, ...], **case: Any) -> list[dict[str, Seen]]:
        """What each rank saw, by schedule."""
        assert self._process.stdin is not None
        case = {"pp": 2, "mb": 4, "steps": STEPS, "schedules": schedules, "is_refused": False, **case}
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        seen: list[dict[str, Seen]] = self._answer()
        for rank in seen:
            assert "failed" not in rank, rank["failed"]
        return seen

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._answers.close()

    def _answer(self) -> Any:
        line = self._answers.readline()
        assert line, "the harness has ended"
        return json.loads(line)
