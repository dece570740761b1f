"""Where a planner keeps what outlives it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perseus_dist.errors import OutputError
from perseus_dist.planner.store.state_lock import StateLock

DATABASE = "planner.sqlite"
RIGHTS = "access.sqlite"
OPERATOR_TOKEN = "operator-token"
STATE_ID = "store-id"
SIGNAL_ANSWERS = "signal-answers"


def make_state_dir(path: Path) -> None:
    """Make it if it is missing, for its user alone.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: cannot be made ({error.strerror}); name a folder with --state-dir") from error


@contextmanager
def removed_unless_kept(path: Path | None) -> Iterator[Callable[[], None]]:
    """Remove a state folder that is made in this context, with its parents, unless the yielded function is called.

    A planner that is refused before it serves leaves no trace; a folder that was there before stays as it is.
    """
    missing = [] if path is None else [one for one in (path, *path.parents) if not one.exists()]
    is_kept = False

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    try:
        yield keep
    finally:
        if path is not None and path in missing and not is_kept:
            _remove(path, missing)


def _remove(path: Path, folders: list[Path]) -> None:
    try:
        lock = StateLock(path)
    except OSError:  # there is none, or another planner has it by now
        return
    with suppress(OSError):
        for name in (DATABASE, RIGHTS, OPERATOR_TOKEN, STATE_ID):
            for file in path.glob(f"{name}*"):
                file.unlink()
        for folder in folders:
            folder.rmdir()
    lock.release()
