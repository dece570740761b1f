r"""How long transfers between pp_ranks take, from when computations began and ended on all ranks.

    stage s      |==F0==|              |==B0==|
                        \ tau + d      / tau - d           d: what the receiver's clock is ahead
    stage s+1           |==F0==|==B0==|

A computation that its input was late for begins as soon as that is there. Ranks that read one clock (d = 0), as on one
host, measure each direction by itself. Clocks of two hosts differ by what is added to one direction and taken from the
other: half of both together is the transfer. One that blocks its sender is no longer than the sender's pauses: what
receivers wait beyond that, such as for a busy host, is none. Where nothing ever waited for a transfer it is not known,
and need not be.

Where pp_ranks exchange in calls that hold them up, a computation may wait for what else its call waits for. There only
those count that would begin as their input is made if no transfer took time, by a replay of the iteration's durations.
Even they may wait for more where transfers are longer than computations. So a replay with what was found must last no
longer than the iteration did: all links are held to the longest transfer with which it does not. Links that are not
known take as long as others between the same two pp_ranks or as the longest one, as far as the iteration's length
leaves room for it, and longer where it leaves much.
"""

import math
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from perseus_dist.messages.from_agent import RunTimes
from perseus_dist.planner.job.schedule_links import (
    Int64Array,
    Links,
    Precedence,
    Replay,
    links_of,
    way_back,
    way_there,
    with_transfers,
)

Transfers = tuple[tuple[int, str, float], ...]
"""Of a pipeline: sending stage, ``SEND_F`` or ``SEND_B``, [s]."""

TransferTimes = dict[tuple[int, str], float]
"""[s] by (sending stage, ``SEND_F`` or ``SEND_B``)."""

Snapshot = tuple[Transfers, ...]
"""(dp_size) of pipelines, in one iteration."""

_TransfersNs = dict[tuple[int, str], float]
"""[ns] by (sending stage, kind)."""

_LEAST_WAIT_NS = 20_000  # between two computations, beyond what a host takes to launch the next

_MATTERING = 0.003  # of an iteration
_BLOCKING = 0.005  # of an iteration, that transfers of one link may block their senders for
_LEAST_S = 1e-4  # less is within what hosts take more or less

_SAME_LENGTH = 1e-4  # of an iteration, that a replay may last longer
_UNEXPLAINED = 0.05  # of an iteration, by which a replay may last shorter: hosts take time between instructions
_HALVINGS = 12
_LEAST_STEP_NS = 1_000

_FEWEST_SPREAD = 5  # transfers of a link that show how they spread
_MEANS_TO_P90 = math.log(10)  # of an exponential distribution

_MOST_NS = 600_000_000_000  # more is no transfer, but a clock that was set meanwhile
_SAME_CLOCK_NS = 1_000_000  # that device times may be misplaced by; a result that is earlier came by another clock
_NEVER_NS = 1 << 62


def num_computations(schedule_text: str, pp_rank: int) -> int:
    """Of one pp_rank in an iteration."""
    return links_of(schedule_text).num_computations[pp_rank]


def transfers_of_runs(schedule_text: str, times: Sequence[RunTimes]) -> Transfers:
    """Transfers between the pp_ranks of one pipeline in one iteration.

    Args:
        schedule_text: The order of all ranks. One that names its transfers has them profiled like other constants.
        times: (pp_size) of its ranks.

    Returns:
        Of directions that something waited for, and between two clocks of links where that is so of both, where the
        answer makes sense; where calls hold pp_ranks up, also of all other links.
    """
    links = links_of(schedule_text)
    if links.has_own_transfers:
        return ()
    begins_ns, ends_ns = _joined(times)
    pauses_ns = _pauses_ns(links, begins_ns, ends_ns)
    counts = _counts(links, begins_ns, ends_ns)
    of_one_clock = _of_one_clock(links, times, begins_ns, ends_ns)
    found_ns = _found(links, begins_ns, ends_ns, counts, of_one_clock)
    if links.precedence is not None:
        found_ns = _as_long_as_measured(found_ns, schedule_text, links, begins_ns, ends_ns)
    if links.sends_block:
        found_ns = _no_longer_than_pauses(found_ns, links, pauses_ns, of_one_clock)
        if max(found_ns.values(), default=0) > np.min(ends_ns - begins_ns):
            found_ns = _as_long_as_measured(found_ns, schedule_text, links, begins_ns, ends_ns)
    return tuple((stage, kind, ns / 1e9) for (stage, kind), ns in found_ns.items())


