"""argparse type of a length of time, such as ``90s``, ``12h`` or ``30d``."""

import argparse
import re

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]{1,7})([smhdw])")
_MAX_S = 100 * 365 * 86_400


def duration_s(text: str) -> int:
    """Seconds of a text."""
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 1 <= seconds <= _MAX_S:
        raise argparse.ArgumentTypeError(
            f"saw {text[:40]!r}, expected a length of time from 1s to 100 years: a whole number and s, m, h, d or w, "
            "as in 12h or 30d"
        )
    return seconds
