"""Write docs/cli.md, the reference of the command line, from the parser itself.

    python docs/tools/cli_reference.py [--check]

With ``--check`` nothing is written, and the exit code is 1 where the page is not what the parser gives.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from perseus_dist.cli.parser import HIDDEN, build_parser

PAGE = Path(__file__).resolve().parents[1] / "cli.md"
_BEGIN = """\
# Command line

<!-- Made from the parser by docs/tools/cli_reference.py; do not edit. -->

Every command has `--help`. Bad input exits with code 2 after one line on standard error that says what was seen, what
was expected and what to do. A signal's exit code is 128 and its number. `--json` prints one JSON object for machines.

"""


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Every command that does something, with its line in the help of those above it."""
    for group in parser._actions:
        if isinstance(group, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in group._choices_actions}
            for name, command in group.choices.items():
                below = list(commands(command))
                yield from below or [(command, lines.get(name, ""))]


def page() -> str:
    """The whole page."""
    shown = [(command, line) for command, line in commands(build_parser()) if command.prog.split()[1] not in HIDDEN]
    index = [f"| [`{command.prog}`](#{command.prog.replace(' ', '-')}) | {line} |" for command, line in shown]
    parts = ["\n".join([f"{_BEGIN}| command | what it does |", "| --- | --- |", *index])]
    parts += [_command(command) for command, _ in shown]
    return "\n\n".join(parts) + "\n"


def _command(command: argparse.ArgumentParser) -> str:
    """One command: what it does, its arguments, and what its help says below them."""
    actions = [action for action in command._actions if action.dest != "help" and action.help != argparse.SUPPRESS]
    parts = [f"## {command.prog}", command.description or ""]
    if actions:
        rows = [f"| {_names(action)} | {_explained(action)} |" for action in actions]
        parts.append("\n".join(["| argument | |", "| --- | --- |", *rows]))
    if command.epilog:
        parts.append(f"```text\n{command.epilog.strip()}\n```")
    return "\n\n".join(parts)


def _names(action: argparse.Action) -> str:
    """``--option VALUE``, or the name of a positional argument."""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    if isinstance(value, tuple):
        value = " ".join(value)
    if not action.option_strings:
        return f"`{value}`".replace("|", "\\|")
    takes_value = action.nargs != 0
    return f"`{', '.join(action.option_strings)}{f' {value}' if takes_value else ''}`".replace("|", "\\|")


def _explained(action: argparse.Action) -> str:
    """The help of one argument in a cell of a table."""
    default = "" if action.default in (None, argparse.SUPPRESS) else action.default
    words = " ".join((action.help or "").replace("%(default)s", str(default)).replace("%%", "%").split())
    words = words.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")
    return f"{words}; required" if action.required and action.option_strings else words


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page would change")
    if not parser.parse_args().check:
        PAGE.write_text(page())
    elif not PAGE.exists() or PAGE.read_text() != page():
        print(f"{PAGE.name} is not what the parser gives: run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
