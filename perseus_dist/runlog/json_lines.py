"""Files of JSON lines that somebody else wrote, and perhaps did not finish."""

from collections.abc import Sequence
from pathlib import Path

from perseus_dist.runlog.file_content import read_content
from perseus_dist.runlog.json_fields import Fields, FieldsError, read_json


def read_lines(path: Path, notes: list[str]) -> list[bytes]:
    """The lines; none where there is no file, or it cannot be read.

    Args:
        path: The file.
        notes: Gets a sentence where it cannot be read.
    """
    try:
        return read_content(path).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error.strerror}")
        return []


def objects_of(lines: Sequence[bytes], name: str, notes: list[str]) -> list[Fields]:
    """The object of each line. A process that was killed leaves its last line unfinished, which is left out.

    Args:
        lines: Of one file.
        name: Its name.
        notes: Gets a sentence for what is left out.
    """
    found = []
    for line in lines:
        try:
            found.append(Fields(read_json(line)))
        except (ValueError, FieldsError):
            continue
    if len(found) < len(lines):
        notes.append(f"{name}: {len(lines) - len(found)} of {len(lines)} lines are cut off or no JSON, and left out")
    return found
