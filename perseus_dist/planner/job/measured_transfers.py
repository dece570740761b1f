r"""How long transfers between pp_ranks take, from when computations began and ended on all ranks.

    stage s      |==F0==|              |==B0==|
                        \ tau + d      / tau - d           d: what the receiver's clock is ahead
    stage s+1           |==F0==|==B0==|

A computation that its input was late for begins as soon as that is there. Clocks of two hosts differ by what is added
to one direction and taken from the other: half of both together is the transfer. One that blocks its sender is no
longer than the sender's pauses: what receivers wait beyond that, such as for a busy host, is none. Where nothing ever
waited for a transfer it is not known, and need not be.

Where pp_ranks exchange in calls that hold them up, a computation may wait for what else its call waits for. There only
those count that would begin as their input is made if no transfer took time, by a replay of the iteration's durations.
Even they may wait for more where transfers are longer than computations. So a replay with what was found must last no
longer than the iteration did: all links are held to the longest transfer with which it does not. Links that are not
known take as long as the longest one, as far as the iteration's length leaves room for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planning.schedule.dag import build_dag, inputs_of
from perseus_dist.planning.schedule.instruction import (
    OVERLAPPED_FORWARD,
    SEND_BACKWARD,
    SEND_FORWARD,
    SENDS,
    Instruction,
    Kind,
)
from perseus_dist.planning.schedule.schedule import Schedule
from perseus_dist.planning.schedule.schedule_text import parse_schedule

Int64Array = NDArray[np.int64]

Transfers = tuple[tuple[int, str, float], ...]
"""Of a pipeline: sending stage, ``SEND_F`` or ``SEND_B``, [s]."""

TransferTimes = dict[tuple[int, str], float]
"""[s] by (sending stage, ``SEND_F`` or ``SEND_B``)."""

Snapshot = tuple[Transfers, ...]
"""(dp_size) of pipelines, in one iteration."""

_LEAST_WAIT_NS = 20_000  # between two computations, beyond what a host takes to launch the next

_MATTERING = 0.003  # of an iteration
_BLOCKING = 0.005  # of an iteration, that transfers of one link may block their senders for
_LEAST_S = 1e-4  # less is within what hosts take more or less

_SAME_LENGTH = 1e-4  # of an iteration, that a replay may last longer
_HALVINGS = 12
_MOST_REPLAYED = 16_384  # instructions and transfers

_MOST_NS = 600_000_000_000  # more is no transfer, but a clock that was set meanwhile
_NEVER_NS = 1 << 62
_COMPUTATIONS = frozenset(Kind)
_BACKWARDS = (Kind.BACKWARD, Kind.INPUT_GRADIENT)


class _Way(NamedTuple):
    """One direction of a link, by the places of computations in the order of all ranks, one after the other.

    Attributes:
        sent: (num_transfers) computations whose results are sent.
        received: (num_transfers) computations that begin with them.
    """

    sent: Int64Array
    received: Int64Array


class _Precedence(NamedTuple):
    """Precedence of a schedule's instructions where no transfer takes time, by their places.

    Attributes:
        before: What ends before each begins, each after all of its own.
        computations: (num_computations) places of the computations of all ranks, one after the other.
    """

    before: tuple[tuple[int, ...], ...]
    computations: Int64Array


class _Timed(NamedTuple):
    """Precedence of instructions and of transfers that take time, by their places, each after all that it waits for.

    Attributes:
        before: What ends before each begins.
        computations: As of ``_Precedence``.
        link: Sending stage of the forward direction of each transfer's link; -1 of an instruction.
    """

    before: tuple[tuple[int, ...], ...]
    computations: Int64Array
    link: tuple[int, ...]


class _Links(NamedTuple):
    """Links of a schedule.

    Attributes:
        num_computations: (num_ranks) of each.
        sends_block: As of ``Schedule``.
        rank_of_stage: pp_rank of each stage.
        ways: By sending stage; forward, and backward from the stage after it.
        has_own_transfers: The schedule names its transfers itself, or runs forwards and backwards as one.
        precedence: Where calls hold pp_ranks up.
    """

    num_computations: tuple[int, ...]
    sends_block: bool
    rank_of_stage: tuple[int, ...]
    ways: dict[int, tuple[_Way, _Way]]
    has_own_transfers: bool
    precedence: _Precedence | None


def num_computations(schedule_text: str, pp_rank: int) -> int:
    """Of one pp_rank in an iteration."""
    return _links(schedule_text).num_computations[pp_rank]


def transfers_of_runs(schedule_text: str, times: Sequence[RunTimes]) -> Transfers:
    """Transfers between the pp_ranks of one pipeline in one iteration.

    Args:
        schedule_text: The order of all ranks. One that names its transfers has them profiled like other constants.
        times: (pp_size) of its ranks.

    Returns:
        Of links that something waited for in both directions, where the answer makes sense; where calls hold pp_ranks
        up, also of links between the same two pp_ranks as one of these.
    """
    links = _links(schedule_text)
    if links.has_own_transfers:
        return ()
    begins_ns, ends_ns = _joined(times)
    pauses_ns = np.append(np.maximum(begins_ns[1:] - ends_ns[:-1], 0), _NEVER_NS)
    pauses_ns[np.cumsum(links.num_computations) - 1] = _NEVER_NS  # a rank's last one
    has_waited = np.append(True, pauses_ns[:-1] > _LEAST_WAIT_NS)
    counts = [has_waited[way.received] for way in _all_ways(links)]
    if links.precedence is None:
        found_ns = _found(links, begins_ns, ends_ns, counts)
    else:
        is_awaited = _awaited(links, links.precedence, ends_ns - begins_ns)
        counts = [counted & is_one for counted, is_one in zip(counts, is_awaited, strict=True)]
        found_ns = _with_links_alike(_found(links, begins_ns, ends_ns, counts), links)
        found_ns = _as_long_as_measured(found_ns, schedule_text, links, begins_ns, ends_ns)
    found: list[tuple[int, str, float]] = []
    for stage, both_ns in found_ns.items():
        there_ns, back_ns = both_ns / 2, both_ns / 2
        if links.sends_block:
            most_ns = (np.min(pauses_ns[way.sent], initial=_NEVER_NS).item() for way in links.ways[stage])
            there_ns, back_ns = _blocking(both_ns, *most_ns)
        found += [(stage, SEND_FORWARD, there_ns / 1e9), (stage + 1, SEND_BACKWARD, back_ns / 1e9)]
    return tuple(found)


def _found(
    links: _Links, begins_ns: Int64Array, ends_ns: Int64Array, counts: Sequence[NDArray[np.bool_]]
) -> dict[int, int]:
    """[ns] there and back together, by sending stage, of links that something waited for in both directions.

    Args:
        links: Of the schedule.
        begins_ns: (num_computations) [ns] of all ranks, one after the other.
        ends_ns: The same.
        counts: Of ``_all_ways``, (num_transfers) whether the receiver's begin tells how long each takes.
    """
    least_ns = [
        np.min(begins_ns[way.received] - ends_ns[way.sent], initial=_NEVER_NS, where=is_one).item()
        for way, is_one in zip(_all_ways(links), counts, strict=True)
    ]
    both_ns = {
        stage: max(0, there_ns + back_ns)
        for stage, there_ns, back_ns in zip(links.ways, least_ns[::2], least_ns[1::2], strict=True)
        if _NEVER_NS not in (there_ns, back_ns)
    }
    return {stage: ns for stage, ns in both_ns.items() if ns <= _MOST_NS}


def _all_ways(links: _Links) -> list[_Way]:
    """Of each link, there and back."""
    return [way for ways in links.ways.values() for way in ways]


def clocks_ahead_ns(schedule_text: str, times: Sequence[RunTimes]) -> tuple[int, ...]:
    """Time that each rank's clock is ahead of the first one's: as little as leaves no result before it was made.

    Args:
        schedule_text: The order of all ranks.
        times: (pp_size) of the ranks of one pipeline.

    Returns:
        (pp_size) [ns]; 0 where nothing speaks against it, as on one host.
    """
    links = _links(schedule_text)
    begins_ns, ends_ns = _joined(times)
    ahead_ns = {links.rank_of_stage[0]: 0} if links.rank_of_stage else {}
    for stage, (there, back) in sorted(links.ways.items()):
        sender, receiver = links.rank_of_stage[stage], links.rank_of_stage[stage + 1]
        if receiver in ahead_ns or sender not in ahead_ns or not (len(there.sent) and len(back.sent)):
            continue
        before_ns = ahead_ns[sender]
        there_ns = int(np.min(begins_ns[there.received] - ends_ns[there.sent])) + before_ns
        back_ns = int(np.min(begins_ns[back.received] - ends_ns[back.sent])) - before_ns
        ahead_ns[receiver] = 0 if min(there_ns, back_ns) >= 0 else (there_ns - back_ns) // 2
    return tuple(ahead_ns.get(rank, 0) for rank in range(len(times)))


def slowest(pipelines: Iterable[Transfers]) -> TransferTimes:
    """Those of the slowest pipeline on each link."""
    longest: TransferTimes = {}
    for stage, kind, transfer_s in chain.from_iterable(pipelines):
        longest[stage, kind] = max(transfer_s, longest.get((stage, kind), 0.0))
    return longest


def of_pipeline(snapshots: Iterable[Snapshot], dp_rank: int) -> tuple[Snapshot, ...]:
    """One pipeline's transfers alone, those that differ: with slower links elsewhere it would seem to take longer."""
    return tuple(dict.fromkeys(snapshot[dp_rank : dp_rank + 1] for snapshot in snapshots))


