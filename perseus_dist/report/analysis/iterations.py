"""The iterations of a run, put together from what its ranks kept: whole ones only, each with what it ran under."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.job_status import MeasuredIterations
from perseus_dist.messages.terms import NO_POINT
from perseus_dist.runlog.files import RunFiles
from perseus_dist.units import FloatArray, IntArray

MIXED = -2
"""The point of an iteration in which some ranks followed another plan than others."""

_NUM_WARM_UP = 3  # iterations that are no baseline: the planner leaves out as many


class Under(IntEnum):
    """The phase that an iteration ran in."""

    NO_CLOCK = 0
    """Before any clock was held."""

    SWEEP = 1
    """Clocks are tried, or the plan is being made."""

    PLAN = 2
    """The plan."""

    RELEASED = 3
    """After a plan, without one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Iterations:
    """Iterations that every one of some ranks has reported, ascending.

    Attributes:
        number: (num_iterations)
        time_s: (num_iterations) [s] the longest of the ranks'.
        own_time_s: (num_iterations) [s] the same until a rank waits for gradient synchronisation.
        energy_j: (num_iterations) [J] of all the ranks; NaN where one does not know it.
        tokens: (num_iterations) that their pipelines were trained on; NaN where it is not known.
        table_revision, point: (num_iterations) what all of them followed: ``NO_POINT`` without a plan, else ``MIXED``
            where they did not follow the same.
        under: (num_iterations) an ``Under`` each.
        is_in_force: (num_iterations) whether it ran under the last plan that there was; under the last of which
            energies are known, if there is one: a plan that came shortly before the end tells nothing.
    """

    number: IntArray
    time_s: FloatArray
    own_time_s: FloatArray
    energy_j: FloatArray
    tokens: FloatArray
    table_revision: IntArray
    point: IntArray
    under: IntArray
    is_in_force: NDArray[np.bool_]

    @property
    def is_baseline(self) -> NDArray[np.bool_]:
        """(num_iterations) whether no clock was held; the first few left out if there are others, or a plan's."""
        free = self.under == Under.NO_CLOCK
        num_left_out = _NUM_WARM_UP
        if not np.any(self.under == Under.PLAN):
            num_left_out = min(num_left_out, int(free.sum()) - 1)
        return np.asarray(free & (np.cumsum(free) > num_left_out))


def iterations_of(run: RunFiles, ranks: Sequence[int]) -> Iterations:
    """Put together what some ranks have reported; iterations that one of them has not are left out.

    Args:
        run: The run.
        ranks: Of the whole job, of one pipeline, or a single one.
    """
    reports = [{report.iteration: report for report in run.iterations.get(rank, ())} for rank in ranks]
    numbers = sorted(set.intersection(*map(set, reports))) if reports else []
    parts = [[of_rank[number] for of_rank in reports] for number in numbers]
    rows = [{(part.table_revision, part.point) for part in of_all} for of_all in parts]
    is_planned = np.array([all(point != NO_POINT for _, point in row) for row in rows], dtype=bool)
    pipelines = _by_pipeline(run, ranks)
    energies = [[part.energy_j for part in of_all] for of_all in parts]
    planned_rows = [index for index in range(len(rows)) if is_planned[index]]
    last = max(
        (index for index in planned_rows if None not in energies[index]), default=max(planned_rows, default=None)
    )
    last_row = None if last is None else rows[last]
    number = np.array(numbers, dtype=np.int64)
    followed = [next(iter(row)) if len(row) == 1 else (0, MIXED) for row in rows]
    table_revision, point = np.array(followed, dtype=np.int64).reshape(-1, 2).T
    return Iterations(
        number=number,
        time_s=np.array([max(part.time_s for part in of_all) for of_all in parts], dtype=np.float64),
        own_time_s=np.array([max(part.pipeline_time_s for part in of_all) for of_all in parts], dtype=np.float64),
        energy_j=np.array([np.nan if None in of_all else sum(filter(None, of_all)) for of_all in energies]).astype(
            float
        ),
        tokens=np.array([_tokens(pipelines, [part.tokens for part in of_all]) for of_all in parts], dtype=np.float64),
        table_revision=table_revision,
        point=point,
        under=_under(number, is_planned, last_free=_last_free(run)),
        is_in_force=np.array([row == last_row for row in rows], dtype=bool) & is_planned,
    )


def _by_pipeline(run: RunFiles, ranks: Sequence[int]) -> list[list[int]]:
    """The indices of each pipeline's ranks among ``ranks``; none at all where a rank's pipeline is not known."""
    found: dict[int, list[int]] = {}
    for index, rank in enumerate(ranks):
        if run.job.dp_size > 1 and rank not in run.timelines:
            return []
        found.setdefault(run.timelines[rank].dp_rank if run.job.dp_size > 1 else 0, []).append(index)
    return list(found.values())


def _tokens(pipelines: Sequence[Sequence[int]], of_ranks: Sequence[float]) -> float:
    """Of all pipelines; NaN where ranks of one pipeline, which are trained on the same tokens, count others or none."""
    told = [{of_ranks[index] for index in pipeline} - {0.0} for pipeline in pipelines]
    return sum(next(iter(one)) for one in told) if told and all(len(one) == 1 for one in told) else math.nan


def energy_per_token_j(iterations: Iterations, chosen: NDArray[np.bool_]) -> float | None:
    """[J] for each token: the median of these iterations; None where of none of them both are known."""
    per_token_j = iterations.energy_j[chosen] / iterations.tokens[chosen]
    known = per_token_j[~np.isnan(per_token_j)]
    return float(np.median(known)) if len(known) else None


def summed_up(iterations: Iterations, chosen: NDArray[np.bool_]) -> MeasuredIterations:
    """Medians and interquartile ranges, because one slow iteration says nothing; energies where they are known."""
    times_s, energies_j = iterations.time_s[chosen], iterations.energy_j[chosen]
    energies_j = energies_j[~np.isnan(energies_j)]
    time_s, time_spread_s = _median_and_spread(times_s)
    energy_j, energy_spread_j = _median_and_spread(energies_j)
    return MeasuredIterations(
        num_iterations=len(times_s),
        time_s=time_s,
        time_spread_s=time_spread_s,
        energy_j=energy_j,
        energy_spread_j=energy_spread_j,
    )


def _median_and_spread(values: FloatArray) -> tuple[float, float]:
    if not len(values):
        return 0.0, 0.0
    lower, middle, upper = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return middle, upper - lower


def _last_free(run: RunFiles) -> int | None:
    """The last iteration before any rank held a clock; None where none ever did, or that is not known.

    Ranks keep timelines of iterations without a clock and under plans, not of those of the sweep between.
    """
    if not any(phase.phase in ("profiling", "enforcing") for phase in run.job.phases):
        return None
    first_planned = min(
        (report.iteration for reports in run.iterations.values() for report in reports if report.point != NO_POINT),
        default=math.inf,
    )
    free_by_rank = [
        [one.iteration for one in timeline.iterations if not one.is_planned and one.iteration < first_planned]
        for timeline in run.timelines.values()
    ]
    return min((max(free) for free in free_by_rank if free), default=None)


def _under(number: IntArray, is_planned: NDArray[np.bool_], *, last_free: int | None) -> IntArray:
    """The phase of each iteration; without a plan, it follows from the iterations before."""
    after_plan = np.cumsum(is_planned) > 0
    is_free = number <= (np.inf if last_free is None else last_free)
    return np.select([is_planned, after_plan, is_free], [Under.PLAN, Under.RELEASED, Under.NO_CLOCK], Under.SWEEP)
