"""Files for the planner's user alone, such as tokens."""

import os
from contextlib import suppress
from pathlib import Path

from perseus_dist.errors import OutputError


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file of mode 0600 that appears whole or not at all, and never with wider rights.

    Raises:
        OutputError: The folder is missing or cannot be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # of a crashed process that had our number
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("ascii") if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); expected a file name in an existing, writable folder"
        ) from error