def varying_s(schedule_text: str, times: Sequence[RunTimes], transfers: Transfers) -> float:
    """[s] that an iteration takes for transfers that are slower in some microbatches than in others.

    By how much a replay of its durations lasts longer with each link's median than with its least, and no longer than
    the iteration did.

    Args:
        schedule_text: As of ``transfers_of_runs``.
        times: The same.
        transfers: What that has found.
    """
    links = links_of(schedule_text)
    if not transfers:
        return 0.0
    begins_ns, ends_ns = _joined(times)
    least_ns = {(stage, kind): 1e9 * transfer_s for stage, kind, transfer_s in transfers}
    excesses_ns = _excesses_ns(links, begins_ns, ends_ns, least_ns)
    more_ns = {key: float(np.median(excess_ns)) for key, excess_ns in excesses_ns.items()}
    if max(more_ns.values(), default=0.0) < 1e9 * _LEAST_S:
        return 0.0
    replay = Replay(with_transfers(schedule_text), links.num_computations[0], begins_ns, ends_ns)
    usual_ns = {key: ns + more_ns.get(key, 0.0) for key, ns in least_ns.items()}
    lasts_ns = min(replay.lasts_ns(usual_ns), replay.measured_ns)
    return max(0.0, lasts_ns - replay.lasts_ns(least_ns)) / 1e9


def spreads_of_runs(schedule_text: str, times: Sequence[RunTimes], transfers: Transfers) -> Transfers:
    """How much longer than the least nine in ten transfers of an iteration take at most, of each link.

    What receivers waited for beside their transfers is no spread. So all are held to the longest with which a replay
    lasts no longer than the iteration did, each transfer with the mean of an exponential distribution on top.

    Args:
        schedule_text: As of ``transfers_of_runs``.
        times: The same.
        transfers: What that has found.

    Returns:
        Of links that are known, where 5 receivers or more waited; those from 0.1 ms.
    """
    links = links_of(schedule_text)
    begins_ns, ends_ns = _joined(times)
    least_ns = {(stage, kind): 1e9 * transfer_s for stage, kind, transfer_s in transfers}
    p90_ns = {
        key: float(np.quantile(excess_ns, 0.9))
        for key, excess_ns in _excesses_ns(links, begins_ns, ends_ns, least_ns).items()
        if len(excess_ns) >= _FEWEST_SPREAD
    }
    if max(p90_ns.values(), default=0.0) < 1e9 * _LEAST_S:
        return ()
    replay = Replay(with_transfers(schedule_text), links.num_computations[0], begins_ns, ends_ns)

    def fits(most_ns: float) -> bool:
        mean_ns = {key: ns + min(p90_ns.get(key, 0.0), most_ns) / _MEANS_TO_P90 for key, ns in least_ns.items()}
        return replay.lasts_ns(mean_ns) <= (1 + _SAME_LENGTH) * replay.measured_ns

    low_ns = high_ns = max(p90_ns.values())
    if not fits(high_ns):
        low_ns = 0.0
        for _ in range(_HALVINGS):
            middle_ns = (low_ns + high_ns) / 2
            low_ns, high_ns = (middle_ns, high_ns) if fits(middle_ns) else (low_ns, middle_ns)
    spreads_s = ((stage, kind, min(ns, low_ns) / 1e9) for (stage, kind), ns in p90_ns.items())
    return tuple(spread for spread in spreads_s if _LEAST_S <= spread[2] <= _MOST_NS / 1e9)


def _excesses_ns(
    links: Links, begins_ns: Int64Array, ends_ns: Int64Array, least_ns: _TransfersNs
) -> dict[tuple[int, str], Int64Array]:
    """[ns] by which each transfer that a receiver waited for took longer than its link's least, which is known.

    One that blocks its sender took no longer than the pauses of both.
    """
    pauses_ns = _pauses_ns(links, begins_ns, ends_ns)
    found: dict[tuple[int, str], Int64Array] = {}
    for key, way, counted in zip(links.all_keys, links.all_ways, _counts(links, begins_ns, ends_ns), strict=True):
        if key not in least_ns or not counted.any():
            continue
        waits_ns = (begins_ns[way.received] - ends_ns[way.sent])[counted]
        excess_ns = waits_ns - waits_ns.min()
        if links.sends_block:
            most_ns = np.minimum(pauses_ns[way.sent], pauses_ns[way.received - 1])[counted] - round(least_ns[key])
            excess_ns = np.clip(excess_ns, 0, np.maximum(most_ns, 0))
        found[key] = excess_ns
    return found


def _pauses_ns(links: Links, begins_ns: Int64Array, ends_ns: Int64Array) -> Int64Array:
    """[ns] behind each computation; ``_NEVER_NS`` behind a rank's last one."""
    pauses_ns = np.append(np.maximum(begins_ns[1:] - ends_ns[:-1], 0), _NEVER_NS)
    pauses_ns[np.cumsum(links.num_computations) - 1] = _NEVER_NS
    return pauses_ns


