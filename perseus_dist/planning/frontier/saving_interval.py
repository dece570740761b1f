"""The interval that a plan's saving lies in, by what is known of its profile's errors.

A parametric bootstrap: times, energies and latencies of clock changes are drawn around the profile with the errors that
it shows, and each transfer by itself where it says how they spread. The plan and the iteration at all-maximum clocks
are played again under each drawing. Nothing is planned anew. Two effects lie on one side alone: an iteration waits for
the latest of its paths, which errors make later, and a plan chooses clocks that errors made look cheap
(``choice_bias``). Both move the interval below the predicted saving, which may so lie outside of it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perseus_dist import _solver
from perseus_dist.errors import PlanningError
from perseus_dist.planning.frontier.choice_bias import choice_bias
from perseus_dist.planning.frontier.problem import PlanningProblem, concatenated_begin, menu_maker
from perseus_dist.planning.profile.cost_curve import CostCurve
from perseus_dist.units import PS_PER_S, FloatArray, IntArray

NUM_DRAWS = 64
SIGMAS = 2.0

_Z_P90 = NormalDist().inv_cdf(0.9)
_SCALES_P90 = math.log(10)  # of an exponential distribution, to its 90th percentile
_BIAS_DOUBT = 0.5  # share of the bias by which it may be larger: it is found around measured curves, not true ones
_SEED = 0


class ErrorsKnownBy(StrEnum):
    """How a profile shows its errors."""

    SAMPLES = "samples"
    """By repeated measurements of all computations."""
    SCATTER = "scatter"
    """Of some by the scatter of their points about the trend over clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingInterval:
    """Shares of the energy at all-maximum clocks.

    Attributes:
        low, high: Ends, two standard deviations from what is expected.
        known_by: How the profile's errors are known.
    """

    low: float
    high: float
    known_by: ErrorsKnownBy


def errors_known_by(problem: PlanningProblem) -> ErrorsKnownBy | None:
    """How the errors of every computation's times and energies are known; None where some are not."""
    doubts = [curve.doubt for curve in problem.curves if len(curve.clocks_mhz) > 1]
    if any(doubt is None for doubt in doubts):
        return None
    are_samples = all(doubt is not None and doubt.is_from_samples for doubt in doubts)
    return ErrorsKnownBy.SAMPLES if are_samples else ErrorsKnownBy.SCATTER


