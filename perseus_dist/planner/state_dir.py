"""Where a planner keeps what outlives it."""

import os
from pathlib import Path

from perseus_dist.errors import OutputError

DATABASE = "planner.sqlite"
OPERATOR_TOKEN = "operator-token"


def default_state_dir() -> Path:
    """The user's: ``$XDG_STATE_HOME/perseus-dist``, or ``~/.local/state/perseus-dist``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "perseus-dist"


def make_state_dir(path: Path) -> None:
    """Make it if it is missing, for its user alone.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror}); name a folder with --state-dir") from error
