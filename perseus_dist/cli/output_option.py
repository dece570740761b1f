"""Options that name a file or folder for results, which must be none that the same command reads or writes besides."""

import argparse
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perseus_dist.errors import OutputError


class Output(argparse._StoreAction):  # noqa: SLF001 - argparse has no other door
    """An option whose value is a ``Path`` to write to.

    Attributes:
        names: Of the files that are written into it, where it names a folder; empty for a file.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, *, names: Sequence[str] = (), **kwargs: Any) -> None:
        """As other options that store a value."""
        super().__init__(option_strings, dest, type=Path, **kwargs)
        self.names = tuple(names)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Store the value, and whose option it is."""
        super().__call__(parser, namespace, values, option_string)
        namespace.output_parser = parser


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse outputs that are inputs, or other outputs, of the same command, also by way of links.

    Args:
        args: Of a command line with an ``Output``.

    Raises:
        OutputError: One is.
    """
    parser: argparse.ArgumentParser = args.output_parser
    taken = {file: (label, path) for label, path in _inputs(parser, args) if (file := _file(path)) is not None}
    for label, path in _outputs(parser, args):
        file = _file(path)
        if file is None:
            continue
        if file in taken:
            other, same = taken[file]
            raise OutputError(f"{label} {path}: saw the file of {other} {same}, which would be lost; name another one")
        taken[file] = (label, path)


def _inputs(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    from perseus_dist.cli.settings.keys import is_path

    for action in parser._actions:  # noqa: SLF001
        value = getattr(args, action.dest, None)
        if not isinstance(action, Output) and value and is_path(action):
            yield _label(action), Path(value)
    if getattr(args, "token_file", "") is None and (token := args.find_token(args)) is not None:
        yield "the token in use", token


def _outputs(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, Output) and getattr(args, action.dest) is not None:
            path: Path = getattr(args, action.dest)
            yield from ((_label(action), path / name) for name in action.names or ("",))


def _label(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def _file(path: Path) -> object:
    """An identity of the file, whatever it is called; None for what is not replaced, such as a pipe or a folder."""
    try:
        status = path.stat()
    except OSError:  # a file that is to come, or in a current folder that is gone, where nothing is
        with suppress(FileNotFoundError):
            return os.path.realpath(path)
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
