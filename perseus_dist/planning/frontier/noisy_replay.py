"""Iterations whose instructions take now more, now less than the profile says, each by itself.

An iteration ends with its latest path. At all-maximum clocks one path is the longest; under a plan that has used up all
slack many are as long, and the latest of them is later on the mean. Beside that, estimates of the profile are wrong by
their standard errors, and a plan chooses clocks that errors made look fast (``choice_bias``). Both are drawn, and the
iteration at all-maximum clocks is played under the same drawings. Noise that all instructions of an iteration have in
common makes plan and all-maximum clocks later alike, and is not drawn.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.choice_bias import choice_bias
from perseus_dist.planning.frontier.problem import PlanningProblem
from perseus_dist.planning.frontier.replay import ends_of, replay, replay_all_max
from perseus_dist.units import FloatArray, IntArray

NUM_DRAWS = 64
_SEED = 0


class NoisyReplay:
    """Drawings of one problem, in pairs of opposite errors, so that few are enough for a mean.

    Attributes:
        noise: Standard deviation of the time of an iteration at all-maximum clocks, as a share of it.
    """

    def __init__(self, problem: PlanningProblem, *, spread_factor: float = 1.0, switch_latency_ps: int = 0) -> None:
        """Draw.

        Args:
            problem: Its curves say how runs of an instruction spread.
            spread_factor: Times which runs spread as the curves say.
            switch_latency_ps: [ps] as of ``replay``.
        """
        self._problem, self._switch_latency_ps = problem, switch_latency_ps
        self._paths = _Paths(problem)
        random = np.random.default_rng(_SEED)
        spreads = spread_factor * np.array([curve.spread for curve in problem.curves])[problem.curve_of]
        halves = spreads[:, None] * random.standard_normal((problem.num_instructions, NUM_DRAWS // 2))
        self._of_runs = np.exp(np.concatenate([halves, -halves], axis=1))
        self._of_clocks = [_profile_errors(problem, index, random) for index in range(len(problem.curves))]
        at_max = np.zeros(problem.num_instructions, dtype=np.uint16)
        played = replay_all_max(problem, switch_latency_ps=switch_latency_ps)
        self._planned_ps = played.time_ps
        lasts_ps = (played.end_ps - played.start_ps)[:, None]
        self._full_ps, self._full_alike_ps = self._times_ps(at_max, lasts_ps)
        alone_ps = self._paths.times_ps(lasts_ps * self._of_runs)
        self.noise = float(alone_ps.std() / alone_ps.mean())

    def lateness(self, clock_indices: NDArray[np.integer]) -> float:
        """Share by which iterations under a plan last longer than at all-maximum clocks, beyond what is planned.

        On the mean over iterations, and a standard deviation above that over profiles.

        Args:
            clock_indices: (num_instructions) as of ``replay``.
        """
        problem = self._problem
        played = replay(problem, clock_indices, switch_latency_ps=self._switch_latency_ps)
        lasts_ps = (played.end_ps - played.start_ps).astype(np.float64)[:, None]
        for index, curve in enumerate(problem.curves):
            own = np.flatnonzero(problem.curve_of == index)
            biases_ps, _ = choice_bias(curve)
            lasts_ps[own, 0] += np.where(clock_indices[own] > 0, biases_ps[clock_indices[own]], 0.0)
        times_ps, alike_ps = self._times_ps(clock_indices, lasts_ps)
        planned = played.time_ps / self._planned_ps
        mean, of_profiles = times_ps.mean() / self._full_ps.mean(), (alike_ps / self._full_alike_ps).std()
        return float((mean + of_profiles) / planned - 1)

    def late_by(self, clock_indices: NDArray[np.integer]) -> float:
        """Share by which iterations under a plan last longer on the mean, because runs spread, than is planned.

        Args:
            clock_indices: (num_instructions) as of ``replay``.
        """
        played = replay(self._problem, clock_indices, switch_latency_ps=self._switch_latency_ps)
        lasts_ps = (played.end_ps - played.start_ps).astype(np.float64)[:, None]
        planned_ps = float(self._paths.times_ps(lasts_ps)[0])
        return max(0.0, float(self._paths.times_ps(lasts_ps * self._of_runs).mean()) / planned_ps - 1)

    def _times_ps(self, clock_indices: NDArray[np.integer], lasts_ps: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """(NUM_DRAWS) [ps] of iterations, and likewise of those in which runs do not spread."""
        alike_ps = np.empty_like(self._of_runs)
        for index, errors in enumerate(self._of_clocks):
            own = np.flatnonzero(self._problem.curve_of == index)
            alike_ps[own] = lasts_ps[own] * errors[clock_indices[own]]
        return self._paths.times_ps(alike_ps * self._of_runs), self._paths.times_ps(alike_ps)


def _profile_errors(problem: PlanningProblem, index: int, random: np.random.Generator) -> FloatArray:
    """(num_clocks, NUM_DRAWS) factors by which one curve's times may be wrong, the same for all its instructions."""
    curve = problem.curves[index]
    if curve.doubt is None:
        return np.ones((len(curve.clocks_mhz), NUM_DRAWS))
    drawn = random.standard_normal((NUM_DRAWS // 2, len(curve.clocks_mhz)))
    errors = curve.doubt.in_proportion(drawn * curve.doubt.time_share)
    factors: FloatArray = np.exp(np.concatenate([errors, -errors])).T
    return factors


class _Paths:
    """Ends of many iterations at once: the DAG by levels, of instructions that depend on none of their own level."""

    def __init__(self, problem: PlanningProblem) -> None:
        level = _levels(problem)
        self._num_instructions = problem.num_instructions
        order = np.lexsort((problem.edge_to, level[problem.edge_to]))
        before, after = problem.edge_from[order], problem.edge_to[order]
        bounds = np.searchsorted(level[after], np.arange(1, int(level.max()) + 2))
        self._first = np.flatnonzero(level == 0)
        self._levels = []
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            nodes, first = np.unique(after[begin:end], return_index=True)
            self._levels.append((nodes, before[begin:end], first))

    def times_ps(self, lasts_ps: FloatArray) -> FloatArray:
        """(num_iterations) [ps], of instructions that last (num_instructions, num_iterations) [ps]."""
        end_ps = np.zeros_like(lasts_ps, dtype=np.float64)
        end_ps[self._first] = lasts_ps[self._first]
        for nodes, before, first in self._levels:
            end_ps[nodes] = lasts_ps[nodes] + np.maximum.reduceat(end_ps[before], first, axis=0)
        times_ps: FloatArray = end_ps.max(axis=0)
        return times_ps


def _levels(problem: PlanningProblem) -> IntArray:
    """(num_instructions) how many instructions stand before each on the longest chain that leads to it."""
    return ends_of(np.ones(problem.num_instructions, dtype=np.int64), problem.edge_from, problem.edge_to) - 1
