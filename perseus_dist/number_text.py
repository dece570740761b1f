"""Numbers in text from outside: ASCII digits, within bounds, or refused.

``int`` and ``float`` alone would also take ``nan``, ``inf``, ``1_000``, spaces, and digits of every script.
"""

import re

_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]{1,18}")


def read_real(text: str, low: float, high: float) -> float:
    """A number from ``low`` to ``high`` in decimal or scientific notation.

    Raises:
        ValueError: The text is none.
    """
    value = float(text) if _REAL.fullmatch(text) else float("nan")
    if not low <= value <= high:  # NaN fails too
        raise ValueError(f"{text!r} is no number from {low:g} to {high:g}")
    return value


def read_whole(text: str, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``, in digits alone.

    Raises:
        ValueError: The text is none.
    """
    value = int(text) if _WHOLE.fullmatch(text) else low - 1
    if not low <= value <= high:
        raise ValueError(f"{text!r} is no whole number from {low} to {high}")
    return value
