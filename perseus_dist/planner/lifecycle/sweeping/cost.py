"""Cost of a sweep: estimated as it is ordered, and measured once its plan is there."""

from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.job.state.profiling import SweepCost
from perseus_dist.planner.job.state.progress import Iteration
from perseus_dist.planner.lifecycle.enforcement.switching import iteration_time_s

KIND = "sweep"
"""Of its events."""

_COUNTED = frozenset({Phase.PROFILING, Phase.REPROFILING, Phase.PLANNING})


def tell_estimate(job: Job, ordered: SweepBegun, num_menu: int, now_s: float) -> None:
    """Say how long the first sweep of a series takes, and how much longer than at full clocks that may be.

    Computations take at most so many times as long as their clock is lower.
    """
    time_s = iteration_time_s(job) or 0.0
    clocks_of = ordered.clocks_by_rank().values()
    ratios = [max(own[0] / own[step] for own in clocks_of if step < len(own)) for step in range(ordered.num_steps)]
    longer_s = sum(ordered.iterations_per_clock * time_s * (ratio - 1) for ratio in ratios)
    num_iterations = ordered.iterations_per_clock * ordered.num_steps
    sentence = (
        f"sweep {ordered.sweep_id} measures {len(ordered.clocks_mhz)} of {num_menu} clocks in {num_iterations} "
        f"iterations, which take at most {longer_s:.1f} s longer than at full clocks; others follow where that is not "
        "enough"
    )
    job.profiling.cost = SweepCost()
    job.history.add(KIND, sentence, now_s=now_s, iteration=job.progress.iteration)


def count_swept(job: Job, iteration: Iteration) -> None:
    """Count an iteration that every rank has reported, if it is one of the newest series."""
    cost, sweeps = job.profiling.cost, job.profiling.sweeps
    if cost is None or not sweeps or job.phase not in _COUNTED:
        return
    newest = sweeps[max(sweeps)].series
    if any(
        ordered.series == newest and ordered.first_iteration <= iteration.number < ordered.end_iteration
        for ordered in sweeps.values()
    ):
        full_s = job.measured.baseline.time_s if job.measured.baseline is not None else iteration.time_s
        cost.num_iterations += 1
        cost.longer_s += iteration.time_s - full_s


def tell_cost(job: Job, now_s: float) -> None:
    """Say what the series behind a plan has cost, once."""
    cost, sweeps = job.profiling.cost, job.profiling.sweeps
    job.profiling.cost = None
    if cost is None or not cost.num_iterations or not sweeps:
        return
    newest = sweeps[max(sweeps)].series
    clocks_mhz = set().union(*(ordered.clocks_mhz for ordered in sweeps.values() if ordered.series == newest))
    sentence = (
        f"{len(clocks_mhz)} clocks were measured in {cost.num_iterations} iterations, which took {cost.longer_s:.1f} s "
        "longer than at full clocks"
    )
    job.history.add(KIND, sentence, now_s=now_s, iteration=job.progress.iteration)
