"""Transfers that vary, from when on and how much: against iterations that are played with other transfers."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from test_measured_transfers import MS, played_by_the_dag

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import Transfers, spreads_of_runs, varying_s
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD, Instruction
from perseus_dist.planning.schedule.schedule import Schedule, format_schedule, gpipe

LEAST_NS = 2 * MS
LEAST: Transfers = ((0, SEND_FORWARD, 0.002), (1, SEND_BACKWARD, 0.002))


def pipeline(num_microbatches: int) -> Schedule:
    """Two stages that wait for each of each other's results."""
    return gpipe(pp=2, microbatches=num_microbatches)


def played(
    schedule: Schedule, there_ns: Sequence[float] = (), back_ns: Sequence[float] = (), *, ahead_ns: int = 0
) -> tuple[list[RunTimes], float]:
    """With so much on top of the least by microbatch, none where nothing is said."""

    def transfer_ns(one: Instruction) -> int:
        on_top_ns = there_ns if one.kind == SEND_FORWARD else back_ns
        return LEAST_NS + round(on_top_ns[one.microbatch] if one.microbatch < len(on_top_ns) else 0)

    return played_by_the_dag(schedule, transfer_ns, ahead_ns)


def lasts_s(schedule: Schedule, there_ns: float = 0, back_ns: float = 0) -> float:
    """[s] of an iteration where all transfers of a direction take as much longer."""
    num = len(schedule.ranks[0])
    return played(schedule, [there_ns] * num, [back_ns] * num)[1]


@pytest.mark.parametrize(("excess_ns", "is_told"), [(99_999, False), (100_000, True)])
def test_transfers_vary_from_a_tenth_of_a_millisecond_on(excess_ns: int, *, is_told: bool) -> None:
    schedule = pipeline(4)
    times, measured_s = played(schedule, [0, *[excess_ns] * 3])
    found_s = varying_s(format_schedule(schedule), times, LEAST)
    assert found_s == (pytest.approx(measured_s - lasts_s(schedule), abs=1e-12) if is_told else 0.0)


@pytest.mark.parametrize("ahead_ns", [0, 10**12])
def test_an_iteration_is_longer_by_what_the_median_transfer_takes_above_the_least(ahead_ns: int) -> None:
    """One that took very long makes the iteration longer, and is not what usual ones take."""
    schedule = pipeline(6)
    times, measured_s = played(schedule, [0, 3 * MS, 3 * MS, 300 * MS, 3 * MS, 5 * MS], ahead_ns=ahead_ns)
    usual_s = lasts_s(schedule, 3 * MS)
    assert usual_s < measured_s
    found_s = varying_s(format_schedule(schedule), times, LEAST)
    assert found_s == pytest.approx(usual_s - lasts_s(schedule), abs=1e-12)


@pytest.mark.parametrize("longer_s", [0, 100])
def test_an_iteration_is_no_longer_than_it_was(longer_s: int) -> None:
    """However long its transfers take at least."""
    schedule, longer_ns = pipeline(6), longer_s * 10**9
    times, measured_s = played(schedule, [5 * MS * (number % 2) + longer_ns for number in range(6)])
    assert lasts_s(schedule, 5 * MS + longer_ns) > measured_s
    least = ((0, SEND_FORWARD, 0.002 + longer_s), LEAST[1])
    found_s = varying_s(format_schedule(schedule), times, least)
    assert found_s == pytest.approx(measured_s - lasts_s(schedule, longer_ns), abs=1e-9)


def test_links_whose_transfers_are_not_known_do_not_vary() -> None:
    schedule = pipeline(6)
    text = format_schedule(schedule)
    times, _ = played(schedule, [0, 5 * MS, 0, 5 * MS, 0, 5 * MS])
    assert varying_s(text, times, ()) == 0.0
    assert varying_s(text, times, LEAST[1:]) == 0.0
    assert varying_s(text, times, LEAST[:1]) > 0.0
    assert spreads_of_runs(text, times, ()) == ()


@pytest.mark.parametrize("num_transfers", [1, 4, 5, 8])
def test_a_spread_is_that_of_the_ninetieth_percentile_of_five_transfers_or_more(num_transfers: int) -> None:
    schedule = pipeline(num_transfers)
    on_top_ns = [float(MS * number) for number in range(num_transfers)]
    times, _ = played(schedule, on_top_ns)
    expected = ((0, SEND_FORWARD, np.quantile(on_top_ns, 0.9).item() / 1e9),)
    assert spreads_of_runs(format_schedule(schedule), times, LEAST) == (expected if num_transfers >= 5 else ())


