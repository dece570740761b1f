"""Slack that a plan keeps because instructions take now more, now less than the profile says.

A plan is sought on curves whose every duration counts as longer by a margin, in proportion to what it lasts beyond the
maximum clock: t_max + (1 + margin) (t - t_max), and by the standard error of t - t_max, so that a clock that errors
make look as fast as the highest is not taken for it. What is critical at all-maximum clocks is as long as before, and
every other path keeps the share margin / (1 + margin) of its slack, used where it saves most. So few paths are as long
as the longest, as at all-maximum clocks. Times, energies and the bound are those of the profile itself; a plan that is
as fast as all-maximum clocks by these alone is left out, because errors make it look so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from perseus_dist.planning.frontier.frontier import TOLERANCE, Frontier, plan_first, plan_frontier
from perseus_dist.planning.frontier.noisy_replay import NoisyReplay
from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.frontier.replay import replay, replay_all_max
from perseus_dist.planning.frontier.several_cases import best_of
from perseus_dist.planning.profile.cost_curve import CostCurve

MARGINS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Those that are tried, ascending. The last keeps half of all slack."""
TOLERATED = 0.0035
"""Share by which iterations under a plan may last longer for noise, on the mean: with five in six profiles."""
_LATE_BY_ERRORS = 0.001
"""Share by which a plan that is as fast as all-maximum clocks may be longer than they are on stretched curves."""
_CLEARLY_FASTER = 3.0  # standard errors by which a lower clock is
NEGLIGIBLE_SPREAD = 0.0075
"""Standard deviation of one run, as a share: up to this plans keep no margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseMargin:
    """How much slack plans keep.

    Attributes:
        margin: One of ``MARGINS``, or the least that was asked for.
        noise: Standard deviation of an iteration at all-maximum clocks that goes with it, as a share; 0 where that is
            not known.
        replay: Iterations under such noise, where it is worth reckoning with.
    """

    margin: float = 0.0
    noise: float = 0.0
    replay: NoisyReplay | None = field(default=None, compare=False)

    @property
    def is_needed(self) -> bool:
        """Whether plans are made on stretched curves: by a margin, or by their errors alone."""
        return bool(self.margin) or self.replay is not None


def margin_for(
    problem: PlanningProblem, *, switch_latency_ps: int = 0, least: float = 0.0, seen_noise: float = 0.0
) -> NoiseMargin:
    """The least margin with which the plan at the time of all-maximum clocks is late by no more than ``TOLERATED``.

    Args:
        problem: Its curves say how runs spread; where they do not, nothing is known of noise.
        switch_latency_ps: [ps] as of ``replay``.
        least: The margin that iterations have shown to be needed.
        seen_noise: Standard deviation of an iteration's time as measured, as a share; 0 where it is not known.
    """
    spread = _usual_spread(problem)
    if spread <= NEGLIGIBLE_SPREAD:
        return NoiseMargin(margin=least, noise=seen_noise)
    noisy = NoisyReplay(problem, switch_latency_ps=switch_latency_ps)
    if seen_noise:
        factor = independent_share(spread, expected=noisy.noise, seen=seen_noise)
        if factor * spread <= NEGLIGIBLE_SPREAD:
            return NoiseMargin(margin=least, noise=seen_noise)
        noisy = NoisyReplay(problem, spread_factor=factor, switch_latency_ps=switch_latency_ps)
    noise = seen_noise or noisy.noise
    for margin in (least, *(one for one in MARGINS if one > least)):
        first = plan_first(stretched(problem, margin), switch_latency_ps=switch_latency_ps)
        if noisy.lateness(first.clock_indices[first.point_for_deadline(first.baseline.time_ps)]) <= TOLERATED:
            return NoiseMargin(margin=margin, noise=noise, replay=noisy)
    return NoiseMargin(margin=max(least, MARGINS[-1]), noise=noise, replay=noisy)


def independent_share(spread: float, *, expected: float, seen: float) -> float:
    """Share of the spread of runs that each instruction has by itself, by how much iterations vary.

    Where instructions vary together, iterations vary as much as they do; where each varies by itself, much less.

    Args:
        spread: Standard deviation of one run, as a share.
        expected: That of an iteration if all of it is each instruction's own.
        seen: That of an iteration as measured.
    """
    averaged = (expected / spread) ** 2
    if averaged >= 1:  # one instruction after the other: both vary alike
        return min(1.0, seen / expected)
    own = (spread**2 - seen**2) / (1 - averaged)  # seen is averaged x own + what all have in common
    own = min(own, seen**2 / averaged)
    return float(np.sqrt(max(own, 0.0))) / spread if own < spread**2 else 1.0


def plan_with_margin(problem: PlanningProblem, margin: float, plan: Callable[[PlanningProblem], Frontier]) -> Frontier:
    """Plan on stretched curves, and tell the plans by the problem's own.

    Args:
        problem: What is planned.
        margin: At least 0.
        plan: Makes a frontier of the stretched problem.
    """
    counted = stretched(problem, margin)
    planned = plan(counted)
    at_max, counted_at_max = (
        replay_all_max(one, switch_latency_ps=planned.switch_latency_ps) for one in (problem, counted)
    )
    rows, played = [np.zeros_like(planned.clock_indices[0])], [at_max]
    for row in planned.clock_indices:
        execution = replay(problem, row, switch_latency_ps=planned.switch_latency_ps)
        if execution.time_ps <= at_max.time_ps:
            counted_ps = replay(counted, row, switch_latency_ps=planned.switch_latency_ps).time_ps
            if counted_ps > (1 + _LATE_BY_ERRORS) * counted_at_max.time_ps:
                continue  # as fast as all-maximum clocks by errors of the profile alone
        rows.append(row)
        played.append(execution)
    bounded = plan_first(problem)
    if bounded.bound.tolerance > TOLERANCE + 2 * planned.bound.tolerance:  # a large pipeline's whole frontier
        bounded = plan_frontier(problem, num_points=2, thorough=False)
    own = replace(planned, problem=problem, bound=bounded.bound, baseline=at_max)
    return best_of(own, rows, played, [one.time_ps for one in played])


def stretched_ps(time_ps: int, at_max_ps: int, margin: float) -> int:
    """[ps] that a deadline is on stretched curves."""
    return time_ps + round(margin * max(0, time_ps - at_max_ps))


def stretched(problem: PlanningProblem, margin: float) -> PlanningProblem:
    """The problem with curves on which time beyond the maximum clock counts (1 + margin) times, and its error once."""
    curves = {(curve.stage, curve.kind): _stretched(curve, margin) for curve in problem.curves}
    return problem_of(problem.dag, curves, blocking_uw=problem.blocking_uw, tensor_parallel=problem.tensor_parallel)


def _stretched(curve: CostCurve, margin: float) -> CostCurve:
    at_max_ps = curve.durations_ps[curve.at_max]
    shares = np.zeros(len(curve.durations_ps)) if curve.doubt is None else curve.doubt.time_share
    errors_ps = np.hypot(shares, shares[curve.at_max]) * at_max_ps
    errors_ps[curve.at_max] = 0.0
    is_faster = curve.durations_ps < at_max_ps - _CLEARLY_FASTER * errors_ps
    slower_ps = np.maximum(curve.durations_ps, at_max_ps)
    counted_ps = slower_ps + margin * (slower_ps - at_max_ps) + errors_ps
    return curve.with_durations(np.where(is_faster, curve.durations_ps, np.rint(counted_ps).astype(np.int64)))


def _usual_spread(problem: PlanningProblem) -> float:
    known = [curve.spread for curve in problem.curves if len(curve.clocks_mhz) > 1]
    return float(np.median(known)) if known else 0.0
