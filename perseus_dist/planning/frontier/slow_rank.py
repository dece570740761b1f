"""A pipeline with a rank that is slower than its peers: the problem whose plans are best given that.

The slow rank is asked for what it could do if it were free, so that what holds it back, and the end of that, can be
seen. Everybody else of the pipeline has time to spare, of which plans of this problem make use.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_dist.planning.frontier.problem import PlanningProblem, problem_of
from perseus_dist.planning.profile.cost_curve import CostCurve, curve_of_choices
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.units import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRank:
    """How slow a pp_rank is: at least one of the two is known.

    Attributes:
        cap_mhz: [MHz] its GPU runs no faster, whatever is asked for; 0 where no such clock is known.
        factor: Its computations last so many times as long, at any clock; 0 where that has not been measured. Beside a
            cap: at the maximum clock, and no longer than that, since a power cap lets some computations run faster.
    """

    pp_rank: int
    cap_mhz: int = 0
    factor: float = 0.0


def with_slow_ranks(problem: PlanningProblem, slow_ranks: Iterable[SlowRank]) -> PlanningProblem:
    """The same pipeline with slow ranks in it.

    Args:
        problem: Of the pipeline as it was profiled.
        slow_ranks: At most one of each pp_rank.
    """
    slow_of = {slow.pp_rank: slow for slow in slow_ranks}
    pp_rank_of_curve = dict(zip(problem.curve_of.tolist(), problem.dag.pp_rank.tolist(), strict=True))
    curves = {}
    for index, curve in enumerate(problem.curves):
        pp_rank = pp_rank_of_curve[index]
        is_slow = pp_rank in slow_of and curve.kind in set(Kind)
        curves[curve.stage, curve.kind] = (
            slowed(curve, slow_of[pp_rank], blocking_uw=int(problem.blocking_uw[pp_rank])) if is_slow else curve
        )
    return problem_of(problem.dag, curves, blocking_uw=problem.blocking_uw, tensor_parallel=problem.tensor_parallel)


def slowed(curve: CostCurve, slow: SlowRank, *, blocking_uw: int) -> CostCurve:
    """Cost of a computation on a slow rank.

    A capped one has a single choice, the maximum clock *asked for*, and takes what the profile says at the cap, between
    two of its clocks in proportion. Below the lowest, energy grows as the clock falls, and time goes on as between the
    lowest clocks: it is convex in the clock's reciprocal, so that this is the least that it can be, and no plan gives
    others time that they do not have. What has been measured bounds that. Otherwise every choice takes so many times as
    long, and draws the same power.

    Args:
        curve: As profiled.
        slow: Its rank.
        blocking_uw: [uW] drawn by all GPUs of the rank while they wait.
    """
    if slow.cap_mhz:
        clocks_mhz = curve.clocks_mhz[:1]
        durations_ps, energies_uj = (
            _time_at(curve, slow.cap_mhz),
            _at(curve, slow.cap_mhz, curve.energies_uj),
        )
        if slow.factor:
            durations_ps = np.minimum(durations_ps, _times(slow.factor, curve.durations_ps[:1]))
    else:
        clocks_mhz = curve.clocks_mhz
        durations_ps, energies_uj = _times(slow.factor, curve.durations_ps), _times(slow.factor, curve.energies_uj)
    slowed_curve = curve_of_choices(
        stage=curve.stage,
        kind=curve.kind,
        clocks_mhz=clocks_mhz,
        durations_ps=durations_ps,
        energies_uj=energies_uj,
        blocking_uw=blocking_uw,
    )
    kept = slice(len(slowed_curve.clocks_mhz))
    return replace(
        slowed_curve,
        latencies_ps=None if curve.latencies_ps is None else curve.latencies_ps[kept],
        latencies_p90_ps=None if curve.latencies_p90_ps is None else curve.latencies_p90_ps[kept],
        doubt=None if curve.doubt is None else curve.doubt.of_clocks(kept),
        spread=curve.spread,
    )


def _time_at(curve: CostCurve, clock_mhz: int) -> IntArray:
    """(1) [ps] at any clock."""
    lowest_mhz, lowest_ps = float(curve.clocks_mhz[-1]), float(curve.durations_ps[-1])
    if clock_mhz >= lowest_mhz or len(curve.clocks_mhz) == 1:
        return _at(curve, clock_mhz, curve.durations_ps)
    beyond = 1 / clock_mhz - 1 / lowest_mhz
    above = 1 / lowest_mhz - 1 / curve.clocks_mhz[:-1]
    other = int(np.argmin(np.abs(above - beyond)))  # as far above as the clock is below: less would add to noise
    slope = max(0.0, (lowest_ps - float(curve.durations_ps[other])) / above[other])
    return _times(1.0, np.array([min(lowest_ps + slope * beyond, lowest_ps * lowest_mhz / clock_mhz)]))


def _at(curve: CostCurve, clock_mhz: int, of_clocks: IntArray) -> IntArray:
    """(1) what is known at the clocks of a curve, at any other clock."""
    below_lowest = max(1.0, float(curve.clocks_mhz[-1]) / clock_mhz)
    return _times(below_lowest, np.interp([clock_mhz], curve.clocks_mhz[::-1], of_clocks[::-1]))


def _times(factor: float, values: NDArray[np.int64 | np.float64]) -> IntArray:
    product: IntArray = np.rint(factor * values).astype(np.int64)
    return product
