"""Ranks that are slower by less than others wait for: a plan that gives away their time to spare is late with them."""

import math
from collections.abc import Mapping

from perseus_dist.planner.job.job import Job
from perseus_dist.planning.frontier.slow_rank import SlowRank

_MOST = 0.05  # more is a straggler, or a wrong profile
_STEP = 0.005
_MAX_CASES = 2


def newly_slow(job: Job, slower: Mapping[int, float], *, beside_replicas: bool = False) -> tuple[SlowRank, ...]:
    """The slightly slow ranks that the next plan is to be on time with, one for each pp_rank at most.

    Args:
        job: With a plan.
        slower: By rank, how much slower than usual its instructions are.
        beside_replicas: Leave out pp_ranks that are slow in all pipelines, for which the profile is to blame.

    Returns:
        The slowest, with those of the plan in force; empty where that knows them all.
    """
    stays = {place.pp_rank for rank, place in job.members.places.items() if rank not in slower}
    judged = {(verdict.dp_rank, verdict.pp_rank) for verdict in job.detection.verdicts}
    known = {slow.pp_rank: slow.factor for slow in job.planning.slightly_slow}
    found = dict(known)
    for rank, excess in slower.items():
        place = job.members.places.get(rank)
        if place is None or excess > _MOST or (beside_replicas and place.pp_rank not in stays):
            continue
        if (place.dp_rank, place.pp_rank) not in judged:
            factor = 1 + _STEP * math.ceil(round(excess / _STEP, 3))
            found[place.pp_rank] = max(factor, found.get(place.pp_rank, 1.0))
    slowest = sorted(found, key=found.__getitem__, reverse=True)[:_MAX_CASES]
    if all(found[pp_rank] <= known.get(pp_rank, 1.0) for pp_rank in slowest):
        return ()
    return tuple(SlowRank(pp_rank=pp_rank, factor=found[pp_rank]) for pp_rank in sorted(slowest))
