"""Transfers between two stages, from few times that are written down: what waited, whose clock, and what it blocked."""

from collections.abc import Sequence

import pytest
from test_measured_transfers import played

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import (
    Snapshot,
    TransferTimes,
    clocks_ahead_ns,
    have_moved,
    is_new,
    least_change_s,
    slowest,
    transfers_of_runs,
)
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD
from perseus_dist.planning.schedule.schedule import format_schedule, interleaved, one_f_one_b

MS = 1_000_000
SECOND = 1_000 * MS
THERE, BACK = (0, SEND_FORWARD), (1, SEND_BACKWARD)
IN_TWO_PARTS = "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1"
"""Nothing blocks a sender."""
IN_TURNS = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"
"""Sends block."""


def timed(*of_ranks: Sequence[tuple[int, int]], hosts: str = "aa", ahead_ns: int = 0) -> list[RunTimes]:
    """Begins and ends by rank, the second one's by a clock that is ahead."""
    return [
        RunTimes(
            iteration=0,
            begins_ns=tuple(begin_ns + pp_rank * ahead_ns for begin_ns, _ in of_rank),
            ends_ns=tuple(end_ns + pp_rank * ahead_ns for _, end_ns in of_rank),
            host_clock=hosts[pp_rank : pp_rank + 1],
        )
        for pp_rank, of_rank in enumerate(of_ranks)
    ]


def lasting(begin_ns: int, length_ns: int = 10 * MS) -> tuple[int, int]:
    return begin_ns, begin_ns + length_ns


def free(there_ns: int, back_ns: int, *, pause_ns: int = MS, hosts: str = "aa", ahead_ns: int = 0) -> TransferTimes:
    """What is found where the first results take so long, and the first rank has paused before it got its own."""
    begins_ns = 10 * MS + there_ns
    back_at_ns = begins_ns + 20 * MS + back_ns
    later_ns = back_at_ns - pause_ns + there_ns + 20 * MS
    last_ns = later_ns + 80 * MS + back_ns
    first = [
        lasting(0),
        (10 * MS, back_at_ns - pause_ns),
        lasting(back_at_ns),
        (back_at_ns + 10 * MS, last_ns),
        lasting(last_ns),
        lasting(last_ns + 10 * MS),
    ]
    second = [
        lasting(begins_ns),
        lasting(begins_ns + 10 * MS),
        *(lasting(later_ns + 10 * number * MS) for number in range(4)),
    ]
    return slowest([transfers_of_runs(IN_TWO_PARTS, timed(first, second, hosts=hosts, ahead_ns=ahead_ns))])


@pytest.mark.parametrize(("there_ns", "back_ns"), [(0, 0), (1, 3), (2 * MS, 5 * MS), (600 * SECOND, 0)])
def test_ranks_of_one_clock_measure_to_the_nanosecond(there_ns: int, back_ns: int) -> None:
    assert free(there_ns, back_ns) == {THERE: there_ns / 1e9, BACK: back_ns / 1e9}


def test_what_takes_longer_than_ten_minutes_is_no_transfer() -> None:
    assert free(600 * SECOND + 1, 7) == {BACK: 7 / 1e9}
    assert free(600 * SECOND, 600 * SECOND, hosts="ab") == {THERE: 600.0, BACK: 600.0}
    assert free(600 * SECOND, 600 * SECOND + 2, hosts="ab") == {}


@pytest.mark.parametrize(("pause_ns", "is_known"), [(20_000, False), (20_001, True)])
def test_a_computation_has_waited_behind_a_pause_that_is_longer_than_a_launch(pause_ns: int, *, is_known: bool) -> None:
    assert free(2 * MS, 3 * MS, pause_ns=pause_ns) == {THERE: 0.002} | ({BACK: 0.003} if is_known else {})
    assert free(2 * MS, 3 * MS, pause_ns=pause_ns, hosts="ab") == ({THERE: 0.0025, BACK: 0.0025} if is_known else {}), (
        "one direction says nothing between two clocks"
    )


