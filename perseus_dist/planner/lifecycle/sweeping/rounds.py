"""The rounds of a series: the clocks of the first, and then those where the curves are still uncertain."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, median

from perseus_dist.messages.from_agent import GpuSample
from perseus_dist.planner.job.facts.sweeps import SweepBegun
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.state.profiling import Profiling
from perseus_dist.planner.lifecycle.sweeping.next_clocks import MeasuredCurve, first_clocks, next_clocks
from perseus_dist.planner.lifecycle.sweeping.replica_shares import clocks_of_a_step, shares
from perseus_dist.planner.lifecycle.sweeping.witnesses import (
    believed_ranks,
    curves,
    of_newest_state,
    partly_measured,
    witnesses,
)
from perseus_dist.planning.profile.between_clocks import slow_points
from perseus_dist.straggler.evidence.gpu_evidence import THROTTLE_REASONS
from perseus_dist.straggler.layout import RankCoords

Steps = dict[int, tuple[int, ...]]
"""By rank, its clock [MHz] in each step, descending."""

_UNSTEADY_SHARE = 0.003  # of a time, as its standard error
_UNSTEADY_TIMES = 3.0
_NUM_HELD_ROUNDS = 3  # in which heat keeps a stage from the maximum clock, before it is taken to last


def settable_clocks_mhz(job: Job, ranks: Iterable[int]) -> tuple[int, ...]:
    """[MHz] clocks that all these ranks can be set to, descending: plans may ask for each of them."""
    menus = {job.members.ranks[rank].gpu.clocks_mhz for rank in ranks}
    return tuple(sorted(set.intersection(*map(set, menus)), reverse=True)) if menus else ()


def menus_mhz(job: Job, ranks: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """By pp_rank, the clocks [MHz] that all of these ranks that run it can be set to, descending.

    Stages can be on GPUs of different models. The clocks are thinned out to those that a sweep may measure at: the
    stride is a whole number of clocks, and the maximum is always there.
    """
    of_stages: defaultdict[int, list[int]] = defaultdict(list)
    for rank in ranks:
        of_stages[job.members.places[rank].pp_rank].append(rank)
    found = {pp_rank: settable_clocks_mhz(job, of_stage) for pp_rank, of_stage in sorted(of_stages.items())}
    most = job.policy.max_sweep_clocks
    return {pp_rank: menu[:: max(1, math.ceil(len(menu) / most))] for pp_rank, menu in found.items()}


def first_round(job: Job, ranks: Collection[int]) -> Steps:
    """Who measures which clocks at first: all of them their maximum, and each replica of a stage some others.

    Args:
        job: Whose ranks are attached.
        ranks: Who can set clocks.
    """
    replicas = _replicas(job, ranks)
    width = min((clocks_of_a_step(len(of_stage)) for of_stage in replicas.values()), default=1)
    num_steps = math.ceil((job.policy.num_first_clocks - 1) / max(width, 1))
    num_clocks = min(1 + num_steps * width, max(job.policy.num_first_clocks, job.policy.max_measured_clocks - 1))
    chosen = {pp_rank: first_clocks(menu, num_clocks) for pp_rank, menu in menus_mhz(job, ranks).items()}
    steps = _shared(replicas, {pp_rank: clocks[1:] for pp_rank, clocks in chosen.items()}, {})
    return {rank: (*chosen[job.members.places[rank].pp_rank][:1], *own) for rank, own in steps.items()}


def next_round(job: Job, series: int) -> Steps:
    """Who measures what next, of those that are attached; nothing where the profile is good enough.

    What a replica measured that is not believed, or left out, is measured again by others; so are clocks at which a
    single measurement was disturbed, or has missed a computation. All begin with their maximum clock, which shows if
    they are what they were. A stage all of whose GPUs heat keeps from that clock is measured at the highest that they
    reach: plans that know no clock so high would be slow. Heat may be over by the third round, which asks for the
    maximum clock once more.

    Args:
        job: With all the samples that were asked for.
        series: Of the sweep.
    """
    of_series = [ordered for ordered in job.profiling.sweeps.values() if ordered.series == series]
    places, of_all_states = job.members.places, job.profiling.samples.get(series, {})
    taken = of_newest_state(of_all_states)
    setters = [
        rank
        for rank in job.profiling.sweeps[series].ranks
        if rank in job.members.rank_of_stream.values() and job.members.ranks[rank].can_set_clocks
    ]
    believed = believed_ranks(taken, places)
    replicas = _replicas(job, [rank for rank in setters if rank in believed])
    powers_w = [one.samples.blocking_power_w for rank in taken for one in taken[rank] if one.samples.blocking_power_w]
    of_stages = curves(taken, places, believed, fmean(powers_w) if powers_w else 0.0)
    seen = witnesses(taken, places, believed)
    ever_seen = witnesses(of_all_states, places, believed)
    num_round = max(ordered.num_round for ordered in of_series)
    menus = menus_mhz(job, setters)
    found: Steps = {}
    for menu_mhz in dict.fromkeys(menus.values()):
        alike = {pp_rank: of_stage for pp_rank, of_stage in replicas.items() if menus[pp_rank] == menu_mhz}
        ordered_mhz = _ordered_mhz(of_series, menus, menu_mhz, places)
        chosen = next_clocks(
            menu_mhz,
            [curve for pp_rank in alike for curve in of_stages.get(pp_rank, ())],
            max_doubt=job.policy.max_saving_doubt,
            num_clocks=max(0, job.policy.max_measured_clocks - len(ordered_mhz)),
        )
        lowest_mhz = max((min(ever_seen[pp_rank]) for pp_rank in alike if pp_rank in ever_seen), default=0)
        asked_mhz = {clock for clock in ordered_mhz if clock >= lowest_mhz}.union(chosen)
        highest_mhz = max(ordered_mhz, default=menu_mhz[0])
        held_mhz = {
            pp_rank: _held_back_to(job, of_stage)
            for pp_rank, of_stage in alike.items()
            if highest_mhz not in seen.get(pp_rank, {})
        }
        wanted = {
            pp_rank: _up_to(held_mhz.get(pp_rank, 0), asked_mhz) - seen.get(pp_rank, {}).keys()
            | _disturbed_once(of_stages.get(pp_rank, ()), seen.get(pp_rank, {}))
            | ({highest_mhz} if held_mhz.get(pp_rank) and num_round < _NUM_HELD_ROUNDS else set())
            for pp_rank in alike
        }
        steps = _shared(alike, {pp_rank: clocks - {highest_mhz} for pp_rank, clocks in wanted.items()}, seen)
        is_unseen = [
            rank for rank in setters if highest_mhz in wanted.get(places[rank].pp_rank, ()) and rank in believed
        ]
        found |= {rank: (highest_mhz, *steps.get(rank, ())) for rank in sorted({*steps, *is_unseen})}
    return found


def _ordered_mhz(
    of_series: Sequence[SweepBegun],
    menus: Mapping[int, tuple[int, ...]],
    menu_mhz: tuple[int, ...],
    places: Mapping[int, RankCoords],
) -> set[int]:
    """[MHz] what a series has asked of the stages that choose from this menu."""
    if len(set(menus.values())) == 1:
        return set().union(*(ordered.clocks_mhz for ordered in of_series))
    return {
        clock
        for ordered in of_series
        for rank, clocks in ordered.clocks_by_rank().items()
        if rank in places and menus.get(places[rank].pp_rank) == menu_mhz
        for clock in clocks
    }


def are_partly_measured(job: Job, series: int, steps: Steps) -> bool:
    """Whether some of these clocks, beside the highest that all begin with, were held and missed a computation."""
    partly_mhz = partly_measured(of_newest_state(job.profiling.samples.get(series, {})), job.members.places)
    return any(
        clock in partly_mhz.get(job.members.places[rank].pp_rank, ()) for rank in steps for clock in steps[rank][1:]
    )


def note_reading(profiling: Profiling, rank: int, reading: GpuSample) -> None:
    """Note which clock a rank reaches at full clocks of the sweep under way, where heat keeps it below."""
    if profiling.sweep is None:
        return
    highest_mhz = max(profiling.sweep.ordered.clocks_of(rank), default=0)
    if 0 < reading.requested_mhz < highest_mhz:
        return
    if reading.clock_mhz < highest_mhz and reading.event_reasons & THROTTLE_REASONS:
        profiling.reached_mhz[rank] = reading.clock_mhz
    else:
        profiling.reached_mhz.pop(rank, None)


def _replicas(job: Job, ranks: Iterable[int]) -> dict[int, dict[int, list[int]]]:
    """By pp_rank, by dp_rank, the ranks of its tensor-parallel group."""
    found: defaultdict[int, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank in ranks:
        place = job.members.places[rank]
        found[place.pp_rank][place.dp_rank if job.policy.shares_sweep else 0].append(rank)
    return {pp_rank: dict(of_stage) for pp_rank, of_stage in found.items()}


def _shared(
    replicas: Mapping[int, Mapping[int, Sequence[int]]],
    clocks_mhz: Mapping[int, Iterable[int]],
    seen: Mapping[int, Mapping[int, Collection[int]]],
) -> Steps:
    steps: Steps = {}
    for pp_rank, of_stage in replicas.items():
        for dp_rank, own in shares(clocks_mhz[pp_rank], sorted(of_stage), seen.get(pp_rank, {})).items():
            steps |= dict.fromkeys(of_stage[dp_rank], own)
    return steps


def _held_back_to(job: Job, of_stage: Mapping[int, Sequence[int]]) -> int:
    """[MHz] the highest clock that a replica of a stage reaches, if heat keeps all from the maximum; else 0."""
    reached_mhz, reached = [], job.profiling.reached_mhz
    for ranks in of_stage.values():
        least_mhz = min(reached.get(rank, math.inf) for rank in ranks)
        if least_mhz == math.inf:
            return 0
        reached_mhz.append(max((clock for clock in settable_clocks_mhz(job, ranks) if clock <= least_mhz), default=0))
    return max(reached_mhz, default=0)


def _up_to(held_mhz: int, clocks_mhz: Collection[int]) -> set[int]:
    """Those clocks that a stage reaches, and the highest of all [MHz] that it does; 0 where it is not held back."""
    return {clock for clock in clocks_mhz if clock <= held_mhz} | {held_mhz} if held_mhz else set(clocks_mhz)


def _disturbed_once(of_stage: Iterable[MeasuredCurve], seen: Mapping[int, Counter[int]]) -> set[int]:
    """Clocks [MHz] measured once, where a computation was slower than its times at other clocks allow, or unsteady.

    A second measurement of the same replica says as much as one of another: a disturbance may be over.
    """
    disturbed = {
        curve.clocks_mhz[i]
        for curve in of_stage
        for i in slow_points(curve.clocks_mhz, curve.times_s, curve.time_errors_s) | _unsteady(curve)
    }
    return {clock for clock in disturbed if sum(seen.get(clock, {}).values()) == 1}


def _unsteady(curve: MeasuredCurve) -> set[int]:
    """Indices of clocks at which runs scattered much more than at others: some of them were disturbed."""
    shares = [error_s / time_s for error_s, time_s in zip(curve.time_errors_s, curve.times_s, strict=True)]
    usual = median(shares)
    return {i for i, share in enumerate(shares) if share > max(_UNSTEADY_SHARE, _UNSTEADY_TIMES * usual)}
