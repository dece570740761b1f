"""Folders that Slurm's prolog and epilog of ``launch/slurm`` write to, as ``perseus.conf`` beside them names them."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from perseus_dist.messages.finding import Finding, Level

_SETTING = re.compile(r"(PERSEUS_RECORDS|PERSEUS_DCGM_JOBS)=(?:'([^']*)'|\"([^\"]*)\"|([^\s#]*))", re.ASCII)
_MAX_BYTES = 1 << 16
_REMEDIES = {
    "PERSEUS_RECORDS": "make it for root alone to write, on every node, or name another in perseus.conf",
    "PERSEUS_DCGM_JOBS": "make it, as DCGM-exporter's --hpc-job-mapping-dir, or leave the setting empty",
}
_SUBJECTS = {"PERSEUS_RECORDS": "energy records", "PERSEUS_DCGM_JOBS": "DCGM-exporter's jobs"}


def inspect_hook_folders(config: str) -> Iterator[Finding]:
    """Look at the folders of energy records and of DCGM-exporter's jobs.

    Whether they can be written to is found as root alone, whose hooks write there: by a file without a name.

    Args:
        config: What ``scontrol show config`` prints.
    """
    lines = (line.partition("=") for line in config.splitlines())
    hooks = {name.strip().partition("[")[0]: value.strip() for name, _, value in lines}
    folders = {Path(hooks[name]).parent for name in ("Prolog", "Epilog") if hooks.get(name, "").startswith("/")}
    for folder in sorted(folders):
        for name, place in _settings(folder / "perseus.conf").items():
            if place:
                trouble = folder_trouble(Path(place), is_writer=os.geteuid() == 0)
                yield _finding(name, place, trouble)


def folder_trouble(folder: Path, *, is_writer: bool) -> str:
    """Why nothing can be written to a folder; empty where nothing is in the way.

    Args:
        folder: That must be there.
        is_writer: Whether this user is to write; else the folder is only looked for.
    """
    import tempfile  # agents import this module, and do not look at folders

    try:
        if not folder.is_dir():
            return "is no folder" if folder.exists() else "is not there"
        if is_writer:
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"cannot be written to ({error.strerror})" if is_writer else ""
    return ""


def _finding(name: str, place: str, trouble: str) -> Finding:
    if not trouble:
        return Finding(level=Level.OK, subject=_SUBJECTS[name], what=f"go to {place}")
    what = f"{place}, {name} in perseus.conf, {trouble}: none are kept"
    return Finding(level=Level.WARN, subject=_SUBJECTS[name], what=what, remedy=_REMEDIES[name])


def _settings(path: Path) -> Mapping[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:  # another cluster's hooks
        return {}
    found = (_SETTING.match(line.strip()) for line in text.splitlines())
    return {match[1]: match[2] or match[3] or match[4] or "" for match in found if match is not None}
