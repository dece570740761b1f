"""Makes a scenario that breaks an invariant as small as it gets while it still breaks that invariant."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from perseus_dist.simulation.chaos.scenario.events import Event, NextJob
from perseus_dist.simulation.chaos.scenario.fewer_ranks import (
    with_fewer_pipelines,
    with_shorter_pipelines,
    with_smaller_groups,
)
from perseus_dist.simulation.chaos.scenario.scenario import Scenario
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S

StillBreaks = Callable[[Scenario], bool]
MAX_RUNS = 80


class _Budget:
    """Counts runs.

    Args:
        still_breaks: Plays a scenario.
        max_runs: After so many nothing breaks any more.
    """

    def __init__(self, still_breaks: StillBreaks, max_runs: int) -> None:
        self._still_breaks = still_breaks
        self._left = max_runs

    def breaks(self, scenario: Scenario) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return self._still_breaks(scenario)


def shrink(scenario: Scenario, still_breaks: StillBreaks, *, max_runs: int = MAX_RUNS) -> Scenario:
    """Shrink: first events go, then ranks, then iterations.

    Args:
        scenario: That breaks.
        still_breaks: Whether a scenario breaks the same invariant; called ``max_runs`` times at most.
        max_runs: See there.

    Returns:
        One that breaks; the same where nothing smaller does.
    """
    budget = _Budget(still_breaks, max_runs)
    scenario = _with_fewer_events(scenario, budget)
    for smaller in (with_fewer_pipelines, with_shorter_pipelines, with_smaller_groups, _quieter, _shorter):
        while (found := next(filter(budget.breaks, smaller(scenario)), None)) is not None:
            scenario = found
    return scenario


def _with_fewer_events(scenario: Scenario, budget: _Budget) -> Scenario:
    """Leave out runs of events, at first half of them at a time, until none can be left out alone."""
    size = max(1, len(scenario.events) // 2)
    while scenario.events:
        found = next(filter(budget.breaks, _without_events(scenario, size)), None)
        if found is not None:
            scenario = found
        elif size > 1:
            size //= 2
        else:
            break
        size = min(size, max(1, len(scenario.events)))
    return scenario


def _without_events(scenario: Scenario, size: int) -> Iterator[Scenario]:
    for begin in range(0, len(scenario.events), size):
        left = scenario.events[:begin] + scenario.events[begin + size :]
        if _fit_their_jobs(scenario, left):
            yield replace(scenario, events=left)


def _fit_their_jobs(scenario: Scenario, events: tuple[Event, ...]) -> bool:
    """Whether every event happens to the same job as before: its ranks and clocks may be those of no other."""
    shorter = replace(scenario, events=events)
    return all(
        scenario.job_at(event.iteration) == shorter.job_at(event.iteration)
        for event in events
        if not isinstance(event, NextJob)
    )


def _quieter(scenario: Scenario) -> Iterator[Scenario]:
    """Without noise, and planned in the usual time."""
    if scenario.job.noise_percent:
        yield replace(scenario, job=replace(scenario.job, noise_percent=0.0))
    if scenario.planning_s != USUAL_PLANNING_S:
        yield replace(scenario, planning_s=USUAL_PLANNING_S)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """Without most, half, a quarter, or a tenth of what comes after the last event."""
    last = max((event.iteration for event in scenario.events), default=0)
    after = scenario.iterations - last - 1
    for share in (0.9, 0.5, 0.25, 0.1):
        if 0 < (left_out := round(share * after)) < scenario.iterations:
            yield replace(scenario, iterations=scenario.iterations - left_out)
