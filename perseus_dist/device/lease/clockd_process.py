"""A lease daemon as a child process, for simulations and tests."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from perseus_dist.device.lease.clockd import ClockdError
from perseus_dist.unix_socket import unix_address

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 15.0


class ClockdProcess:
    """``perseus-dist clockd`` on a socket and lease files of its own. A context manager.

    Attributes:
        environ: For processes that shall find this daemon: what was given, and where its socket and lease files are.
        process: The newest one.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], *options: str) -> None:
        """Prepare.

        Args:
            folder: For socket, lease files and log; must exist.
            environ: The daemon's environment, with that of a simulated machine in it.
            options: More words for its command line.
        """
        self.socket_path = folder / "clockd.sock"
        self.lease_folder = folder / "leases"
        self.log_path = folder / "clockd.log"
        self.environ = {
            **environ,
            "PERSEUS_CLOCKD_SOCKET": str(self.socket_path),
            "PERSEUS_LEASE_DIR": str(self.lease_folder),
            "PERSEUS_CONFIG": "off",
        }
        self._command = [sys.executable, "-P", "-m", "perseus_dist", "clockd", *options]
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and wait until it takes connections.

        Raises:
            ClockdError: It does not.
        """
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self.environ, stdin=subprocess.DEVNULL, stderr=log)
        until = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise ClockdError(f"the lease daemon does not start: {self.log_path.read_text()[-2000:]}")
            time.sleep(0.005)

    def kill(self) -> None:
        """End it at once, as a crash does: nothing is restored."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it in good order.

        Returns:
            Its exit code; negative if it had to be killed.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe, unix_address(self.socket_path) as address:
            return probe.connect_ex(address) == 0
