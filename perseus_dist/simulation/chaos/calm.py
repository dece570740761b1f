"""How long a run has been left alone at each iteration: when its outcome is to be judged.

Iterations of sweeps are not counted: they are slow on purpose, and ``total_time`` judges their cost. Where a sweep
or planning is under way at the last event, nor are those until its plan is there, which cannot know of the event. A
delay of messages is over once the last one that was sent under it has arrived: until then the planner knows no newer
iteration.
"""

import itertools
from dataclasses import dataclass

from perseus_dist.planner.job.job import Phase
from perseus_dist.simulation.chaos.record import PlayedRun
from perseus_dist.simulation.chaos.scenario.events import MessageDelay
from perseus_dist.simulation.chaos.standing import History
from perseus_dist.simulation.virtual.planner import USUAL_PLANNING_S

NUM_SETTLING, NUM_SETTLED = 20, 20
"""Iterations after the last event in which a job may still answer it, and those after them that are judged."""
_MIN_JUDGED = 10
_PLAN_UNDER_WAY = frozenset({Phase.PROFILING, Phase.REPROFILING, Phase.PLANNING})
_PLAN_S = 15.0  # samples on their way (5 s), usual planning (3 s), reports (2 s) and the switch
_NUM_PLANNED = 2  # requests that follow each other: what a plan is made for may be over when it is there
_DELAYS = 10  # messages that follow each other on the way to a plan, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Calm:
    """A run's calm end.

    Attributes:
        settled: Iterations 21 to 40 after the last event and after the plan that was then being made; those of sweeps
            are not counted. Fewer where the run ends early, and none where they are too few to be judged.
        planned: As many iterations, up to the first at which a plan must be in force; empty where the run is too short
            for that, or something that plans need is not there.
    """

    settled: tuple[int, ...]
    planned: tuple[int, ...]


def calm_of(run: PlayedRun, history: History) -> Calm:
    """Find a run's calm end."""
    num = len(run.iterations)
    begin = max([history.last_event, *(i + 1 for i in _late_iterations(run, history))])
    quiet = [i for i in range(begin, num) if not run.iterations[i].is_sweep]
    known = itertools.dropwhile(lambda i: run.iterations[i].phase in _PLAN_UNDER_WAY, quiet)
    settled = tuple(itertools.islice(known, NUM_SETTLING, NUM_SETTLING + NUM_SETTLED))
    if len(settled) < _MIN_JUDGED:
        return Calm(settled=(), planned=())
    standing = history.at(num - 1)
    planned: tuple[int, ...] = ()
    if standing.can_be_planned:
        late_s = _NUM_PLANNED * (history.planning_s - USUAL_PLANNING_S)
        needed_s = _PLAN_S + late_s + _DELAYS * standing.delay_s
        left_alone_s = 0.0
        for i in range(begin, num):
            left_alone_s = 0.0 if run.iterations[i].is_sweep else left_alone_s + run.iterations[i].time_s
            if i >= settled[-1] and left_alone_s >= needed_s:
                planned = tuple(quiet[quiet.index(i) - len(settled) + 1 : quiet.index(i) + 1])
                if left_alone_s - sum(run.iterations[j].time_s for j in planned) >= late_s or late_s <= 0:
                    break
                planned = ()
    return Calm(settled=settled, planned=planned)


def num_calm_iterations(run: PlayedRun, history: History) -> list[int]:
    """(num_iterations) how many iterations, sweeps not counted, have passed since the last event before each."""
    counts, count = [], 0
    events, late = {event.iteration for event in history.events}, _late_iterations(run, history)
    for number, iteration in enumerate(run.iterations):
        if number in events or number in late:
            count = 0
        counts.append(count)
        count += not (iteration.is_sweep or number in late)
    return counts


def _late_iterations(run: PlayedRun, history: History) -> set[int]:
    """Iterations that begin before messages have arrived that were sent under a longer delay: streams keep order."""
    late: set[int] = set()
    for event in history.events:
        if not isinstance(event, MessageDelay) or event.iteration == 0:
            continue
        before, after = (history.at(i).delays_s for i in (event.iteration - 1, event.iteration))
        delay_s = max((of for rank, of in before.items() if of > after.get(rank, 0.0)), default=0.0)
        since_s = 0.0
        for i in range(event.iteration, len(run.iterations)):
            if since_s >= delay_s:
                break
            late.add(i)
            since_s += run.iterations[i].time_s
    return late
