"""Two ways to a lease daemon: the node's own by its socket, or a private process that is spawned for the purpose."""

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from perseus_dist.device.rights import SIMULATED_GPUS
from perseus_dist.unix_socket import unix_address

DEFAULT_CLOCKD_SOCKET = "/run/perseus-dist/clockd.sock"
DEFAULT_ZEUSD_SOCKET = "/run/zeusd/zeusd.sock"
_PRIVATE_LEASE_S = 2.0
_CHILD_FD = 3


def clockd_socket(environ: Mapping[str, str]) -> str:
    """Where clockd is looked for: ``PERSEUS_CLOCKD_SOCKET``, else the usual place, or the simulated machine's."""
    return environ.get("PERSEUS_CLOCKD_SOCKET") or _beside_simulated(environ, DEFAULT_CLOCKD_SOCKET)


def zeusd_socket(environ: Mapping[str, str]) -> str:
    """Where zeusd is looked for: ``ZEUSD_SOCK_PATH``, as its own clients do, else as above."""
    return environ.get("ZEUSD_SOCK_PATH") or _beside_simulated(environ, DEFAULT_ZEUSD_SOCKET)


def _beside_simulated(environ: Mapping[str, str], usual: str) -> str:
    """Daemons of the real machine know nothing of simulated GPUs, and must not be asked for them."""
    state = environ.get(SIMULATED_GPUS)
    return str(Path(state).with_name(Path(usual).name)) if state else usual


class SocketConnector:
    """To the node's daemon."""

    answer_s = 3.0

    def __init__(self, path: str) -> None:
        self._path = path

    def connect(self) -> socket.socket:
        """See ``Connector``. Never waits: a daemon whose queue of new connections is full counts as not there."""
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(0)
        try:
            with unix_address(self._path) as address:
                connected.connect(address)
        except OSError:
            connected.close()
            raise
        return connected

    def end_hung(self, pid: int) -> bool:  # noqa: ARG002 - as the protocol wants it
        """The node's daemon is the business of those who run it: systemd's watchdog ends it."""
        return False

    def close(self) -> None:
        """Nothing to tidy up."""


class ProcessConnector:
    """To a private lease process, a new one after every loss: it then restores first what the lost one left."""

    answer_s = 10.0  # a second is usual; a machine that starts hundreds of ranks at once takes longer

    def __init__(self, name: str, gpu_uuid: str, folder: Path, environ: Mapping[str, str], *arguments: str) -> None:
        """Prepare.

        Args:
            name: ``direct`` or ``zeusd``.
            gpu_uuid: The GPU that it is for, as NVML writes it.
            folder: Of the lease files.
            environ: The process's environment.
            arguments: What follows on its command line.
        """
        self._command = [sys.executable, "-P", "-m", "perseus_dist.device.lease.process", str(_CHILD_FD), name]
        self._command += [gpu_uuid, str(_PRIVATE_LEASE_S), str(folder), *arguments]
        self._environ = dict(environ)
        self._pid = 0

    def connect(self) -> socket.socket:
        """See ``Connector``. Takes as long as spawning does, some milliseconds."""
        self._reap()
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        with theirs:
            # Well away from the number that it gets there: duplicating onto itself would keep it close-on-exec.
            inherited = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 10 * _CHILD_FD)
            try:
                self._pid = os.posix_spawn(
                    sys.executable,
                    self._command,
                    self._environ,
                    file_actions=[
                        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, inherited, _CHILD_FD),
                    ],
                    setsid=True,  # Ctrl-C on the trainer's terminal is not for it; it leaves our process tree by itself
                )
            except OSError:
                ours.close()
                raise
            finally:
                os.close(inherited)
        return ours

    def end_hung(self, pid: int) -> bool:
        """Kill it, if it has told its process id."""
        if pid <= 0:  # a process group
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
        return True

    def close(self) -> None:
        """Collect the end of the process that was spawned; the lease process itself is a child of init."""
        self._reap()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            if self._pid and os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                return
        self._pid = 0
