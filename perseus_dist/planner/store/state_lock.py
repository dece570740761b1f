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


def lock_state_dir(path: Path) -> StateLock:
    """Take the lock of the folder that a database is in.

    Raises:
        StoreError: Another planner has it, or there is no such folder.
    """
    # With NumPy below it, which commands that only name a state folder have no use for.
    from perseus_dist.planner.store.database import HeldError, StoreError

    try:
        return StateLock(path.parent)
    except BlockingIOError:
        raise HeldError(f"{path}: another planner holds it; end that one, or name another state folder") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened ({error}); name a writable folder as state folder") from error
