"""Transfers from when computations began and ended: schedules played with invented durations, links and clocks."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.measured_transfers import (
    Transfers,
    distinct,
    have_moved,
    is_new,
    least_change_s,
    num_computations,
    of_pipeline,
    slowest,
    spreads_of_runs,
    transfers_of_runs,
    varying_s,
)
from perseus_dist.planning.frontier.replay import ends_of
from perseus_dist.planning.schedule.dag import build_dag, inputs_of
from perseus_dist.planning.schedule.instruction import SEND_BACKWARD, SEND_FORWARD, SENDS, Instruction, Kind
from perseus_dist.planning.schedule.results import transfers_of
from perseus_dist.planning.schedule.schedule import (
    Exchange,
    Schedule,
    format_schedule,
    gpipe,
    interleaved,
    joint_exchanges,
    one_f_one_b,
)

MS = 1_000_000
DURATION_NS = {Kind.FORWARD: 20 * MS, Kind.BACKWARD: 40 * MS}


def played(
    schedule: Schedule,
    links_ns: dict[int, int],
    ahead_ns: list[int],
    sends_ns: Mapping[int, int] = {},
    *,
    back_ns: Mapping[int, int] | None = None,
    hosts: str = "",
    blocks: bool = True,
) -> list[RunTimes]:
    """One pipeline: links by the stage before them; clocks ahead by pp_rank.

    Links are as slow in both directions, or backwards as ``back_ns`` says. Ranks of ``sends_ns`` send to both sides as
    slowly. Senders go on when their result has been sent, where that blocks, or at once. Each pp_rank's host has a
    letter, or none is known.
    """
    last_stage = schedule.num_stages - 1

    def link_of(sender: int, receiver: int) -> int:
        return (links_ns if back_ns is None or sender < receiver else back_ns).get(min(sender, receiver), 0)

    inputs = inputs_of(schedule)
    rank_of_stage = schedule.rank_of_stage
    end_ns: dict[Instruction, int] = {}
    begin_ns: dict[Instruction, int] = {}
    rank_free_ns = [0] * schedule.num_ranks
    left = [list(order) for order in schedule.ranks]
    while any(left):
        for pp_rank, order in enumerate(left):
            while order and all(needed in end_ns for needed in inputs[order[0]]):
                instruction = order.pop(0)
                arrived = [rank_free_ns[pp_rank]]
                for needed in inputs[instruction]:
                    is_sent = rank_of_stage[needed.stage] != pp_rank
                    link = link_of(needed.stage, instruction.stage) if is_sent else 0
                    link += sends_ns.get(rank_of_stage[needed.stage], 0) if is_sent else 0
                    arrived.append(end_ns[needed] + link)
                begin_ns[instruction] = max(arrived)
                end_ns[instruction] = begin_ns[instruction] + DURATION_NS[Kind(instruction.kind)]
                rank_free_ns[pp_rank] = end_ns[instruction]
                step = 1 if instruction.kind == Kind.FORWARD else -1
                if schedule.sends_block and blocks and 0 <= instruction.stage + step <= last_stage:
                    link = link_of(instruction.stage, instruction.stage + step)
                    rank_free_ns[pp_rank] += link + sends_ns.get(pp_rank, 0)
    return [
        RunTimes(
            iteration=4,
            begins_ns=tuple(begin_ns[one] + ahead_ns[pp_rank] for one in order),
            ends_ns=tuple(end_ns[one] + ahead_ns[pp_rank] for one in order),
            host_clock=hosts[pp_rank : pp_rank + 1],
        )
        for pp_rank, order in enumerate(schedule.ranks)
    ]


SCHEDULES = {
    "1f1b": one_f_one_b(pp=4, microbatches=8),
    "gpipe": gpipe(pp=4, microbatches=8),
    "interleaved": interleaved(pp=4, microbatches=8, chunks=2),
}
# No longer than computations: the oracles have longer ones, in which both sides wait for each other.
MILLISECONDS = st.lists(st.integers(0, 20), min_size=8, max_size=8)


@pytest.mark.parametrize("name", SCHEDULES)
@given(
    links_ms=MILLISECONDS,
    ahead_ms=st.lists(st.integers(0, 10**9), min_size=4, max_size=4),
)
def test_links_are_found_whatever_the_hosts_clocks_say(name: str, links_ms: list[int], ahead_ms: list[int]) -> None:
    schedule = SCHEDULES[name]
    links_ns = {stage: ms * MS for stage, ms in enumerate(links_ms[: schedule.num_stages - 1])}
    times = played(schedule, links_ns, [ms * MS for ms in ahead_ms])
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    assert found
    for (stage, kind), transfer_s in found.items():
        link = stage if kind == SEND_FORWARD else stage - 1
        assert transfer_s == pytest.approx(links_ns[link] / 1e9, abs=1e-9)


@pytest.mark.parametrize("name", SCHEDULES)
@given(there_ms=MILLISECONDS, back_ms=MILLISECONDS, other_host_ms=st.integers(-(10**9), 10**9))
def test_ranks_of_one_host_measure_each_direction_by_itself(
    name: str, there_ms: list[int], back_ms: list[int], other_host_ms: int
) -> None:
    """Half of there and back took 15 ms for 30 ms one way, and for nothing the other."""
    schedule = SCHEDULES[name]
    there_ns, back_ns = ({stage: ms * MS for stage, ms in enumerate(of_links)} for of_links in (there_ms, back_ms))
    ahead_ns = [0, 0, other_host_ms * MS, other_host_ms * MS]
    times = played(schedule, there_ns, ahead_ns, back_ns=back_ns, hosts="aabb")
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    apart = slowest([transfers_of_runs(format_schedule(schedule), [replace(one, host_clock="") for one in times])])
    rank_of_stage = schedule.rank_of_stage
    num_direct = 0
    for (stage, kind), transfer_s in found.items():
        sender, receiver = (stage, stage + 1) if kind == SEND_FORWARD else (stage, stage - 1)
        if {rank_of_stage[sender] // 2, rank_of_stage[receiver] // 2} == {0, 1}:
            assert transfer_s == apart[stage, kind]
        else:
            of_way = there_ns if kind == SEND_FORWARD else back_ns
            assert transfer_s == pytest.approx(of_way[min(sender, receiver)] / 1e9, abs=1e-9)
            num_direct += 1
    assert num_direct
    assert apart.keys() <= found.keys()


@given(ahead_ms=st.lists(st.integers(-(10**6), 10**6), min_size=4, max_size=4), back_ms=MILLISECONDS)
def test_clocks_of_one_name_that_are_two_change_no_link_as_a_whole(ahead_ms: list[int], back_ms: list[int]) -> None:
    """As of machines that are copies of one. What one direction seems to gain, the other loses."""
    schedule = SCHEDULES["interleaved"]
    back_ns = {stage: ms * MS for stage, ms in enumerate(back_ms)}
    times = played(schedule, {}, [ms * MS for ms in ahead_ms], back_ns=back_ns, hosts="aaaa")
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    unknown = slowest([transfers_of_runs(format_schedule(schedule), [replace(one, host_clock="") for one in times])])
    for stage in range(schedule.num_stages - 1):
        keys = ((stage, SEND_FORWARD), (stage + 1, SEND_BACKWARD))
        if all(key in unknown for key in keys):
            both_s = sum(unknown[key] for key in keys)
            assert sum(found[key] for key in keys) == pytest.approx(both_s, abs=1e-9)


def test_device_times_that_are_misplaced_by_less_than_a_transfer_add_nothing() -> None:
    schedule = SCHEDULES["interleaved"]
    text = format_schedule(schedule)
    times = played(schedule, {}, [0, -MS // 2, 0, 0], back_ns=dict.fromkeys(range(7), 3 * MS), hosts="aaaa")
    found = slowest([transfers_of_runs(text, times)])
    assert found[0, SEND_FORWARD] == 0
    assert found[1, SEND_BACKWARD] == pytest.approx(0.003)


@given(blocked_rank=st.integers(0, 3), transfer_ms=st.integers(1, 20), ahead_ms=st.integers(0, 10**9))
def test_a_sender_that_a_transfer_blocks_says_which_way_is_slow(
    blocked_rank: int, transfer_ms: int, ahead_ms: int
) -> None:
    schedule = SCHEDULES["1f1b"]
    times = played(schedule, {}, [0, ahead_ms * MS, 0, 7], sends_ns={blocked_rank: transfer_ms * MS})
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    slow = {key for key, transfer_s in found.items() if transfer_s > 0.05e-3}
    assert slow == {(blocked_rank, SEND_FORWARD), (blocked_rank, SEND_BACKWARD)} & found.keys()
    assert all(found[key] == pytest.approx(transfer_ms / 1e3) for key in slow)


def test_all_links_of_a_usual_schedule_are_known() -> None:
    schedule = SCHEDULES["1f1b"]
    found = slowest([transfers_of_runs(format_schedule(schedule), played(schedule, {1: 5 * MS}, [0, 0, 0, 0]))])
    assert found.keys() == {(0, SEND_FORWARD), (1, SEND_FORWARD), (2, SEND_FORWARD)} | {
        (1, SEND_BACKWARD),
        (2, SEND_BACKWARD),
        (3, SEND_BACKWARD),
    }
    assert found[1, SEND_FORWARD] == found[2, SEND_BACKWARD] == 0.005


def test_stages_of_one_rank_hand_over_without_a_transfer() -> None:
    schedule = interleaved(pp=2, microbatches=4, chunks=2)
    found = transfers_of_runs(format_schedule(schedule), played(schedule, {0: 5 * MS, 1: 7 * MS, 2: 9 * MS}, [0, 50]))
    assert {stage for stage, *_ in found} <= {0, 1, 2, 3}


def test_the_number_of_computations_leaves_constants_out() -> None:
    assert num_computations("0F0 0F1 0B0 0B1 0OPTIMIZER\n", 0) == 4


@pytest.mark.parametrize(
    ("now", "is_moved"),
    [
        ((), False),
        (((0, "SEND_F", 0.002),), False),
        (((0, "SEND_F", 0.004),), True),
        (((0, "SEND_F", 0.002), (1, "SEND_F", 0.002)), True),
    ],
)
def test_what_may_matter_has_moved(now: Transfers, is_moved: bool) -> None:  # noqa: FBT001
    assert have_moved((), (now,), 0.003) is is_moved
    assert have_moved((now,), ((),), 0.003) is is_moved
    assert not have_moved((now, ()), ((), now), 0.003)


def test_snapshots_that_differ_by_what_matters_are_distinct() -> None:
    well, slow, slower = (((0, "SEND_F", ms / 1e3),) for ms in (0, 5, 9))
    about = ((0, "SEND_F", 0.006),)
    assert distinct([(slow,), (about,), (well,), (slow,), (slower,)], 0.003) == ((slow,), (well,), (slower,))
    assert is_new((slow,), [], 0.003)
    assert not is_new((about,), [(well,), (slow,)], 0.003)


def test_times_that_make_no_sense_make_no_transfers_that_make_none() -> None:
    schedule = SCHEDULES["1f1b"]
    times = played(schedule, {}, [0, 0, 0, 0])
    for rank, one in enumerate(times):
        times[rank] = replace(one, begins_ns=tuple(ns - 10**15 * place for place, ns in enumerate(one.begins_ns)))
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    assert all(0 <= transfer_s <= 600 for transfer_s in found.values())


def test_waits_of_receivers_whose_senders_went_on_at_once_are_no_transfers_that_block() -> None:
    schedule = SCHEDULES["1f1b"]
    times = played(schedule, dict.fromkeys(range(3), 10 * MS), [0, 0, 0, 0], blocks=False)
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    assert found[0, SEND_FORWARD] == 0  # rank 0 begins with forwards that wait for nothing
    assert all(transfer_s <= 0.01 for transfer_s in found.values())


@pytest.mark.parametrize("schedule", [SCHEDULES["1f1b"], SCHEDULES["gpipe"]])
def test_sends_that_are_waited_for_later_are_transfers_all_the_same(schedule: Schedule) -> None:
    """Those of rank 0's warm-up were none, since it makes no pause behind its forwards."""
    deferred = replace(schedule, exchange=Exchange.DEFERRED)
    dag = build_dag(deferred, {transfer[:2] for transfer in transfers_of(deferred, None).values()})
    before: dict[int, list[int]] = {at: [] for at in range(len(dag.instructions))}
    for one, after in dag.edges.tolist():
        before[after].append(one)
    end_ns: dict[int, int] = {}
    begin_ns: dict[int, int] = {}
    for at in TopologicalSorter(before).static_order():
        begin_ns[at] = max([end_ns[one] for one in before[at]], default=0)
        kind = dag.instructions[at].kind
        end_ns[at] = begin_ns[at] + (DURATION_NS[Kind(kind)] if kind in set(Kind) else 10 * MS)
    place = {one: at for at, one in enumerate(dag.instructions)}
    times = [
        RunTimes(
            iteration=4,
            begins_ns=tuple(begin_ns[place[one]] for one in order),
            ends_ns=tuple(end_ns[place[one]] for one in order),
        )
        for order in deferred.ranks
    ]
    found = slowest([transfers_of_runs(format_schedule(deferred), times)])
    assert set(found) == {transfer[:2] for transfer in transfers_of(deferred, None).values()}
    assert set(found.values()) == {0.01}


