"""Samples of the same thing: which are outliers, and the estimate from the others."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.value_equality import ValueEquality

MIN_ROWS_TO_REJECT = 4  # of three rows that disagree it is unknown which one is wrong
REJECT_SIGMAS = 6.0
REJECT_SHARE = 0.05  # of the median: closer than this is noise, however quiet the other rows are
SIGMA_PER_MAD = 1.4826  # of a normal distribution
ALIKE_SHARE = 0.02
ALIKE_SIGMAS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RejectedRow(ValueEquality):
    """A row that disagrees grossly with the other rows of its clock, and what they say instead."""

    row: Row
    median_time_s: float
    median_energy_j: float


class Estimate(NamedTuple):
    """Estimate from all accepted rows; the standard deviations are over all runs, NaN where unknown."""

    time_s: float
    energy_j: float
    num_samples: float
    time_std_s: float
    energy_std_j: float


def estimate(rows: Sequence[Row]) -> tuple[Estimate, list[RejectedRow]]:
    """The mean of rows of one stage, instruction, clock and GPU, weighted by their samples, without gross outliers.

    At least one row stays: fewer than half can lie beyond six MADs in time, and fewer than half in energy.
    """
    accepted, rejected = _judge(rows) if len(rows) >= MIN_ROWS_TO_REJECT else (rows, [])
    counts = [row.samples for row in accepted]
    time_s, time_std_s = _mean_and_std([row.time_s for row in accepted], [row.time_std_s for row in accepted], counts)
    energy_j, energy_std_j = _mean_and_std(
        [row.energy_j for row in accepted], [row.energy_std_j for row in accepted], counts
    )
    return Estimate(time_s, energy_j, sum(counts), time_std_s, energy_std_j), rejected


def undisturbed(rows: Sequence[Row]) -> list[Row]:
    """Replicas' rows of one stage, instruction, clock and GPU, without those that were slowed down.

    What disturbs a computation makes it slower, never faster, so rows that are clearly slower than the fastest are left
    out, after gross outliers. A lone fast row is an outlier; two that agree are healthy replicas. Times at other clocks
    are no reference: where a library picks another kernel, a lower clock can be 10 % faster (A40).

    Args:
        rows: In any order; at least one.
    """
    accepted = _without_outliers(rows) if len(rows) >= MIN_ROWS_TO_REJECT else rows
    least = min(accepted, key=lambda row: row.time_s)
    return [
        row
        for row in accepted
        if row.time_s <= (1 + ALIKE_SHARE) * least.time_s + ALIKE_SIGMAS * _standard_error_s(row, least)
    ]


def _without_outliers(rows: Sequence[Row]) -> Sequence[Row]:
    accepted = _judge(rows)[0]
    least_s = min(row.time_s for row in accepted)
    first, second, *_ = sorted(row.time_s for row in rows)
    do_two_agree = second < least_s / (1 + ALIKE_SHARE) and second <= (1 + ALIKE_SHARE) * first
    return rows if do_two_agree else accepted


def _standard_error_s(*rows: Row) -> float:
    """[s] of the difference of their means, by the steadiest runs: others were disturbed for a part of them."""
    std_s = min((row.time_std_s for row in rows if row.samples > 1 and row.time_std_s >= 0), default=0.0)
    return std_s * math.sqrt(sum(1 / row.samples for row in rows))


def _judge(rows: Sequence[Row]) -> tuple[list[Row], list[RejectedRow]]:
    """(accepted, rejected) rows."""
    time_s, time_reach_s = _median_and_reach([row.time_s for row in rows])
    energy_j, energy_reach_j = _median_and_reach([row.energy_j for row in rows])
    accepted, rejected = [], []
    for row in rows:
        if abs(row.time_s - time_s) > time_reach_s or abs(row.energy_j - energy_j) > energy_reach_j:
            rejected.append(RejectedRow(row=row, median_time_s=time_s, median_energy_j=energy_j))
        else:
            accepted.append(row)
    return accepted, rejected


def _median_and_reach(values: Sequence[float]) -> tuple[float, float]:
    """The median, and how far from it a value may lie."""
    median = statistics.median(values)
    mad = statistics.median(abs(value - median) for value in values)
    return median, max(REJECT_SIGMAS * SIGMA_PER_MAD * mad, REJECT_SHARE * median)


def _mean_and_std(means: Sequence[float], stds: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Mean and standard deviation over all runs; the latter is NaN where a row does not say how its own runs spread."""
    if len(means) == 1:
        return means[0], stds[0]
    total = sum(counts)
    mean = math.fsum(count * row_mean for count, row_mean in zip(counts, means, strict=True)) / total
    squares = 0.0
    for row_mean, std, count in zip(means, stds, counts, strict=True):
        within = (count - 1) * std**2 if count > 1 else 0.0
        squares += within + count * (row_mean - mean) ** 2
    return mean, math.sqrt(squares / (total - 1))
