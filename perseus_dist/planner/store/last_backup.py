"""When the state folder was last backed up, as ``state backup`` writes it down there."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

from perseus_dist.planning.output_file import replace_file

OLD_S = 8 * 86400.0
"""[s] A weekly backup is never this old."""

_NOTE = "last-backup"
_MODE = 0o644  # root may take the backup, and the planner is another user; the folder is the planner's alone


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBackup:
    """The newest backup.

    Attributes:
        time_s: Unix time at which it was there.
        file: Its path.
    """

    time_s: float
    file: str


def note_backup(state_dir: Path, backup: Path) -> None:
    """Write down that there is a backup as of now.

    Raises:
        OutputError: The folder cannot be written to.
    """
    note = {"time_s": time.time(), "file": str(backup.absolute())}
    replace_file(state_dir / _NOTE, json.dumps(note).encode() + b"\n", mode=_MODE)


def last_backup(state_dir: Path) -> LastBackup | None:
    """The newest backup; None where none is known."""
    try:
        note = json.loads((state_dir / _NOTE).read_bytes())
        time_s = float(note["time_s"])
        return LastBackup(time_s=time_s, file=str(note["file"])) if math.isfinite(time_s) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
