"""``perseus-dist planner`` as a process, with its state in a folder."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from waiting import PATIENCE_S, wait_until


@dataclass(slots=True)
class Planner:
    """A running planner.

    Attributes:
        told: What its address file says.
    """

    process: "subprocess.Popen[str]"
    folder: Path
    told: dict[str, str]

    @property
    def address(self) -> str:
        return self.told["address"]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def planner(folder: Path, *options: str) -> Iterator[Planner]:
    """One with its state in a folder."""
    address_file = folder / "address.json"
    address_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "perseus_dist", "planner", "--address-file", str(address_file)]
    command += ["--state-dir", str(folder / "state"), *options]
    if "--bind" not in options:
        command += ["--bind", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, pipesize=1 << 20)  # logs are read late
    with process:
        try:
            wait_until(lambda: address_file.exists() or process.poll() is not None)
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            yield Planner(process, folder, json.loads(address_file.read_text()))
        finally:
            process.kill()
