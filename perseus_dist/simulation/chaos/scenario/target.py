"""A job's target in a scenario: ``t_min``, ``slowdown=1.05`` or ``deadline=2.5``."""

import math
from contextlib import suppress

from perseus_dist.messages.terms import Target
from perseus_dist.number_text import read_real
from perseus_dist.simulation.chaos.errors import ScenarioError

_MAX = 1e6


def parse_scenario_target(text: str, where: str = "target") -> Target:
    """Read a target.

    Raises:
        ScenarioError: It is none.
    """
    name, _, number = text.partition("=")
    if text == "t_min":
        return Target()
    with suppress(ValueError):
        if name == "slowdown":
            return Target(slowdown=read_real(number, 1, _MAX))
        if name in {"deadline", "deadline_s"}:
            return Target(deadline_s=read_real(number, math.ulp(0), _MAX))
    raise ScenarioError(
        f'{where}: saw "{text}", expected "t_min", "slowdown=1.05" (1 or more) or "deadline=2.5" (seconds); '
        "write one of them"
    )


def target_option(target: Target) -> str:
    """The target as ``RankSpec.target`` has it."""
    if target.slowdown is not None:
        return f"slowdown={target.slowdown!r}"
    return "t_min" if target.deadline_s is None else f"deadline_s={target.deadline_s!r}"
