"""No history takes more time than without Perseus, but for what was asked for, sweeps, and a little per disturbance."""

from collections.abc import Iterator
from statistics import median

from perseus_dist.planner.job.job import Phase
from perseus_dist.simulation.chaos.record import Broken, JobSpan, PlayedRun
from perseus_dist.simulation.chaos.standing import History

NAME = "total_time"
_SHARE = 0.01
_ITERATIONS_PER_DISTURBANCE = 10
_SWEEPING = frozenset({Phase.PROFILING, Phase.REPROFILING})


def check(run: PlayedRun, history: History) -> list[Broken]:
    """Judge the sum of all iteration times.

    It may be r times that without Perseus and 1 % more, r standing at each iteration (``Standing.allowed_s``); plus
    what excused sweeps took longer than that; plus, for each disturbance, ten median iterations of the job that it
    happened to, without Perseus. Excused are the sweep of each job and as many re-profilings as there were disturbances
    before them in that job: a sweep that nothing gave cause to is no excuse.
    """
    allowed_s = [history.at(i).allowed_s(without.time_s) for i, without in enumerate(run.without)]
    total_s = sum(iteration.time_s for iteration in run.iterations)
    sweeps_s = sum(
        max(0.0, run.iterations[i].time_s - allowed_s[i]) for span in run.jobs for i in _excused(run, history, span)
    )
    disturbed_s = sum(
        _ITERATIONS_PER_DISTURBANCE * median(run.without[i].time_s for i in run.job_at(begin).iterations)
        for begin in history.disturbances
    )
    most_s = (1 + _SHARE) * sum(allowed_s) + sweeps_s + disturbed_s
    if total_s <= most_s:
        return []
    asked_s = sum(allowed_s)
    return [
        Broken(
            name=NAME,
            sentence=f"{len(run.iterations)} iterations took {total_s:.1f} s; allowed are {most_s:.1f} s: "
            f"{asked_s:.1f} s without Perseus and 1 % more, {sweeps_s:.1f} s for sweeps, {disturbed_s:.1f} s for "
            f"{len(history.disturbances)} disturbances ({100 * (total_s - sweeps_s) / asked_s - 100:.1f} % lost)",
        )
    ]


def sweeps_of(run: PlayedRun, span: JobSpan) -> list[range]:
    """The sweeps of a job, each with all its rounds: between two the job waits for the next, in the same phase."""
    sweeps: list[range] = []
    for i in span.iterations:
        if run.iterations[i].is_sweep:
            if sweeps and all(run.iterations[j].phase in _SWEEPING for j in range(sweeps[-1].stop, i)):
                sweeps[-1] = range(sweeps[-1].start, i + 1)
            else:
                sweeps.append(range(i, i + 1))
    return sweeps


def _excused(run: PlayedRun, history: History, span: JobSpan) -> Iterator[int]:
    num_excused = 0
    for sweep in sweeps_of(run, span):
        num_causes = 1 + sum(span.first <= begin < sweep.start for begin in history.disturbances)
        if num_excused < num_causes:
            num_excused += 1
            yield from sweep