def _counts(links: Links, begins_ns: Int64Array, ends_ns: Int64Array) -> list[NDArray[np.bool_]]:
    """Of ``Links.all_ways``, (num_transfers) whether the receiver's begin tells how long each takes."""
    has_waited = np.append(True, _pauses_ns(links, begins_ns, ends_ns)[:-1] > _LEAST_WAIT_NS)
    counts = [has_waited[way.received] for way in links.all_ways]
    if links.precedence is None:
        return counts
    is_awaited = _awaited(links, links.precedence, ends_ns - begins_ns)
    return [counted & is_one for counted, is_one in zip(counts, is_awaited, strict=True)]


def _found(
    links: Links,
    begins_ns: Int64Array,
    ends_ns: Int64Array,
    counts: Sequence[NDArray[np.bool_]],
    of_one_clock: Container[int],
) -> _TransfersNs:
    """Transfers that something waited for; between two clocks, half of there and back.

    Args:
        links: Of the schedule.
        begins_ns: (num_computations) [ns] of all ranks, one after the other.
        ends_ns: The same.
        counts: Of ``Links.all_ways``, (num_transfers) whether the receiver's begin tells how long each takes.
        of_one_clock: As of ``_of_one_clock``.
    """
    least_ns = [
        np.min(begins_ns[way.received] - ends_ns[way.sent], initial=_NEVER_NS, where=is_one).item()
        for way, is_one in zip(links.all_ways, counts, strict=True)
    ]
    found_ns: _TransfersNs = {}
    for stage, *of_stage_ns in zip(links.ways, least_ns[::2], least_ns[1::2], strict=True):
        there_ns, back_ns = _of_link(*of_stage_ns, is_of_one_clock=stage in of_one_clock)
        found_ns |= {way_there(stage): there_ns, way_back(stage): back_ns}
    return {key: ns for key, ns in found_ns.items() if ns <= _MOST_NS}


def _of_link(there_ns: int, back_ns: int, *, is_of_one_clock: bool) -> tuple[float, float]:
    """[ns] there and back, of the least time from an end to the begin that waited for it; ``_NEVER_NS`` for none."""
    is_whole = _NEVER_NS not in (there_ns, back_ns)
    if not is_of_one_clock:
        half_ns = max(0, there_ns + back_ns) / 2 if is_whole else _NEVER_NS
        return half_ns, half_ns
    # Device times that are misplaced add to one direction what they take from the other.
    misplaced_ns = max(0, -there_ns) - max(0, -back_ns) if is_whole else 0
    return max(0, there_ns + misplaced_ns), max(0, back_ns - misplaced_ns)


def _of_one_clock(
    links: Links, times: Sequence[RunTimes], begins_ns: Int64Array, ends_ns: Int64Array
) -> frozenset[int]:
    """Sending stages of links whose two ranks say that they read the same clock, and no result speaks against it."""
    clocks = [times[pp_rank].host_clock for pp_rank in links.rank_of_stage]
    return frozenset(
        stage
        for stage, ways in links.ways.items()
        if clocks[stage] == clocks[stage + 1] != ""
        and all(
            np.min(begins_ns[way.received] - ends_ns[way.sent], initial=_NEVER_NS) >= -_SAME_CLOCK_NS for way in ways
        )
    )


def _no_longer_than_pauses(
    found_ns: _TransfersNs, links: Links, pauses_ns: Int64Array, of_one_clock: Container[int]
) -> _TransfersNs:
    """Transfers that block their senders; between two clocks, what one cannot have taken the other did."""
    limited_ns = dict(found_ns)
    for stage, ways in links.ways.items():
        there, back = way_there(stage), way_back(stage)
        most_there_ns, most_back_ns = (np.min(pauses_ns[way.sent], initial=_NEVER_NS).item() for way in ways)
        if stage not in of_one_clock and {there, back} <= found_ns.keys():
            both_ns = found_ns[there] + found_ns[back]
            limited_ns[there] = max(both_ns / 2, both_ns - most_back_ns)
            limited_ns[back] = both_ns - min(limited_ns[there], most_there_ns)
        for key, most_ns in ((there, most_there_ns), (back, most_back_ns)):
            if key in limited_ns:
                limited_ns[key] = max(0, min(limited_ns[key], most_ns))
    return limited_ns


def clocks_ahead_ns(schedule_text: str, times: Sequence[RunTimes]) -> tuple[int, ...]:
    """Time that each rank's clock is ahead of the first one's: as little as leaves no result before it was made.

    Args:
        schedule_text: The order of all ranks.
        times: (pp_size) of the ranks of one pipeline.

    Returns:
        (pp_size) [ns]; 0 where nothing speaks against it, as on one host.
    """
    links = links_of(schedule_text)
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

    Where calls block or hold pp_ranks up, each microbatch's transfer may delay the iteration: not at full clocks, where
    a stage has time to spare, but under a plan that has given that time away.
    """
    links = links_of(schedule_text)
    most = max((len(way.sent) for ways in links.ways.values() for way in ways), default=1)
    add_up = links.sends_block or links.precedence is not None
    blocking_s = max(_BLOCKING * time_s / most, _LEAST_S) if add_up else time_s
    return min(_MATTERING * time_s, blocking_s)


def have_moved(before: Snapshot, now: Snapshot, least_s: float) -> bool:
    """Whether pipelines' transfers have changed by more than this: one of them, or all together."""
    if before == now:  # as without transfers, where this is asked each second
        return False
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


