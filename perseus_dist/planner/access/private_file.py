"""Files for the planner's user alone, such as tokens."""

from pathlib import Path

from perseus_dist.planning.output_file import replace_file


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file of mode 0600 that appears whole or not at all, and never with wider rights.

    Raises:
        OutputError: The folder is missing or cannot be written to.
    """
    replace_file(path, content.encode("ascii") if isinstance(content, str) else content, mode=0o600)