@pytest.mark.parametrize(
    ("there_ns", "back_ns", "num_told"), [(99_999, 0, 0), (100_000, 0, 1), (200_000, 99_999, 1), (200_000, 100_000, 2)]
)
def test_spreads_are_told_from_a_tenth_of_a_millisecond_on(there_ns: int, back_ns: int, num_told: int) -> None:
    schedule = pipeline(8)
    times, _ = played(schedule, [0, *[there_ns] * 7], [0, *[back_ns] * 7])
    found = spreads_of_runs(format_schedule(schedule), times, LEAST)
    expected = ((0, SEND_FORWARD, there_ns / 1e9), (1, SEND_BACKWARD, back_ns / 1e9))
    assert found == expected[:num_told]


@pytest.mark.parametrize(("longest_ns", "is_told"), [(600 * 10**9, True), (600 * 10**9 + 1, False)])
def test_what_spreads_by_more_than_ten_minutes_is_no_transfer(longest_ns: int, *, is_told: bool) -> None:
    schedule = pipeline(8)
    times, _ = played(schedule, [0, *[longest_ns] * 7])
    found = spreads_of_runs(format_schedule(schedule), times, LEAST)
    assert found == (((0, SEND_FORWARD, 600.0),) if is_told else ())


def test_all_spreads_are_held_to_the_longest_that_leaves_the_iteration_as_long_as_it_was() -> None:
    """Of eight transfers each way two were slow: with all of them on the mean of what they spread by it was longer."""
    schedule = pipeline(8)
    there_ns, back_ns = [0, 0, 0, 0, 0, 40 * MS, 0, 40 * MS], [0, 0, 0, 0, 0, 2 * MS, 0, 2 * MS]
    times, measured_s = played(schedule, there_ns, back_ns)
    found = {spread[:2]: spread[2] for spread in spreads_of_runs(format_schedule(schedule), times, LEAST)}
    assert found[1, SEND_BACKWARD] == 0.002, "less than what all are held to"
    assert 0.002 < found[0, SEND_FORWARD] < 0.04
    to_mean = 1e9 / math.log(10)
    played_s = lasts_s(schedule, to_mean * found[0, SEND_FORWARD], to_mean * found[1, SEND_BACKWARD])
    assert played_s == pytest.approx((1 + 1e-4) * measured_s, abs=8 * 0.04 / 4096)
    assert played_s <= (1 + 1e-4) * measured_s + 1e-8


def test_what_a_receiver_waited_for_beside_its_transfer_is_no_spread() -> None:
    """The sender went on at once: its transfers took no longer than it paused, however late the receiver began."""
    schedule = pipeline(8)
    times, _ = played(schedule)
    first, second = times
    late_ns = [MS * number for number in range(8)] + [7 * MS] * 8
    late = replace(
        second,
        begins_ns=tuple(ns + late for ns, late in zip(second.begins_ns, late_ns, strict=True)),
        ends_ns=tuple(ns + late for ns, late in zip(second.ends_ns, late_ns, strict=True)),
    )
    assert spreads_of_runs(format_schedule(schedule), [first, late], LEAST) == ()
    assert varying_s(format_schedule(schedule), [first, late], LEAST) == 0.0


@pytest.mark.parametrize(("least_s", "others_ns"), [(0.002, 0), (0.005, 0), (0.005, 1_000)])
def test_transfers_that_block_for_less_than_the_least_spread_by_nothing(least_s: float, others_ns: int) -> None:
    """One of ten took long; those of the other direction, which are not known, leave the iteration room for it."""
    schedule = pipeline(10)
    longest_ns = round(1e9 * least_s) - LEAST_NS + 10 * MS
    times, _ = played(schedule, [0, *[others_ns] * 4, longest_ns, *[others_ns] * 3, 0], [5 * MS] * 10)
    spreads = spreads_of_runs(format_schedule(schedule), times, ((0, SEND_FORWARD, least_s),))
    expected_ns = np.quantile([0.0] * 9 + [10.0 * MS], 0.9).item()
    assert spreads == ((0, SEND_FORWARD, expected_ns / 1e9),)
