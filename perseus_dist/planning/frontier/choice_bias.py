"""How far a chosen clock is likely to be worse than measured, because errors of the profile made it look cheap.

At the price that a plan pays for time, an instruction takes the clock of least energy + price x duration. Errors make
some clock look cheaper than it is, and that one is chosen more often: the least of several noisy values lies below the
value of what is chosen. The price of a chosen clock is taken from the hull of its curve, between the slopes to either
side; errors are drawn around the measured curve as if it were true.
"""

import numpy as np

from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.units import PS_PER_S, FloatArray

_NUM_DRAWS = 64
_SEED = 0


def choice_bias(curve: CostCurve) -> tuple[FloatArray, FloatArray]:
    """(num_clocks) [ps] and [uJ] by which time and energy of each clock, where it is chosen, are likely to be more.

    0 where errors are not known.
    """
    num_clocks = len(curve.clocks_mhz)
    doubt = curve.doubt
    if doubt is None or num_clocks < 2:
        return np.zeros(num_clocks), np.zeros(num_clocks)
    random = np.random.default_rng(_SEED)
    of_times, of_energies = random.standard_normal((2, _NUM_DRAWS, num_clocks))
    times_ps = doubt.in_proportion(of_times * doubt.time_share) * curve.durations_ps
    energies_uj = doubt.in_proportion(of_energies * doubt.energy_share) * curve.energies_uj
    bias_ps, bias_uj = np.empty(num_clocks), np.empty(num_clocks)
    for clock in range(num_clocks):
        price_uw = _price_uw(curve, clock) / PS_PER_S
        cost_uj = curve.effective_uj + energies_uj + price_uw * (curve.durations_ps + times_ps)
        met = cost_uj.argmin(axis=1)[:, None]
        bias_ps[clock] = -np.take_along_axis(times_ps, met, axis=1).mean()
        bias_uj[clock] = -np.take_along_axis(energies_uj, met, axis=1).mean()
    return bias_ps, bias_uj


def _price_uw(curve: CostCurve, clock: int) -> float:
    """[uW] saved by a little more time where a curve's clock is chosen: between the hull's slopes to either side."""
    at = int(np.searchsorted(curve.hull_ps, curve.durations_ps[clock]))
    right_uw = float(curve.slope_uw[min(at, len(curve.slope_uw) - 1)])
    left_uw = float(curve.slope_uw[at - 1]) if at else right_uw
    return (left_uw + right_uw) / 2
