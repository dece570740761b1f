"""Clocks for all groups: the least energy within a deadline, from the relaxation's shares.

Of each group only clocks count that the bound allows in a plan better than the one known. Steps, each on the paths
known so far and then on the whole DAG, whose longest path joins them where it is late:

- repair: where a path is late, the change that costs least for the time that it saves;
- improve: one group to a slower clock, or two at once, one faster and one slower, as long as that saves energy;
- branch and bound, depth first, within a number of nodes: with a few groups it ends, and then the clocks are the best
  there are, to ``_EXACT``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.coarse.relaxation import Relaxation, Relaxed
from perseus_dist.units import FloatArray, IntArray

_MOST_NODES = 1500
_MOST_RESTARTS = 12
_MOST_PAIRS = 30_000_000  # path times compared in one look for pairs
_MOST_MOVES = 400
_EXACT = 1e-5  # share of what all groups' choices differ by
_FASTER = (0.01, 0.001, 0.0001)  # shares of the time by which faster clocks are sought


class Found(NamedTuple):
    """Clocks that are on time.

    Attributes:
        chosen: (num_groups) a choice of each group.
        effective_uj: [uJ] of all instructions.
    """

    chosen: IntArray
    effective_uj: int


class Search:
    """Searches at one deadline after another."""

    def __init__(self, relaxation: Relaxation) -> None:
        self._relaxation = relaxation
        self._groups = relaxation.groups
        self._at = np.arange(self._groups.num_groups)
        uj = self._groups.choice_uj
        self._uj = uj.astype(np.float64)
        self._accuracy_uj = _EXACT * float((uj.max(axis=1) - uj.min(axis=1)).sum())

    def found(self, chosen: IntArray) -> Found:
        """Clocks with their energy."""
        return Found(chosen, self._groups.energy_uj(chosen))

    def fastest(self) -> Found:
        """Clocks of the least time that is found; noise can make another clock than the maximum the fastest.

        ``Relaxation.fastest`` becomes these.
        """
        chosen = self._relaxation.fastest
        time_ps = self._time_ps(chosen)
        for share in _FASTER:
            while (faster := self._repaired(min(round(time_ps * (1 - share)), time_ps - 1), chosen)) is not None:
                chosen, time_ps = faster, self._time_ps(faster)
        self._relaxation.fastest = chosen
        return self.found(chosen)

    def best(self, deadline_ps: int, relaxed: Relaxed, start: Found) -> Found:
        """The best clocks found within a deadline.

        Args:
            deadline_ps: [ps].
            relaxed: The relaxation there.
            start: Clocks that are on time.
        """
        bound_uj = relaxed.line.effective_uj(deadline_ps)
        best = start
        nearest = self._rounded(relaxed)
        for chosen in (nearest, start.chosen):
            best = self._better(best, self._improved(deadline_ps, relaxed, self._repaired(deadline_ps, chosen), best))
        if best.effective_uj - bound_uj > self._accuracy_uj:
            best = self._branch(deadline_ps, relaxed, bound_uj, best)
        return best

    def _rounded(self, relaxed: Relaxed) -> IntArray:
        """Of the choices that a group mixes, the one with the largest share."""
        chosen: IntArray = relaxed.shares.argmax(axis=1)
        return chosen

    def _better(self, best: Found, chosen: IntArray | None) -> Found:
        if chosen is None:
            return best
        found = self.found(chosen)
        return found if found.effective_uj < best.effective_uj else best

    def _time_ps(self, chosen: IntArray) -> int:
        return self._relaxation.longest.time_ps(self._groups.chosen_ps(chosen))

    def _late_path(self, deadline_ps: int, chosen: IntArray) -> bool:
        """Whether clocks are late on the whole DAG; the path that is joins those known."""
        if self._time_ps(chosen) <= deadline_ps:
            return False
        self._relaxation.add(self._relaxation.longest.critical(self._groups.chosen_ps(chosen)))
        return True

    def _repaired(self, deadline_ps: int, chosen: IntArray) -> IntArray | None:
        """Clocks made faster until they are on time; None where that does not succeed."""
        chosen = chosen.copy()
        for _ in range(_MOST_MOVES):
            times_ps, limits_ps = self._times(deadline_ps)
            late_ps = times_ps[:, self._at, chosen].sum(axis=1) - limits_ps
            worst = int(late_ps.argmax())
            if late_ps[worst] <= 0:
                if not self._late_path(deadline_ps, chosen):
                    return chosen
                continue
            of_path = times_ps[worst]
            gained_ps = of_path[self._at, chosen][:, None] - of_path
            cost_uj = self._uj - self._uj[self._at, chosen][:, None]
            useful_ps = np.minimum(gained_ps, late_ps[worst])
            with np.errstate(divide="ignore", invalid="ignore"):
                price = np.where(gained_ps > 0, cost_uj / useful_ps, np.inf)
            group, choice = np.unravel_index(int(price.argmin()), price.shape)
            if not np.isfinite(price[group, choice]):
                return None
            chosen[group] = choice
        return None

    def _improved(self, deadline_ps: int, relaxed: Relaxed, chosen: IntArray | None, best: Found) -> IntArray | None:
        """Clocks that no change of one group or of two betters, as far as they are looked at."""
        for _ in range(_MOST_MOVES):
            if chosen is None:
                return None
            times_ps, limits_ps = self._times(deadline_ps)
            allowed = relaxed.excess_uj <= max(best.effective_uj - relaxed.line.effective_uj(deadline_ps), 0) + 1
            moved = _descended(self._uj, times_ps, limits_ps, allowed, chosen)
            if not self._late_path(deadline_ps, moved):
                return moved
            chosen = self._repaired(deadline_ps, moved)
        return chosen

    def _branch(self, deadline_ps: int, relaxed: Relaxed, bound_uj: float, best: Found) -> Found:
        """Depth first through the choices that can still be better."""
        for _ in range(_MOST_RESTARTS):
            times_ps, limits_ps = self._times(deadline_ps)
            tree = _Tree(self._uj, relaxed.excess_uj, times_ps, limits_ps, self._groups.num_choices)
            most_uj = best.effective_uj - self._accuracy_uj
            chosen = tree.search(most_uj - bound_uj, most_uj - self._groups.constant_uj)
            if chosen is None:
                return best
            if not self._late_path(deadline_ps, chosen):
                best = self._better(best, chosen)
        return best

    def _times(self, deadline_ps: int) -> tuple[FloatArray, FloatArray]:
        """(num_paths, num_groups, num_choices) [ps] and (num_paths) [ps] that they may take."""
        return self._relaxation.times_ps(), deadline_ps - self._relaxation.constants_ps


def _descended(
    uj: FloatArray, times_ps: FloatArray, limits_ps: FloatArray, allowed: NDArray[np.bool_], chosen: IntArray
) -> IntArray:
    """Clocks after the best changes of one group, or else of two, until none saves energy with all paths on time."""
    chosen = chosen.copy()
    at = np.arange(len(chosen))
    candidates = np.argwhere(allowed)
    group, choice = candidates.T
    of_candidate = times_ps[:, group, choice]  # (num_paths, num_candidates)
    for _ in range(_MOST_MOVES):
        of_chosen = times_ps[:, at, chosen]
        spare_ps = limits_ps - of_chosen.sum(axis=1)
        longer_ps = of_candidate - of_chosen[:, group]
        saved_uj = uj[group, chosen[group]] - uj[group, choice]
        fits = (longer_ps <= spare_ps[:, None]).all(axis=0) & (saved_uj > 0)
        if fits.any():
            best = int(np.where(fits, saved_uj, -1).argmax())
            chosen[group[best]] = choice[best]
            continue
        faster = np.flatnonzero((saved_uj < 0) & (longer_ps < 0).any(axis=0))
        slower = np.flatnonzero(saved_uj > 0)
        if not len(faster) or not len(slower) or len(faster) * longer_ps[:, slower].size > _MOST_PAIRS:
            break
        pair = _best_pair(saved_uj, longer_ps, spare_ps, group, (faster, slower))
        if pair is None:
            break
        for one in pair:
            chosen[group[one]] = choice[one]
    return chosen


def _best_pair(
    saved_uj: FloatArray,
    longer_ps: FloatArray,
    spare_ps: FloatArray,
    group: IntArray,
    sides: tuple[IntArray, IntArray],
) -> tuple[int, int] | None:
    """Of candidates that are faster and slower, the two of different groups that together save most."""
    faster, slower = sides
    most_uj, pair = 0.0, None
    for one in faster.tolist():
        gain_uj = saved_uj[slower] + saved_uj[one]
        worth = np.flatnonzero((gain_uj > most_uj) & (group[slower] != group[one]))
        if not len(worth):
            continue
        room_ps = spare_ps - longer_ps[:, one]
        fits = (longer_ps[:, slower[worth]] <= room_ps[:, None]).all(axis=0)
        if fits.any():
            other = int(worth[np.where(fits, gain_uj[worth], -1).argmax()])
            most_uj, pair = float(gain_uj[other]), (one, int(slower[other]))
    return pair


class _Tree:
    """Depth-first search through choices of one group after another."""

    def __init__(
        self,
        uj: FloatArray,
        excess_uj: FloatArray,
        times_ps: FloatArray,
        limits_ps: FloatArray,
        num_choices: NDArray[np.int32],
    ) -> None:
        self._uj, self._excess_uj, self._times_ps, self._limits_ps = uj, excess_uj, times_ps, limits_ps
        self._num_choices = num_choices
        self._nodes = 0

    def search(self, most_excess_uj: float, most_uj: float) -> IntArray | None:
        """The first clocks found that are on time on all paths, with less excess and energy; None where none are found.

        Args:
            most_excess_uj: [uJ] above the bound.
            most_uj: [uJ] of all groups.
        """
        self._most_excess_uj, self._most_uj = most_excess_uj, most_uj
        allowed = [
            np.flatnonzero(excess[:number] < most_excess_uj)
            for excess, number in zip(self._excess_uj, self._num_choices.tolist(), strict=True)
        ]
        if not all(map(len, allowed)):
            return None
        self._order = sorted(range(len(allowed)), key=lambda group: len(allowed[group]))
        self._allowed = [allowed[group][np.argsort(self._excess_uj[group, allowed[group]])] for group in self._order]
        by_depth = list(zip(self._order, self._allowed, strict=True))
        self._at_ps = [np.ascontiguousarray(self._times_ps[:, group, choices].T) for group, choices in by_depth]
        self._at_uj = [self._uj[group, choices] for group, choices in by_depth]
        self._excess_at_uj = [self._excess_uj[group, choices] for group, choices in by_depth]
        least_ps = [times_ps.min(axis=0) for times_ps in self._at_ps]
        rest = np.cumsum(least_ps[::-1], axis=0)[::-1]
        self._rest_ps = [*rest[1:], np.zeros(len(self._limits_ps))]
        least_uj = [float(energies_uj.min()) for energies_uj in self._at_uj]
        self._rest_uj = [float(sum(least_uj[depth + 1 :])) for depth in range(len(self._order))]
        chosen = np.zeros(len(allowed), dtype=np.int64)
        return chosen if self._descend(0, np.zeros(len(self._limits_ps)), 0.0, 0.0, chosen) else None

    def _descend(self, depth: int, taken_ps: FloatArray, excess_uj: float, uj: float, chosen: IntArray) -> bool:
        if depth == len(self._order):
            return True
        excess = excess_uj + self._excess_at_uj[depth]
        energy = uj + self._at_uj[depth]
        fits = (excess < self._most_excess_uj) & (energy + self._rest_uj[depth] < self._most_uj)
        (worth,) = fits.nonzero()
        if not len(worth):
            return False
        times_ps = taken_ps + self._at_ps[depth][worth]
        on_time = np.logical_and.reduce(times_ps + self._rest_ps[depth] <= self._limits_ps, axis=1)
        group, choices = self._order[depth], self._allowed[depth]
        for row in on_time.nonzero()[0].tolist():
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                return False
            number = worth[row]
            chosen[group] = choices[number]
            if self._descend(depth + 1, times_ps[row], excess[number], energy[number], chosen):
                return True
        return False
