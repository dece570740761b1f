"""Effective settings: by key, the value of greatest precedence, checked by the option's parser, and its source."""

import argparse
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perseus_dist.cli.settings.command_parser import command_parser
from perseus_dist.cli.settings.files import SettingsError, SettingsFile, find_line
from perseus_dist.cli.settings.keys import (
    ALIASES,
    COMMAND_OF,
    is_path,
    is_switch,
    options_of,
    variable_of,
)

_OF_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT)(_\w+)?|PORT(_[0-9]+_(TCP|UDP)(_\w+)?)?")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting in force.

    Attributes:
        section: Such as ``planner``.
        key: The long option without its dashes in front.
        dest: The option's name among parsed arguments.
        value: As the option's parser gives it.
        variable: That it is from; empty for another source.
        file: That it is from; None for another source.
        line: Of the file, counted from 1; None where the key is written in another form than ``key = value``.
    """

    section: str
    key: str
    dest: str
    value: Any
    variable: str = ""
    file: Path | None = None
    line: int | None = None

    @property
    def is_default(self) -> bool:
        """Whether neither a file nor the environment has it."""
        return not self.variable and self.file is None

    @property
    def source(self) -> str:
        """``default``, a variable, or a file and a line."""
        if self.file is not None:
            return f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"${self.variable}" if self.variable else "default"


def check_sections(file: SettingsFile) -> None:
    """Refuse sections that there are not.

    Raises:
        SettingsError: The first of them.
    """
    for name in file.tables:
        if name not in COMMAND_OF:
            raise SettingsError(
                f"{file.where(name)}: there is no section [{name[:80]}]; the nearest is "
                f"[{_nearest(name, COMMAND_OF)}], and all are {', '.join(f'[{known}]' for known in COMMAND_OF)}"
            )


def effective_settings(
    section: str, parser: argparse.ArgumentParser, files: Iterable[SettingsFile], environ: Mapping[str, str]
) -> list[Setting]:
    """The settings of a section: built-in default < files in their order < environment.

    Args:
        section: One of ``COMMAND_OF``.
        parser: Of the command whose defaults they are.
        files: Of less precedence first.
        environ: Variables; one that is empty is not set.

    Raises:
        SettingsError: A key that there is not, a value that the command line would refuse as well, or two keys of one
            source that exclude each other.
    """
    options = options_of(section, parser)
    files = tuple(files)
    for file in files:
        _check_keys(file, section, options)
    settings = []
    for key, action in options.items():
        setting = Setting(section=section, key=key, dest=action.dest, value=action.default)
        for file in files:
            if key in (table := file.tables.get(section, {})):
                value = _from_file(parser, action, table[key], file, file.where(section, key), f"{section}.{key}")
                line = find_line(file.text, section, key)
                setting = replace(setting, value=value, file=file.path, line=line)
        for variable in filter(None, (variable_of(section, key), ALIASES.get((section, key)))):
            if text := environ.get(variable):
                value = _from_variable(parser, action, text, f"${variable}")
                setting = replace(setting, value=value, variable=variable, file=None, line=None)
                break
        settings.append(setting)
    overruled = set(_overruled(settings, parser, files))
    defaults = {key: action.default for key, action in options.items()}
    return [
        replace(setting, value=defaults[setting.key], variable="", file=None, line=None)
        if setting.key in overruled
        else setting
        for setting in settings
    ]


def _overruled(
    settings: Iterable[Setting], parser: argparse.ArgumentParser, files: Sequence[SettingsFile]
) -> Iterator[str]:
    """Keys of options that exclude another one, which a later source has."""
    ranks = {file.path: number for number, file in enumerate(files)}
    settings = [setting for setting in settings if not setting.is_default]
    for dests in exclusive_dests(parser):
        found = [(len(files) if one.file is None else ranks[one.file], one) for one in settings if one.dest in dests]
        latest = max((rank for rank, _ in found), default=0)
        of_latest = [one for rank, one in found if rank == latest]
        if len(of_latest) > 1:
            keys = " and ".join(one.key for one in of_latest)
            raise SettingsError(f"{of_latest[-1].source}: saw {keys}, expected one of them")
        yield from (one.key for rank, one in found if rank < latest)


def exclusive_dests(parser: argparse.ArgumentParser) -> list[set[str]]:
    """Destinations of options that exclude each other."""
    groups = parser._mutually_exclusive_groups  # noqa: SLF001 - argparse tells of them nowhere else
    return [{action.dest for action in group._group_actions} for group in groups]  # noqa: SLF001


def unknown_variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that are named as settings are and are none, each with the nearest that is one.

    Those by which Kubernetes tells of a service named ``perseus-planner`` are left out.
    """
    from difflib import get_close_matches

    for section, command in COMMAND_OF.items():
        prefix = variable_of(section, "")
        names = sorted(name for name in environ if name.startswith(prefix))
        known = [variable_of(section, key) for key in options_of(section, command_parser(command))] if names else []
        for name in names:
            if name not in known and not _OF_KUBERNETES.fullmatch(name.removeprefix(prefix)):
                yield name, get_close_matches(name[:80], known, n=1, cutoff=0)[0]


def _check_keys(file: SettingsFile, section: str, known: Mapping[str, argparse.Action]) -> None:
    for key in file.tables.get(section, {}):
        if key not in known:
            raise SettingsError(
                f"{file.where(section, key)}: [{section}] has no key {key[:80]!r}; the nearest is "
                f"{_nearest(key, known)!r}, and 'perseus-dist config' shows all"
            )


def _from_file(
    parser: argparse.ArgumentParser, action: argparse.Action, value: object, file: SettingsFile, where: str, key: str
) -> Any:
    place = f"{where}: {key}"
    if is_switch(action):
        if not isinstance(value, bool):
            raise SettingsError(f"{place}: saw {_shown(value)}, expected true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SettingsError(f"{place}: saw {_shown(value)}, expected one text or number")
    if not isinstance(value, str) and (action.type is None or is_path(action) or action.choices):
        raise SettingsError(f"{place}: saw {_shown(value)}, expected a text in quotes")
    text = str(value)
    if is_path(action) and text:
        text = os.path.expanduser(text)  # noqa: PTH111 - which leaves a '~' that it does not know
        text = str(file.path.parent / text)
    return _parsed(parser, action, text, place)


def _from_variable(parser: argparse.ArgumentParser, action: argparse.Action, text: str, place: str) -> Any:
    if not is_switch(action):
        return _parsed(parser, action, text, place)
    if text.lower() not in _YES + _NO:
        raise SettingsError(f"{place}: saw {text[:80]!r}, expected 1 or 0")
    return text.lower() in _YES


def _parsed(parser: argparse.ArgumentParser, action: argparse.Action, text: str, place: str) -> Any:
    """The value that the option would have, were the text given behind it."""
    try:
        if "\0" in text:
            raise argparse.ArgumentError(None, "saw a NUL character, expected a text without")
        return parser._get_values(action, [text])  # noqa: SLF001 - types, choices and our own checks in one
    except argparse.ArgumentError as error:
        raise SettingsError(f"{place}: {error.message}") from None


def _nearest(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    return get_close_matches(name.replace("_", "-").lower()[:80], list(known), n=1, cutoff=0)[0]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)[:80]
