"""Jobs that have come to some phase of their life, each brought there once and copied."""

from copy import deepcopy
from functools import cache

from test_planner_lifecycle import Fleet

from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.state.profiling import ActiveSweep


def short_sweep() -> ActiveSweep:
    """Of one rank at one clock, in one iteration."""
    ordered = SweepBegun(
        sweep_id=1,
        series=1,
        first_iteration=0,
        iterations_per_clock=1,
        clocks_mhz=(1400,),
        ranks=(0,),
        first_only=(),
        is_profile=True,
    )
    return ActiveSweep(ordered=ordered, missing_mhz={}, attempts=1)


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