def least_change_s(schedule_text: str, time_s: float) -> float:
    """[s] by which transfers must change to matter to an iteration of ``time_s`` [s].

    Where senders are blocked, each microbatch's transfer may delay the iteration: not at full clocks, where a stage
    has time to spare, but under a plan that has given that time away.
    """
    links = _links(schedule_text)
    most = max((len(way.sent) for ways in links.ways.values() for way in ways), default=1)
    blocking_s = max(_BLOCKING * time_s / most, _LEAST_S) if links.sends_block else time_s
    return min(_MATTERING * time_s, blocking_s)


def have_moved(before: Snapshot, now: Snapshot, least_s: float) -> bool:
    """Whether pipelines' transfers have changed by more than this: one of them, or all together."""
    was_s, is_s = slowest(before), slowest(now)
    changes_s = [is_s.get(key, 0.0) - was_s.get(key, 0.0) for key in was_s.keys() | is_s.keys()]
    return abs(sum(changes_s)) > least_s or max(map(abs, changes_s), default=0.0) > least_s


def distinct(snapshots: Iterable[Snapshot], least_s: float) -> tuple[Snapshot, ...]:
    """Those that have moved by more than this from every one before them."""
    found: list[Snapshot] = []
    for snapshot in snapshots:
        if is_new(snapshot, found, least_s):
            found.append(snapshot)
    return tuple(found)