@pytest.mark.parametrize(("num_microbatches", "least_s"), [(1, 0.003), (2, 0.0025), (20, 0.00025), (100, 0.0001)])
def test_transfers_that_block_their_senders_matter_by_their_number(num_microbatches: int, least_s: float) -> None:
    """Twenty of 1 ms each were hidden at full clocks, and made a plan 1.7 % late that had given the time away."""
    text = format_schedule(one_f_one_b(pp=2, microbatches=num_microbatches))
    assert least_change_s(text, 1.0) == pytest.approx(least_s)


def test_transfers_add_up_wherever_calls_hold_pp_ranks_up() -> None:
    """Under plans without them, those of one link made joint and overlapped exchanges 2 % late with 6 ms."""
    plain = interleaved(pp=2, microbatches=10, chunks=2)
    assert least_change_s(format_schedule(plain), 1.0) == pytest.approx(0.003)
    for schedule in (joint_exchanges(plain), replace(plain, exchange=Exchange.OVERLAPPED)):
        assert least_change_s(format_schedule(schedule), 1.0) == pytest.approx(0.0005)


@pytest.mark.parametrize(
    "schedule",
    [
        one_f_one_b(pp=64, microbatches=66),
        joint_exchanges(interleaved(pp=16, microbatches=160, chunks=2)),
        pytest.param(
            replace(interleaved(pp=16, microbatches=160, chunks=2), exchange=Exchange.OVERLAPPED),
            marks=pytest.mark.stress,
        ),
    ],
    ids=["1f1b", "joint", "overlapped"],
)
@pytest.mark.parametrize("transfer_ms", [5, pytest.param(200, marks=pytest.mark.stress)])
def test_transfers_of_a_large_schedule_are_held_to_the_length_of_its_iteration(
    schedule: Schedule, transfer_ms: int
) -> None:
    """Above 16,384 instructions and transfers, receivers that waited for more made transfers too long."""
    times, lasts_s = played_by_the_dag(schedule, lambda _: transfer_ms * MS)
    found = slowest([transfers_of_runs(format_schedule(schedule), times)])
    _, found_lasts_s = played_by_the_dag(schedule, lambda one: round(1e9 * found[one[:2]]))
    assert found_lasts_s == pytest.approx(lasts_s, rel=2e-4)
    assert list(found.values()) == pytest.approx([transfer_ms / 1e3] * len(found), rel=0.01)


