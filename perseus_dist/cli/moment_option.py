"""argparse type of a moment: a time of day with its offset from UTC."""

import argparse
from datetime import datetime


def moment(text: str) -> datetime:
    """A type: as ISO 8601 writes it, with an offset."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        expected = "a time with its offset from UTC, such as 2026-11-24T00:00:00-05:00"
        raise argparse.ArgumentTypeError(f"saw {text!r}, expected {expected}")
    return time
