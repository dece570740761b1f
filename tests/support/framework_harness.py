"""A process that runs cases with a real framework, so that tests import none; ``fork_harness.py`` is its other end."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from waiting import PATIENCE_S

FOLDER = Path(__file__).parents[1] / "integration"

Seen = dict[str, Any]


class Harness:
    """Has the framework imported. Each case forks its ranks from it."""

    def __init__(self, script: str, environment: Mapping[str, str], *, runner: Sequence[str] = ()) -> None:
        """Start it.

        Args:
            script: In ``tests/integration``.
            environment: Beside this process's, of which it gets nothing of Perseus.
            runner: Words before the script's name.
        """
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERSEUS_")}
        read_fd, write_fd = os.pipe()
        self._answers = os.fdopen(read_fd)
        self._process = subprocess.Popen(
            [sys.executable, *runner, str(FOLDER / script), str(write_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_fd,),
            text=True,
            env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        )
        os.close(write_fd)
        self.version = ""

    @contextmanager
    def running(self) -> Iterator[Self]:
        """From when the framework is imported until the end of the process."""
        try:
            self.version = self._answer()["version"]
            yield self
        finally:
            self._end()

    def run(self, **case: Any) -> list[Seen]:
        """What each rank saw."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        seen: list[Seen] = self._answer()
        for rank in seen:
            assert "failed" not in rank, rank["failed"]
        return seen

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._answers.close()

    def _answer(self) -> Any:
        line = self._answers.readline()
        assert line, "the harness has ended"
        return json.loads(line)
