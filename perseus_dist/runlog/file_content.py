"""Content of a file that a run left behind: of a regular file alone, and never without end."""

import errno
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 64 << 20
"""Of one file; agents leave less of a whole rank (``report_folder``)."""


def read_content(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The file's content; operators, and root, read reports in folders of other users.

    Raises:
        OSError: It cannot be read, is a folder, a pipe or a device, or is larger than ``max_bytes``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1) if status.st_size <= max_bytes else b""
        if max(status.st_size, len(content)) > max_bytes:
            raise OSError(errno.EFBIG, f"larger than {max_bytes >> 20} MiB", str(path))
        return content
    finally:
        os.close(descriptor)
