"""Plays a scenario twice, with Perseus and without, and records both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from perseus_dist.simulation.chaos.record import JobSpan, PlayedRun
from perseus_dist.simulation.chaos.scenario.events import NextJob
from perseus_dist.simulation.chaos.scenario.scenario import Scenario, ScenarioJob
from perseus_dist.simulation.chaos.standing import History
from perseus_dist.simulation.chaos.world.world import Iteration, JobEnd, OpenWorld

_NUM_UNDISTURBED = 5  # iterations behind an undisturbed time


@dataclass(frozen=True, slots=True)
class _Trained:
    iterations: list[Iteration]
    ends: list[JobEnd]


def play(scenario: Scenario, open_world: OpenWorld) -> PlayedRun:
    """Play a scenario.

    Args:
        scenario: What to play.
        open_world: What to play it in.

    Raises:
        ScenarioError: The world cannot do what an event says.
    """
    trained = _train(scenario, open_world, with_perseus=True)
    without = _train(scenario, open_world, with_perseus=False).iterations
    firsts = [first for first, _ in scenario.jobs()]
    jobs = [
        JobSpan(
            job=job,
            first=first,
            last=until - 1,
            undisturbed_time_s=_undisturbed_s(scenario, range(first, until), job, without, open_world),
            end=end,
        )
        for (first, until), (_, job), end in zip(
            pairwise([*firsts, scenario.iterations]), scenario.jobs(), trained.ends, strict=True
        )
    ]
    return PlayedRun(scenario=scenario, iterations=trained.iterations, without=without, jobs=jobs)


def _train(scenario: Scenario, open_world: OpenWorld, *, with_perseus: bool) -> _Trained:
    trained = _Trained([], [])
    waiting = list(scenario.events)
    with open_world(scenario, with_perseus=with_perseus) as world:
        for number in range(scenario.iterations):
            while waiting and waiting[0].iteration <= number:
                event = waiting.pop(0)
                end = world.apply(event)
                if isinstance(event, NextJob):
                    assert end is not None, "a world that can begin another job says how the earlier one ended"
                    trained.ends.append(end)
            trained.iterations.append(world.run_iteration())
        trained.ends.append(world.end())
    return trained


def _undisturbed_s(
    scenario: Scenario, iterations: range, job: ScenarioJob, without: Sequence[Iteration], open_world: OpenWorld
) -> float:
    """From iterations of the run without in which all is well; where they are too few, from a run of their own."""
    history = History(scenario)
    well = [without[i].time_s for i in iterations if not history.at(i).gpus]
    if len(well) < _NUM_UNDISTURBED:
        alone = replace(scenario, job=job, iterations=_NUM_UNDISTURBED, events=())
        well = [one.time_s for one in _train(alone, open_world, with_perseus=False).iterations]
    return median(well)
