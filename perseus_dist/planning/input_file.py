"""Files that are read whole: bounded, and refused in one sentence."""

import os
from pathlib import Path

from perseus_dist.errors import PerseusError

MAX_TEXT_BYTES = 256 << 20
"""A profile of a thousand stages with a thousand repetitions has 130 MiB."""


class InputFileError(PerseusError):
    """A file that cannot be read. The message ends where a remedy may follow."""


def read_input(path: str | os.PathLike[str], *, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """The content of a file.

    Raises:
        InputFileError: The file cannot be read, its name is empty, or it has more than ``max_bytes``, as devices have.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InputFileError(f"{os.fspath(path)}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a NUL, or half a character, from a JSON file
        raise InputFileError(f"{os.fspath(path)!r}: cannot be read ({error})") from None
    if len(data) > max_bytes:
        raise InputFileError(f"{os.fspath(path)}: cannot be read (more than {max_bytes} bytes)")
    return data
