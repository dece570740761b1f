"""Settings as defaults of the one command that runs. Training, agents and planners inside of jobs never read any."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perseus_dist.cli.settings.command_parser import command_parser, find_parser
from perseus_dist.cli.settings.files import SettingsError, read_files
from perseus_dist.cli.settings.keys import ALIASES, COMMAND_OF, KEYS_OF_OTHERS, section_of, variable_of, waive

if TYPE_CHECKING:
    from logging import Logger

    from perseus_dist.cli.settings.effective import Setting

_HELP = ("-h", "--help")
_HEALTH = "health"  # it has not all options of [client]
_FINDS_BAD_SETTINGS = "doctor"


def set_defaults(
    parser: argparse.ArgumentParser, words: Sequence[str], environ: Mapping[str, str]
) -> "tuple[Setting, ...]":
    """Make settings the defaults of the command that a line begins with.

    Args:
        parser: Of the whole line.
        words: The line.
        environ: Of the process.

    Returns:
        The settings that a file or a variable has.

    Raises:
        SettingsError: A file cannot be used, or a setting of the command's section is refused; not for ``doctor``,
            which goes on without, and finds that itself.
    """
    try:
        return _set_defaults(parser, words, environ)
    except SettingsError:
        if words[:1] != [_FINDS_BAD_SETTINGS]:
            raise
        return ()


def _set_defaults(
    parser: argparse.ArgumentParser, words: Sequence[str], environ: Mapping[str, str]
) -> "tuple[Setting, ...]":
    command = find_parser(parser, words)
    if command is None or not words or any(word in _HELP for word in words):
        return ()
    section = section_of(words[0], command)
    if section is None or "--embedded" in words or _asks_no_named_planner(words):
        return ()
    files = read_files(environ)
    prefix = variable_of(section, "")
    if not files and not any(name.startswith(prefix) or name in ALIASES.values() for name in environ):
        return ()  # most commands: what follows need not be imported
    from perseus_dist.cli.settings.effective import check_sections, effective_settings, exclusive_dests

    for file in files:
        check_sections(file)
    whole = command_parser(COMMAND_OF[section]) if words[0] in (_HEALTH, *KEYS_OF_OTHERS) else command
    settings = effective_settings(section, whole, files, environ)
    given = tuple(setting for setting in settings if not setting.is_default)
    if words[0] in KEYS_OF_OTHERS:
        given = tuple(setting for setting in given if setting.key in KEYS_OF_OTHERS[words[0]][1])
    options = command._option_string_actions  # noqa: SLF001 - argparse tells of them nowhere else
    on_line = {options[option].dest for word in words if (option := word.partition("=")[0]) in options}
    overruled = {dest for dests in exclusive_dests(command) if dests & on_line for dest in dests - on_line}
    given = tuple(setting for setting in given if setting.dest not in overruled)
    command.set_defaults(**{setting.dest: setting.value for setting in given}, settings=given)
    waive(command, [setting.dest for setting in given])
    return given


def _asks_no_named_planner(words: Sequence[str]) -> bool:
    """Whether the line simulates with a planner of its own, where settings are of real jobs, or asks no planner."""
    options = {word.partition("=")[0] for word in words}
    return (words[0] == "simulate" and "--planner" not in options) or (
        words[0] == _HEALTH and bool(options & {"--clockd", "--planning-worker"})
    )


def log_sources(args: argparse.Namespace, log: "Logger") -> None:
    """Log once, in a line, which options of a daemon come of files and variables."""
    if in_force := _in_force(args, getattr(args, "settings", ())):
        log.info("settings: %s", ", ".join(f"--{setting.key} from {setting.source}" for setting in in_force))


def with_sources(message: str, args: argparse.Namespace, given: "Sequence[Setting]") -> str:
    """A command's refusal, and where the options that it names were set, if not on the command line."""
    sources = [
        f"--{setting.key} is from {setting.source}" for setting in _in_force(args, given) if _names(message, setting)
    ]
    return f"{message} ({'; '.join(sources)})" if sources else message


def _in_force(args: argparse.Namespace, given: "Sequence[Setting]") -> "list[Setting]":
    """The settings that the command line has left as they are."""
    return [setting for setting in given if getattr(args, setting.dest, None) is setting.value]


def _names(message: str, setting: "Setting") -> bool:
    is_text = isinstance(setting.value, str | Path)
    return f"--{setting.key} " in f"{message} " or (is_text and str(setting.value) in message)
