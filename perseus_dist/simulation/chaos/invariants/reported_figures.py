"""Figures that are reported are the truth: the baseline, the slowdown, the joules saved."""

from collections.abc import Iterable
from statistics import median

from perseus_dist.messages import MeasuredIterations
from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "reported_figures"
_SHARE = 0.02
_METER_SHARE = 0.0025


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge what the planner says as each job ends, unless it is down or cut off then.

    - The baseline's time and energy lie within 2 % of what iterations that ran at full clocks take without Perseus:
      between the least and the greatest of them, because a fault may begin in the middle of a baseline.
    - The slowdown, time under the last plan over the baseline's, lies within 2 points of the truth: the median, over
      as many of the last iterations under a plan, of their time over that without Perseus. It is judged where nothing
      stood in those iterations, since only then they are meant to compare.
    - The joules saved lie within 2 % of the truth, what the iterations under a plan draw without Perseus minus what
      they drew, give or take 0.25 % of the former, which is what energy counters that tick allow.
    """
    sentences: list[str] = []
    for span in run.jobs:
        if history.at(span.last).can_be_planned:
            sentences += [*_baseline(run, span), *_slowdown(run, history, span), *_saved(run, span)]
    return [Broken(name=NAME, sentence=sentence) for sentence in sentences]


def _baseline(run: PlayedRun, span: JobSpan) -> list[str]:
    baseline = span.end.baseline
    free = [run.without[i] for i in span.iterations if not run.followed[i] and not run.iterations[i].is_sweep]
    if not baseline.num_iterations or not free:
        return []
    figures = (
        ("time", "s", baseline.time_s, [one.time_s for one in free]),
        ("energy", "J", baseline.energy_j, [one.energy_j for one in free]),
    )
    return [
        f"the baseline's {name} is said to be {said:.4f} {unit}; iterations at full clocks have {min(true):.4f} to "
        f"{max(true):.4f} {unit}"
        for name, unit, said, true in figures
        if not (1 - _SHARE) * min(true) <= said <= (1 + _SHARE) * max(true)
    ]


def _slowdown(run: PlayedRun, history: History, span: JobSpan) -> list[str]:
    baseline, enforced = span.end.baseline, span.end.enforced
    last = _last_followed(run, span, enforced)
    if not baseline.time_s or not last or any(history.at(i).gpus or history.at(i).reports for i in last):
        return []
    said = enforced.time_s / baseline.time_s - 1
    true = median(run.iterations[i].time_s / run.without[i].time_s for i in last) - 1
    if abs(said - true) <= _SHARE:
        return []
    return [
        f"the slowdown is said to be {100 * said:+.1f} % ({enforced.time_s:.4f} s under the plan, {baseline.time_s:.4f}"
        f" s before); truly it is {100 * true:+.1f} %"
    ]


def _last_followed(run: PlayedRun, span: JobSpan, enforced: MeasuredIterations) -> list[int]:
    followed = [i for i in span.iterations if run.followed[i]]
    return followed[-enforced.num_iterations :] if enforced.num_iterations else []


def _saved(run: PlayedRun, span: JobSpan) -> list[str]:
    followed = [i for i in span.iterations if run.followed[i]]
    without_j = _energy_j(run.without[i].energy_j for i in followed)
    true_j = without_j - _energy_j(run.iterations[i].energy_j for i in followed)
    allowed_j = _SHARE * abs(true_j) + _METER_SHARE * without_j
    if abs(span.end.saved_j - true_j) <= allowed_j:
        return []
    return [
        f"{span.end.saved_j:.0f} J are said to be saved; truly {true_j:.0f} J were, in {len(followed)} iterations under"
        f" a plan (allowed are {allowed_j:.0f} J more or less)"
    ]


def _energy_j(energies_j: Iterable[float]) -> float:
    return sum(energies_j)
