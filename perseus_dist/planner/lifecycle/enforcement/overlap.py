"""Iterations that overlap: a rank that ends early begins the next one while others still compute.

torch's pipelining leaves it to the script whether ranks wait for one another between iterations, as they do to clip
gradients by their norm over all stages; the other frameworks' loops always do.
"""

from perseus_dist.planner.job.job import Job
from perseus_dist.units import PS_PER_S

_WITHOUT_BARRIER = frozenset({"torch.distributed.pipelining"})
_LEAST_SHARE = 0.005  # of what the profile predicts, by which iterations are shorter


def full_s_to_plan(job: Job) -> float:
    """[s] of an iteration at full clocks, where it tells whether iterations overlap; 0 before it is known."""
    baseline, known = job.measured.baseline, job.members.fingerprints.get(0)
    if baseline is None or known is None or known.fingerprint.workload.framework not in _WITHOUT_BARRIER:
        return 0.0
    return baseline.time_s


def overlap_is_new(job: Job) -> str:
    """Why to plan again where full clocks have been measured since the plan was asked for; empty if none is needed.

    Plans for one iteration alone spend the time by which ranks are ahead of one another.
    """
    if job.plan is None or job.plan.summary.gained_ps or job.planning.full_s or job.planning.pending is not None:
        return ""
    full_s, alone_s = full_s_to_plan(job), job.plan.summary.baseline_time_ps / PS_PER_S
    if not full_s or full_s >= (1 - _LEAST_SHARE) * alone_s:
        return ""
    return (
        f"iterations at full clocks take {1e3 * (alone_s - full_s):.1f} ms less than one takes alone: planning for "
        "iterations that overlap"
    )
