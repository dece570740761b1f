"""The joules that are reported to be saved are the truth."""

from statistics import median

from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.scenario.events import Process, ProcessAction, ProcessEvent
from perseus_dist.simulation.chaos.standing import History

NAME = "reported_saving"
_SHARE = 0.02
_METER_SHARE = 0.0025
_DOUBT_SHARE = 0.005
_MIN_FOLLOWED = 4  # iterations under a plan, before what they draw is measured


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge what the planner says as each job ends, unless it is down or cut off then.

    The joules saved lie within 2 % of the truth: what the same iterations draw without Perseus minus what they drew,
    over those in which every rank followed a plan. Give or take 0.25 % of the former, which is what energy counters
    that tick allow.

    Where the planner says how far it may be wrong, it may be so much more, within limits: 0.5 % of what the iterations
    draw without Perseus, and whatever faults have made of that, because full clocks cannot be measured under a plan.
    Where nothing happens, doubt excuses next to nothing. In fewer than four iterations under a plan nothing is measured
    yet: doubt may be as much as what is said. A planner that is killed while its disk is full forgets what iterations
    have saved since it was.
    """
    broken = []
    for span in run.jobs:
        if not history.at(span.last).can_be_planned:
            continue
        followed = [i for i in span.iterations if run.followed[i]]
        without_j = sum(run.without[i].energy_j for i in followed)
        true_j = _saved_j(run, followed)
        allowed_j = _SHARE * abs(true_j) + _METER_SHARE * without_j
        doubt_j = min(span.end.saved_doubt_j, _DOUBT_SHARE * without_j + _disturbed_j(run, history, span, followed))
        if len(followed) < _MIN_FOLLOWED:
            doubt_j = min(span.end.saved_doubt_j, abs(span.end.saved_j))
        forgotten_j = _saved_j(run, [i for i in followed if _is_forgotten(history, i)])
        low_j, high_j = sorted((true_j - forgotten_j, true_j))
        if not low_j - allowed_j - doubt_j <= span.end.saved_j <= high_j + allowed_j + doubt_j:
            broken.append(
                Broken(
                    name=NAME,
                    sentence=f"{span.end.saved_j:.0f} J are said to be saved, give or take {span.end.saved_doubt_j:.0f}"
                    f" J; truly {true_j:.0f} J were, in {len(followed)} iterations under a plan (allowed are "
                    f"{allowed_j + doubt_j:.0f} J more or less)",
                )
            )
    return broken


def _saved_j(run: PlayedRun, followed: list[int]) -> float:
    """[J] that iterations drew less than the same ones without Perseus."""
    return sum(run.without[i].energy_j - run.iterations[i].energy_j for i in followed)


def _is_forgotten(history: History, iteration: int) -> bool:
    """Whether the planner's disk was full in an iteration, and remained so until the planner was killed."""
    kills = (
        event.iteration
        for event in history.events
        if isinstance(event, ProcessEvent)
        and (event.process, event.action) == (Process.PLANNER, ProcessAction.KILL)
        and event.iteration > iteration
    )
    return any(all(history.at(i).is_disk_full for i in range(iteration, kill)) for kill in kills)


def _disturbed_j(run: PlayedRun, history: History, span: JobSpan, followed: list[int]) -> float:
    """[J] by which iterations without Perseus differ from those in which every GPU is well."""
    well_j = [run.without[i].energy_j for i in span.iterations if not history.at(i).gpus]
    if not well_j:
        well_j = [run.without[i].energy_j for i in span.iterations]
    usual_j = median(well_j)
    return sum(abs(run.without[i].energy_j - usual_j) for i in followed if history.at(i).gpus)