def _awaited(links: Links, precedence: Precedence, durations_ns: Int64Array) -> list[NDArray[np.bool_]]:
    """Of ``Links.all_ways``, (num_transfers) whether each result is the last that its receiver waits for.

    By a replay of the computations' durations, (num_computations) [ns], in which nothing else takes time.
    """
    lasts_ns = np.zeros(precedence.num_nodes, dtype=np.int64)
    lasts_ns[precedence.computations] = durations_ns
    ends_ns = precedence.ends_ns(lasts_ns)[precedence.computations]
    begins_ns = ends_ns - durations_ns
    return [begins_ns[way.received] <= ends_ns[way.sent] for way in links.all_ways]


def _as_long_as_measured(
    found_ns: _TransfersNs, schedule_text: str, links: Links, begins_ns: Int64Array, ends_ns: Int64Array
) -> _TransfersNs:
    """Transfers with which a replay lasts no longer than the iteration did.

    What was found is never less than a transfer takes, since receivers may wait for other things as well. Where calls
    hold pp_ranks up, transfers that are not known are among them, as the module says.
    """
    known_ns = dict(found_ns) if links.precedence is None else _with_links_alike(found_ns, links)
    if not found_ns:
        return known_ns
    replay = Replay(with_transfers(schedule_text), links.num_computations[0], begins_ns, ends_ns)
    measured_ns = replay.measured_ns

    def fits(transfers_ns: _TransfersNs) -> bool:
        return replay.lasts_ns(transfers_ns) <= (1 + _SAME_LENGTH) * measured_ns

    longest_ns = max(found_ns.values())
    wanted = [*found_ns] if links.precedence is None else links.all_keys
    is_kept = fits(known_ns)
    if is_kept and links.precedence is None:
        return known_ns

    def limited(limit_ns: float) -> _TransfersNs:
        known = known_ns if is_kept else {key: min(ns, limit_ns) for key, ns in known_ns.items()}
        return {key: known.get(key, limit_ns) for key in wanted}

    def raised(least_ns: float) -> _TransfersNs:
        return {key: found_ns.get(key, max(ns, least_ns)) for key, ns in limited(longest_ns).items()}

    def longest_that_fit(transfers: Callable[[float], _TransfersNs], low_ns: float, high_ns: float) -> _TransfersNs:
        low_ns = high_ns if fits(transfers(high_ns)) else low_ns
        while high_ns - low_ns > max(_LEAST_STEP_NS, high_ns / (1 << _HALVINGS)):
            middle_ns = (low_ns + high_ns) / 2
            low_ns, high_ns = (middle_ns, high_ns) if fits(transfers(middle_ns)) else (low_ns, middle_ns)
        return transfers(low_ns)

    found_that_fit_ns = longest_that_fit(limited, 0.0, longest_ns)
    is_explained = replay.lasts_ns(found_that_fit_ns) >= (1 - _UNEXPLAINED) * measured_ns
    if links.precedence is None or is_explained or fits(raised(measured_ns)):
        return found_that_fit_ns
    return longest_that_fit(raised, 0.0, measured_ns)


def _with_links_alike(found_ns: _TransfersNs, links: Links) -> _TransfersNs:
    """Transfers, and as long ones from and to the same two pp_ranks that nothing waited for."""
    pp_ranks: dict[tuple[int, str], tuple[int, ...]] = {}  # (sender, receiver)
    for stage in links.ways:
        pair = links.rank_of_stage[stage : stage + 2]
        pp_ranks |= {way_there(stage): pair, way_back(stage): pair[::-1]}
    known_ns: dict[tuple[int, ...], float] = {}
    for key, ns in found_ns.items():
        known_ns[pp_ranks[key]] = min(ns, known_ns.get(pp_ranks[key], ns))
    alike = {key: known_ns[pair] for key, pair in pp_ranks.items() if pair in known_ns}
    return {**alike, **found_ns}


def _joined(times: Sequence[RunTimes]) -> tuple[Int64Array, Int64Array]:
    """Begins and ends [ns] of all ranks, one after the other."""
    begins_ns = np.concatenate([np.array(one.begins_ns, dtype=np.int64) for one in times])
    return begins_ns, np.concatenate([np.array(one.ends_ns, dtype=np.int64) for one in times])
