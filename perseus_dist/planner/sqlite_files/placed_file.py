"""A database's file that may be deleted or replaced while it is open: what is written to it then is lost."""

import os
from pathlib import Path


class PlacedFile:
    """The file of a database that has just been opened.

    Args:
        path: Of the file; None for a database in memory, which is always in its place.

    Raises:
        OSError: It cannot be looked at.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened = None if path is None else path.stat()

    def trouble(self) -> str:
        """Why nothing is stored that is written to the file, a sentence; empty while it is in its place."""
        if self._path is None or self._opened is None:
            return ""
        try:
            is_there = os.path.samestat(self._path.stat(), self._opened)
        except FileNotFoundError:
            is_there = False
        except OSError:  # SQLite tells what is wrong
            is_there = True
        if is_there:
            return ""
        return (
            f"{self._path}: was replaced or deleted while the planner used it, so nothing is stored; "
            "move it back, or start the planner again"
        )
