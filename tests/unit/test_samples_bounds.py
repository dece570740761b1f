"""Samples of the same thing at the limits: which are outliers, which replicas are alike, what their mean and spread."""

import math
import statistics

import numpy as np
import pytest
from test_samples import row

from perseus_dist.planning.profile.between_clocks import irregular_intervals
from perseus_dist.planning.profile.clock_changes import clock_changes_of
from perseus_dist.planning.profile.profile_csv import Row
from perseus_dist.planning.profile.samples import estimate, undisturbed


def times(rows: list[Row]) -> list[float]:
    return [one.time_s for one in rows]


@pytest.mark.parametrize(("last_s", "is_rejected"), [(1.0499, False), (1.0501, True), (0.9501, False), (0.9499, True)])
def test_a_row_within_a_twentieth_of_the_median_is_noise(last_s: float, *, is_rejected: bool) -> None:
    found, rejected = estimate([row(1.0), row(1.0), row(1.0), row(last_s)])
    assert [one.row.time_s for one in rejected] == ([last_s] if is_rejected else [])
    assert found.num_samples == (12 if is_rejected else 16)
    assert found.time_s == pytest.approx(1.0 if is_rejected else (3 + last_s) / 4)


def test_what_scatters_more_is_an_outlier_farther_away() -> None:
    scattered = [row(time_s) for time_s in (0.96, 0.98, 1.0, 1.02, 1.04)]  # the median lies 0.02 from the others
    reach_s = 6 * 1.4826 * 0.02
    for last_s, is_rejected in ((1.0 + 0.98 * reach_s, False), (1.01 + 7.2 * 1.4826 * 0.03, True)):
        assert bool(estimate([*scattered, row(last_s)])[1]) == is_rejected


def test_of_three_rows_none_is_an_outlier() -> None:
    assert estimate([row(1.0), row(1.0), row(9.0)])[1] == []
    assert len(estimate([row(1.0), row(1.0), row(1.0), row(9.0)])[1]) == 1


def test_energy_alone_makes_an_outlier_and_what_the_others_say_is_told() -> None:
    odd = row(1.0)._replace(energy_j=1.2)
    found, (rejected,) = estimate([row(1.0), row(1.01), row(1.02), odd])
    assert rejected.row is odd
    assert (rejected.median_time_s, rejected.median_energy_j) == pytest.approx((1.005, 1.0))
    assert found.energy_j == 1.0


def test_rows_count_by_their_samples_and_spread_as_all_their_runs_do() -> None:
    runs = [[1.0, 1.1, 1.3], [2.0, 2.4], [1.7]]
    rows = [
        row(
            statistics.fmean(of_row),
            samples=len(of_row),
            time_std_s=statistics.stdev(of_row) if len(of_row) > 1 else math.nan,
        )
        for of_row in runs
    ]
    found, _ = estimate(rows)
    together = [run for of_row in runs for run in of_row]
    assert found.num_samples == 6
    assert found.time_s == pytest.approx(statistics.fmean(together))
    assert found.time_std_s == pytest.approx(statistics.stdev(together))


def test_one_row_stays_as_it_is_and_how_far_runs_spread_is_known_of_all_or_none() -> None:
    found, _ = estimate([row(1.0, time_std_s=0.3)])
    assert (found.time_s, found.time_std_s, found.num_samples) == (1.0, 0.3, 4)
    found, _ = estimate([row(1.0, time_std_s=math.nan), row(1.2, time_std_s=0.1)])
    assert found.time_s == pytest.approx(1.1)
    assert math.isnan(found.time_std_s)


@pytest.mark.parametrize(("other_s", "is_alike"), [(1.0199, True), (1.0201, False)])
def test_replicas_are_alike_within_two_percent(other_s: float, *, is_alike: bool) -> None:
    assert len(undisturbed([row(1.0), row(other_s)])) == 1 + is_alike


@pytest.mark.parametrize(("samples", "share"), [(4, 0.98), (4, 1.02), (16, 0.98), (16, 1.02)])
def test_replicas_are_alike_within_three_standard_errors_beyond_that(samples: int, share: float) -> None:
    std_s = 0.02
    error_s = std_s * math.sqrt(2 / samples)
    other_s = 1.02 + share * 3 * error_s
    rows = [row(1.0, time_std_s=std_s, samples=samples), row(other_s, time_std_s=std_s, samples=samples)]
    assert len(undisturbed(rows)) == (2 if share < 1 else 1)


def test_the_spread_of_a_single_run_says_nothing() -> None:
    rows = [row(1.0, time_std_s=0.0, samples=1), row(1.03, time_std_s=0.05, samples=4)]
    assert len(undisturbed(rows)) == 2
    assert len(undisturbed([rows[0], rows[1]._replace(samples=1)])) == 1


@pytest.mark.parametrize(
    ("fast", "are_believed"),
    [((0.9, 0.9179), True), ((0.9, 0.9181), False), ((0.979, 0.98), True), ((0.982, 0.983), False)],
    ids=["agree", "do not agree", "clearly faster", "hardly faster"],
)
def test_two_that_are_faster_are_believed_where_they_agree(fast: tuple[float, float], *, are_believed: bool) -> None:
    slow = [row(1.0), row(1.0), row(1.0), row(1.0), row(1.0)]
    found = undisturbed([*slow, *map(row, fast)])
    if fast[0] > 0.95:  # neither is an outlier
        assert times(found) == ([*fast] if are_believed else [1.0] * 5 + [*fast])
    else:
        assert times(found) == ([*fast] if are_believed else [1.0] * 5)


def test_two_rows_of_one_target_count_by_their_samples_and_the_first_line_is_told() -> None:
    rows = [
        Row(line=9, stage=0, kind="C", clock_mhz=1000, time_s=0.010, energy_j=0.0, samples=1, time_p90_s=0.012),
        Row(line=4, stage=0, kind="C", clock_mhz=1000, time_s=0.014, energy_j=0.0, samples=3, time_p90_s=0.020),
        Row(line=6, stage=0, kind="C", clock_mhz=1400, time_s=0.004, energy_j=0.0, samples=2, time_p90_s=0.005),
    ]
    changes = clock_changes_of(rows)
    assert (changes.clocks_mhz.tolist(), changes.num_samples.tolist(), changes.line) == ([1400, 1000], [2, 4], 4)
    assert changes.times_s == pytest.approx([0.004, 0.013])
    assert changes.p90_s == pytest.approx([0.005, 0.018])
    assert changes.latencies_ps(np.array([2000, 1201, 1199, 500])).tolist() == [4 * 10**9] * 2 + [13 * 10**9] * 2


@pytest.mark.parametrize(
    ("times_s", "intervals"),
    [((1.0, 1.05, 9.0), {1}), ((2.0, 1.0, 1.1), {0}), ((1.0, 1.05, 1.1), set())],
    ids=["the lowest is slow", "the highest is slow", "none is"],
)
def test_a_clock_at_either_end_spoils_the_one_interval_that_it_has(
    times_s: tuple[float, float, float], intervals: set[int]
) -> None:
    assert irregular_intervals((1400, 1000, 600), times_s, (0.0, 0.0, 0.0)) == intervals
