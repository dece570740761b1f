"""What a user asks of Perseus in training: on the launcher's command line, or in the framework's configuration."""

import argparse
import base64
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from perseus_dist.errors import PerseusError

MAX_JOB_NAME_LENGTH = 128
MAX_SLOWDOWN = 1e3
MAX_DEADLINE_S = 1e7

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_JOB_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_JOB_NAME_LENGTH}}}")
_TARGET = re.compile(r"(?P<name>slowdown|deadline(_s)?)=(?P<value>[0-9.eE+-]+)")
_CONTROLS = ("auto", "clockd", "zeusd", "direct", "observe")


class OptionError(PerseusError):
    """An option that cannot be served: an unknown name, a value of the wrong kind, a file that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PerseusOptions:
    """What was asked for; None where nothing was said. Values are checked and normalised, paths absolute.

    Attributes:
        planner: ``HOST:PORT``; without it a planner starts with rank 0 and ends with the job.
        profile: CSV of an earlier run, which spares the sweep.
        target: ``t_min``, ``slowdown=1.05`` or ``deadline_s=2.5``.
        report: Folder for the savings report.
        job: The job's name at the planner; made by rank 0 otherwise.
        token_file: File with the job's token at the planner.
        control: How clocks are set: ``auto``, ``clockd``, ``zeusd``, ``direct`` or ``observe``.
        tls_ca, tls_cert, tls_key: Files for TLS towards the planner.
    """

    planner: str | None = None
    profile: str | None = None
    target: str | None = None
    report: str | None = None
    job: str | None = None
    token_file: str | None = None
    control: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    def over(self, other: "PerseusOptions") -> "PerseusOptions":
        """These options, and the other's where these are silent."""
        return PerseusOptions(**{**_said(other), **_said(self)})

    def to_text(self) -> str:
        """One word for a command line: URL-safe base64, which no shell and no launcher takes apart."""
        return base64.urlsafe_b64encode(json.dumps(_said(self)).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> "PerseusOptions":
        """The inverse of ``to_text``.

        Raises:
            OptionError: The text is none of ours, or of another version.
        """
        try:
            said = json.loads(base64.urlsafe_b64decode(text))
            return cls(**said)
        except (ValueError, TypeError) as error:
            raise OptionError(
                f"options {text[:80]!r} cannot be read ({error}); install the same perseus-dist on every node"
            ) from None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--perseus`` and its options, spelled with hyphens or underscores.

    Nothing stands in the namespace for an option that was not given.
    """
    group = parser.add_argument_group(
        "perseus", "Energy-optimal GPU clocks. One of these options implies --perseus; underscores do for hyphens."
    )
    group.add_argument(
        "--perseus", action="store_true", default=argparse.SUPPRESS, help="run the job under Perseus's clocks"
    )
    for name, option in _OPTIONS.items():
        flag, dest = _flag(name), f"perseus_{name}"
        usual: dict[str, Any] = {"dest": dest, "metavar": option.metavar, "default": argparse.SUPPRESS}
        group.add_argument(flag, help=option.help, **usual)
        for spelling in {f"--{dest}", f"--perseus-{name}"} - {flag}:
            group.add_argument(spelling, help=argparse.SUPPRESS, **usual)


def is_asked_for(namespace: argparse.Namespace) -> bool:
    """Whether ``--perseus`` or one of its options was given."""
    return any(name in namespace for name in ("perseus", *(f"perseus_{name}" for name in _OPTIONS)))


def is_option(argument: str) -> bool:
    """Whether a word of a command line is one of ``add_options``, with or without its value."""
    return argument.partition("=")[0].replace("_", "-") in ("--perseus", *map(_flag, _OPTIONS))


def options_from_namespace(namespace: argparse.Namespace) -> PerseusOptions:
    """What was given on a command line with ``add_options``.

    Files must be there: better no start than a job that trains for a week without its profile.

    Raises:
        OptionError: A value cannot be used.
    """
    given = {name: getattr(namespace, f"perseus_{name}", None) for name in _OPTIONS}
    said = {name: _checked(value, name, _flag(name)) for name, value in given.items() if value is not None}
    for name in ("profile", "token_file", "tls_ca", "tls_cert", "tls_key"):
        if name in said and not _is_readable_file(said[name]):
            raise OptionError(f"{_flag(name)} {said[name]}: no file that can be read is there")
    return PerseusOptions(**said)


def options_from_block(block: Mapping[str, object]) -> PerseusOptions | None:
    """What the ``perseus`` block of a framework's configuration says.

    Args:
        block: Keys are the options' names, values their text; ``enabled`` is true or false.

    Returns:
        None where ``enabled`` is false.

    Raises:
        OptionError: A key is unknown, or a value cannot be used.
    """
    if not isinstance(block, Mapping):
        raise OptionError(f'"perseus": {block!r} in the configuration: expected a block such as {{"enabled": true}}')
    unknown = [str(name) for name in block if name != "enabled" and name not in _OPTIONS]
    if unknown:
        raise OptionError(
            f"perseus.{unknown[0]} in the configuration is no option; there are enabled, {', '.join(_OPTIONS)}"
        )
    enabled = block.get("enabled", True)
    if not isinstance(enabled, bool):
        raise OptionError(f"perseus.enabled in the configuration is {enabled!r}: expected true or false")
    if not enabled:
        return None
    return PerseusOptions(
        **{
            name: _checked(value, name, f"perseus.{name} in the configuration")
            for name, value in block.items()
            if name != "enabled" and value is not None
        }
    )


def _flag(name: str) -> str:
    return f"--perseus-{name.replace('_', '-')}"


def _said(options: PerseusOptions) -> dict[str, str]:
    return {name: value for name, value in asdict(options).items() if value is not None}


def _checked(value: object, name: str, source: str) -> str:
    if not isinstance(value, str):
        raise OptionError(f"{source} is {value!r}: expected {_OPTIONS[name].expected}, in quotes")
    normalised = _OPTIONS[name].normalise(value)
    if normalised is None:
        raise OptionError(f"{source} is {value!r}: expected {_OPTIONS[name].expected}")
    return normalised


def _address(text: str) -> str | None:
    match = _ADDRESS.fullmatch(text)
    return text if match is not None and 1 <= int(match["port"]) <= _MAX_PORT else None


def _target(text: str) -> str | None:
    if text == "t_min":
        return text
    match = _TARGET.fullmatch(text)
    if match is None:
        return None
    try:
        value = float(match["value"])
    except ValueError:
        return None
    if match["name"] == "slowdown":
        return f"slowdown={value!r}" if 1 <= value <= MAX_SLOWDOWN else None
    return f"deadline_s={value!r}" if 0 < value <= MAX_DEADLINE_S else None


def _path(text: str) -> str | None:
    return os.path.abspath(os.path.expanduser(text)) if text and "\0" not in text else None  # noqa: PTH100, PTH111


def _job_name(text: str) -> str | None:
    return text if _JOB_NAME.fullmatch(text) is not None else None


def _control(text: str) -> str | None:
    return text if text in _CONTROLS else None


def _is_readable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK)  # noqa: PTH113


@dataclass(frozen=True, slots=True)
class _Option:
    """One option: how it is checked and told of."""

    metavar: str
    help: str
    expected: str
    normalise: Callable[[str], str | None]


_OPTIONS: dict[str, _Option] = {
    "planner": _Option(
        "HOST:PORT",
        "the planner to ask; without it one starts with rank 0 and ends with the job",
        "HOST:PORT such as 127.0.0.1:50151 or [::1]:50151",
        _address,
    ),
    "profile": _Option("FILE", "profile CSV of an earlier run, which spares the sweep", "a file's path", _path),
    "target": _Option(
        "TARGET",
        "iteration time that is wanted: t_min (the default: as fast as without), slowdown=1.05 or deadline=2.5, in s",
        "t_min, slowdown=1.05 (1 or more) or deadline=2.5 (seconds)",
        _target,
    ),
    "report": _Option("DIR", "folder for the savings report", "a folder's path", _path),
    "job": _Option(
        "NAME",
        "the job's name at the planner; made up otherwise",
        f"1 to {MAX_JOB_NAME_LENGTH} characters of A-Z a-z 0-9 . _ -",
        _job_name,
    ),
    "token_file": _Option("FILE", "file with the planner's token", "a file's path", _path),
    "control": _Option(
        "HOW",
        f"how clocks are set: {', '.join(_CONTROLS)} (measure, set nothing)",
        f"one of {', '.join(_CONTROLS)}",
        _control,
    ),
    "tls_ca": _Option("FILE", "certificate of the planner's authority", "a file's path", _path),
    "tls_cert": _Option("FILE", "this job's certificate for the planner", "a file's path", _path),
    "tls_key": _Option("FILE", "its key", "a file's path", _path),
}
