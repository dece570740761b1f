"""The bound of all plans with shared clocks: each group may mix its clocks, in the same shares for all instructions.

That is a linear programme. The deadline holds along every path; only the paths that matter are in it, and those that
its solution violates are added until there are none. Prices of paths [uJ/ps] make a line below the least energy at
*every* deadline T, whichever paths are missing and however far the prices are from the best (weak duality):

    energy(T) >= sum over groups of min over clocks of (energy + prices . times) - prices . (T - constants)

so that lines of several deadlines together are a convex bound of the whole frontier.
"""

from typing import NamedTuple

import numpy as np

from perseus_dist.planning.coarse import linear_program
from perseus_dist.planning.coarse.clock_groups import ClockGroups
from perseus_dist.planning.coarse.longest_paths import LongestPaths
from perseus_dist.units import PS_PER_S, FloatArray, IntArray

_MAX_ROUNDS = 60
_NUM_BISECTIONS = 4
_SOLVED = 1e-7  # of the programme's costs
_MOST_LATE = 1e-6  # share of the deadline by which shares may be late and count as on time
_CLOSE_ENOUGH = 5e-5  # difference of shares on time from the bound, as a share of what all groups' choices differ by
_ROUNDING = 1e-12  # of a sum in floating point, as a share of its terms
_NO_PRICE, _FAR_FROM_LATE = 1e-6, 0.002  # of the highest price; of the deadline


class Line(NamedTuple):
    """A lower bound that is linear in the deadline.

    Attributes:
        at_zero_uj: [uJ] effective energy at a deadline of 0.
        slope_uw: [uW] by which it falls.
    """

    at_zero_uj: float
    slope_uw: float

    def effective_uj(self, deadline_ps: float) -> float:
        """[uJ] at a deadline."""
        return self.at_zero_uj - self.slope_uw * (deadline_ps / PS_PER_S)


class Relaxed(NamedTuple):
    """The relaxation at one deadline.

    Attributes:
        shares: (num_groups, num_choices) how much of each group's work each choice gets.
        excess_uj: (num_groups, num_choices) [uJ] what a plan with this choice is above the line at least; of several
            groups' choices the sum.
        line: The bound.
    """

    shares: FloatArray
    excess_uj: FloatArray
    line: Line


