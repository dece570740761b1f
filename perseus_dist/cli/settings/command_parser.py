"""The parser of one command."""

import argparse
from collections.abc import Sequence

from perseus_dist.cli.parser import COMMANDS, build_parser


def command_parser(command: str) -> argparse.ArgumentParser:
    """The parser of a command that has no second word."""
    found = find_parser(build_parser([command]), [command])
    assert found is not None
    return found


def find_parser(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser | None:
    """The parser of the command that a line begins with; None where it names none.

    Args:
        parser: Of the whole line, with at least that command.
        words: The line.
    """
    if not words or words[0] not in COMMANDS:
        return None
    for word in words:
        choices = next((one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)  # noqa: SLF001
        if choices is None:
            break
        if word not in choices:
            return None
        parser = choices[word]
    return parser
