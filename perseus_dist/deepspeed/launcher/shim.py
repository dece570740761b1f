"""A ``deepspeed`` on PATH that knows ``--perseus``, for environments that may not be written to."""

import os
import shlex
from pathlib import Path

from perseus_dist.training.opt_in import mark, read, remove, require_ours, write

_DEEPSPEED = "deepspeed"
_PROGRAM = """\
import sys
try:
    from perseus_dist.deepspeed.launcher.console import run_as_deepspeed as main
except ModuleNotFoundError:  # perseus-dist is uninstalled
    from deepspeed.launcher.runner import main
sys.argv[0] = "deepspeed"
sys.exit(main())
"""
_MADE_FOLDER = "# Its folder was made for it."


def write_shim(folder: Path, python: str) -> Path:
    """Put a ``deepspeed`` into a folder for PATH, which runs this environment's launcher.

    Args:
        folder: Made where it is not there.
        python: The environment's interpreter.

    Returns:
        The file that was written.

    Raises:
        OptInError: It cannot be written, or another ``deepspeed`` is there.
    """
    path = folder / _DEEPSPEED
    has_folder = os.path.isdir(folder)  # noqa: PTH112 - Path.is_dir raises where the name is too long
    if has_folder:
        require_ours(path, framework=_DEEPSPEED)
    lines = [
        "#!/bin/sh",
        f"{mark(_DEEPSPEED)}; undone by perseus-dist disable deepspeed --shim {shlex.quote(str(folder))}",
        *([] if has_folder and not _made_its_folder(path) else [_MADE_FOLDER]),
        # -P: the launcher's working directory must not stand in for installed packages.
        f'exec {shlex.quote(python)} -P -c {shlex.quote(_PROGRAM)} "$@"',
    ]
    text = "\n".join(lines) + "\n"
    write(path, text, framework=_DEEPSPEED, mode=0o755, instead="name a folder that you may write to")
    return path


def remove_shim(folder: Path) -> Path | None:
    """Undo ``write_shim``; a folder that was made for it goes too, unless something else is in it by now.

    Returns:
        What was removed; None where there was nothing.

    Raises:
        OptInError: The file is not ours, or cannot be removed.
    """
    path = folder / _DEEPSPEED
    made_its_folder = _made_its_folder(path)
    removed = remove(path, framework=_DEEPSPEED)
    if removed is not None and made_its_folder and not any(folder.iterdir()):
        folder.rmdir()
    return removed


def _made_its_folder(path: Path) -> bool:
    return _MADE_FOLDER in read(path)
