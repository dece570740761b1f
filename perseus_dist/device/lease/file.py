"""One file per GPU that outlives a crash: who holds the clocks (a file lock), and whether they were touched (content).

The kernel lifts the lock when the last thread of the holder is gone, so also after a call that hung in the driver. Who
then takes the lock and finds the file not empty has to restore the clocks first. Files stay; an empty one says nothing.
"""

import fcntl
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from perseus_dist.device.rights import SIMULATED_GPUS
from perseus_dist.errors import PerseusError

SYSTEM_FOLDER = "/run/perseus-dist"
_SUFFIX = ".lease"


class LeaseFileError(PerseusError):
    """A lease that another process holds, or a folder that cannot be used."""


def lease_folder(environ: Mapping[str, str]) -> Path:
    """Where leases are kept: ``PERSEUS_LEASE_DIR``, else the system's place for root, else the user's own.

    Those of simulated GPUs are kept beside their state.
    A temporary file system is right: a reboot lifts all locks.
    """
    if named := environ.get("PERSEUS_LEASE_DIR"):
        return Path(named)
    if state := environ.get(SIMULATED_GPUS):
        return Path(state).with_name("leases")
    if os.geteuid() == 0:
        return Path(SYSTEM_FOLDER)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime, "perseus-dist")
    return Path(f"/tmp/perseus-dist-{os.geteuid()}")


def prepare_lease_folder(folder: Path) -> None:
    """Make the folder for all to read, whatever the umask is, and refuse one that somebody else could write to.

    Raises:
        LeaseFileError: It cannot be made, is not ours, or others can write to it.
    """
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        for made in missing:
            made.chmod(0o755)
        status = folder.stat()
    except OSError as error:
        raise LeaseFileError(f"{folder}: cannot be made or read ({error.strerror}); set PERSEUS_LEASE_DIR") from None
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LeaseFileError(
            f"{folder}: belongs to user id {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}; expected a "
            f"folder that only user id {os.geteuid()} can write to; set PERSEUS_LEASE_DIR to another"
        )


class LeaseFile:
    """The lease on one GPU. To be used from one thread."""

    def __init__(self, folder: Path, gpu_uuid: str) -> None:
        self._path = folder / f"{gpu_uuid}{_SUFFIX}"
        self._fd = -1

    def take(self, holder: str) -> bool:
        """Take the lease.

        Args:
            holder: Who takes it, for the sentence that others read.

        Returns:
            Whether the holder before died with the clocks touched: restore them first.

        Raises:
            LeaseFileError: Another process holds it, or the file cannot be used.
        """
        if self._fd < 0:
            try:
                # No symbolic link is followed: root opens files here.
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except OSError as error:
                raise LeaseFileError(f"{self._path}: cannot be opened ({error.strerror})") from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                text = os.pread(fd, 512, 0).decode(errors="replace").strip()
                os.close(fd)
                raise LeaseFileError(
                    f"another process holds the clocks of {self._path.stem}" + (f": {text}" if text else "")
                ) from None
            with suppress(OSError):
                os.fchmod(fd, 0o644)  # whatever the umask is: every user may read whose lease a GPU is
            self._fd = fd
        self._holder = holder
        return os.fstat(self._fd).st_size > 0

    def is_held(self) -> bool:
        """Whether another process holds the lease. Makes no file, and takes nothing from a holder."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def touch(self) -> None:
        """Write down, durably, that the clocks will be touched.

        Raises:
            LeaseFileError: It cannot be written, so nothing must be touched.
        """
        record = json.dumps({"pid": os.getpid(), "holder": self._holder}).encode() + b"\n"
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, record, 0)
            os.fsync(self._fd)
        except OSError as error:
            raise LeaseFileError(
                f"{self._path}: cannot be written ({error.strerror}), and without it a crash would leave clocks locked"
            ) from None

    def clear(self) -> None:
        """The clocks are as they were. A file that cannot be cleared costs one restore too many, later."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.fsync(self._fd)

    def give_back(self) -> None:
        """Let others take the lease."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def touched_gpus(folder: Path) -> list[str]:
    """UUIDs of GPUs whose clocks somebody has touched, dead or alive."""
    if not folder.is_dir():
        return []
    return sorted(path.stem for path in folder.glob(f"*{_SUFFIX}") if path.stat().st_size > 0)