def played_by_the_dag(
    schedule: Schedule, transfer_ns: Callable[[Instruction], int], ahead_ns: int = 0
) -> tuple[list[RunTimes], float]:
    """One pipeline's times, each host's clock ahead of the last one's, and how long its iteration takes [s].

    Every second microbatch takes twice as long.
    """
    dag = build_dag(schedule, {(stage, kind) for stage in range(schedule.num_stages) for kind in SENDS})

    def duration_ns(one: Instruction) -> int:
        return transfer_ns(one) if one.kind in SENDS else DURATION_NS[Kind(one.kind)] * (1 + one.microbatch % 2)

    durations_ns = np.array([duration_ns(one) for one in dag.instructions], dtype=np.int64)
    ends_ns = ends_of(durations_ns, dag.edges[:, 0].copy(), dag.edges[:, 1].copy())
    begins_ns = ends_ns - durations_ns
    parts = np.cumsum([len(order) for order in schedule.ranks])
    of_ranks = zip(np.split(begins_ns, parts), np.split(ends_ns, parts)[:-1], strict=False)
    times = [
        RunTimes(
            iteration=4,
            begins_ns=tuple((begin_ns + pp_rank * ahead_ns).tolist()),
            ends_ns=tuple((end_ns + pp_rank * ahead_ns).tolist()),
        )
        for pp_rank, (begin_ns, end_ns) in enumerate(of_ranks)
    ]
    return times, float(ends_ns.max()) / 1e9


