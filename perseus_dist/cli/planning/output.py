"""Results that appear together, and progress on a terminal, for commands that compute for a while."""

import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from perseus_dist.errors import OutputError
from perseus_dist.planning.frontier.frontier import Progress
from perseus_dist.planning.output_file import move_output

_ENDING = (signal.SIGTERM, signal.SIGHUP)


class _EndedError(KeyboardInterrupt):
    """A signal that ends the process, so that it takes its files with it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def staged_output(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """A place to write result files; they move into ``folder`` one by one when the block ends, or not if it fails.

    The folder is made and tried on entry, before anything is computed. A failure within the block leaves the folder as
    it was; one while files move, as where a link leads to a place that cannot be written to, may leave some moved.

    Args:
        folder: Made if missing.
        names: All files that the block may write. What a success did not write is removed from the folder, so that all
            results there are of one run.

    Raises:
        OutputError: The folder cannot be made or written to, a name is taken by a folder, or a file cannot be moved.
    """
    with ExitStack() as undo:
        undo.enter_context(_undone_by_signals())
        try:
            for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
                missing.mkdir(exist_ok=True)
                undo.callback(_remove_if_empty, missing)
            staging = Path(undo.enter_context(TemporaryDirectory(prefix=".perseus-dist-", dir=folder)))
        except OSError as error:
            raise OutputError(
                f"--out {folder}: cannot be written to ({error.strerror}); name a folder that can be made or written to"
            ) from None
        for name in names:
            if (folder / name).is_dir():
                raise OutputError(f"--out {folder}: {name} is a folder there, expected a file or nothing; move it away")
        yield staging
        for name in names:
            if (staging / name).exists():
                move_output(staging / name, folder / name)
            elif (folder / name).is_file():
                (folder / name).unlink()


@contextmanager
def shown_progress() -> Iterator[Progress | None]:
    """A progress bar on standard error, from the first report on and gone at the end; None if that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with ExitStack() as end:
        bar = Bar(console=Console(stderr=True), transient=True)
        task = bar.add_task("", total=1.0)

        def report(phase: str, done: float) -> bool:
            bar.update(task, description=phase, completed=done)
            if not bar.live.is_started:
                end.enter_context(bar)
            return True

        yield report


@contextmanager
def _undone_by_signals() -> Iterator[None]:
    """End by an exception where SIGTERM or SIGHUP would end the process at once."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal wants it
        raise _EndedError(number)

    is_main = threading.current_thread() is threading.main_thread()
    fatal = [one for one in _ENDING if is_main and signal.getsignal(one) is signal.SIG_DFL]
    for one in fatal:
        signal.signal(one, end)
    try:
        yield
    finally:
        for one in fatal:
            signal.signal(one, signal.SIG_DFL)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
