"""The baseline that is reported is the truth."""

from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "reported_baseline"
_SHARE = 0.02
_AS_FULL = 0.002


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge what the planner says as each job ends, unless it is down or cut off then.

    The baseline's time and energy lie within 2 % of what iterations that ran at full clocks take without Perseus:
    between the least and the greatest of them, because a fault may begin in the middle of a baseline. Those of a sweep
    that held the highest clock are among them. Whether the baseline is fit to be compared with is judged by
    ``reported_slowdown`` and ``reported_saving``.
    """
    sentences = [
        sentence for span in run.jobs if history.at(span.last).can_be_planned for sentence in _of_job(run, span)
    ]
    return [Broken(name=NAME, sentence=sentence) for sentence in sentences]


def _of_job(run: PlayedRun, span: JobSpan) -> list[str]:
    baseline = span.end.baseline
    free = [run.without[i] for i in span.iterations if not run.followed[i] and _is_full(run, i)]
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


def _is_full(run: PlayedRun, iteration: int) -> bool:
    """Whether an iteration without a plan held no lower clock to be measured."""
    here = run.iterations[iteration]
    return not here.is_sweep or here.time_s <= (1 + _AS_FULL) * run.without[iteration].time_s
