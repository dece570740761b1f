"""The plans that a switch puts in force, in the terms of the count of joules saved."""

from perseus_dist.messages.terms import NO_POINT
from perseus_dist.planner.job.job import Job
from perseus_dist.planner.job.predicted_saving import energies_uj, followed_frontiers
from perseus_dist.planner.job.saving_level import Followed
from perseus_dist.planner.lifecycle.enforcement.plan_choice import target_point
from perseus_dist.units import UJ_PER_J


def followed_plan(job: Job) -> Followed | None:
    """By the switch in force; None where that is all-maximum clocks for every pipeline, or no plan."""
    if job.plan is None or job.switch is None or NO_POINT in job.switch.points:
        return None
    switch, summary = job.switch, job.plan.summary
    followed = zip(followed_frontiers(job, job.plan, switch), switch.points, strict=True)
    if all(
        (one.time_ps[point], one.total_uj[point]) == (one.baseline_time_ps, one.baseline_uj) for one, point in followed
    ):
        return None
    planned_uj, baseline_uj = energies_uj(job)
    # A deadline, or an operator's word, sets how long iterations last, whatever they would at full clocks.
    is_set = job.target.deadline_s is not None or bool(job.stragglers)
    target_ps = summary.time_ps[target_point(job, summary)]
    return Followed(
        key=(switch.table_revision, switch.points, switch.own_revisions),
        stretch=0.0 if is_set else target_ps / summary.baseline_time_ps,
        rate_j=(baseline_uj - planned_uj) / UJ_PER_J,
        is_waiting=switch.t_prime_s > 0 and not is_set,
    )
