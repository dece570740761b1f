"""Making the literal ``deepspeed --perseus`` work: a file in the environment, or one on PATH, as easily undone."""

import ast
import shlex
import sysconfig
from pathlib import Path

from perseus_dist.errors import PerseusError

_MARK = "# Written by perseus-dist enable deepspeed"
_MADE_FOLDER = "# Its folder was made for it."


class OptInError(PerseusError):
    """A file that cannot be written, or that is not ours to write or remove."""


def pth_file() -> Path:
    """Where this interpreter's environment reads what runs at every start."""
    return Path(sysconfig.get_path("purelib")) / "perseus_dist_deepspeed.pth"


def write_pth() -> Path:
    """Enable this environment: its ``deepspeed`` knows ``--perseus``, its ranks a ``perseus`` block.

    Returns:
        The file that was written.

    Raises:
        OptInError: It cannot be written.
    """
    source = (Path(__file__).parent / "on_pythonpath" / "perseus_dist_start.py").read_text()
    path = pth_file()
    text = f"{_MARK}; undone by perseus-dist disable deepspeed.\nimport sys; exec({_without_docs(source)!r}, {{}})\n"
    _write(path, text, mode=0o644, instead="use --shim DIR, or perseus-deepspeed in place of deepspeed")
    return path


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
    path = folder / "deepspeed"
    has_folder = folder.is_dir()
    if has_folder:
        _require_ours(path)
    lines = [
        "#!/bin/sh",
        f"{_MARK}; undone by perseus-dist disable deepspeed --shim {shlex.quote(str(folder))}",
        *([] if has_folder and not _made_its_folder(path) else [_MADE_FOLDER]),
        # -P: the launcher's working directory must not stand in for installed packages.
        f'exec {shlex.quote(python)} -P -m perseus_dist.deepspeed.launcher.console "$@"',
    ]
    _write(path, "\n".join(lines) + "\n", mode=0o755, instead="name a folder that you may write to")
    return path


def remove_pth() -> Path | None:
    """Undo ``write_pth``.

    Returns:
        What was removed; None where there was nothing.

    Raises:
        OptInError: The file is not ours, or cannot be removed.
    """
    return _remove(pth_file())


def remove_shim(folder: Path) -> Path | None:
    """Undo ``write_shim``; a folder that was made for it goes too, unless something else is in it by now.

    Returns:
        What was removed; None where there was nothing.

    Raises:
        OptInError: The file is not ours, or cannot be removed.
    """
    path = folder / "deepspeed"
    made_its_folder = _made_its_folder(path)
    removed = _remove(path)
    if removed is not None and made_its_folder and not any(folder.iterdir()):
        folder.rmdir()
    return removed


def _without_docs(source: str) -> str:
    """The statements alone: every interpreter start compiles them."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _write(path: Path, text: str, *, mode: int, instead: str) -> None:
    _require_ours(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
    except OSError as error:
        raise OptInError(f"{path} cannot be written ({error.strerror}); {instead}") from None


def _remove(path: Path) -> Path | None:
    if not path.is_file():
        return None
    _require_ours(path)
    try:
        path.unlink()
    except OSError as error:
        raise OptInError(f"{path} cannot be removed ({error.strerror}); remove it as the user who owns it") from None
    return path


def _require_ours(path: Path) -> None:
    if path.exists() and _MARK not in _read(path):
        raise OptInError(f"{path} is not ours: expected nothing there, or what we wrote; name another folder")


def _made_its_folder(path: Path) -> bool:
    return _MADE_FOLDER in _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
