"""Logs of services: lines for people, or one JSON object a line for collectors."""

import argparse
import json
import logging
import os
from datetime import UTC, datetime

_FORMATS = ("text", "json")

_log = logging.getLogger(__name__)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as JSON; line breaks within it are escaped."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--log-format",
        choices=_FORMATS,
        default=_FORMATS[0],
        help="json: one object a line, with time, level, logger and message (default: %(default)s)",
    )


def add_json_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option by which a service says on standard output what it serves.

    Args:
        parser: Of the command.
        what: Keys that stand in the JSON object, in words.
    """
    parser.add_argument("--json", action="store_true", help=f"once it serves, print one JSON object: {what}")


def print_served(**served: object) -> None:
    """Print one JSON line, with the process and the version beside what is given; a reader may have left."""
    from perseus_dist import __version__

    try:
        print(json.dumps({**served, "pid": os.getpid(), "version": __version__}), flush=True)
    except OSError as error:
        _log.warning("standard output cannot be written (%s)", error)


def begin_log(log_format: str, *, text: str, level: int = logging.INFO, handler: logging.Handler | None = None) -> None:
    """Write the process's log to standard error.

    Args:
        log_format: Of ``--log-format``.
        text: ``logging``'s format of a line for people.
        level: The least that is written.
        handler: Writes it; None for one that waits where standard error takes no more.
    """
    handler = handler or logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(text))
    logging.basicConfig(level=level, handlers=[handler])
