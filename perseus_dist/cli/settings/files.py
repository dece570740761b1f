"""Settings files: which there are, who may write them, and the lines that their keys stand on."""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perseus_dist.errors import PerseusError

CONFIG_VARIABLE = "PERSEUS_CONFIG"
OFF = "off"
SYSTEM_FILE = Path("/etc/perseus-dist/perseus.toml")
_USER_FILE = "perseus-dist/perseus.toml"
_MAX_BYTES = 1 << 20
_NO_FOLDER = (FileNotFoundError, NotADirectoryError)
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class SettingsError(PerseusError):
    """A settings file that cannot be used, or a setting that the command line would refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A file that was read.

    Attributes:
        path: Absolute.
        text: The file's text, for the lines of its keys.
        tables: The file's sections, by name.
    """

    path: Path
    text: str
    tables: Mapping[str, Mapping[str, Any]]

    def where(self, section: str, key: str | None = None) -> str:
        """``FILE:LINE`` of a section, or of a key in it; without the line where it is written in another form."""
        line = find_line(self.text, section, key)
        return f"{self.path}:{line}" if line else str(self.path)


def candidate_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Paths of the files that count, those of less precedence first. There need be none at a path.

    Args:
        environ: ``PERSEUS_CONFIG`` names one file instead, or ``off`` for none; ``XDG_CONFIG_HOME`` and ``HOME`` say
            where the user's is.
    """
    named = environ.get(CONFIG_VARIABLE)
    if named == OFF:
        return ()
    if named:
        return (Path(named).absolute(),)
    configured = environ.get("XDG_CONFIG_HOME", "")
    home = environ.get("HOME", "")
    if configured.startswith("/"):  # the specification has relative ones ignored
        return (SYSTEM_FILE, Path(configured) / _USER_FILE)
    return (SYSTEM_FILE, Path(home) / ".config" / _USER_FILE) if home.startswith("/") else (SYSTEM_FILE,)


def read_files(environ: Mapping[str, str]) -> list[SettingsFile]:
    """The files that there are, those of less precedence first.

    Raises:
        SettingsError: A file is malformed, cannot be read, or others than its user and root may write it; or the one
            that ``PERSEUS_CONFIG`` names is not there.
    """
    must_exist = bool(environ.get(CONFIG_VARIABLE))
    found = (read_file(path, must_exist=must_exist) for path in candidate_files(environ))
    return [file for file in found if file is not None]


def read_file(path: Path, *, must_exist: bool, any_owner: bool = False) -> SettingsFile | None:
    """One file; None where there is none, or where its folder may not be looked into, as one with keys beside it.

    Args:
        path: Where it is.
        must_exist: Whether a file that is not there is refused.
        any_owner: Whether it is only looked at, so that it does not matter who may write it.

    Raises:
        SettingsError: The file cannot be used.
    """
    off = f"or set {CONFIG_VARIABLE}={OFF}"
    try:
        try:
            path.stat()
        except (*_NO_FOLDER, PermissionError):
            if not must_exist:
                return None
            raise
        # A pipe that is named must not make the command wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise SettingsError(f"{path} is no ordinary file; name a file of settings, {off}")
            if not any_owner and (doubt := write_doubt(found)):
                raise SettingsError(f"{path} {doubt}, {off}")
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name that no system takes
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(f"{path} cannot be read ({reason}); mend that, {off}") from error
    if len(data) > _MAX_BYTES:
        raise SettingsError(f"{path} has more than {_MAX_BYTES >> 20} MiB, which no settings have; name another, {off}")
    return parse(path, data)


def write_doubt(found: os.stat_result) -> str:
    """Why a file may say what neither its user nor root wrote, and the remedy; empty where there is no doubt.

    Its owner must be this user or root, and no others may write it: so do ssh with its configuration and sudo with its.
    """
    user = os.geteuid()
    if found.st_uid not in (0, user):
        wanted = "root" if user == 0 else f"user {user} or root"
        return f"belongs to user {found.st_uid}, expected {wanted}; chown it"
    if found.st_mode & _WRITABLE_BY_OTHERS:
        return f"can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); chmod go-w it"
    return ""


def parse(path: Path, data: bytes) -> SettingsFile:
    """The sections of a file.

    Raises:
        SettingsError: The bytes are no TOML in UTF-8, or a key stands outside of a section.
    """
    import tomllib

    try:
        text = data.decode()
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, a number of too many digits
        message = " ".join(str(error).split()) or "nested too deeply"
        raise SettingsError(
            f"{path} is no TOML: {message}; mend that line, 'perseus-dist config --check {path}' tries it"
        ) from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            line = find_line(text, "", name)
            raise SettingsError(
                f"{path}{f':{line}' if line else ''}: {name[:80]!r} is no section; write settings as "
                "lines 'key = value' below a header such as [planner]"
            )
    return SettingsFile(path=path, text=text, tables=tables)


def find_line(text: str, section: str, key: str | None) -> int | None:
    """The line of a section's header, or of a key below it; None where it is written in another form.

    Args:
        text: Of the file.
        section: Its name; empty for what stands above all sections.
        key: None for the header itself.
    """
    here = ""
    for number, line in enumerate(_lines(text), start=1):
        if header := re.match(r"\s*\[\s*(\"[^\"]*\"|'[^']*'|[^]\s]+)\s*\]", line):
            here = header[1].strip("\"'")
            if key is None and here == section:
                return number
        elif key is not None and (assigned := re.match(r"\s*(\"[^\"]*\"|'[^']*'|[\w-]+)\s*=", line)):
            if (here, assigned[1].strip("\"'")) == (section, key):
                return number
        elif key is not None and re.match(rf"\s*{re.escape(section)}\s*\.\s*{re.escape(key)}\s*=", line):
            return number
    return None


def _lines(text: str) -> Sequence[str]:
    """As TOML has them, and editors: U+2028 in a text ends none."""
    return text.split("\n")
