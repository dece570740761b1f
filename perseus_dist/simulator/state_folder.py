"""Folders for the state of simulated machines, which are memory and must not outlive a machine that was killed.

The process that makes a folder holds a lock on a file in it. The kernel gives the lock back however the process ends,
so a folder whose lock can be had belongs to no machine, and the next one removes it.
"""

import fcntl
import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

_PREFIX = "perseus-sim-"
_LOCK_FILE = "held"


class StateFolder:
    """A folder of one's own, for as long as the process lives."""

    def __init__(self, parent: str | None) -> None:
        """Make it, and remove what killed machines of this user left beside it.

        Args:
            parent: Where; None for the temporary folder.

        Raises:
            OSError: It cannot be made.
        """
        _remove_abandoned(Path(parent or gettempdir()))
        self._folder = TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True)
        self.path = Path(self._folder.name)
        self.path.chmod(0o711)  # other users may find the state in it, not list it
        unnamed = self.path / f"{_LOCK_FILE}.new"  # locked before another machine can find it
        self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK_FILE)

    def cleanup(self) -> None:
        """Remove it. Again: nothing."""
        self._folder.cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # no machine's, or just gone
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its machine lives
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