@pytest.mark.parametrize("hosts", ["ab", ""])
@pytest.mark.parametrize("ahead_ns", [0, 10**15, -(10**15)])
def test_between_two_clocks_each_direction_takes_half_of_both(hosts: str, ahead_ns: int) -> None:
    assert free(2 * MS, 5 * MS, hosts=hosts, ahead_ns=ahead_ns) == {THERE: 0.0035, BACK: 0.0035}
    assert free(-3 * MS, 2 * MS, hosts=hosts, ahead_ns=ahead_ns) == {THERE: 0.0, BACK: 0.0}, "none is less than nothing"


@pytest.mark.parametrize(
    ("there_ns", "back_ns", "found_s"),
    [
        (-MS, 3 * MS, (0.0, 0.002)),
        (3 * MS, -MS, (0.002, 0.0)),
        (-MS, MS // 2, (0.0, 0.0)),
        (-MS - 1, 3 * MS + 1, (0.001, 0.001)),  # of two clocks
        (3 * MS + 1, -MS - 1, (0.001, 0.001)),
    ],
)
def test_a_result_before_it_was_made_by_more_than_a_millisecond_came_by_another_clock(
    there_ns: int, back_ns: int, found_s: tuple[float, float]
) -> None:
    """Up to that its time is misplaced: what one direction lacks, the other has too much."""
    assert free(there_ns, back_ns) == dict(zip((THERE, BACK), found_s, strict=True))


def test_a_direction_that_is_misplaced_takes_nothing_of_one_that_is_not_known() -> None:
    assert free(-MS // 2, 3 * MS, pause_ns=0) == {THERE: 0.0}


def test_links_are_of_one_clock_by_their_own_two_ranks() -> None:
    schedule = interleaved(pp=3, microbatches=6, chunks=2)
    there_ns, back_ns = {0: 2 * MS, 1: 3 * MS}, {0: 4 * MS, 1: 5 * MS}
    for hosts, direct in (("aab", {0}), ("abb", {1}), ("aba", set()), ("aaa", {0, 1})):
        times = played(schedule, there_ns, [0, 0, 0], back_ns=back_ns, hosts=hosts)
        found = slowest([transfers_of_runs(format_schedule(schedule), times)])
        for link in (0, 1):
            is_direct = found[link, SEND_FORWARD] == there_ns[link] / 1e9
            assert is_direct == (found[link + 1, SEND_BACKWARD] == back_ns[link] / 1e9) == (link in direct), hosts


def blocked(
    there_ms: float, back_ms: float, sender_ms: float, returner_ms: float, *, hosts: str = "aa", ahead_ns: int = 0
) -> TransferTimes:
    """What is found where ranks wait so long for results, and the senders pause so long behind the first of theirs."""
    t, s, p, q = (round(ms * MS) for ms in (there_ms, back_ms, sender_ms, returner_ms))
    back_at_ns = 30 * MS + t + s
    first = [
        lasting(0),
        lasting(10 * MS + p),
        lasting(back_at_ns),
        lasting(back_at_ns + 100 * MS),
    ]
    second = [lasting(10 * MS + t), lasting(20 * MS + t), lasting(30 * MS + t + q), lasting(40 * MS + t + q)]
    return slowest([transfers_of_runs(IN_TURNS, timed(first, second, hosts=hosts, ahead_ns=ahead_ns))])


@pytest.mark.parametrize(
    ("there_ms", "back_ms", "sender_ms", "returner_ms", "found_ms"),
    [
        (6, 2, 6, 2, (6, 2)),
        (6, 2, 5, 1, (5, 1)),
        (6, 2, 0, 0, (0, 0)),
        (6, 2, 7, 3, (6, 2)),
    ],
)
def test_a_transfer_that_blocks_takes_no_longer_than_its_sender_pauses(
    there_ms: float, back_ms: float, sender_ms: float, returner_ms: float, found_ms: tuple[float, float]
) -> None:
    found = blocked(there_ms, back_ms, sender_ms, returner_ms)
    assert found == {THERE: found_ms[0] / 1e3, BACK: found_ms[1] / 1e3}


@pytest.mark.parametrize(
    ("sender_ms", "returner_ms", "found_ms"),
    [
        (9, 9, (4, 4)),  # half of both, as long as nothing speaks against it
        (6, 2, (6, 2)),
        (2, 6, (2, 6)),
        (9, 2, (6, 2)),
        (2, 9, (2, 6)),
        (1, 5, (1, 5)),  # some of it was no transfer
        (0, 0, (0, 0)),
    ],
)
@pytest.mark.parametrize("ahead_ns", [0, -(10**15)])
def test_between_two_clocks_what_one_direction_cannot_have_taken_the_other_did(
    sender_ms: float, returner_ms: float, found_ms: tuple[float, float], ahead_ns: int
) -> None:
    """8 ms there and back."""
    found = blocked(5, 3, sender_ms, returner_ms, hosts="ab", ahead_ns=ahead_ns)
    assert found == {THERE: found_ms[0] / 1e3, BACK: found_ms[1] / 1e3}


@pytest.mark.parametrize(("ahead_ms", "told_ms"), [(0, 0), (3, 0), (5, 0), (-5, 0), (6, 6), (-6, -6), (10**9, 10**9)])
def test_a_clock_is_ahead_by_as_little_as_leaves_no_result_before_it_was_made(ahead_ms: int, told_ms: int) -> None:
    """Links take 5 ms."""
    schedule = one_f_one_b(pp=2, microbatches=3)
    times = played(schedule, {0: 5 * MS}, [7 * MS, (7 + ahead_ms) * MS])
    assert clocks_ahead_ns(format_schedule(schedule), times) == (0, told_ms * MS)


def test_a_clock_is_ahead_of_the_first_ones_along_the_pipeline() -> None:
    for schedule in (one_f_one_b(pp=4, microbatches=6), interleaved(pp=4, microbatches=8, chunks=2)):
        ahead_ns = [0, 10**12, -(10**13), 10**14]
        assert clocks_ahead_ns(format_schedule(schedule), played(schedule, {}, ahead_ns)) == tuple(ahead_ns)


def test_a_rank_alone_has_the_only_clock() -> None:
    alone = timed([(0, 5), (5, 9)])
    assert clocks_ahead_ns("0F0 0B0", alone) == (0,)
    assert transfers_of_runs("0F0 0B0", alone) == ()
    assert least_change_s("0F0 0B0", 1.0) == 0.003


def snapshot(*transfers_s: float) -> Snapshot:
    """Of one pipeline, whose links forward take so long."""
    return (tuple((stage, SEND_FORWARD, transfer_s) for stage, transfer_s in enumerate(transfers_s)),)


@pytest.mark.parametrize(
    ("now_s", "is_moved"),
    [
        ((0.5, 0.5), False),
        ((0.75, 0.5), False),
        ((0.7500001, 0.5), True),
        ((0.25, 0.5), False),
        ((0.2499999, 0.5), True),
        ((0.625, 0.625), False),  # together as much as is least
        ((0.625, 0.6250001), True),
        ((0.375, 0.375), False),
        ((0.375, 0.3749999), True),
        ((0.75, 0.25), False),  # what one gains the other loses
        ((0.5,), True),
        ((0.5, 0.5, 0.25), False),
        ((0.5, 0.5, 0.2500001), True),
    ],
)
def test_transfers_have_moved_by_more_than_the_least_one_alone_or_together(
    now_s: tuple[float, ...],
    is_moved: bool,  # noqa: FBT001
) -> None:
    before, now = snapshot(0.5, 0.5), snapshot(*now_s)
    assert have_moved(before, now, 0.25) == have_moved(now, before, 0.25) == is_moved
    assert is_new(now, [before], 0.25) == is_moved


def test_pipelines_without_transfers_have_not_moved() -> None:
    assert not have_moved(((),), ((), ()), 0.5)
    assert not have_moved(((),), ((),), -1.0), "not even by nothing"


@pytest.mark.parametrize(
    ("num_microbatches", "time_s", "least_s"),
    [(1, 2.0, 0.006), (2, 2.0, 0.005), (100, 2.0, 1e-4), (50, 2.0, 2e-4), (100, 0.02, 6e-5)],
)
def test_a_change_matters_by_its_share_of_the_iteration_and_its_microbatches(
    num_microbatches: int, time_s: float, least_s: float
) -> None:
    text = format_schedule(one_f_one_b(pp=2, microbatches=num_microbatches))
    assert least_change_s(text, time_s) == pytest.approx(least_s)