class Relaxation:
    """Solves the relaxation at one deadline after another; the paths found at one serve the others too.

    Attributes:
        groups: What is planned.
        longest: Finds paths.
        counts: (num_paths, num_groups, num_classes_of_each) instructions of each class on the paths known.
        constants_ps: (num_paths) [ps] of constants on them.
        fastest: (num_groups) the choices that shares on time begin at.
    """

    def __init__(self, groups: ClockGroups) -> None:
        """Begin with the longest path at the fastest clocks, and where one group is slowest and the others fastest."""
        self.groups = groups
        self.longest = LongestPaths(groups)
        num_groups, num_classes, num_choices = groups.choice_ps.shape
        self.counts = np.zeros((0, num_groups, num_classes))
        self.constants_ps = np.zeros(0)
        self._known: dict[bytes, int] = {}
        self._is_active = np.zeros(0, dtype=np.bool_)  # (num_paths) whether it is in the programme
        self._cost_uj = (groups.choice_uj - groups.choice_uj.min(axis=1, keepdims=True)).astype(np.float64)
        self._spread_uj = max(float(self._cost_uj.max(axis=1).sum()), 1.0)
        self.fastest: IntArray = groups.fastest.astype(np.int64)
        chosen = self.fastest.copy()
        self.add(self.longest.critical(groups.chosen_ps(chosen)))
        for group in range(num_groups):
            chosen[group] = num_choices - 1
            self.add(self.longest.critical(groups.chosen_ps(chosen)))
            chosen[group] = self.fastest[group]

    def solve(self, deadline_ps: int) -> Relaxed:
        """Bound and shares at a deadline that the fastest clocks meet.

        Paths are sought where the way from shares that are on time to those of the programme crosses the deadline: so
        they are few.
        """
        on_time = np.zeros_like(self._cost_uj)
        on_time[np.arange(self.groups.num_groups), self.fastest] = 1.0
        best: Relaxed | None = None
        for _ in range(_MAX_ROUNDS):
            relaxed = self._relaxed(deadline_ps)
            if best is None or relaxed.line.effective_uj(deadline_ps) > best.line.effective_uj(deadline_ps):
                best = relaxed
            on_time, num_new = self._search(deadline_ps, on_time, relaxed.shares)
            reached_uj = float((on_time * self.groups.choice_uj).sum()) + self.groups.constant_uj
            if not num_new or reached_uj - best.line.effective_uj(deadline_ps) < _CLOSE_ENOUGH * self._spread_uj:
                break
        assert best is not None
        return best._replace(shares=on_time)

    def add(self, counts: IntArray) -> int:
        """Have paths in the programme from now on.

        Args:
            counts: (num_paths, num_classes) instructions of each class.

        Returns:
            How many of them were not in it.
        """
        num_new = 0
        for row in counts:
            number = self._known.setdefault(row.tobytes(), len(self._known))
            if number == len(self.constants_ps):
                of_groups, of_constants = np.split(row, [self.counts.shape[1] * self.counts.shape[2]])
                self.counts = np.concatenate((self.counts, of_groups.reshape(1, *self.counts.shape[1:])))
                self.constants_ps = np.append(self.constants_ps, float(of_constants @ self.groups.constant_ps))
                self._is_active = np.append(self._is_active, False)
            num_new += not self._is_active[number]
            self._is_active[number] = True
        return num_new

    def times_ps(self) -> FloatArray:
        """(num_paths, num_groups, num_choices) [ps] that each group's instructions on a path take under a choice."""
        times: FloatArray = np.einsum("pgk,gkc->pgc", self.counts, self.groups.choice_ps)
        return times

    def _search(self, deadline_ps: int, on_time: FloatArray, shares: FloatArray) -> tuple[FloatArray, int]:
        """The last shares found on the way from one to the other that are on time; how many paths beyond were new."""
        num_new, low, high, at = 0, 0.0, 1.0, 1.0
        for _ in range(_NUM_BISECTIONS):
            mixed_ps = self.groups.mixed_ps(on_time + at * (shares - on_time))
            if self.longest.time_ps(mixed_ps) > deadline_ps * (1 + _MOST_LATE):
                high = at
                num_new += self.add(self.longest.critical(mixed_ps))
            else:
                low = at
            if low == 1.0:
                break
            at = (low + high) / 2
        return on_time + low * (shares - on_time), num_new

    def _relaxed(self, deadline_ps: int) -> Relaxed:
        """The programme's solution with the paths that are in it; those far from late leave it."""
        active = np.flatnonzero(self._is_active)
        counts, constants_ps = self.counts[active], self.constants_ps[active]
        limits = 1 - constants_ps / deadline_ps
        durations = self.groups.choice_ps / deadline_ps
        shares, prices = linear_program.solve(
            self._cost_uj / self._scale_uj, durations, counts, limits, tolerance=_SOLVED
        )
        spare = limits - np.einsum("pgk,gkc,gc->p", counts, durations, shares)
        self._is_active[active[(prices < _NO_PRICE * prices.max()) & (spare > _FAR_FROM_LATE)]] = False
        prices = prices * (self._scale_uj / deadline_ps)  # [uJ/ps]
        per_class = np.einsum("p,pgk->gk", prices, counts)
        priced = self.groups.choice_uj + np.einsum("gk,gkc->gc", per_class, self.groups.choice_ps)
        least = priced.min(axis=1)
        constants = float(prices @ constants_ps)
        rounding = _ROUNDING * (float(np.abs(priced).sum()) + constants)
        return Relaxed(
            shares=shares,
            excess_uj=priced - least[:, None],
            line=Line(
                at_zero_uj=float(least.sum()) + constants + self.groups.constant_uj - rounding,
                slope_uw=float(prices.sum()) * PS_PER_S,
            ),
        )

    @property
    def _scale_uj(self) -> float:
        return self._spread_uj / float(np.sqrt(self.groups.num_groups))
