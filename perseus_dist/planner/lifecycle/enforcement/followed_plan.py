"""The plans that a switch puts in force, in the terms of the count of joules saved."""

import csv
from functools import lru_cache
from hashlib import blake2b
from io import StringIO

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.predicted_saving import energies_uj, followed_frontiers
from perseus_dist.planner.job.saving.followed import Followed
from perseus_dist.planner.job.state.planning import JobPlan
from perseus_dist.units import PS_PER_S, UJ_PER_J, UW_PER_W


def followed_plan(job: Job) -> Followed | None:
    """By the switch in force; None where that is all-maximum clocks for every pipeline, or no plan."""
    if job.plan is None or job.switch is None or NO_POINT in job.switch.points:
        return None
    switch = job.switch
    followed = list(zip(followed_frontiers(job, job.plan, switch), switch.points, strict=True))
    if all(
        (one.planned_ps(point), one.planned_uj(point)) == (one.baseline_time_ps, one.baseline_uj)
        for one, point in followed
    ) and _reaches_full_clocks(job, job.plan):
        return None
    planned_uj, baseline_uj = energies_uj(job)
    # A deadline, or an operator's word that pipelines wait for, sets how long iterations last, whatever they would at
    # full clocks.
    is_set = job.target.deadline_s is not None or (bool(job.stragglers) and switch.t_prime_s > 0)
    t_prime_ps = round(switch.t_prime_s * PS_PER_S)  # a straggler takes as long at full clocks
    planned_ps = max(t_prime_ps, *(one.planned_ps(point) for one, point in followed))
    full_ps = max(t_prime_ps, *(one.baseline_time_ps for one, _ in followed))
    directives = (switch.table_revision, switch.points, switch.own_revisions, is_set)
    return Followed(
        key=blake2b(repr(directives).encode(), digest_size=12).hexdigest(),
        time_s=planned_ps / PS_PER_S,
        stretch=0.0 if is_set else planned_ps / full_ps,
        rate_j=(baseline_uj - planned_uj) / UJ_PER_J,
        energy_j=planned_uj / UJ_PER_J,
        waiting_w=len(switch.points) * job.plan.summary.total_blocking_uw / UW_PER_W,
        is_waiting=switch.t_prime_s > 0 and not is_set,
        is_around_slow=any(switch.own_revisions) or any(point == one.full_point for one, point in followed),
    )


def _reaches_full_clocks(job: Job, plan: JobPlan) -> bool:
    """Whether the profile knows the highest clock of every GPU.

    A GPU that was held back throughout the sweep, as by heat, is planned at what it reached then. It draws less than at
    full clocks once it is free.
    """
    highest_mhz = {max(state.gpu.clocks_mhz) for state in job.members.ranks.values() if state.gpu.clocks_mhz}
    return not highest_mhz or _profiled_mhz(plan.profile_csv) <= highest_mhz


@lru_cache(maxsize=8)
def _profiled_mhz(profile_csv: bytes) -> frozenset[int]:
    """[MHz] the highest clock of each stage, of all of them."""
    highest: dict[str, int] = {}
    for row in csv.DictReader(StringIO(profile_csv.decode())):
        highest[row["stage"]] = max(int(row["frequency"] or 0), highest.get(row["stage"], 0))
    return frozenset(highest.values())
