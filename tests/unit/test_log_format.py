"""Services' logs as JSON: one object a line, whatever is logged."""

import json
import logging
import sys
from datetime import datetime

from perseus_dist.cli.node.log_format import JsonFormatter


def line(message: str, *args: object, exc_info: bool = False) -> str:
    record = logging.LogRecord(
        "perseus", logging.WARNING, "file", 1, message, args, sys.exc_info() if exc_info else None
    )
    return JsonFormatter().format(record)


def test_a_record_is_one_line_of_json() -> None:
    text = line("job %s:\n\x1b[31mtwo lines", "\u00e4\ud800")
    assert text.isprintable()
    document = json.loads(text)
    assert (document["level"], document["logger"]) == ("warning", "perseus")
    assert document["message"].startswith("job \u00e4")
    assert datetime.fromisoformat(document["time"]).utcoffset() is not None


def test_an_exception_is_part_of_its_record() -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        text = line("a call failed", exc_info=True)
    assert text.isprintable()
    assert "ValueError: no such thing" in json.loads(text)["exception"]
