"""The iteration time that a job wants, as text: ``t_min``, ``slowdown=1.05`` or ``deadline=2.5`` (seconds)."""

import math

from perseus_dist.messages.terms import Target
from perseus_dist.number_text import read_real

MAX_SLOWDOWN = 1e3
MAX_DEADLINE_S = 1e7
EXPECTED = "t_min, slowdown=1.05 (1 or more) or deadline=2.5 (seconds)"
"""For the refusal of another text."""


def read_target(text: str) -> Target:
    """Read one; ``deadline_s=2.5`` is ``deadline=2.5``.

    Raises:
        ValueError: The text is no target.
    """
    name, _, number = text.partition("=")
    if text == "t_min":
        return Target()
    if name == "slowdown":
        return Target(slowdown=read_real(number, 1, MAX_SLOWDOWN))
    if name in ("deadline", "deadline_s"):
        return Target(deadline_s=read_real(number, math.ulp(0), MAX_DEADLINE_S))
    raise ValueError(f"{text!r} is no target")


def format_target(target: Target) -> str:
    """The inverse of ``read_target``."""
    if target.slowdown is not None:
        return f"slowdown={target.slowdown!r}"
    return "t_min" if target.deadline_s is None else f"deadline_s={target.deadline_s!r}"
