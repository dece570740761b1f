"""Iterations of the whole job, summed up: medians and spreads, since a busy machine's outliers say nothing."""

from collections.abc import Collection, Sequence
from statistics import median, quantiles

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.planner.job.state.progress import Iteration

__all__ = ["MeasuredIterations", "measured_iterations"]


def measured_iterations(iterations: Collection[Iteration]) -> MeasuredIterations:
    """Sum up; energies where they are known."""
    times_s = [iteration.time_s for iteration in iterations]
    energies_j = [iteration.energy_j for iteration in iterations if iteration.energy_j is not None]
    return MeasuredIterations(
        num_iterations=len(times_s),
        time_s=median(times_s) if times_s else 0.0,
        time_spread_s=_spread(times_s),
        energy_j=median(energies_j) if energies_j else 0.0,
        energy_spread_j=_spread(energies_j),
    )


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    lower, _, upper = quantiles(values, n=4, method="inclusive")
    return upper - lower
