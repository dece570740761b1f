"""The slowdown that is reported is the truth."""

from statistics import median

from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "reported_slowdown"
_SHARE = 0.02


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge what the planner says as each job ends, unless it is down or cut off then.

    The slowdown, time under the last plan over the baseline's, lies within 2 points of the truth: the median, over as
    many of the last iterations under a plan, of their time over that without Perseus. It is judged where nothing is
    wrong with any GPU in those iterations and no report stands, since only then the two are meant to compare.
    """
    broken = []
    for span in run.jobs:
        baseline, enforced, last = span.end.baseline, span.end.enforced, _last_followed(run, span)
        if not history.at(span.last).can_be_planned or not baseline.time_s or not last:
            continue
        if any(history.at(i).gpus or history.at(i).reports for i in last):
            continue
        said = enforced.time_s / baseline.time_s - 1
        true = median(run.iterations[i].time_s / run.without[i].time_s for i in last) - 1
        if abs(said - true) > _SHARE:
            broken.append(
                Broken(
                    name=NAME,
                    sentence=f"the slowdown is said to be {100 * said:+.1f} % ({enforced.time_s:.4f} s under the plan, "
                    f"{baseline.time_s:.4f} s before); truly it is {100 * true:+.1f} %",
                )
            )
    return broken


def _last_followed(run: PlayedRun, span: JobSpan) -> list[int]:
    """As many of the last iterations under a plan as the figure is made of."""
    num = span.end.enforced.num_iterations
    return [i for i in span.iterations if run.followed[i]][-num:] if num else []
