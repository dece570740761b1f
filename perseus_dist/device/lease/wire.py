"""Protocol of lease daemon and client over a Unix stream socket: one JSON object a line.

    client                                          daemon
    {"op": "acquire", "version": 1,                 {"op": "granted", "clocks_mhz": [...], "lease_s": 2.0,
     "gpu": "GPU-...", "pids": [...]}                "pid": 4711, "caveat": ""}
                                                    {"op": "refused", "reason": "...", "retry": false,
                                                     "unusable": false}
    {"op": "set", "clock_mhz": 1200, "request_ns": 1}   {"op": "report", ...the fields of ClockReport}
    {"op": "beat"}                                  {"op": "lost", "reason": "..."}
    {"op": "release"}                               {"op": "restored"}

A connection is a lease: its end, however it comes, restores the clocks.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from perseus_dist.device.control import ClockReport
from perseus_dist.errors import PerseusError

VERSION = 1
MAX_LINE_BYTES = 8192
MAX_PIDS = 64
_MAX_INT = 2**63 - 1
# Also becomes a file name.
_GPU_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,80}")
_OPS = ("acquire", "set", "beat", "release")


class WireError(PerseusError):
    """A line that is not of this protocol."""


Message = dict[str, Any]


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as one line of JSON, with its newline."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def encode_report(report: ClockReport) -> bytes:
    """A clock report as one line of JSON, with its newline."""
    return encode({"op": "report", **asdict(report)})


def decode_from_client(line: bytes) -> Message:
    """Read and check what a client says: it is not trusted.

    Raises:
        WireError: It is not a message, or a field is missing or out of range.
    """
    message = _object(line)
    match message.get("op"):
        case "acquire":
            if message.get("version") != VERSION:
                raise WireError(
                    f"protocol version {message.get('version')!r}, expected {VERSION}: update the older side"
                )
            gpu = message.get("gpu")
            if not isinstance(gpu, str) or not _GPU_UUID.fullmatch(gpu):
                raise WireError(f"gpu is {gpu!r:.100}, expected a UUID as NVML writes it, GPU-...")
            pids = message.get("pids")
            if not isinstance(pids, list) or len(pids) > MAX_PIDS or not all(_is_int(pid, 1, 2**31) for pid in pids):
                raise WireError(f"pids is {pids!r:.100}, expected at most {MAX_PIDS} process ids")
        case "set":
            if "clock_mhz" not in message:
                raise WireError("a set without clock_mhz, expected a clock in MHz or null")
            clock_mhz = message["clock_mhz"]
            if clock_mhz is not None and not _is_int(clock_mhz, 1, 100_000):
                raise WireError(f"clock_mhz is {clock_mhz!r:.100}, expected a clock in MHz or null")
            if not _is_int(message.get("request_ns"), 0, _MAX_INT):
                raise WireError(f"request_ns is {message.get('request_ns')!r:.100}, expected nanoseconds")
        case "beat" | "release":
            pass
        case op:
            raise WireError(f"op is {op!r:.100}, expected one of {', '.join(_OPS)}")
    return message


def decode_from_daemon(line: bytes) -> Message:
    """Read what a daemon says.

    Raises:
        WireError: It is not a message.
    """
    return _object(line)


def decode_report(message: Message) -> ClockReport:
    """Make the report that a message holds.

    Raises:
        WireError: Fields are missing.
    """
    try:
        return ClockReport(**{name: message[name] for name in ClockReport.__dataclass_fields__})
    except KeyError as error:
        raise WireError(f"a report without {error}") from None


def _object(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise WireError(f"{line!r:.100}: not JSON") from None
    if not isinstance(message, dict):
        raise WireError(f"{line!r:.100}: not a JSON object")
    return message


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
