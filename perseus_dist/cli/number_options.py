"""argparse types of numbers within bounds."""

import argparse
from collections.abc import Callable

from perseus_dist.number_text import read_real, read_whole


def whole(low: int, high: int, expected: str) -> Callable[[str], int]:
    """A type: a whole number from ``low`` to ``high``; ``expected`` ends the sentence of a refusal."""

    def parse(text: str) -> int:
        try:
            return read_whole(text, low, high)
        except ValueError:
            raise argparse.ArgumentTypeError(f"saw {text!r}, expected {expected}") from None

    return parse


def real(low: float, high: float, expected: str) -> Callable[[str], float]:
    """A type: a number from ``low`` to ``high``; ``expected`` as for ``whole``."""

    def parse(text: str) -> float:
        try:
            return read_real(text, low, high)
        except ValueError:
            raise argparse.ArgumentTypeError(f"saw {text!r}, expected {expected}") from None

    return parse


watts = real(1e-3, 1e12, "a power from 0.001 to 1e+12 watts")
"""A type: a power that jobs may draw."""