def is_new(snapshot: Snapshot, known: Iterable[Snapshot], least_s: float) -> bool:
    """Whether it has moved by more than this from all that are known."""
    return all(have_moved(one, snapshot, least_s) for one in known)


@lru_cache(maxsize=64)
def _links(schedule_text: str) -> _Links:
    schedule = parse_schedule(schedule_text)
    orders = [[one for one in order if one.kind in _COMPUTATIONS] for order in schedule.ranks]
    place = {one: at for at, one in enumerate(one for order in orders for one in order)}
    is_named = any(one.kind in SENDS or one.kind == OVERLAPPED_FORWARD for order in schedule.ranks for one in order)
    return _Links(
        num_computations=tuple(map(len, orders)),
        sends_block=schedule.sends_block,
        rank_of_stage=tuple(schedule.rank_of_stage),
        ways=_ways(schedule, place),
        has_own_transfers=is_named,
        precedence=_precedence(schedule, orders) if schedule.joint or schedule.exchange.holds_up else None,
    )


def _precedence(schedule: Schedule, orders: Sequence[Sequence[Instruction]]) -> _Precedence:
    before = {instruction: [*needed] for instruction, needed in inputs_of(schedule).items()}
    for order in schedule.ranks:
        for previous, instruction in pairwise(order):
            before[instruction].append(previous)
    place = {one: at for at, one in enumerate(TopologicalSorter(before).static_order())}
    return _Precedence(
        before=tuple(tuple(place[one] for one in before[instruction]) for instruction in place),
        computations=np.array([place[one] for order in orders for one in order], dtype=np.int64),
    )


