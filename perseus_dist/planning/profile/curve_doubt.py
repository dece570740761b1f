"""By how much one instruction's estimates may be wrong: standard errors of time and energy at each clock.

Where a profile says how its runs spread, an estimate's standard error is that of their mean. Where it does not, the
scatter of the points about the trend over neighbouring clocks stands in for it, if there are enough clocks. Clocks that
were not measured, one run with a deviation of its energy alone, are wrong as those to either side are, in proportion.
What is not known between them comes on top, the same way at all clocks, since curves bend one way.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.profile.clock_changes import ClockChanges
from perseus_dist.planning.profile.noise import trend_scatter
from perseus_dist.planning.profile.profile import Measurements
from perseus_dist.units import FloatArray, IntArray, ps_from_s

_RESOLUTION_S = 20e-6  # of times between boundaries: short instructions seem to vary by it
_MIN_RUNS = 4  # whose standard deviation says something

MAX_ERROR_SHARE = 1.0
"""Share from which on an error says nothing of a value: it counts as not known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveDoubt:
    """Doubt about one instruction of one stage.

    Attributes:
        time_share: (num_clocks) standard error of each time, as a share of it.
        energy_share: (num_clocks) the same of each energy of the whole tensor-parallel group.
        energy_common_share: (num_clocks) what the energies are wrong by together, 0 where clocks were measured.
        is_between: (num_clocks) whether a clock lies between those that were measured.
        is_from_samples: Whether they are of repeated measurements, and not of the scatter about the trend.
    """

    time_share: FloatArray
    energy_share: FloatArray
    energy_common_share: FloatArray
    is_between: NDArray[np.bool_]
    is_from_samples: bool

    def of_clocks(self, kept: slice) -> "CurveDoubt":
        """The same of some of the clocks."""
        return replace(
            self,
            time_share=self.time_share[kept],
            energy_share=self.energy_share[kept],
            energy_common_share=self.energy_common_share[kept],
            is_between=self.is_between[kept],
        )

    def in_proportion(self, errors: FloatArray) -> FloatArray:
        """Errors of independent clocks, with those of clocks between in proportion.

        Args:
            errors: (..., num_clocks).
        """
        if not self.is_between.any() or self.is_between.all():
            return errors
        places, known = np.arange(len(self.is_between)), np.flatnonzero(~self.is_between)
        weights = np.stack([np.interp(places, known, one) for one in np.eye(len(known))])  # (num_known, num_clocks)
        together: FloatArray = errors[..., known] @ weights
        return together


def curve_doubt(measurements: Measurements) -> CurveDoubt | None:
    """Doubt about the estimates of one instruction, at its clocks; None where nothing is known of it.

    Errors are shares, which a time or an energy of 0 has none of, as where powers were fitted to a few plans alone.
    """
    if min(measurements.times_s.min(), measurements.energies_j.min()) <= 0:
        return None
    shape = measurements.times_s.shape
    is_between = (measurements.num_samples == 1) & np.isnan(measurements.time_std_s)
    is_between &= np.isfinite(measurements.energy_std_j)
    energy_std_j = np.where(is_between, np.nan, measurements.energy_std_j)
    common_j = np.where(is_between, measurements.energy_std_j, 0.0)
    errors = (
        _standard_errors(measurements.times_s, measurements.time_std_s, measurements.num_samples),
        _standard_errors(measurements.energies_j, energy_std_j, measurements.num_samples),
    )
    is_from_samples = all(np.isfinite(of_gpus).any(axis=1).all() for of_gpus in errors)
    if is_from_samples:
        time_shares, energy_shares = (_filled(measurements.clocks_mhz, of_gpus) for of_gpus in errors)
    else:
        scatters = [
            [trend_scatter(measurements.clocks_mhz, of_gpu) for of_gpu in values]
            for values in (measurements.times_s, measurements.energies_j)
        ]
        if any(scatter is None for of_gpus in scatters for scatter in of_gpus):
            return None
        time_shares, energy_shares = (np.broadcast_to(np.array(one)[:, None], shape) for one in scatters)
    if max(time_shares.max(), energy_shares.max()) > MAX_ERROR_SHARE:
        return None
    is_slowest = measurements.times_s == measurements.times_s.max(axis=0)  # may be several, in any order
    energies_j = measurements.energies_j
    return CurveDoubt(
        time_share=np.where(is_slowest, time_shares, 0.0).max(axis=0),
        energy_share=np.linalg.norm(energy_shares * energies_j, axis=0) / energies_j.sum(axis=0),
        energy_common_share=np.minimum(common_j.sum(axis=0) / energies_j.sum(axis=0), MAX_ERROR_SHARE),
        is_between=is_between.all(axis=0),
        is_from_samples=is_from_samples,
    )


def run_spread(measurements: Measurements) -> float:
    """Standard deviation of one run's time, as a share of it: the median over clocks and GPUs; 0 where not known."""
    is_known = (measurements.num_samples >= _MIN_RUNS) & np.isfinite(measurements.time_std_s)
    is_known &= measurements.times_s > _RESOLUTION_S
    if not is_known.any():
        return 0.0
    times_s = measurements.times_s[is_known]
    shares = np.minimum(measurements.time_std_s[is_known] / times_s, MAX_ERROR_SHARE)
    return float(np.median(np.sqrt(np.maximum(shares**2 - (_RESOLUTION_S / times_s) ** 2, 0.0))))


def latencies_p90_ps(changes: ClockChanges, clocks_mhz: IntArray) -> IntArray:
    """(num_clocks) [ps] that nine in ten changes to each clock take at most; the median where that is not known."""
    return ps_from_s(np.fmax(changes.p90_s, changes.times_s)[changes.nearest(clocks_mhz)])


def p90_excess_ps(transfer: Measurements) -> int:
    """[ps] by which nine in ten transfers take at most longer than what they take at least; 0 where not known."""
    if transfer.time_p90_s is None:
        return 0
    excess_s = np.maximum(transfer.time_p90_s - transfer.times_s, 0.0)
    return int(ps_from_s(float(np.nanmean(excess_s))))


def _standard_errors(values: FloatArray, stds: FloatArray, num_samples: FloatArray) -> FloatArray:
    """(num_gpus, num_clocks) as shares, NaN where the spread of the runs is not known."""
    with np.errstate(over="ignore"):  # an error far beyond its value is as good as none that is known
        return np.where(num_samples > 0, stds / np.sqrt(np.maximum(num_samples, 1)) / values, np.nan)


def _filled(clocks_mhz: IntArray, shares: FloatArray) -> FloatArray:
    """(num_gpus, num_clocks) with what is not known taken from the clocks to either side."""
    filled = shares.copy()
    for of_gpu in filled:
        known = np.isfinite(of_gpu)
        of_gpu[~known] = np.interp(-clocks_mhz[~known], -clocks_mhz[known], of_gpu[known])
    return filled
