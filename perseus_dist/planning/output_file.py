"""Result files that appear whole or not at all."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from perseus_dist.errors import OutputError


def check_writable(path: Path) -> None:
    """Refuse a file that ``write_output`` could not write, before anything is done for it.

    Raises:
        OutputError: As ``write_output``.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        temporary.unlink()
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); expected a file name in an existing, writable folder"
        ) from None


def write_output(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file through a temporary neighbour, so that no reader and no crash ever sees half of it.

    Raises:
        OutputError: The folder is missing or cannot be written to, or the path is a folder.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OutputError(
            f"{target}: cannot be written ({error.strerror}); expected a file name in an existing, writable folder"
        ) from error
