"""Transfers that are held to the length of their iteration, those that nothing waited for, and stages in any order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from test_measured_transfers import MS, played, played_by_the_dag
from test_planner_measured_spreads_bounds import LEAST, LEAST_NS, pipeline
from test_planner_measured_spreads_bounds import played as played_with

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import (
    Transfers,
    TransferTimes,
    clocks_ahead_ns,
    slowest,
    spreads_of_runs,
    transfers_of_runs,
    varying_s,
)
from perseus_dist.planner.job.schedule_links import Replay, with_transfers
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD, Instruction
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)
from perseus_dist.planning.schedule.schedule_text import parse_schedule

TransferNs = Callable[[Instruction], int]


def by_sender(even_ms: int, odd_ms: int) -> TransferNs:
    """Transfers of even stages, which are on the first of two pp_ranks, and of odd ones."""
    return lambda one: MS * (odd_ms if one.stage % 2 else even_ms)


def by_link(even_ms: int, odd_ms: int) -> TransferNs:
    """As long both ways; links go by the stage before them."""
    return lambda one: MS * (odd_ms if (one.stage - (one.kind == SEND_BACKWARD)) % 2 else even_ms)


def later(times: list[RunTimes], by_ns: int) -> list[RunTimes]:
    return [
        replace(
            one,
            begins_ns=tuple(ns + by_ns for ns in one.begins_ns),
            ends_ns=tuple(ns + by_ns for ns in one.ends_ns),
        )
        for one in times
    ]


def found(schedule: Schedule, transfer_ns: TransferNs, *, by_ns: int = 0, host: str = "a") -> TransferTimes:
    times, _ = played_by_the_dag(schedule, transfer_ns)
    of_host = [replace(one, host_clock=host) for one in later(times, by_ns)]
    return slowest([transfers_of_runs(format_schedule(schedule), of_host)])


TWO_CHUNKS = interleaved(pp=2, microbatches=4, chunks=2)
HELD_UP = {
    "joint": joint_exchanges(TWO_CHUNKS),
    "overlapped": replace(TWO_CHUNKS, exchange=Exchange.OVERLAPPED),
    "overlapped backwards": replace(TWO_CHUNKS, exchange=Exchange.OVERLAPPED_BACKWARDS),
    "posted": replace(TWO_CHUNKS, exchange=Exchange.POSTED),
}


ALL_LINKS = [*((stage, SEND_FORWARD) for stage in (0, 1, 2)), *((stage, SEND_BACKWARD) for stage in (1, 2, 3))]


@pytest.mark.parametrize("odd_ms", [5, 15])
@pytest.mark.parametrize("name", HELD_UP)
def test_links_that_nothing_waits_for_are_like_others_between_the_same_two_pp_ranks(name: str, odd_ms: int) -> None:
    """The last one is like the first, whatever the one between them is like."""
    of_links = [0.005, odd_ms / 1e3, 0.005]
    expected = {(stage, kind): of_links[stage - (kind == SEND_BACKWARD)] for stage, kind in ALL_LINKS}
    assert found(HELD_UP[name], by_link(5, odd_ms), host="") == expected


@pytest.mark.parametrize(("even_ms", "odd_ms"), [(5, 15), (15, 5)])
def test_links_that_nothing_waits_for_are_like_others_in_the_same_direction(even_ms: int, odd_ms: int) -> None:
    expected = {(stage, kind): (odd_ms if stage % 2 else even_ms) / 1e3 for stage, kind in ALL_LINKS}
    assert found(HELD_UP["posted"], by_sender(even_ms, odd_ms)) == expected


HELD: dict[str, tuple[Schedule, TransferNs]] = {
    "1f1b": (one_f_one_b(pp=3, microbatches=6), lambda _: 200 * MS),
    "1f1b, not all alike": (one_f_one_b(pp=3, microbatches=6), lambda one: MS * (90 if one.stage % 2 else 30)),
    "1f1b, one way": (one_f_one_b(pp=3, microbatches=8), lambda one: MS * (90 if one.kind == SEND_FORWARD else 1)),
    "overlapped": (
        replace(interleaved(pp=2, microbatches=6, chunks=3), exchange=Exchange.OVERLAPPED),
        by_link(5, 15),
    ),
    "joint": (
        joint_exchanges(interleaved(pp=4, microbatches=4, chunks=2)),
        by_link(5, 15),
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_an_iteration_lasts_as_long_with_the_transfers_that_were_found(name: str) -> None:
    schedule, transfer_ns = HELD[name]
    _, measured_s = played_by_the_dag(schedule, transfer_ns)
    known = found(schedule, transfer_ns)
    _, found_s = played_by_the_dag(schedule, lambda one: round(1e9 * known[one[:2]]))
    assert 0.9985 * measured_s <= found_s <= (1 + 1e-4) * measured_s + 1e-8
    assert min(known.values()) > 0


def test_a_receiver_that_waits_for_more_than_its_transfer_makes_it_no_longer() -> None:
    """Where transfers are longer than computations both sides wait for each other: one took 320 ms of 200."""
    known = found(*HELD["1f1b"])
    assert list(known.values()) == pytest.approx([0.2] * len(known), rel=1e-3)


@pytest.mark.parametrize("by_ns", [1, 10**15])
@pytest.mark.parametrize("name", HELD)
def test_transfers_are_the_same_whenever_an_iteration_begins(name: str, by_ns: int) -> None:
    schedule, transfer_ns = HELD[name]
    assert found(schedule, transfer_ns, by_ns=by_ns) == found(schedule, transfer_ns)


def test_what_varies_and_spreads_is_the_same_whenever_an_iteration_begins() -> None:
    schedule = pipeline(6)
    text = format_schedule(schedule)
    times, _ = played_with(schedule, [0, 3 * MS, 3 * MS, 300 * MS, 3 * MS, 5 * MS])
    assert varying_s(text, later(times, 10**15), LEAST) == varying_s(text, times, LEAST)
    assert spreads_of_runs(text, later(times, 10**15), LEAST) == spreads_of_runs(text, times, LEAST)


THERE_AND_BACK = "0F0 2F0 2B0 0B0 0F1 2F1 2B1 0B1\n1F0 1B0 1F1 1B1\n"
"""The first pp_rank has the last stage as well, and twice as many computations as the other."""


def test_what_an_iteration_lasts_is_told_by_all_computations_of_the_first_pp_rank() -> None:
    schedule = parse_schedule(THERE_AND_BACK)
    least: Transfers = tuple((stage, SEND_FORWARD, 0.002) for stage in (0, 1))

    def times_with(on_top_ms: int) -> list[RunTimes]:
        return played_by_the_dag(schedule, lambda one: LEAST_NS + one.microbatch * on_top_ms * MS)[0]

    found_s = varying_s(THERE_AND_BACK, times_with(10), least)
    assert found_s == pytest.approx(0.02), "two forward transfers of 5 ms more in each of two microbatches"
    assert varying_s(THERE_AND_BACK, times_with(0), least) == 0.0
    longer = "".join(f" 0F{m} 2F{m} 2B{m} 0B{m}" for m in range(6)) + "\n" + "".join(f" 1F{m} 1B{m}" for m in range(6))
    text = format_schedule(parse_schedule(longer))
    times, _ = played_by_the_dag(parse_schedule(longer), lambda one: LEAST_NS + MS * (40 if one.microbatch == 5 else 0))
    spreads = slowest([spreads_of_runs(text, times, least)])
    assert spreads == {(0, SEND_FORWARD): 0.02, (1, SEND_FORWARD): 0.02}, "half of five zeros and 40 ms: it fits"


def test_a_pp_rank_with_the_first_and_the_last_stage_measures_where_calls_hold_it_up() -> None:
    schedule = replace(parse_schedule(THERE_AND_BACK), exchange=Exchange.POSTED)
    known = found(schedule, by_sender(3, 7))
    assert known == {
        (0, SEND_FORWARD): 0.003,
        (1, SEND_FORWARD): 0.007,
        (1, SEND_BACKWARD): 0.007,
        (2, SEND_BACKWARD): 0.003,
    }


@pytest.mark.parametrize("of_stage", [(0, 1), (1, 0)], ids=["in order", "the last one first"])
def test_stages_may_stand_on_pp_ranks_in_any_order(of_stage: tuple[int, int]) -> None:
    """A first computation waits for a transfer, whichever pp_rank it is of: 3 ms there and 7 back."""
    lines = ("0F0 0I0 0W0", "1F0 1I0 1W0")
    text = "\n".join(lines[stage] for stage in of_stage)
    begins_ms = ((0, 40, 50), (13, 23, 33))

    def times(ahead_ms: int) -> list[RunTimes]:
        return [
            RunTimes(
                iteration=0,
                begins_ns=tuple(MS * (ms + stage * ahead_ms) for ms in begins_ms[stage]),
                ends_ns=tuple(MS * (ms + 10 + stage * ahead_ms) for ms in begins_ms[stage]),
                host_clock="a",
            )
            for stage in of_stage
        ]

    assert slowest([transfers_of_runs(text, times(0))]) == {(0, SEND_FORWARD): 0.003, (1, SEND_BACKWARD): 0.007}
    assert clocks_ahead_ns(text, times(7)) == (0, 0), "nothing speaks against one clock"
    assert clocks_ahead_ns(text, times(50)) == tuple(48 * MS * stage for stage in of_stage), "10 ms there and back"


def test_a_pp_rank_of_several_stages_has_one_clock_by_its_first_link() -> None:
    schedule = interleaved(pp=2, microbatches=4, chunks=2)
    there_ns, back_ns = dict.fromkeys(range(3), 5 * MS), dict.fromkeys(range(3), MS)
    times = played(schedule, there_ns, [0, 10**12], back_ns=back_ns)
    assert clocks_ahead_ns(format_schedule(schedule), times) == (0, 10**12 + 2 * MS)


def test_a_link_that_nothing_waited_for_does_not_vary() -> None:
    """The one back is known from elsewhere: it adds nothing, to the nanosecond."""
    ms = [
        [(0, 10), (40, 53), (53, 63), (63, 140), (140, 150), (150, 160)],
        [(13, 23), (23, 33), (76, 86), (86, 96), (96, 106), (106, 116)],
    ]
    text = "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1"
    times = [
        RunTimes(
            iteration=0,
            begins_ns=tuple(begin * MS for begin, _ in of_rank),
            ends_ns=tuple(end * MS for _, end in of_rank),
            host_clock="a",
        )
        for of_rank in ms
    ]
    assert transfers_of_runs(text, times) == ((0, SEND_FORWARD, 0.003),)
    known: Transfers = ((0, SEND_FORWARD, 0.003), (1, SEND_BACKWARD, 0.005))
    replay = Replay(
        with_transfers(text),
        6,
        np.array([begin * MS for of_rank in ms for begin, _ in of_rank]),
        np.array([end * MS for of_rank in ms for _, end in of_rank]),
    )
    least_ns = {(0, SEND_FORWARD): 3.0 * MS, (1, SEND_BACKWARD): 5.0 * MS}
    usual_ns = least_ns | {(0, SEND_FORWARD): 13.0 * MS}  # of 3 and 23 ms
    longer_ns = replay.lasts_ns(usual_ns) - replay.lasts_ns(least_ns)
    assert longer_ns == 10 * MS
    assert varying_s(text, times, known) == longer_ns / 1e9


@pytest.mark.parametrize("least_s", [0.002, 100.0])
def test_spreads_are_what_is_beyond_the_least_however_long_that_is(least_s: float) -> None:
    schedule = pipeline(5)
    on_top_ns = [MS * number + round(1e9 * least_s) - LEAST_NS for number in range(5)]
    times, _ = played_with(schedule, on_top_ns)
    spreads = spreads_of_runs(format_schedule(schedule), times, ((0, SEND_FORWARD, least_s),))
    assert spreads == ((0, SEND_FORWARD, 0.0036),)


def one_after_the_other(
    steps: Sequence[tuple[int, int]], *, overlaps_ns: Mapping[int, int] = MappingProxyType({}), length_ns: int = 10 * MS
) -> list[RunTimes]:
    """Computations in turns: each one's pp_rank, and how long after the one before it begins [ns].

    Some end later by what ``overlaps_ns`` says by place, although the next one has begun.
    """
    begins_ns: list[list[int]] = [[], []]
    ends_ns: list[list[int]] = [[], []]
    now_ns = 0
    for place, (rank, after_ns) in enumerate(steps):
        begins_ns[rank].append(now_ns + after_ns)
        now_ns += after_ns + length_ns
        ends_ns[rank].append(now_ns + overlaps_ns.get(place, 0))
    return [
        RunTimes(iteration=0, begins_ns=tuple(begins), ends_ns=tuple(ends), host_clock="a")
        for begins, ends in zip(begins_ns, ends_ns, strict=True)
    ]


@pytest.mark.parametrize(("overlap_ns", "is_held"), [(0, False), (8_000, False), (8_001, True)])
def test_transfers_are_held_where_a_replay_lasts_longer_by_more_than_a_ten_thousandth(
    overlap_ns: int, *, is_held: bool
) -> None:
    """Of 80 ms, with transfers that are longer than computations."""
    steps = [(0, 0), (1, 20 * MS), (1, 0), (0, 20 * MS)]
    times = one_after_the_other(steps, overlaps_ns={1: overlap_ns})
    known = slowest([transfers_of_runs("0F0 0B0\n1F0 1B0", times)])
    assert (known != {(0, SEND_FORWARD): 0.02, (1, SEND_BACKWARD): 0.02}) == is_held
    assert list(known.values()) == pytest.approx([0.02, 0.02], rel=1e-3)


def test_transfers_take_nothing_where_computations_that_overlap_leave_no_room() -> None:
    steps = [(0, 0), (1, 20 * MS), (1, 0), (0, 20 * MS)]
    times = one_after_the_other(steps, overlaps_ns={1: 50 * MS})
    assert slowest([transfers_of_runs("0F0 0B0\n1F0 1B0", times)]) == {
        (0, SEND_FORWARD): 0.0,
        (1, SEND_BACKWARD): 0.0,
    }


@pytest.mark.parametrize(("overlap_ms", "is_held"), [(0, False), (30, True)])
def test_transfers_are_held_to_all_computations_of_the_first_pp_rank(overlap_ms: int, *, is_held: bool) -> None:
    """Its last one began too early."""
    text = f"0F0 2F0 2B0 0I0 0W0 0F1 2F1 2B1 0I1 0W1\n1F0 1B0 1F1 1B1\n# exchange: {Exchange.POSTED}\n"
    of_one = [(0, 0), (1, 3 * MS), (0, 7 * MS), (0, 0), (1, 3 * MS), (0, 7 * MS), (0, 0)]
    of_last = [*of_one[:-1], (0, -overlap_ms * MS)]
    known = slowest([transfers_of_runs(text, one_after_the_other([*of_one, *of_last]))])
    assert len(known) == 4
    if is_held:
        assert max(known.values()) < 0.007
    else:
        assert known == {
            (0, SEND_FORWARD): 0.003,
            (1, SEND_FORWARD): 0.007,
            (1, SEND_BACKWARD): 0.007,
            (2, SEND_BACKWARD): 0.003,
        }
