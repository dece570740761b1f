"""Files outside this package that make a framework know its options, as easily removed as written.

In a ``.pth`` file stands what an environment's interpreter runs at every start.
"""

import ast
import os
import sysconfig
from contextlib import suppress
from pathlib import Path

from perseus_dist.errors import PerseusError


class OptInError(PerseusError):
    """A file that cannot be written, or that is not ours to write or remove."""


def pth_file(framework: str) -> Path:
    """Where this interpreter's environment is enabled for ``deepspeed``, ``megatron`` or ``pipelining``."""
    return Path(sysconfig.get_path("purelib")) / f"perseus_dist_{framework}.pth"


def write_pth(framework: str, *, instead: str) -> Path:
    """Enable this environment: a framework's command line and its ranks know Perseus.

    Args:
        framework: One of ``environment_start.FRAMEWORKS``.
        instead: What to do where nothing can be written.

    Returns:
        The file that was written.

    Raises:
        OptInError: It cannot be written.
    """
    source = (Path(__file__).parent / "environment_start.py").read_text()
    statements = f"{_without_docs(source)}\nwait_for({framework!r})"
    text = f"{mark(framework)}; undone by perseus-dist disable {framework}.\nimport sys; exec({statements!r}, {{}})\n"
    path = pth_file(framework)
    write(path, text, framework=framework, mode=0o644, instead=instead)
    return path


def remove_pth(framework: str) -> Path | None:
    """Undo ``write_pth``.

    Returns:
        What was removed; None where there was nothing.

    Raises:
        OptInError: The file is not ours, or cannot be removed.
    """
    return remove(pth_file(framework), framework=framework)


def mark(framework: str) -> str:
    """The line in a file by which it is known to be ours."""
    return f"# Written by perseus-dist enable {framework}"


def write(path: Path, text: str, *, framework: str, mode: int, instead: str) -> None:
    """Write a file of ours, over an earlier one.

    Args:
        path: Its folder is made.
        text: Holds ``mark(framework)``.
        framework: That it enables.
        mode: Its permissions.
        instead: What to do where it cannot be written.

    Raises:
        OptInError: It cannot be written, or another's file is there.
    """
    require_ours(path, framework=framework)
    part = path.with_name(f".{path.name}.{os.getpid()}")  # Python reads none of that name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.chmod(mode)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise OptInError(f"{path} cannot be written ({error.strerror}); {instead}") from None


def remove(path: Path, *, framework: str) -> Path | None:
    """Remove a file of ours.

    Returns:
        What was removed; None where there was nothing.

    Raises:
        OptInError: It is not ours, or cannot be removed.
    """
    if not path.is_file():
        return None
    require_ours(path, framework=framework)
    try:
        path.unlink()
    except OSError as error:
        raise OptInError(f"{path} cannot be removed ({error.strerror}); remove it as the user who owns it") from None
    return path


def require_ours(path: Path, *, framework: str) -> None:
    """Refuse to touch a file that is another's.

    Raises:
        OptInError: It is there and not ours.
    """
    if os.path.exists(path) and mark(framework) not in read(path):  # noqa: PTH110 - Path.exists raises at long names
        raise OptInError(f"{path} is not ours: expected nothing there, or what we wrote; name another folder")


def read(path: Path) -> str:
    """The content of a file; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _without_docs(source: str) -> str:
    """The statements alone: every interpreter start compiles them."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [statement for statement in node.body if not _is_text(statement)]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