SPREADING = {
    "1f1b": one_f_one_b(pp=4, microbatches=64),
    "gpipe": gpipe(pp=4, microbatches=64),
    "interleaved": interleaved(pp=4, microbatches=64, chunks=2),
    "deferred": replace(one_f_one_b(pp=4, microbatches=64), exchange=Exchange.DEFERRED),
    "posted": replace(interleaved(pp=4, microbatches=64, chunks=2), exchange=Exchange.POSTED),
}


@pytest.mark.parametrize("name", SPREADING)
@pytest.mark.parametrize("mean_ms", [1, 5])
def test_spreads_of_transfers_are_those_that_they_were_drawn_with(name: str, mean_ms: int) -> None:
    """Exponential above 2 ms: the 90th percentile is 2.3 means. Hosts' clocks are a second apart.

    Where nothing blocks, those that come early are not waited for, and the others seem to spread more.
    """
    schedule, random = SPREADING[name], Random(7)
    found_s: list[float] = []
    text = format_schedule(schedule)
    for _ in range(6):
        times, _ = played_by_the_dag(
            schedule, lambda _: 2 * MS + round(random.expovariate(1 / (mean_ms * MS))), ahead_ns=10**9
        )
        spreads = slowest([spreads_of_runs(text, times, transfers_of_runs(text, times))])
        assert spreads
        found_s += spreads.values()
    ratio = np.median(found_s) / (2.303e-3 * mean_ms)
    assert 0.85 < ratio < (1.25 if schedule.sends_block else 1.4)


