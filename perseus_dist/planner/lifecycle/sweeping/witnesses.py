"""Samples of a series by stage, and which ranks are believed.

All replicas of a stage measure the maximum clock. One that is slower there than the fastest was disturbed, or is a
straggler: what it measures at other clocks, perhaps alone, is not believed either. Each round measures the maximum
clock again: where a rank takes another time there than before, its earlier samples are of another state.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from perseus_dist.messages.from_agent import Sample
from perseus_dist.planner.job.state.profiling import TakenSamples
from perseus_dist.planner.lifecycle.sweeping.next_clocks import MeasuredCurve
from perseus_dist.planning.profile.samples import ALIKE_SHARE, ALIKE_SIGMAS
from perseus_dist.planning.schedule.instruction import Kind
from perseus_dist.straggler.layout import RankCoords

_COMPUTATIONS = frozenset(Kind)
_SLOW_SHARE = 0.01  # of all computations of a rank; others do not measure the same for it

TakenOfRanks = Mapping[int, Sequence[TakenSamples]]
"""By rank, in the order of arrival."""


def of_newest_state(taken: Mapping[int, list[TakenSamples]]) -> dict[int, list[TakenSamples]]:
    """The samples of each rank since it was last found to have become faster or slower at the maximum clock.

    What it measured before it first measured the maximum clock, as where that step of a sweep was lost, may be of
    another state.

    Args:
        taken: The samples of a series.
    """
    return {rank: _of_newest_state(samples) for rank, samples in taken.items()}


def believed_ranks(taken: TakenOfRanks, places: Mapping[int, RankCoords]) -> frozenset[int]:
    """Ranks that were not clearly slower at their stage's maximum clock than a replica: at least one of each stage.

    Args:
        taken: The samples of a series.
        places: Where its ranks stand.
    """
    highest_mhz: Counter[tuple[int, int]] = Counter()  # stages may be on GPUs of different models
    for rank in taken.keys() & places.keys():
        key = (places[rank].pp_rank, places[rank].tp_rank)
        highest_mhz[key] = max(highest_mhz[key], *(one.clock_mhz for one in taken[rank]), 0)
    at_max: defaultdict[tuple[int, int], defaultdict[int, dict[tuple[int, str], Sample]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for rank, sample in _computations(taken, places):
        place = places[rank]
        if sample.clock_mhz == highest_mhz[place.pp_rank, place.tp_rank]:
            at_max[place.pp_rank, place.tp_rank][rank][sample.chunk, sample.kind] = sample
    slow: set[int] = set()
    for of_ranks in at_max.values():
        kinds = set.intersection(*map(set, of_ranks.values()))
        totals = {rank: _total([of_kinds[kind] for kind in kinds]) for rank, of_kinds in of_ranks.items()}
        least_s, least_error_s = min(totals.values())
        slow |= {
            rank
            for rank, (time_s, error_s) in totals.items()
            if time_s > (1 + _SLOW_SHARE) * least_s + ALIKE_SIGMAS * math.hypot(error_s, least_error_s)
        }
    return frozenset(rank for rank in taken if rank in places and rank not in slow)


def witnesses(
    taken: TakenOfRanks, places: Mapping[int, RankCoords], ranks: Iterable[int]
) -> dict[int, dict[int, Counter[int]]]:
    """By pp_rank, by clock [MHz], the dp_ranks of those of these ranks that have measured at it, and how often.

    Only what tells of every computation that the pp_rank has, as it was measured at some clock, counts. Ranks of a
    tensor-parallel group measure together, once: a disturbance of one is in the times of all.
    """
    wanted = _computations_of_stages(taken, places)
    found: defaultdict[int, defaultdict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for rank in ranks:
        place, of_rank = places[rank], Counter[int]()
        for one in taken.get(rank, ()):
            told = {(sample.chunk, sample.kind) for sample in one.samples.samples}
            if wanted[place.pp_rank] and wanted[place.pp_rank] <= told:
                of_rank[one.clock_mhz] += 1
        for clock_mhz, num_times in of_rank.items():
            of_replicas = found[place.pp_rank][clock_mhz]
            of_replicas[place.dp_rank] = max(of_replicas[place.dp_rank], num_times)
    return {pp_rank: dict(of_clocks) for pp_rank, of_clocks in found.items()}


def partly_measured(taken: TakenOfRanks, places: Mapping[int, RankCoords]) -> dict[int, set[int]]:
    """By pp_rank, clocks [MHz] at which a rank has measured some of its computations, and missed others.

    Args:
        taken: The samples of a series.
        places: Where its ranks stand.
    """
    wanted = _computations_of_stages(taken, places)
    found: defaultdict[int, set[int]] = defaultdict(set)
    for rank in taken.keys() & places.keys():
        pp_rank = places[rank].pp_rank
        for one in taken[rank]:
            told = {(sample.chunk, sample.kind) for sample in one.samples.samples} & wanted[pp_rank]
            if told and told < wanted[pp_rank]:
                found[pp_rank].add(one.clock_mhz)
    return dict(found)


def curves(
    taken: TakenOfRanks, places: Mapping[int, RankCoords], ranks: Iterable[int], blocking_power_w: float
) -> dict[int, list[MeasuredCurve]]:
    """By pp_rank, the curves of its computations as these ranks have measured them.

    Args:
        taken: The samples of a series.
        places: Where its ranks stand.
        ranks: Those that are believed.
        blocking_power_w: [W] of one GPU.
    """
    rows: defaultdict[tuple[int, int, str], defaultdict[int, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for rank, sample in _computations({rank: taken[rank] for rank in ranks if rank in taken}, places):
        rows[places[rank].pp_rank, sample.chunk, sample.kind][sample.clock_mhz].append(sample)
    found: defaultdict[int, list[MeasuredCurve]] = defaultdict(list)
    for (pp_rank, _, _), of_clocks in sorted(rows.items()):
        found[pp_rank].append(_curve(of_clocks, blocking_power_w))
    return dict(found)


def _of_newest_state(taken: list[TakenSamples]) -> list[TakenSamples]:
    highest_mhz = max((one.clock_mhz for one in taken), default=0) or -1  # the clock of a saved profile is 0
    kept: list[TakenSamples] = []
    before: dict[tuple[int, str], Sample] = {}
    for one in taken:
        if one.clock_mhz == highest_mhz:
            now = {
                (sample.chunk, sample.kind): sample for sample in one.samples.samples if sample.kind in _COMPUTATIONS
            }
            common = before.keys() & now.keys()
            was_s, was_error_s = _total(before[key] for key in common)
            time_s, error_s = _total(now[key] for key in common)
            has_changed = abs(time_s - was_s) > _SLOW_SHARE * was_s + ALIKE_SIGMAS * math.hypot(error_s, was_error_s)
            is_first = all(other.clock_mhz != highest_mhz for other in kept)
            if is_first or (common and has_changed):
                kept = []
            before = now or before
        kept.append(one)
    return kept if len(kept) < len(taken) else taken


def _curve(of_clocks: Mapping[int, Sequence[Sample]], blocking_power_w: float) -> MeasuredCurve:
    points = []
    for clock_mhz in sorted(of_clocks, reverse=True):
        least = min(of_clocks[clock_mhz], key=lambda sample: sample.time_s)
        alike = [sample for sample in of_clocks[clock_mhz] if not _is_slower(sample, least)]
        root = math.sqrt(len(alike))
        points.append(
            (
                clock_mhz,
                fmean(sample.time_s for sample in alike),
                fmean(sample.energy_j for sample in alike),
                fmean(sample.time_std_s / math.sqrt(max(sample.num_runs, 1)) for sample in alike) / root,
                fmean(sample.energy_std_j for sample in alike) / root,
            )
        )
    clocks, times, energies, time_errors, energy_errors = zip(*points, strict=True)
    return MeasuredCurve(
        clocks_mhz=clocks,
        times_s=times,
        energies_j=energies,
        time_errors_s=time_errors,
        energy_errors_j=energy_errors,
        blocking_power_w=blocking_power_w,
    )


def _computations_of_stages(
    taken: TakenOfRanks, places: Mapping[int, RankCoords]
) -> defaultdict[int, set[tuple[int, str]]]:
    """By pp_rank, the chunk and the kind of every computation that was measured at some clock."""
    found: defaultdict[int, set[tuple[int, str]]] = defaultdict(set)
    for rank, sample in _computations(taken, places):
        found[places[rank].pp_rank].add((sample.chunk, sample.kind))
    return found


def _computations(taken: TakenOfRanks, places: Mapping[int, RankCoords]) -> Iterator[tuple[int, Sample]]:
    for rank, samples in taken.items():
        if rank in places:
            for one in samples:
                for sample in one.samples.samples:
                    if sample.kind in _COMPUTATIONS:
                        yield rank, sample


def _total(samples: Iterable[Sample]) -> tuple[float, float]:
    """[s] the sum of times, and its standard error."""
    together = list(samples)
    return (
        sum(sample.time_s for sample in together),
        math.sqrt(sum(sample.time_std_s**2 / max(sample.num_runs, 1) for sample in together)),
    )


def _is_slower(sample: Sample, least: Sample) -> bool:
    """As ``planning.profile.samples.undisturbed`` judges rows."""
    std_s = min((one.time_std_s for one in (sample, least) if one.num_runs > 1), default=0.0)
    error_s = std_s * math.sqrt(sum(1 / max(one.num_runs, 1) for one in (sample, least)))
    return sample.time_s > (1 + ALIKE_SHARE) * least.time_s + ALIKE_SIGMAS * error_s
