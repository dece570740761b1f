"""Sweeps that a job orders beyond its first: of stages whose profile is wrong, or of blocking power alone."""

from collections.abc import Collection

from perseus_dist.planner.job.job import Job, Phase
from perseus_dist.planner.lifecycle.events import Effect
from perseus_dist.planner.lifecycle.sweeping.rounds import menus_mhz, settable_clocks_mhz
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
    return begin_series(job, min(max(menu) for menu in menus), setters, others, now_s, is_profile=True)


def measure_blocking_power(job: Job, now_s: float, why: str) -> list[Effect]:
    """Have all ranks hold full clocks for a while; nothing where some are away, or none can set clocks."""
    setters = [rank for rank, state in job.members.ranks.items() if state.can_set_clocks]
    clocks_mhz = settable_clocks_mhz(job, setters)
    if job.num_attached < job.num_ranks or not clocks_mhz or not job.sees_instructions:
        return []
    job.profiling.held_back_s = 0.0
    job.enter(Phase.PROFILING if job.plan is None else Phase.REPROFILING, why)
    return begin_series(job, clocks_mhz[0], [], job.members.ranks, now_s, is_profile=False)
