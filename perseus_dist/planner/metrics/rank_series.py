"""Series that sum up a job's ranks, in one pass over them: there may be thousands."""

from collections import Counter, defaultdict

from perseus_dist.planner.job.job import Job
from perseus_dist.planner.metrics import catalogue
from perseus_dist.planner.metrics.page import Page
from perseus_dist.straggler.evidence.gpu_evidence import REASON_POWER_CAP, THROTTLE_REASONS

MAX_STAGES = 64
"""Of a job; one with more has no series of its stages at all, since a part of them would mislead."""

_HZ_PER_MHZ = 1_000_000
_SLOWED = THROTTLE_REASONS & ~REASON_POWER_CAP  # at its power cap a GPU may well be all the time


def add_ranks(page: Page, job: Job) -> None:
    """Add clocks and power by stage, control, and what agents have missed."""
    controls: Counter[str] = Counter()
    clocks_mhz: defaultdict[int, list[int]] = defaultdict(list)
    powers_w: defaultdict[int, list[float]] = defaultdict(list)
    missed = lost = throttled = 0
    for state in job.members.ranks.values():
        missed += state.missed_clocks
        lost += state.lost_boundaries
        if state.stream is None:
            continue
        controls[state.control] += 1
        reading, pp_rank = state.gpu_reading, state.rank.pp_rank
        if reading.clock_mhz:
            clocks_mhz[pp_rank].append(reading.clock_mhz)
            throttled += bool(reading.event_reasons & _SLOWED)
        if state.gpu_sample.power_w > 0:
            powers_w[pp_rank].append(state.gpu_sample.power_w)
    name = job.job_id
    page.add(catalogue.MISSED_CLOCKS, missed, name)
    page.add(catalogue.LOST_BOUNDARIES, lost, name)
    page.add(catalogue.THROTTLED, throttled, name)
    for control, num in sorted(controls.items()):
        page.add(catalogue.CONTROLLED, num, name, control)
    if job.spec is None or job.spec.pp_size > MAX_STAGES:
        return
    for pp_rank, read_mhz in sorted(clocks_mhz.items()):
        page.add(catalogue.STAGE_CLOCK, _HZ_PER_MHZ * sum(read_mhz) / len(read_mhz), name, str(pp_rank))
    for pp_rank, read_w in sorted(powers_w.items()):
        page.add(catalogue.STAGE_POWER, sum(read_w) / len(read_w), name, str(pp_rank))