@lru_cache(maxsize=8)
def _timed(schedule_text: str) -> _Timed | None:
    """None where the schedule is so large that replays would keep the planner from its other jobs."""
    schedule = parse_schedule(schedule_text)
    dag = build_dag(schedule, {(stage, kind) for stage in range(schedule.num_stages) for kind in SENDS})
    if len(dag.instructions) > _MOST_REPLAYED:
        return None
    needed: dict[int, list[int]] = {at: [] for at in range(len(dag.instructions))}
    for before, after in dag.edges.tolist():
        needed[after].append(before)
    place = {one: at for at, one in enumerate(TopologicalSorter(needed).static_order())}
    is_computation = [one.kind in _COMPUTATIONS for one in dag.instructions[: dag.num_scheduled]]
    return _Timed(
        before=tuple(tuple(place[before] for before in needed[one]) for one in place),
        computations=np.array([place[at] for at, is_one in enumerate(is_computation) if is_one], dtype=np.int64),
        link=tuple(_link_of(dag.instructions[one]) for one in place),
    )


def _link_of(one: Instruction) -> int:
    return {SEND_FORWARD: one.stage, SEND_BACKWARD: one.stage - 1}.get(one.kind, -1)


def _awaited(links: _Links, precedence: _Precedence, durations_ns: Int64Array) -> list[NDArray[np.bool_]]:
    """Of ``_all_ways``, (num_transfers) whether each result is the last that its receiver waits for.

    By a replay of the computations' durations, (num_computations) [ns], in which nothing else takes time.
    """
    lasts_ns = dict(zip(precedence.computations.tolist(), durations_ns.tolist(), strict=True))
    begins: list[int] = []
    ends: list[int] = []
    for at, before in enumerate(precedence.before):
        begins.append(max([ends[one] for one in before], default=0))
        ends.append(begins[at] + lasts_ns.get(at, 0))
    begins_ns, ends_ns = np.array(begins)[precedence.computations], np.array(ends)[precedence.computations]
    return [begins_ns[way.received] <= ends_ns[way.sent] for way in _all_ways(links)]