@pytest.mark.parametrize("name", SPREADING)
def test_transfers_that_all_take_as_long_have_no_spread(name: str) -> None:
    """Whatever their receivers waited for beside them: microbatches differ."""
    schedule = SPREADING[name]
    text = format_schedule(schedule)
    for transfer_ms in (2, 30):
        times, _ = played_by_the_dag(schedule, lambda _: transfer_ms * MS, ahead_ns=-(10**9))  # noqa: B023 - at once
        assert spreads_of_runs(text, times, transfers_of_runs(text, times)) == ()


def test_spreads_are_known_of_five_transfers_or_more() -> None:
    for num_microbatches, is_known in ((4, False), (16, True)):
        schedule, random = one_f_one_b(pp=2, microbatches=num_microbatches), Random(3)
        text = format_schedule(schedule)
        times, _ = played_by_the_dag(schedule, lambda _: 2 * MS + random.randint(0, 5 * MS))  # noqa: B023 - at once
        assert bool(spreads_of_runs(text, times, transfers_of_runs(text, times))) == is_known


@given(
    durations=st.lists(st.integers(0, 100), min_size=1, max_size=12),
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
)
def test_ends_are_those_of_the_longest_paths(durations: list[int], pairs: list[tuple[int, int]]) -> None:
    edges = [pair for pair in pairs if pair[0] < pair[1] < len(durations)]
    ends: list[int] = []
    for at, duration in enumerate(durations):
        ends.append(duration + max((ends[before] for before, after in edges if after == at), default=0))
    edge_from, edge_to = (np.array([edge[side] for edge in edges], dtype=np.int32) for side in (0, 1))
    assert ends_of(np.array(durations, dtype=np.int64), edge_from, edge_to).tolist() == ends


def test_a_pipeline_has_its_own_transfers_alone() -> None:
    slow: Transfers = ((0, "SEND_F", 0.005),)
    assert of_pipeline([(slow, ()), ((), slow), (slow, slow), ()], 0) == ((slow,), ((),), ())
    assert of_pipeline([(slow, ())], 1) == (((),),)


@pytest.mark.parametrize("name", SCHEDULES)
def test_transfers_that_are_slower_in_some_microbatches_are_told_in_time(name: str) -> None:
    """Nothing but transfers varies: what iterations take longer than with the least is theirs, for the most part."""
    schedule, random = SCHEDULES[name], Random(5)
    text = format_schedule(schedule)
    timed = {transfer[:2] for transfer in transfers_of(schedule, None).values()}
    dag = build_dag(schedule, timed)

    def played_with(varying_ns: int) -> tuple[list[RunTimes], int]:
        end_ns: dict[int, int] = {}
        before: dict[int, list[int]] = {at: [] for at in range(len(dag.instructions))}
        for one, after in dag.edges.tolist():
            before[after].append(one)
        begin_ns = {}
        for at in TopologicalSorter(before).static_order():
            begin_ns[at] = max((end_ns[one] for one in before[at]), default=0)
            is_transfer = at >= dag.num_scheduled
            varied_ns = 15 * MS + random.randint(0, varying_ns)
            end_ns[at] = begin_ns[at] + (varied_ns if is_transfer else DURATION_NS[Kind(dag.instructions[at].kind)])
        place = {one: at for at, one in enumerate(dag.instructions)}
        times = [
            RunTimes(
                iteration=4,
                begins_ns=tuple(begin_ns[place[one]] for one in order),
                ends_ns=tuple(end_ns[place[one]] for one in order),
                host_clock="a",
            )
            for order in schedule.ranks
        ]
        return times, times[0].ends_ns[-1] - times[0].begins_ns[0]

    steady, lasts_ns = played_with(0)
    found = transfers_of_runs(text, steady)
    assert [transfer_s for _, _, transfer_s in found] == pytest.approx([0.015] * len(found))
    assert varying_s(text, steady, found) == pytest.approx(0.0, abs=1e-9)
    varied, longer_ns = played_with(10 * MS)
    longer_s = (longer_ns - lasts_ns) / 1e9
    assert longer_s > 0.02
    assert 0.4 * longer_s < varying_s(text, varied, transfers_of_runs(text, varied)) <= longer_s