def saving_intervals(
    problem: PlanningProblem,
    clock_indices: Sequence[NDArray[np.integer]] | NDArray[np.integer],
    *,
    switch_latency_ps: int = 0,
    t_prime_ps: int = 0,
    num_draws: int = NUM_DRAWS,
) -> tuple[SavingInterval, ...] | None:
    """Intervals of the savings of some plans of one problem, under the same drawings.

    Constants, which no plan changes, are taken to be right, and so are transfers whose spread is not known.

    Args:
        problem: The schedule and its cost curves.
        clock_indices: (num_plans, num_instructions) as of ``replay``.
        switch_latency_ps: [ps] of clock changes that the profile does not say.
        t_prime_ps: [ps] until when everybody waits in any case; 0 for none.
        num_draws: An even number from 2.

    Returns:
        One for each plan; None where the profile does not show the errors of every computation.

    Raises:
        PlanningError: Another number of drawings, or a negative time.
    """
    if not (isinstance(num_draws, int) and num_draws >= 2 and num_draws % 2 == 0):
        raise PlanningError(f"num_draws: saw {num_draws!r}, expected an even number from 2; give {NUM_DRAWS}")
    for name, value_ps in (("switch_latency_ps", switch_latency_ps), ("t_prime_ps", t_prime_ps)):
        if not value_ps >= 0:
            raise PlanningError(f"{name}: saw {value_ps!r}, expected picoseconds from 0; give 0 for none")
    known = errors_known_by(problem)
    if known is None:
        return None
    plans = [np.ascontiguousarray(one, dtype=np.int32) for one in clock_indices]
    at_max = np.zeros(problem.num_instructions, dtype=np.int32)
    waiting_uw = problem.total_blocking_uw / PS_PER_S

    def energy_uj(menu: _solver.Menu, plan: NDArray[np.int32], latency_ps: IntArray) -> float:
        time_ps, effective_uj, *_ = _solver.replay(
            menu=menu, edge_from=problem.edge_from, edge_to=problem.edge_to, plan=plan, latency_ps=latency_ps
        )
        return effective_uj + waiting_uw * max(time_ps, t_prime_ps)

    def savings(drawn: _Drawn) -> list[float]:
        baseline_uj = energy_uj(drawn.as_measured, at_max, drawn.latency_ps)
        menus = (drawn.as_chosen if plan.any() else drawn.as_measured for plan in plans)  # all-max chooses nothing
        return [
            1 - energy_uj(menu, plan, drawn.latency_ps) / baseline_uj for menu, plan in zip(menus, plans, strict=True)
        ]

    drawings = _Drawings(problem, switch_latency_ps)
    drawn = np.array([savings(one) for one in drawings.draw(num_draws)])
    measured = drawings.measured
    unbiased = savings(_Drawn(measured.as_measured, measured.as_measured, measured.latency_ps))
    bias = np.maximum(0.0, np.array(unbiased) - savings(measured))
    centre, reach = drawn.mean(axis=0), SIGMAS * drawn.std(axis=0)
    lows, highs = centre - np.hypot(reach, _BIAS_DOUBT * bias), centre + reach
    return tuple(
        SavingInterval(low=low, high=high, known_by=known)
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """A profile that may be the true one: of clocks that were measured, and of clocks that a plan has chosen."""

    as_measured: _solver.Menu
    as_chosen: _solver.Menu
    latency_ps: IntArray


class _Drawings:
    """Profiles around the measured one; arrays are (num_clocks) of all curves end to end."""

    def __init__(self, problem: PlanningProblem, switch_latency_ps: int) -> None:
        curves = problem.curves
        self._problem = problem
        self._durations_ps = np.concatenate([curve.durations_ps for curve in curves]).astype(np.float64)
        self._energies_uj = np.concatenate([curve.energies_uj for curve in curves]).astype(np.float64)
        shares = np.concatenate([_error_shares(curve) for curve in curves], axis=1)
        self._time_shares, self._energy_shares, self._common_shares = shares
        self._bias_ps, self._bias_uj = np.concatenate([choice_bias(curve) for curve in curves], axis=1)
        group_uw = problem.blocking_uw[[problem.dag.schedule.rank_of_stage[curve.stage] for curve in curves]]
        self._waiting_uw = np.repeat(group_uw / PS_PER_S, [len(curve.clocks_mhz) for curve in curves])
        self._spread = _SpreadTransfers(problem)
        self._make_menu = menu_maker(self._spread.curves, self._spread.curve_of, problem.dag)
        self._latency_ps = problem.latencies_ps(switch_latency_ps)
        p90_ps = np.concatenate([_p90_ps(curve) for curve in curves])
        self._latency_std_ps = np.maximum(p90_ps - self._latency_ps, 0) / _Z_P90
        stages = np.repeat([curve.stage for curve in curves], [len(curve.clocks_mhz) for curve in curves])
        clocks_mhz = np.concatenate([curve.clocks_mhz for curve in curves])
        _, target = np.unique(np.stack([stages, clocks_mhz]), axis=1, return_inverse=True)
        self._target = target.reshape(-1)  # changes of a stage's GPUs to one clock take as long for all its curves

    @property
    def measured(self) -> _Drawn:
        """The measured profile itself."""
        nothing = np.zeros(len(self._durations_ps))
        return self._drawn(nothing, nothing, nothing, 0.0, self._spread.nothing)

    def draw(self, num_draws: int) -> Iterator[_Drawn]:
        """In pairs of opposite errors, so that few are enough for a mean."""
        random = np.random.default_rng(_SEED)
        for _ in range(num_draws // 2):
            of_times, of_energies = random.standard_normal((2, len(self._durations_ps)))
            of_latencies = random.standard_normal(int(self._target.max()) + 1)[self._target]
            common = random.standard_normal()
            shares = random.random(len(self._spread.nothing))
            for sign in (1, -1):
                late = -np.log1p(-shares if sign > 0 else shares - 1)  # of an exponential distribution of mean 1
                yield self._drawn(sign * of_times, sign * of_energies, sign * of_latencies, sign * common, late)

    def _in_proportion(self, errors: FloatArray) -> FloatArray:
        """(2, num_clocks of all curves) with errors of clocks between those that were measured in proportion."""
        curves = self._problem.curves
        parts = np.split(errors, np.cumsum([len(curve.clocks_mhz) for curve in curves])[:-1], axis=1)
        pairs = zip(curves, parts, strict=True)
        return np.concatenate(
            [part if curve.doubt is None else curve.doubt.in_proportion(part) for curve, part in pairs], axis=1
        )

    def _drawn(
        self,
        of_times: FloatArray,
        of_energies: FloatArray,
        of_latencies: FloatArray,
        common: float,
        late: FloatArray,
    ) -> _Drawn:
        of_each = np.stack([self._time_shares * of_times, self._energy_shares * of_energies])
        time_errors, energy_errors = self._in_proportion(of_each)
        time_factors = np.exp(time_errors)  # positive under any error
        energy_factors = np.exp(energy_errors + self._common_shares * common)

        def menu(bias_ps: FloatArray | float, bias_uj: FloatArray | float) -> _solver.Menu:
            durations_ps = np.rint(np.maximum((self._durations_ps + bias_ps) * time_factors, 1)).astype(np.int64)
            energies_uj = (self._energies_uj + bias_uj) * energy_factors
            effective_uj = np.rint(energies_uj - self._waiting_uw * durations_ps).astype(np.int64)
            return self._make_menu(*self._spread.with_each(durations_ps, effective_uj, late))

        latency_ps = np.rint(np.maximum(self._latency_ps + self._latency_std_ps * of_latencies, 0)).astype(np.int64)
        latency_ps = np.append(latency_ps, np.zeros(len(late), dtype=np.int64))
        return _Drawn(menu(0.0, 0.0), menu(self._bias_ps, self._bias_uj), latency_ps)


class _SpreadTransfers:
    """Transfers whose spread is known, each with a curve of its own, so that one may be late and another not.

    Attributes:
        curves: Of the problem, and of each such transfer.
        curve_of: (num_instructions) int32 index into them.
        nothing: (num_transfers) how late each is where all take what the profile says.
    """

    def __init__(self, problem: PlanningProblem) -> None:
        of_curve_ps = np.array([curve.p90_excess_ps for curve in problem.curves])
        nodes = np.flatnonzero(of_curve_ps[problem.curve_of])
        self._kinds = problem.curve_of[nodes]
        self._scale_ps = of_curve_ps[self._kinds] / _SCALES_P90
        self._place = concatenated_begin(curve.clocks_mhz for curve in problem.curves)[self._kinds]
        self.curves = (*problem.curves, *(problem.curves[kind] for kind in self._kinds.tolist()))
        self.curve_of = problem.curve_of.copy()
        self.curve_of[nodes] = len(problem.curves) + np.arange(len(nodes), dtype=np.int32)
        self.nothing = np.zeros(len(nodes))

    def with_each(self, durations_ps: IntArray, effective_uj: IntArray, late: FloatArray) -> tuple[IntArray, IntArray]:
        """Times and energies of the problem's clocks, and behind them those of each transfer.

        Args:
            durations_ps: (num_clocks) [ps] of the problem's curves end to end.
            effective_uj: (num_clocks) [uJ] likewise.
            late: (num_transfers) how late each is, in means of its link.
        """
        usual_ps = durations_ps[self._place]
        lasts_ps = np.rint(usual_ps + self._scale_ps * late).astype(np.int64)
        drawn_uj = np.rint(effective_uj[self._place] * (lasts_ps / usual_ps)).astype(np.int64)
        return np.append(durations_ps, lasts_ps), np.append(effective_uj, drawn_uj)


def _error_shares(curve: CostCurve) -> FloatArray:
    """(3, num_clocks) standard errors of times, of energies and of energies together, 0 of constants."""
    doubt = curve.doubt
    if doubt is None:
        return np.zeros((3, len(curve.clocks_mhz)))
    return np.stack([doubt.time_share, doubt.energy_share, doubt.energy_common_share])


def _p90_ps(curve: CostCurve) -> IntArray:
    """(num_clocks) [ps] of clock changes; 0 where the profile does not say."""
    return np.zeros(len(curve.clocks_mhz), dtype=np.int64) if curve.latencies_p90_ps is None else curve.latencies_p90_ps
