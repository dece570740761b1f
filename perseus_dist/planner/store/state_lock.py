"""A state folder has one user: the planner that serves from it, or the command that replaces what is in it."""

import fcntl
import os
from pathlib import Path


class StateLock:
    """An exclusive lock on a folder, which ends with its process at the latest.

    File systems that lock no folders, such as NFS, leave it to SQLite's own lock on the database.
    """

    def __init__(self, folder: Path) -> None:
        """Take it.

        Raises:
            BlockingIOError: Another process has it.
            OSError: The folder cannot be opened.
        """
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise
        except OSError:
            pass  # not on this file system

    def release(self) -> None:
        """Let others have it. Once only."""
        os.close(self._descriptor)
