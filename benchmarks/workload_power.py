"""What a workload's ranks draw, from the energies of whole iterations."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from workload_files import Array, Workload

from perseus_dist.planning.schedule.instruction import Kind

_KINDS = (Kind.FORWARD, Kind.BACKWARD)
_KNOTS = 5  # clocks, evenly spaced, between which the power is a straight line; a power cap bends it at the upper end
_SMOOTHNESS = 1e-4  # weight [1/W] of bends, and of differences between kinds, against relative errors of energy


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """Powers of one GPU.

    Attributes:
        knots_mhz: (num_knots) ascending.
        knots_w: (pp, 2 kinds, num_knots) [W] of computations at these clocks.
        blocking_w: [W] while it does not compute.
    """

    knots_mhz: Array
    knots_w: Array
    blocking_w: float

    def computing_w(self, stage: int, kind: str, clocks_mhz: NDArray[np.int64]) -> Array:
        """(num_clocks) [W] of a computation at each clock."""
        power_w: Array = _shares(clocks_mhz, self.knots_mhz) @ self.knots_w[stage, _KINDS.index(Kind(kind))]
        return power_w


class PowerFit:
    """The powers, none of them negative, that explain what ranks drew in each plan."""

    def __init__(self, workload: Workload) -> None:
        self._pp, size = workload.pp, len(_KINDS) * _KNOTS
        clocks = [clock for of_plan in workload.clocks_mhz for of_rank in of_plan for clock in of_rank]
        self._knots_mhz = np.linspace(min(clocks), max(min(clocks) + 1, *clocks), _KNOTS)
        # A row for each plan and rank: the seconds at each power, as a share of the energy that they make up together.
        self._rows = np.zeros((len(workload.numbers), self._pp, self._pp * size + 1))
        for plan in range(len(workload.numbers)):
            for stage in range(self._pp):
                row, busy_s = self._rows[plan, stage], 0.0
                for k, kind in enumerate(_KINDS):
                    seconds = np.median(workload.seconds[plan][stage][kind], axis=0)
                    shares = _shares(workload.clocks_of(plan, stage, kind), self._knots_mhz)
                    begin = stage * size + k * _KNOTS
                    row[begin : begin + _KNOTS] = seconds @ shares
                    busy_s += seconds.sum()
                row[-1] = max(float(np.median(workload.iteration_s[plan])) - busy_s, 0.0)
                row /= max(float(np.median(workload.rank_j[plan][stage])), 1e-9)

    def powers(self, *, without: int | None = None) -> Powers:
        """By all plans but the one with this index."""
        rows = self._rows if without is None else np.delete(self._rows, without, axis=0)
        from scipy.optimize import nnls  # type: ignore[import-untyped]  # a quarter of a second, in each test worker

        smooth = _smooth(self._pp)
        table = np.concatenate([rows.reshape(-1, rows.shape[2]), smooth])
        wanted = np.append(np.ones(len(table) - len(smooth)), np.zeros(len(smooth)))
        solved, _ = nnls(table, wanted, maxiter=100 * table.shape[1])
        knots_w = solved[:-1].reshape(self._pp, len(_KINDS), _KNOTS)
        return Powers(knots_mhz=self._knots_mhz, knots_w=knots_w, blocking_w=float(solved[-1]))


def _shares(clocks_mhz: NDArray[np.int64], knots_mhz: Array) -> Array:
    """(num_clocks, num_knots) of linear interpolation."""
    return np.stack([np.interp(clocks_mhz, knots_mhz, one) for one in np.eye(len(knots_mhz))], axis=1)


def _smooth(pp: int) -> Array:
    """Rows that are zero where powers lie on straight lines, the same for forward and backward."""
    knots = np.eye(_KNOTS)
    bends = np.diff(knots, 2, axis=0)
    of_stage = np.block([[bends, 0 * bends], [0 * bends, bends], [knots, -knots]])
    of_all = np.kron(np.eye(pp), of_stage)
    return _SMOOTHNESS * np.append(of_all, np.zeros((len(of_all), 1)), axis=1)
