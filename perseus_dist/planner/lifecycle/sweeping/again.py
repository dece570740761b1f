"""Sweeps that a job orders beyond its first: of stages whose profile is wrong, or of blocking power alone."""

from collections.abc import Collection

from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import Effect
from perseus_dist.planner.lifecycle.sweeping.rounds import menus_mhz
from perseus_dist.planner.lifecycle.sweeping.sweep import begin_series

MIN_CLOCKS = 2
"""Fewer clocks are no choice."""


def measure_again(job: Job, pp_ranks: Collection[int], now_s: float, why: str) -> list[Effect]:
    """Sweep the ranks of some stages; nothing where they have no choice of clocks, or see no instructions."""
    if not job.sees_instructions:
        return []
    concerned = [
        rank for rank, state in job.members.ranks.items() if state.rank.pp_rank in pp_ranks and state.stream is not None
    ]
    setters = [rank for rank in concerned if job.members.ranks[rank].can_set_clocks]
    menus = menus_mhz(job, setters).values()
    if min(map(len, menus), default=0) < MIN_CLOCKS:
        return []
    job.enforcement.forget_drifts()
    job.enforcement.dropped.clear()
    job.enforcement.dropped_reference_s = None
    job.profiling.reprofiled_at_s = now_s
    job.enforcement.guard.begin_sweep()
    job.enter(Phase.REPROFILING, why)
    others = [rank for rank in concerned if not job.members.ranks[rank].can_set_clocks]
    least_mhz = min(max(menu) for menu in menus)
    return begin_series(job, setters, dict.fromkeys(others, least_mhz), now_s, is_profile=True)


def measure_blocking_power(job: Job, now_s: float, why: str) -> list[Effect]:
    """Have all ranks hold full clocks for a while, each its own; nothing where some are away, or none can set clocks.

    Those of a stage whose clocks cannot be set hold the least of the others' maxima.
    """
    setters = [rank for rank, state in job.members.ranks.items() if state.can_set_clocks]
    highest_mhz = {pp_rank: menu[0] for pp_rank, menu in menus_mhz(job, setters).items() if menu}
    if job.num_attached < job.num_ranks or not highest_mhz or not job.sees_instructions:
        return []
    least_mhz = min(highest_mhz.values())
    held_mhz = {rank: highest_mhz.get(one.rank.pp_rank, least_mhz) for rank, one in job.members.ranks.items()}
    job.profiling.held_back_s = 0.0
    job.enter(Phase.PROFILING if job.plan is None else Phase.REPROFILING, why)
    return begin_series(job, [], held_mhz, now_s, is_profile=False)
