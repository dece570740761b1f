"""Where a planner keeps what outlives it."""

from pathlib import Path

from perseus_dist.errors import OutputError

DATABASE = "planner.sqlite"
RIGHTS = "access.sqlite"
OPERATOR_TOKEN = "operator-token"
STATE_ID = "store-id"


def make_state_dir(path: Path) -> None:
    """Make it if it is missing, for its user alone.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror}); name a folder with --state-dir") from error
