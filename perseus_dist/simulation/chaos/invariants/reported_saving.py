"""The joules that are reported to be saved are the truth."""

from perseus_dist.simulation.chaos.record import Broken, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "reported_saving"
_SHARE = 0.02
_METER_SHARE = 0.0025


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge what the planner says as each job ends, unless it is down or cut off then.

    The joules saved lie within 2 % of the truth: what the same iterations draw without Perseus minus what they drew,
    over those in which every rank followed a plan. Give or take 0.25 % of the former, which is what energy counters
    that tick allow.
    """
    broken = []
    for span in run.jobs:
        if not history.at(span.last).can_be_planned:
            continue
        followed = [i for i in span.iterations if run.followed[i]]
        without_j = sum(run.without[i].energy_j for i in followed)
        true_j = without_j - sum(run.iterations[i].energy_j for i in followed)
        allowed_j = _SHARE * abs(true_j) + _METER_SHARE * without_j
        if abs(span.end.saved_j - true_j) > allowed_j:
            broken.append(
                Broken(
                    name=NAME,
                    sentence=f"{span.end.saved_j:.0f} J are said to be saved; truly {true_j:.0f} J were, in "
                    f"{len(followed)} iterations under a plan (allowed are {allowed_j:.0f} J more or less)",
                )
            )
    return broken
