"""Values of options: how each is checked, normalised and worded."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from perseus_dist.messages.target_text import EXPECTED, format_target, read_target

MAX_JOB_NAME_LENGTH = 128

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_HOST = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?")
_JOB_NAME = re.compile(rf"(?!\.{{1,2}}\Z)[A-Za-z0-9._-]{{1,{MAX_JOB_NAME_LENGTH}}}")  # browsers resolve . and ..
_CONTROLS = ("auto", "clockd", "zeusd", "direct", "observe")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        metavar: Of its value in ``--help``.
        help: What it is for.
        expected: The form of a value, for the refusal of another.
        normalise: Makes a value of its text; None of one that cannot be used.
    """

    metavar: str
    help: str
    expected: str
    normalise: Callable[[str], str | None]


def _address(text: str) -> str | None:
    match = _ADDRESS.fullmatch(text)
    return text if match is not None and 1 <= int(match["port"]) <= _MAX_PORT else None


def _addresses(text: str) -> str | None:
    each = [_address(one.strip()) for one in text.split(",")]
    return None if None in each else ",".join(filter(None, each))


def _host_or_off(text: str) -> str | None:
    match = _HOST.fullmatch(text)
    return text if match is not None and int(match["port"] or 1) in range(1, _MAX_PORT + 1) else None


def _target(text: str) -> str | None:
    try:
        return format_target(read_target(text))
    except ValueError:
        return None


def _path(text: str) -> str | None:
    try:
        return os.path.abspath(os.path.expanduser(text)) if text and "\0" not in text else None  # noqa: PTH100, PTH111
    except OSError:  # a relative one, in a folder that is gone
        return None


def _path_or_off(text: str) -> str | None:
    return text if text == "off" else _path(text)


def _job_name(text: str) -> str | None:
    return text if _JOB_NAME.fullmatch(text) is not None else None


def _control(text: str) -> str | None:
    return text if text in _CONTROLS else None


def _reaction(text: str) -> str | None:
    return text if text in ("act", "show") else None


def _unseen_unit(text: str) -> str | None:
    return text if text in ("phase", "rank") else None


OPTIONS: dict[str, Option] = {
    "planner": Option(
        "HOST:PORT",
        "the planner to ask, of several replicas one or more with commas between; without it one starts with rank 0, "
        "serves all nodes, and ends with the job",
        "HOST:PORT such as 127.0.0.1:50151 or [::1]:50151",
        _addresses,
    ),
    "profile": Option("FILE", "profile CSV of an earlier run, which spares the sweep", "a file's path", _path),
    "target": Option(
        "TARGET",
        "iteration time that is wanted: t_min (the default: as fast as without), slowdown=1.05 or deadline=2.5, in s",
        EXPECTED,
        _target,
    ),
    "report": Option("DIR", "folder for the savings report", "a folder's path", _path),
    "cache": Option(
        "DIR",
        "folder that keeps profile and plans for the next start of the same work, without a planner that is named: "
        "perseus-cache beside the report's folder, or ~/.cache/perseus-dist, otherwise; off keeps nothing",
        "a folder's path, or off",
        _path_or_off,
    ),
    "job": Option(
        "NAME",
        "the job's name at the planner; made up otherwise",
        f"1 to {MAX_JOB_NAME_LENGTH} characters of A-Z a-z 0-9 . _ -, not . or ..",
        _job_name,
    ),
    "share": Option(
        "HOST",
        "where other nodes reach the planner that starts with rank 0, HOST or HOST:PORT: its node's address on the way "
        "to MASTER_ADDR otherwise, and any free port; off serves rank 0's node alone",
        "HOST or HOST:PORT such as 10.0.0.1, node-0:50152 or [fd00::1]:50152, or off",
        _host_or_off,
    ),
    "token_file": Option("FILE", "file with the planner's token", "a file's path", _path),
    "control": Option(
        "HOW",
        f"how clocks are set: {', '.join(_CONTROLS)} (measure, set nothing)",
        f"one of {', '.join(_CONTROLS)}",
        _control,
    ),
    "stragglers": Option(
        "HOW",
        "act: pipelines wait for stragglers (the default), or show: they are told of; a named planner has its own word",
        "act or show",
        _reaction,
    ),
    "granularity": Option(
        "UNIT",
        "where instructions cannot be seen, as in CUDA graphs: phase (the default: clocks may change within an "
        "iteration, by time) or rank (one clock for each rank)",
        "phase or rank",
        _unseen_unit,
    ),
    "tls_ca": Option("FILE", "certificate of the planner's authority", "a file's path", _path),
    "tls_cert": Option("FILE", "this job's certificate for the planner", "a file's path", _path),
    "tls_key": Option("FILE", "its key", "a file's path", _path),
}
