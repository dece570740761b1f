"""The folder with the logs of a simulated run."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from perseus_dist.errors import OutputError


@dataclass(slots=True)
class LogFolder:
    """A folder for one run.

    Attributes:
        is_kept: Whether it stays although the user named none.
    """

    path: Path
    is_kept: bool = False


@contextmanager
def log_folder(named: Path | None) -> Iterator[LogFolder]:
    """The folder that was named, or a new one, which stays only where the run failed.

    Raises:
        OutputError: It cannot be made, or has files in it.
    """
    if named is None:
        folder = LogFolder(Path(mkdtemp(prefix="perseus-simulate-")))
        print(f"logs are in {folder.path} while it runs", file=sys.stderr, flush=True)
        try:
            yield folder
        except KeyboardInterrupt:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        if not folder.is_kept:
            shutil.rmtree(folder.path)
        return
    try:
        named.mkdir(parents=True, exist_ok=True)
        if any(named.iterdir()):
            raise OutputError(f"--log-dir {named}: saw a folder with files in it; name a new or an empty one")
    except OSError as error:
        raise OutputError(f"--log-dir {named}: cannot be made ({error.strerror}); name another folder") from None
    yield LogFolder(named, is_kept=True)
