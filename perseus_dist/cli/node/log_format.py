"""Logs of services: lines for people, or one JSON object a line for collectors."""

import argparse
import json
import logging
from datetime import UTC, datetime

_FORMATS = ("text", "json")


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


def begin_log(log_format: str, *, text: str, level: int = logging.INFO) -> None:
    """Write the process's log to standard error.

    Args:
        log_format: Of ``--log-format``.
        text: ``logging``'s format of a line for people.
        level: The least that is written.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(text))
    logging.basicConfig(level=level, handlers=[handler])
