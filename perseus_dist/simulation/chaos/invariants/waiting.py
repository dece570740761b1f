"""Nothing waits for what is over."""

from perseus_dist.simulation.chaos.calm import NUM_SETTLING, num_calm_iterations
from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "waiting"


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge every iteration at which all is well.

    All is well where every GPU is, no process is down, no rank is cut off, no disk is full and no report of a degree
    above 1 stands. From the 21st such iteration after an event on (sweeps not counted), and in a job to which nothing
    has happened from its first, no verdict is acted upon and no pipeline has a slower plan than the target's.
    """
    calm = num_calm_iterations(run, history)
    waiting = []
    for number, iteration in enumerate(run.iterations):
        standing, view = history.at(number), iteration.view
        is_well = standing.can_be_planned and not standing.somebody_may_wait
        is_first = not any(event.iteration <= number for event in history.events)
        if view and is_well and (is_first or calm[number] >= NUM_SETTLING) and (view.waiting or view.slow_ranks):
            waiting.append(number)
    if not waiting:
        return []
    first = run.iterations[waiting[0]].view
    assert first is not None
    return [
        Broken(
            name=NAME,
            sentence=f"all is well in iterations {waiting[0]} to {waiting[-1]}, and yet in {len(waiting)} of them "
            f"somebody waits (at first pipelines {_listed(first.waiting)} wait; ranks held to be slow: "
            f"{_listed(first.slow_ranks)})",
        )
    ]


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "none"
