"""The generator of malformed input has a wrong value for every argument of the real command line."""

from malformed.arguments import pairs
from malformed.base_lines import BASE
from malformed.commands import leaves

from perseus_dist.cli.parser import HIDDEN, build_parser

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""By command and argument, why nothing that could be written for it is wrong."""


def arguments() -> set[tuple[str, tuple[str, ...]]]:
    """Each command with each of its arguments that takes a value, under all of its names."""
    return {
        (command, tuple(action.option_strings) or (str(action.metavar or action.dest),))
        for command, parser in leaves(build_parser())
        if command not in HIDDEN
        for action in parser._actions
        if action.nargs != 0  # a flag is there or not
    }


def test_every_argument_of_every_command_is_given_a_wrong_value() -> None:
    wrong = {(command, argument.name) for command, argument in pairs()} | EXCEPTIONS.keys()
    without = [(command, names) for command, names in arguments() if not wrong & {(command, name) for name in names}]
    assert sorted(without) == []


def test_the_generator_names_no_argument_that_is_gone() -> None:
    known = {(command, name) for command, names in arguments() for name in names}
    assert sorted({(command, argument.name) for command, argument in pairs()} - known) == []
    assert EXCEPTIONS.keys() <= known
    assert {command for command, _ in known} <= BASE.keys()
