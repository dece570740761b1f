"""The folder where this user's planners, and entries of jobs that embed one, are kept."""

import os
from pathlib import Path

from perseus_dist.errors import OutputError


def default_state_dir() -> Path:
    """The user's: ``$XDG_STATE_HOME/perseus-dist``, or ``~/.local/state/perseus-dist``.

    Raises:
        OutputError: The user has no home folder, and the environment names none.
    """
    named = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(named) if named else Path.home() / ".local/state") / "perseus-dist"
    except RuntimeError as error:
        raise OutputError(f"no home folder is known ({error}); set XDG_STATE_HOME or HOME") from error