def _as_long_as_measured(
    found_ns: Mapping[int, int], schedule_text: str, links: _Links, begins_ns: Int64Array, ends_ns: Int64Array
) -> dict[int, int]:
    """Transfers there and back with which a replay lasts no longer than the iteration did, by sending stage.

    What was found is never less than a transfer takes, since receivers may wait for other things as well.
    """
    timed = _timed(schedule_text) if found_ns else None
    if timed is None:
        return dict(found_ns)
    last = links.num_computations[0] - 1  # on one rank, so that clocks of hosts do not matter
    measured_ns = ends_ns[last].item() - begins_ns[0].item()
    durations_ns = [0] * len(timed.before)
    for place, duration_ns in zip(timed.computations.tolist(), (ends_ns - begins_ns).tolist(), strict=True):
        durations_ns[place] = duration_ns
    first_at, last_at = timed.computations[0].item(), timed.computations[last].item()

    def is_as_long(both_ns: Mapping[int, int]) -> bool:
        ends: list[int] = []
        for before, duration_ns, link in zip(timed.before, durations_ns, timed.link, strict=True):
            takes_ns = duration_ns if link < 0 else both_ns.get(link, 0) // 2
            ends.append(max([ends[one] for one in before], default=0) + takes_ns)
        lasts_ns = ends[last_at] - ends[first_at] + durations_ns[first_at]
        return bool(lasts_ns <= (1 + _SAME_LENGTH) * measured_ns)

    most_ns = max(found_ns.values())
    is_kept = is_as_long(found_ns)

    def limited(limit_ns: int) -> dict[int, int]:
        known = found_ns if is_kept else {stage: min(both_ns, limit_ns) for stage, both_ns in found_ns.items()}
        return {stage: known.get(stage, limit_ns) for stage in links.ways}

    low_ns, high_ns = 0, most_ns + 1
    if is_as_long(limited(most_ns)):
        low_ns = most_ns
    while high_ns - low_ns > max(1, most_ns >> _HALVINGS):
        middle_ns = (low_ns + high_ns) // 2
        low_ns, high_ns = (middle_ns, high_ns) if is_as_long(limited(middle_ns)) else (low_ns, middle_ns)
    return limited(low_ns)


def _with_links_alike(found_ns: Mapping[int, int], links: _Links) -> dict[int, int]:
    """Transfers, and as long ones of links between the same two pp_ranks that nothing waited for."""
    pp_ranks = {stage: frozenset(links.rank_of_stage[stage : stage + 2]) for stage in links.ways}
    known_ns: dict[frozenset[int], int] = {}
    for stage, both_ns in found_ns.items():
        known_ns[pp_ranks[stage]] = min(both_ns, known_ns.get(pp_ranks[stage], both_ns))
    alike = {stage: known_ns[pp_ranks[stage]] for stage in links.ways if pp_ranks[stage] in known_ns}
    return {**alike, **found_ns}


def _joined(times: Sequence[RunTimes]) -> tuple[Int64Array, Int64Array]:
    """Begins and ends [ns] of all ranks, one after the other."""
    begins_ns = np.concatenate([np.array(one.begins_ns, dtype=np.int64) for one in times])
    return begins_ns, np.concatenate([np.array(one.ends_ns, dtype=np.int64) for one in times])


def _ways(schedule: Schedule, place: dict[Instruction, int]) -> dict[int, tuple[_Way, _Way]]:
    pairs: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # by the stages of both
    for sent, at in place.items():
        kinds, step = ((Kind.FORWARD,), 1) if sent.kind == Kind.FORWARD else (_BACKWARDS, -1)
        if sent.kind in kinds:
            received = (Instruction(sent.stage + step, kind, sent.microbatch) for kind in kinds)
            pairs[sent.stage, sent.stage + step] += [(at, place[one]) for one in received if one in place]

    def way(sender: int, receiver: int) -> _Way:
        places = np.array(pairs[sender, receiver], dtype=np.int64).reshape(-1, 2)
        return _Way(places[:, 0], places[:, 1])

    return {
        stage: (way(stage, stage + 1), way(stage + 1, stage))
        for stage, (sender, receiver) in enumerate(pairwise(schedule.rank_of_stage))
        if sender != receiver
    }


def _blocking(both_ns: int, most_there_ns: int, most_back_ns: int) -> tuple[float, float]:
    """[ns] there and back, of transfers that block their senders: half of both each, as far as neither is too long."""
    there_ns = max(0.0, min(max(both_ns / 2, both_ns - most_back_ns), most_there_ns))
    return there_ns, max(0.0, min(both_ns - there_ns, most_back_ns))
