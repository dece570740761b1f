"""Jobs that have come to some phase of their life, each brought there once and copied."""

from copy import deepcopy
from functools import cache

from test_planner_lifecycle import Fleet


def fleet_profiling(*, dp: int = 1) -> Fleet:
    """In its first sweep."""
    return deepcopy(_made("profiling", dp))


def fleet_planning(*, dp: int = 1) -> Fleet:
    """All of its sweep has come, and a plan is awaited."""
    return deepcopy(_made("planning", dp))


def fleet_enforcing(*, dp: int = 1) -> Fleet:
    """Under its first plan, of which no iteration has been reported yet."""
    return deepcopy(_made("enforcing", dp))


@cache
def _made(phase: str, dp: int) -> Fleet:
    fleet = Fleet(dp=dp)
    match phase:
        case "profiling":
            return fleet.to_profiling()
        case "planning":
            return fleet.to_planning()
        case _:
            return fleet.to_enforcing()
