"""Sections and keys of settings: long options of commands, without their dashes in front."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMAND_OF = {"planner": "planner", "planning-worker": "planning-worker", "clockd": "clockd", "client": "jobs"}
"""By section, a command whose options are its keys; [client] is for all that ask a planner."""
PLANNER_GROUP = "planner"
"""Title of the argument group of the options that find a planner."""
ALIASES = {
    ("client", "planner"): "PERSEUS_PLANNER",
    ("client", "token-file"): "PERSEUS_TOKEN_FILE",
    ("clockd", "lease-dir"): "PERSEUS_LEASE_DIR",
}
"""Variables that other processes read as well, which count where a setting's own is not set."""

KEYS_OF_OTHERS = {"state": ("planner", ("state-dir",))}
"""Commands that take some keys of a service's section alone: the section, and the keys."""

_OF_ONE_START = ("embedded", "parent", "cache", "job", "share")
"""Options of a planner inside a job: the agent gives them, and no file changes a job's own planner."""
_SERVICES = ("planner", "planning-worker", "clockd")
_PATHS = ("DIR", "FILE", "PATH", "PEM")
_ENDINGS = (".csv", ".npz", ".prom")


def section_of(command: str, parser: argparse.ArgumentParser) -> str | None:
    """The section that holds a command's settings; None if it has none.

    Args:
        command: The first word after ``perseus-dist``.
        parser: Of the command that runs.
    """
    if command in _SERVICES:
        return command
    if command in KEYS_OF_OTHERS:
        return KEYS_OF_OTHERS[command][0]
    if command == "health":  # it has no --token-file, and its options of TLS stand in a group of their own
        return "client"
    groups = parser._action_groups  # noqa: SLF001 - argparse has no other door
    return "client" if any(group.title == PLANNER_GROUP for group in groups) else None


def options_of(section: str, parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options that settings of a section are defaults of, by key.

    Args:
        section: One of ``COMMAND_OF``.
        parser: Of a command of that section.
    """
    found: Iterable[argparse.Action] = parser._actions  # noqa: SLF001
    if section == "client":
        groups = [group for group in parser._action_groups if group.title == PLANNER_GROUP]  # noqa: SLF001
        found = groups[0]._group_actions  # noqa: SLF001
    named = {action.option_strings[-1].removeprefix("--"): action for action in found if action.option_strings}
    return {key: action for key, action in named.items() if key not in _OF_ONE_START and _has_one_value(action)}


def variable_of(section: str, key: str) -> str:
    """The environment variable of a setting."""
    return f"PERSEUS_{section}_{key}".replace("-", "_").upper()


def waive(parser: argparse.ArgumentParser, dests: "Iterable[str]") -> None:
    """Have a command ask no more for options that settings give.

    Args:
        parser: Of the command.
        dests: Names of the options among parsed arguments.
    """
    given = set(dests)
    for action in parser._actions:  # noqa: SLF001
        action.required &= action.dest not in given


def is_switch(action: argparse.Action) -> bool:
    """Whether the option stands alone, so that its setting is true or false."""
    return action.nargs == 0


def is_path(action: argparse.Action) -> bool:
    """Whether the value of an option or argument names a file or folder."""
    metavar = str(action.metavar)
    return metavar in _PATHS or metavar.endswith(_ENDINGS)


def _has_one_value(action: argparse.Action) -> bool:
    # argparse names its kinds of options in private.
    kinds: tuple[Any, ...] = (argparse._StoreAction, argparse._StoreTrueAction)  # noqa: SLF001
    return isinstance(action, kinds) and action.nargs in (None, 0)
