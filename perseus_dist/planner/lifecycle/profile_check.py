"""The profile against the job: iterations at full clocks cannot be shorter than the profile says that they are."""

import math

from perseus_dist.planner.job.job import Job
from perseus_dist.units import PS_PER_S

_TOO_SLOW_SHARE = 0.01
_Z = 3.0


def doubt(job: Job) -> str:
    """Why the profile must be measured again; empty where nothing speaks for it, or where it has been in this run.

    What a profile does not know, such as transfers, makes iterations longer than it says. If they are shorter, GPUs
    were slow when the highest clocks were measured, on all replicas alike, as under a power limit of a whole node.
    """
    full = job.saving.full
    if job.plan is None or full is None or not full.num_iterations or job.reprofiled_at_s is not None or job.stragglers:
        return ""
    modelled_s = job.plan.summary.baseline_time_ps / PS_PER_S
    noise = job.guard.guard.noise / math.sqrt(full.num_iterations)
    if modelled_s <= (1 + _TOO_SLOW_SHARE + _Z * noise) * full.time_s:
        return ""
    return (
        f"iterations at full clocks take {full.time_s:.4f} s, and {modelled_s:.4f} s by the profile, which was "
        "measured while GPUs were slow: sweeping all ranks again"
    )
