"""Result files that appear whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from perseus_dist.errors import OutputError


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
