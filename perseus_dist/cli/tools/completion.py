"""``perseus-dist completion``: completion of the command line, for a shell."""

import argparse
from pathlib import Path

_EPILOG = """\
example:
  perseus-dist completion bash > ~/.local/share/bash-completion/completions/perseus-dist
  perseus-dist completion zsh > ~/.zfunc/_perseus-dist
  perseus-dist completion fish > ~/.config/fish/completions/perseus-dist.fish

Takes effect in the next shell: in bash with the package bash-completion, or by a line in ~/.bashrc that sources the
file; in zsh where ~/.zfunc is on fpath before compinit runs. Write it again after an update of perseus-dist.
"""
_FOLDER = "DIR"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print the completion of this command line for bash, zsh or fish",
        description="Print a shell's completion of this command line: commands, options, their values, files.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="for which shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the completion script of a shell; the command's exit code."""
    print(completion_script(args.shell))
    return 0


def completion_script(shell: str) -> str:
    """The text that a shell of this name sources.

    Raises:
        ModuleNotFoundError: shtab is not installed.
    """
    import shtab

    from perseus_dist.cli.parser import COMMANDS, HIDDEN, build_parser

    parser = build_parser([command for command in COMMANDS if command not in HIDDEN])
    _mark_files(parser, shtab.FILE, shtab.DIRECTORY)
    return str(shtab.complete(parser, shell))


def _mark_files(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Have the values of options that name files and folders completed with those that there are."""
    from perseus_dist.cli.settings.keys import is_path

    for action in parser._actions:  # noqa: SLF001 - argparse has no other door
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for below in action.choices.values():
                _mark_files(below, file, folder)
        elif action.type is Path or is_path(action):
            action.complete = folder if action.metavar == _FOLDER else file  # type: ignore[attr-defined]
