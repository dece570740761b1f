"""Files of energy records: each written durably, once it is complete for good, and found again below a folder.

A record stands in its run's folder, ``energy-<begin>.json``, and wherever an operator collects it. It is linked into
place after it is on the disk: a kill at any moment leaves a whole record or none. A complete record stays as it is; an
incomplete one is replaced by one that tells more of the same run.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from perseus_dist.errors import OutputError
from perseus_dist.planning.output_file import locked_folder
from perseus_dist.runlog.accounting.record import EnergyRecord, record_from
from perseus_dist.runlog.file_content import MAX_FILE_BYTES
from perseus_dist.runlog.file_names import JOB_FILE, is_read
from perseus_dist.runlog.json_fields import FieldsError, read_json

MAX_BYTES = 1 << 20
"""Of one record; one of 4096 GPUs takes half of that."""

MAX_FOLDERS = 100_000
MAX_DEPTH = 8
"""Folders that a search for records goes down."""

_NAME = re.compile(r"energy-[A-Za-z0-9._-]{1,160}\.json")


def moment(text: str) -> datetime | None:
    """A record's time, in UTC; None where it is none, has no zone, or lies outside the years that there are."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def write_record(folder: Path, record: EnergyRecord, *, name: str = "", mode: int | None = None) -> Path:
    """Write a record; one that is there under this name stays as it is, unless this one tells more of its run.

    Args:
        folder: An existing one.
        record: Of a run that is over.
        name: Begins the file's name, to tell records of many runs apart in one folder.
        mode: The file's permissions; without one they are as the umask leaves them.

    Returns:
        The file.

    Raises:
        OutputError: The folder cannot be written to.
    """
    began = moment(record.began_at)
    at = began.strftime("%Y%m%dT%H%M%S.%f")[:-3] if began is not None else "unknown"
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", f"{name}-{at}" if name else at)[:160]
    path = folder / f"energy-{stem}.json"
    temporary = folder / f".energy-{stem}.{os.getpid()}.tmp"
    try:
        if not path.exists() or _is_surpassed(path, record):
            with os.fdopen(_create(temporary), "wb") as file:
                file.write(json.dumps(asdict(record), indent=1).encode() + b"\n")
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.flush()
                os.fsync(file.fileno())
            with locked_folder(folder):
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    if _is_surpassed(path, record):
                        temporary.replace(path)
            _flush(folder)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}); expected an existing, writable folder"
        raise OutputError(f"{path}: {reason}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path


def _create(temporary: Path) -> int:
    """A file that was not there before: where root collects, a link of that name may lead to any file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(temporary, flags, 0o666)
    except FileExistsError:  # of a process of this number that was killed
        temporary.unlink()
        return os.open(temporary, flags, 0o666)


def _is_surpassed(path: Path, record: EnergyRecord) -> bool:
    known = read_record(path)
    return (
        known is not None
        and (known.job_id, known.began_at) == (record.job_id, record.began_at)
        and record.tells_more_than(known)
    )


def read_record(path: Path, skipped: list[str] | None = None) -> EnergyRecord | None:
    """A record; None where the file is no record, or may not be read.

    Folders of users are read by operators: links, devices and pipes are not opened, and no file is read without end.

    Args:
        path: Of the record.
        skipped: Gets the path and why, where there is none.
    """
    try:
        return record_from(read_json(_content(path)))
    except (OSError, ValueError, FieldsError) as error:
        _skip(path, error, skipped)
        return None


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise ValueError("no file of a record's size")
        return os.read(descriptor, MAX_BYTES)
    finally:
        os.close(descriptor)


def may_be_read(folder: Path) -> bool:
    """Whether a run's folder holds regular files alone, each of a size that agents leave.

    Anything else, such as a pipe that is never written to or a link to a device, would hold up who reads the run.
    """
    try:
        with os.scandir(folder) as entries:
            return all(map(_may_be_read, entries))
    except OSError:
        return False


def _may_be_read(entry: "os.DirEntry[str]") -> bool:
    if entry.is_dir(follow_symlinks=False):
        return True
    size = entry.stat(follow_symlinks=False).st_size
    return entry.is_file(follow_symlinks=False) and (size <= MAX_FILE_BYTES or not is_read(entry.name))


def records_in(folder: Path, skipped: list[str] | None = None) -> list[EnergyRecord]:
    """Those that stand in this folder itself, by their names; ``skipped`` as for ``read_record``."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    except OSError as error:
        _skip(folder, error, skipped)
        return []
    found = (read_record(folder / name, skipped) for name in names)
    return [record for record in found if record is not None]


def run_folders(root: Path, skipped: list[str] | None = None) -> Iterator[Path]:
    """The folder and those below it that hold records or a run; links are not followed.

    Args:
        root: The folder; ``MAX_DEPTH`` folders below it, and ``MAX_FOLDERS`` in all, are looked into.
        skipped: Gets the path of each folder that may not be looked into, and why; of those that lie behind a bound,
            the first.
    """
    walk = os.walk(root, onerror=lambda error: _skip(Path(error.filename), error, skipped))
    is_too_deep = False
    for number, (path, folders, names) in enumerate(walk):
        if number >= MAX_FOLDERS:
            _skip(Path(path), ValueError(f"behind {MAX_FOLDERS} other folders: this and later ones are left"), skipped)
            return
        folders.sort()
        if folders and len(Path(path).relative_to(root).parts) >= MAX_DEPTH:
            below, is_first = Path(path) / folders[0], not is_too_deep
            is_too_deep = True
            folders.clear()
            if is_first:
                _skip(below, ValueError(f"more than {MAX_DEPTH} folders below: this and others are left"), skipped)
        if JOB_FILE in names or any(_NAME.fullmatch(name) for name in names):
            yield Path(path)


def _skip(path: Path, error: Exception, skipped: list[str] | None) -> None:
    if skipped is not None:
        skipped.append(f"{path} ({getattr(error, 'strerror', None) or error})")


def _flush(folder: Path) -> None:
    """The folder's entry, so that a crash of the machine leaves it."""
    with suppress(OSError):  # some file systems do not flush folders
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
